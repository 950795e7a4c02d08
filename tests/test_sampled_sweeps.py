"""Sampled rows in studies, on the command line, and with tokens that are made block by block."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from critattn import tokens
from critattn.cli import main
from critattn.errors import DomainError, SpecError
from critattn.sweeps import SweepSpec, run_sweep
from critattn.sweeps.evaluation import evaluate, layout_of, make_tokens
from critattn.thresholds import log_n_softmax, measure_thresholds
from critattn.tokens import TokenStream

AXES = {"n": [300], "d": [8], "rho": [0.4], "gamma": [0.5, 1.5, 2.5]}


def spec(**changes):
    table = {"observables": ["self_weight", "angle_ratio"], "axes": AXES, "sample_rows": 60, **changes}
    return SweepSpec.from_table({key: value for key, value in table.items() if value is not None})


def invoke(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.mark.slow
def test_a_sampled_study_has_standard_errors_that_hold(tmp_path):
    data = run_sweep(spec(axes={**AXES, "replicates": 12}), tmp_path / "sampled")
    exact = run_sweep(spec(axes={**AXES, "replicates": 12}, sample_rows=None), tmp_path / "exact")
    for name in ("self_weight", "angle_ratio"):
        deviation = (data[name] - exact[name]) / data[f"{name}_se"]
        assert np.isnan(exact[f"{name}_se"]).all()
        assert np.abs(deviation).max() < 5
        assert 0.5 < float(np.sqrt((deviation**2).mean())) < 1.6


def test_the_sample_is_part_of_the_identity_only_where_there_is_one():
    assert "sample_rows" not in spec(sample_rows=None).identity()
    assert spec(sample_rows=60).hash != spec(sample_rows=61).hash != spec(sample_rows=None).hash
    for one in (spec(), spec(sample_rows=None)):
        assert SweepSpec.from_identity(json.loads(one.canonical())).hash == one.hash


def test_many_tokens_are_made_block_by_block_and_are_the_same(monkeypatch):
    whole = evaluate(spec(), next(layout_of(spec()).units()))
    assert not isinstance(make_tokens(spec(), next(layout_of(spec()).units())), TokenStream)
    monkeypatch.setattr("critattn.sweeps.spec.STREAM_ABOVE", 299)
    unit = next(layout_of(spec()).units())
    assert isinstance(make_tokens(spec(), unit), TokenStream)
    np.testing.assert_allclose(evaluate(spec(), unit), whole, rtol=1e-11)


@pytest.mark.slow
def test_a_stream_has_the_thresholds_of_its_tokens():
    stream = tokens.stream_near_simplex(3, 500, 8, rho=0.3)
    there = tokens.near_simplex(3, 500, 8, rho=0.3)
    names = ["half_weight", "common_ratio", "effective_rho"]
    one = measure_thresholds(log_n_softmax, stream, names, sample_rows=80, seed=5)
    other = measure_thresholds(log_n_softmax, there, names, sample_rows=80, seed=5)
    assert one["common_ratio"].critical == pytest.approx(other["common_ratio"].critical, rel=1e-14)
    assert one["effective_rho"].critical == pytest.approx(other["effective_rho"].critical, rel=1e-12)
    # the stream continues its curve to 1e-4 of the range, a self weight between 0 and 1
    assert one["half_weight"].critical == pytest.approx(other["half_weight"].critical, rel=1e-3)
    with pytest.raises(DomainError, match="half_angle"):
        measure_thresholds(log_n_softmax, there, ["half_angle"], sample_rows=80)
    with pytest.raises(DomainError, match="stream"):
        measure_thresholds(log_n_softmax, stream, ["row_disorder"])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sample_rows": 1}, "sample_rows = 1; allowed: a whole number >= 2"),
        ({"sample_rows": 301}, "sample_rows: 301; allowed: 2 to the smallest n = 300"),
        ({"axes": {key: AXES[key] for key in ("n", "d", "rho")}, "observables": ["half_angle"]}, "half_angle"),
        ({"attention": {"layers": 2}, "observables": ["cosine"]}, "sample_rows"),
        ({"axes": {**AXES, "n": [10**7]}, "observables": ["gradient_norm"]}, "gradient_norm"),
        ({"axes": {**AXES, "n": [10**7]}, "attention": {"mask": "causal"}}, "bidirectional"),
    ],
)
def test_what_cannot_be_sampled_is_refused(changes, part):
    with pytest.raises(SpecError) as caught:
        spec(**changes)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    size = ["--n", tokens.STREAM_ABOVE + 1, "--d", 4, "--rho", 0.3, "--sample-rows", 16, "--json"]
    done = invoke("sweep", "--gamma", "1,2", *size, "--store", tmp_path, "--observables", "self_weight,output_cosine")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {one["name"] for one in found["observables"]} == {"self_weight", "output_cosine"}
    done = invoke("measure", "--tokens", "near-simplex", "--gamma", 1.5, *size)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["gradient_norm"] is None
    assert found["self_weight_se"] > 0
    refused = invoke("sweep", "--n", 100, "--d", 4, "--rho", 0.3, "--sample-rows", 101)
    assert refused.exit_code == 2
    assert "--sample-rows: 101" in refused.stderr
