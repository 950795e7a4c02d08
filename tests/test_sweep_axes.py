"""Axes of names: normalisers and laws of one study on the same tokens, in one store and one dataset."""

import csv
import json

import numpy as np
import oracles
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner
from jax.random import key_data

import critattn as ca
from critattn import normalisers, tokens
from critattn.biases import Shift
from critattn.cli import main
from critattn.errors import SpecError
from critattn.scaling import LogN
from critattn.storage import Store, content_hash
from critattn.sweeps import SweepSpec, evaluation, layout_of, load_study, run_sweep, token_key
from critattn.sweeps.analysis import record, study_thresholds, threshold_spec
from critattn.sweeps.refining import gaps
from critattn.theory import power

NAMES = ("softplus-l1", "entmax")
WHERE = {"n": 16, "d": 8, "rho": 0.3}
GAMMAS = (0.0, 2.0, 4.0)
# two ways to add the same numbers: some tens of roundings of 1e-16
ROUNDING = 1e-13


def table(axes=(), attention=(), observables=("self_weight",), kind="near-simplex", **more):
    where = {"kind": kind, **({"fix_common": True} if kind == "near-simplex" else {})}
    made = {"observables": list(observables), "tokens": where, "attention": dict(attention), **more}
    return {**made, "axes": {**WHERE, **dict(axes)}}


def spec_of(*args, **how):
    return SweepSpec.from_table(table(*args, **how))


def curves(names=NAMES, **attention):
    return spec_of({"normaliser": list(names), "gamma": "0:4:3", "replicates": 2}, attention)


def tokens_of(spec, unit):
    """The tokens of a unit, made without the sweep."""
    return tokens.near_simplex(token_key(spec, unit), 16, 8, rho=0.3, unit_norm=True, fix_common=True)


@pytest.fixture(scope="module")
def along():
    return run_sweep(curves(alpha=1.2, bias=0.5))


@pytest.mark.parametrize("name", NAMES)
def test_values_along_the_axis_are_those_of_each_layer_alone(along, name):
    # the tokens come from the key of a study that knows one normaliser only
    alone = curves([name])
    normaliser = normalisers.get(name, **({"alpha": 1.2} if name == "entmax" else {}))
    for draw in range(2):
        made = tokens_of(alone, (0, 0, 0, draw))
        for gamma in GAMMAS:
            layer = ca.Attention(Shift(0.5), LogN(gamma), normaliser=normaliser)
            expected = ca.measure(layer, made, ["self_weight"])["self_weight"].value
            got = along["self_weight"].sel(normaliser=name, gamma=gamma, replicate=draw).item()
            assert got == pytest.approx(expected, rel=ROUNDING)


def test_the_axis_has_the_bits_of_a_study_of_one(along):
    alone = run_sweep(spec_of({"gamma": "0:4:3", "replicates": 2}, {"normaliser": "entmax", "alpha": 1.2}))
    # entmax ignores a common shift, so that the bias is none of its options
    assert np.array_equal(along["self_weight"].sel(normaliser="entmax").values, alone["self_weight"].values)
    assert "normaliser" not in alone.dims


def test_tokens_do_not_depend_on_names():
    several = spec_of({"normaliser": list(NAMES), "law": ["ssmax", "constant"], "replicates": 2})
    one = spec_of({"gamma": 1, "replicates": 2})
    for unit in layout_of(several).units():
        assert (key_data(token_key(several, unit)) == key_data(token_key(one, unit[2:]))).all()


def test_a_study_of_one_normaliser_is_what_it_was():
    # of version 0.1 before there were axes of names
    old = "c53211a603f9ac91ba00a9ef68ff394291178eaae62b433efbb6e31ccd9e2f20"
    layout = "898b9b944c7419d5635b902aad59ce9c218f755ffbc300b07e8bbc6c80324f81"
    axes = {"gamma": "0:4:3", "replicates": 2}
    for spec in (
        spec_of(axes, {"normaliser": "entmax", "alpha": 1.2}),
        spec_of({**axes, "normaliser": ["entmax"]}, {"alpha": 1.2}),
    ):
        assert spec.hash == old
        assert content_hash(layout_of(spec).to_json()) == layout


@pytest.mark.parametrize(
    "spec",
    [
        curves(alpha=1.2),
        spec_of({"law": ["ssmax"]}, {"qk_norm": 2.0}),
        spec_of({"law": "ssmax,su", "normaliser": list(NAMES)}),
    ],
)
def test_the_identity_comes_back(spec):
    again = SweepSpec.from_identity(json.loads(spec.canonical()))
    assert again.hash == spec.hash
    assert (again.axes, again.attention) == (spec.axes, spec.attention)


def test_quick_axes_may_have_one_normaliser():
    made = {**table({"normaliser": list(NAMES), "gamma": 1}), "quick": {"normaliser": ["entmax"]}}
    spec = SweepSpec.from_table(made, quick=True)
    assert (spec.axes.normaliser, spec.attention.normaliser) == ((), "entmax")


def test_a_store_has_codes_and_a_table_and_a_partial_one_resumes(tmp_path, along, monkeypatch):
    spec = curves(alpha=1.2, bias=0.5)
    first = run_sweep(spec, tmp_path / "s")
    xr.testing.assert_equal(first, along)
    assert first["normaliser"].values.tolist() == list(NAMES)
    codes = zarr.open_array(tmp_path / "s" / "normaliser", mode="r")
    assert np.asarray(codes[:]).tolist() == [0, 1]
    kept = json.loads((tmp_path / "s" / "zarr.json").read_text())["attributes"]["critattn"]["layout"]["unit_axes"]
    assert kept[0]["names"] == list(NAMES)
    assert all("names" not in axis for axis in kept[1:])
    store = Store.open(tmp_path / "s")
    lost = [(0, 0, 0, 0, 1), (1, 0, 0, 0, 0)]
    for unit in lost:
        store.chunk_file(unit).unlink()
    real, computed = evaluation.evaluate, []
    monkeypatch.setattr(evaluation, "evaluate", lambda spec, unit: computed.append(unit) or real(spec, unit))
    again = run_sweep(spec, tmp_path / "s")
    assert computed == lost
    xr.testing.assert_identical(again, first)


def test_interpolated_and_computed_curves_go_together():
    # 61 gammas: curves of softmax are interpolated, those of sparsemax have kinks and are not
    data = run_sweep(spec_of({"normaliser": ["softmax", "sparsemax"], "gamma": "0:6:61"}))
    error = data["self_weight_interpolation_error"]
    assert np.isfinite(error.sel(normaliser="softmax")).all()
    assert np.isnan(error.sel(normaliser="sparsemax")).all()
    assert np.isfinite(data["self_weight"]).all()


def test_every_normaliser_has_its_threshold_or_a_reason():
    spec = spec_of({"normaliser": ["softmax", "softplus-l1"], "d": 16}, kind="simplex", observables=["half_weight"])
    softmax, softplus = study_thresholds(spec, run_sweep(spec))
    assert softmax.verdict == "agrees"
    # closed form of an exact simplex: (n - 1) exp(-gamma log n (1 - rho)) = 1
    assert softmax.threshold.critical == pytest.approx(np.log(15) / np.log(16) / 0.7, rel=1e-9)
    assert (softplus.threshold.critical, softplus.verdict) == (None, None)
    assert "softplus-l1" in softplus.reason
    shown = [record(one)["coordinates"]["normaliser"] for one in (softmax, softplus)]
    assert shown == ["softmax", "softplus-l1"]


def test_critical_exponents_have_the_predictor_of_their_normaliser():
    names = ["power", "relu-power"]
    axes = {"normaliser": names, "d": 16}
    spec = spec_of(axes, {"gamma": 1.0}, kind="simplex", observables=["half_weight_p"])
    found, none = study_thresholds(spec, run_sweep(spec))
    assert found.threshold.critical == pytest.approx(power.critical_p(0.3, np.log(16)), rel=1e-9)
    assert (found.predictor, found.verdict) == ("simplex (13.1)", "agrees")
    assert none.threshold.critical is None
    assert none.predictor == "simplex (12.1)"
    assert none.threshold.reason
    searched = threshold_spec(spec_of({"normaliser": names, "gamma": 1, "p": [1, 2]}))
    assert searched.axes.normaliser == tuple(names)


@pytest.fixture(scope="module")
def laws():
    axes = {"law": ["constant", "ssmax", "llama-4"], "replicates": 2}
    spec = spec_of(axes, {"mask": "causal"}, ["self_weight", "entropy"])
    return spec, run_sweep(spec)


def published(name, n, d):
    """Inverse temperature of the cosines of each causal row, from the formulas of docs/scaling.md."""
    keys = np.arange(1, n + 1)
    factor = {"constant": np.ones(n), "ssmax": 0.43 * np.log(keys), "llama-4": 1 + 0.1 * np.log(1 + keys // 8192)}
    # RMS-normalised q and k have q.k = d cos, and 1/sqrt(d) stands beside the factor
    return factor[name] * np.sqrt(d)


@pytest.mark.parametrize("name", ["constant", "ssmax", "llama-4"])
def test_laws_are_dense_attention_with_their_published_beta(laws, name):
    spec, data = laws
    assert data["self_weight"].dims == ("law", "n", "d", "rho", "replicate")
    made = tokens_of(spec_of({"gamma": 1, "replicates": 2}), (0, 0, 0, 1))
    weights = oracles.softmax_weights(np.asarray(made.vectors), published(name, 16, 8), causal=True)
    positive = np.where(weights > 0, weights, 1)
    got = data.sel(law=name, replicate=1).squeeze()
    assert got["self_weight"].item() == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    assert got["entropy"].item() == pytest.approx(-(weights * np.log(positive)).sum(axis=1).mean(), rel=1e-11)


def test_laws_and_normalisers_make_a_grid():
    spec = spec_of({"law": ["ssmax"], "normaliser": ["softmax", "softplus-l1"]}, {"qk_norm": 4.0})
    data = run_sweep(spec)
    assert data["self_weight"].dims[:2] == ("normaliser", "law")
    vectors = np.asarray(tokens_of(spec_of({"gamma": 1}), (0, 0, 0, 0)).vectors)
    # |q||k| = 4 in 8 dimensions
    logits = 0.43 * np.log(16) * 4 / np.sqrt(8) * (vectors @ vectors.T)
    for name, masses in {"softmax": np.exp(logits), "softplus-l1": np.logaddexp(0, logits)}.items():
        expected = np.mean(np.diag(masses) / masses.sum(axis=1))
        assert data["self_weight"].sel(normaliser=name).item() == pytest.approx(expected, rel=1e-12)


def test_refinement_follows_the_worst_normaliser():
    spec = spec_of({"normaliser": ["softmax", "entmax"], "d": [8, 32]}, observables=["half_weight"])
    dims = ("normaliser", "n", "d", "rho", "replicate")
    values = np.array([[1.0, 1.0], [1.0, 2.0]]).reshape(2, 1, 2, 1, 1)
    data = xr.Dataset({"half_weight": (dims, values), "half_weight_se": (dims, np.full(values.shape, np.nan))})
    (gap,) = [gap for gap in gaps(spec, data) if gap.axis == "d"]
    assert (gap.change, gap.middle) == (0.5, 16)


@pytest.mark.parametrize(
    ("axes", "attention", "observables", "parts"),
    [
        ({"normaliser": ["softmax", "sofmax"], "gamma": 1}, {}, ["self_weight"], ["axes.normaliser = 'sofmax'"]),
        ({"normaliser": ["softmax", "relu"], "gamma": 1}, {"normaliser": "relu"}, ["self_weight"], ["attention.norm"]),
        ({"normaliser": ["softmax", "relu"], "gamma": 1}, {"alpha": 2}, ["self_weight"], ["attention.alpha", "entmax"]),
        ({"normaliser": ["softmax", "entmax"], "gamma": 1}, {"bias": 2}, ["self_weight"], ["attention.bias", "shift"]),
        ({"normaliser": ["softmax", "power"], "gamma": 1, "p": 2}, {}, ["self_weight"], ["axes.p", "softmax"]),
        ({"normaliser": ["softmax", "power"]}, {}, ["half_weight_p"], ["half_weight_p", "softmax"]),
        ({"law": ["ssmax"], "gamma": 1}, {}, ["self_weight"], ["axes.law = 'ssmax'", "without axes.gamma"]),
        ({"law": ["log-n"]}, {}, ["self_weight"], ["axes.law = 'log-n'", "takes gamma"]),
        ({"law": ["yarn"]}, {}, ["self_weight"], ["axes.law = 'yarn'", "stretch"]),
        ({"law": ["qassmax"]}, {}, ["self_weight"], ["axes.law = 'qassmax'", "no factor per row"]),
        ({"law": ["ssmaxx"]}, {}, ["self_weight"], ["axes.law = 'ssmaxx'", "did you mean 'ssmax'"]),
        ({"law": ["ssmax"]}, {}, ["half_weight"], ["half_weight", "along laws"]),
        ({"law": ["ssmax"], "p": 2}, {"normaliser": "power"}, ["self_weight"], ["axes.p", "attention.p"]),
        ({"law": ["ssmax"]}, {"layers": 2}, ["cosine"], ["attention.layers", "axes.law"]),
        ({"law": ["ssmax"]}, {"law": "log-n"}, ["self_weight"], ["attention.law", "axes.law"]),
        ({"law": ["ssmax"]}, {"length": "row", "mask": "causal"}, ["self_weight"], ["attention.length", "axes.law"]),
        ({"gamma": 1}, {"qk_norm": 2}, ["self_weight"], ["attention.qk_norm", "axes.law"]),
    ],
)
def test_what_does_not_go_is_one_line(axes, attention, observables, parts):
    with pytest.raises(SpecError) as caught:
        spec_of(axes, attention, observables)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("axes", "name"),
    [({"normaliser": ["softmax", "entmax"], "gamma": 1}, "entmax"), ({"law": ["ssmax", "gemma-2"]}, "scaling laws")],
)
def test_what_cannot_be_streamed_is_refused_before_any_work(axes, name):
    with pytest.raises(SpecError, match=f"block by block.*{name}"):
        spec_of({**axes, "n": 100_000}, sample_rows=64)


def test_laws_that_need_a_dimension_refuse_scores():
    made = {"observables": ["self_weight"], "tokens": {"kind": "random-scores"}}
    with pytest.raises(SpecError, match="dimension"):
        SweepSpec.from_table({**made, "axes": {"n": 16, "rho": 0.3, "tau": 0.1, "law": ["ssmax"]}})


def run(*args, code=0):
    result = CliRunner().invoke(main, list(map(str, args)))
    assert result.exit_code == code, result.output
    return result


def test_commands_know_the_axes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    where = ["--n", 16, "--d", 8, "--rho", 0.3]
    options = ["--law", "constant,ssmax", "--observables", "self_weight"]
    made = json.loads(run("sweep", *where, *options, "--json").stdout)
    assert made["observables"][0]["sizes"] == {"law": 2, "n": 1, "d": 1, "rho": 1, "replicate": 1}
    shown = json.loads(run("store", "show", made["study"], "--json").stdout)
    assert shown["axes"]["law"] == ["constant", "ssmax"]
    run("store", "export", made["study"], "x.csv")
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [row["law"] for row in rows] == ["constant", "ssmax"]
    assert "there is no threshold" in run("threshold", made["study"], code=2).stderr
    names = ["--normaliser", "softmax,relu"]
    located = json.loads(run("sweep", *where, *names, "--json").stdout)
    found = json.loads(run("threshold", located["study"], "--json").stdout)["thresholds"]
    assert [one["coordinates"]["normaliser"] for one in found] == ["softmax", "relu"]
    assert found[0]["predictor"] == "common direction (4.7)"
    assert "near-simplex, softmax, n 16" in run("threshold", located["study"]).stdout


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--normaliser", "softmax,foo"], ["--normaliser = 'foo'"]),
        (["--law", "ssmax", "--gamma", "1"], ["--law = 'ssmax'", "without --gamma"]),
        (["--law", "log-n,ssmax"], ["--law = 'log-n'", "takes gamma"]),
        (["--law", "ssmax", "--qk-norm", "0"], ["--qk-norm = 0", "> 0"]),
        (["--law", "ssmax", "--d", "8,16", "--refine", "0.1"], ["--refine"]),
    ],
)
def test_wrong_options_are_one_line(options, parts):
    (line,) = run("sweep", "--n", 16, "--d", 8, "--rho", 0.3, *options, code=2).stderr.splitlines()
    for part in parts:
        assert part in line


def test_the_study_of_normalisers_compares_several():
    spec = load_study("normalisers").spec()
    assert spec.axes.normaliser[0] == "softmax"
    assert set(spec.axes.normaliser) >= {"softplus-l1", "entmax"}
