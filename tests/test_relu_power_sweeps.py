"""Normalisers in sweeps: their options, the p axis, and the critical p on tokens against theory."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

from critattn import thresholds, tokens
from critattn.attention import Attention
from critattn.cli import main
from critattn.comparison import compare, predict
from critattn.criticality import Threshold
from critattn.errors import SpecError
from critattn.measurement import measure
from critattn.normalisers import ReluPower
from critattn.scaling import LogN
from critattn.storage import Store
from critattn.sweeps import SweepSpec, load_study, run_sweep, token_key
from critattn.sweeps.analysis import record, study_thresholds, threshold_spec
from critattn.theory import power, relu_power

AXES = {"n": 32, "d": 8, "rho": 0.3}
# draws that bring the standard error below 0.3 %
DRAWS = {256: 24, 1024: 8, 4096: 3}


def table(attention, axes=(), observables=("self_weight",), **tokens_table):
    where = {"kind": "near-simplex", "fix_common": True, **tokens_table}
    axes = {**AXES, **dict(axes)}
    return {"observables": list(observables), "tokens": where, "attention": dict(attention), "axes": axes}


def refused(made, *parts):
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_table(made)
    for part in parts:
        assert part in str(caught.value)


def test_options_that_are_not_given_are_no_part_of_the_identity():
    identity = load_study("order_parameters").spec().identity()
    usual = {"normaliser", "mask", "length", "identity_weight", "attention_weight", "layers"}
    assert set(identity["attention"]) == usual
    assert "p" not in identity["axes"]


@pytest.mark.parametrize(
    "attention",
    [
        {"normaliser": "entmax", "alpha": 1.2},
        {"normaliser": "relu-power", "p": 2, "stage_one": "softmax"},
        {"normaliser": "relu-power", "mask": "causal", "offset_free_rows": 3},
        {"normaliser": "sigmoid-l1", "bias_factor": 2},
        {"normaliser": "softplus-l1", "bias": 0.0},
        {"law": "log-n"},
    ],
)
def test_options_are_part_of_the_identity_and_come_back(attention):
    spec = SweepSpec.from_table(table(attention, {"gamma": 1}))
    plain = {key: attention[key] for key in ("normaliser", "mask") if key in attention}
    assert spec.hash != SweepSpec.from_table(table(plain, {"gamma": 1})).hash
    again = SweepSpec.from_identity(json.loads(spec.canonical()))
    assert again.attention == spec.attention
    assert again.hash == spec.hash


@pytest.mark.parametrize(
    ("attention", "axes", "observables", "parts"),
    [
        ({"alpha": 2}, {"gamma": 1}, ["self_weight"], ["attention.alpha", "entmax"]),
        ({"normaliser": "entmax", "alpha": 1}, {"gamma": 1}, ["self_weight"], ["attention.alpha = 1", "> 1"]),
        ({"normaliser": "relu-power", "stage_one": "relu"}, {"gamma": 1}, ["self_weight"], ["stage_one", "softmax"]),
        ({"normaliser": "relu-power", "offset_free_rows": 3}, {"gamma": 1}, ["self_weight"], ["causal"]),
        ({"bias": 0.5}, {"gamma": 1}, ["self_weight"], ["attention.bias", "common shift"]),
        ({"law": "ssmax"}, {"gamma": 1}, ["self_weight"], ["attention.law", "log-n"]),
        ({}, {"gamma": 1, "p": 2}, ["self_weight"], ["axes.p", "no exponent"]),
        ({"normaliser": "power"}, {"gamma": 1, "p": [0, 1]}, ["self_weight"], ["axes.p = 0", "> 0"]),
        ({"normaliser": "power"}, {"p": [1, 2]}, ["half_weight"], ["axes.p", "gamma axis"]),
        ({"normaliser": "power", "p": 2}, {"gamma": 1, "p": 1}, ["self_weight"], ["attention.p"]),
        ({}, {}, ["half_weight_p"], ["half_weight_p", "no exponent"]),
        ({"normaliser": "power", "p": 2}, {}, ["half_weight_p"], ["attention.p"]),
        ({"gamma": 2}, {"gamma": 1}, ["self_weight"], ["attention.gamma", "axes.gamma"]),
        ({"normaliser": "power", "gamma": "log n"}, {}, ["half_weight_p"], ["attention.gamma"]),
    ],
)
def test_what_does_not_go_together_is_one_line(attention, axes, observables, parts):
    refused(table(attention, axes, observables), *parts)


def test_a_p_axis_is_measured_on_the_same_tokens():
    made = table({"normaliser": "relu-power"}, {"gamma": [1, 3], "p": [0.5, 3, 15]}, ["self_weight", "entropy"])
    spec = SweepSpec.from_table(made)
    data = run_sweep(spec)
    assert data.self_weight.dims == ("n", "d", "rho", "replicate", "gamma", "p")
    unit = (0, 0, 0, 0)
    drawn = tokens.near_simplex(token_key(spec, unit), 32, 8, rho=0.3, fix_common=True)
    for gamma in (1, 3):
        for p in (0.5, 3, 15):
            layer = Attention(LogN(gamma), normaliser=ReluPower(p))
            for name, expected in measure(layer, drawn, ["self_weight", "entropy"]).items():
                assert data[name].sel(gamma=gamma, p=p).item() == pytest.approx(expected.value, rel=1e-12)


def test_power_on_a_simplex_crosses_where_theory_says():
    made = {
        "observables": ["half_weight_p"],
        "tokens": {"kind": "simplex"},
        "attention": {"normaliser": "power"},
        "axes": {"n": [16, 64], "d": "n", "rho": 0.5},
    }
    found = study_thresholds(SweepSpec.from_table(made))
    for one, n in zip(found, (16, 64), strict=True):
        assert one.threshold.parameter == "p"
        assert one.threshold.critical == pytest.approx(power.critical_p(0.5, np.log(n)), rel=1e-9)
        assert (one.verdict, one.predictor, one.error_class) == ("agrees", "simplex (13.1)", 0.0)


def test_re_weighting_on_a_simplex_has_no_critical_p():
    found = thresholds.half_weight_p(
        tokens.simplex(16, 16, rho=0.5), lambda p: Attention(LogN(2), normaliser=ReluPower(p))
    )
    assert not found.converged
    assert found.parameter == "p"
    assert "stays above 0.5" in found.reason or "flat" in found.reason
    assert predict({"kind": "simplex", "n": 16, "rho": 0.5, "quantity": "half_weight_p"}).value is None


def test_a_curve_study_with_p_is_searched_in_p():
    made = table({"normaliser": "power"}, {"gamma": 2, "p": [1, 2]})
    searched = threshold_spec(SweepSpec.from_table(made))
    assert searched.observables == ("half_weight_p", "common_ratio")
    assert searched.attention.gamma == 2
    with pytest.raises(SpecError, match="several points"):
        threshold_spec(SweepSpec.from_table(table({"normaliser": "power"}, {"gamma": [1, 2], "p": [1, 2]})))


def test_the_root_is_a_root_with_the_error_of_a_mean_over_rows():
    drawn = tokens.near_simplex(3, 256, 16, rho=0.3, fix_common=True)

    def layer(p):
        return Attention(LogN(np.log(16)), normaliser=ReluPower(p))

    found = thresholds.half_weight_p(drawn, layer)
    root = found.critical
    weight = {p: measure(layer(p), drawn, ["self_weight"])["self_weight"].value for p in (root, root - 0.1, root + 0.1)}
    assert weight[root] == pytest.approx(0.5, abs=1e-7)
    assert weight[root - 0.1] < 0.5 < weight[root + 0.1]
    assert 0.005 < found.standard_error / root < 0.05


def test_predictions_of_p():
    where = {"kind": "near-simplex", "n": 1024, "d": 64, "rho": 0.3, "quantity": "half_weight_p"}
    found = predict(where)
    assert found.value == pytest.approx(3.4753, abs=2e-4)
    assert (found.predictor, found.error_class) == ("re-weighting (12.9)", 0.02)
    assert predict({**where, "gamma": 4.0}).value != found.value
    assert predict({**where, "kind": "file", "effective_rho": 0.3}).error_class is None
    for changes in ({"mask": "causal"}, {"stage_one": "softmax"}, {"bias": 0.1}, {"normaliser": "power"}, {"d": 2}):
        lost = predict({**where, **changes})
        assert lost.value is None
        assert lost.reason
    assert compare(Threshold("gamma", 3.4, 0.1, "x", True), where).verdict is None
    assert compare(Threshold("p", 3.4, 0.1, "x", True), where).verdict == "agrees"


def command(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CRITATTN_STORE", str(tmp_path))
    own = ["sweep", "--n", 64, "--d", 8, "--rho", 0.3, "--fix-common", "--normaliser"]
    made = json.loads(
        command(*own, "relu-power", "--gamma", 2, "--p", "1:15:3", "--stage-one", "softmax", "--json").stdout
    )
    assert made["observables"][0]["sizes"]["p"] == 3
    assert Store.open(made["store"]).spec["attention"]["stage_one"] == "softmax"
    located = ["relu-power", "--observables", "half_weight_p", "--gamma", 3, "--replicates", 3, "--json"]
    made = json.loads(command(*own, *located).stdout)
    (found,) = json.loads(command("threshold", made["store"], "--json").stdout)["thresholds"]
    assert (found["parameter"], found["coordinates"]["gamma"]) == ("p", 3)
    assert found["predictor"] == "re-weighting (12.9)"
    for given, parts in [
        (["softmax", "--p", 2], "--p"),
        (["softmax", "--alpha", 2], "--alpha"),
        (["entmax", "--alpha", 0.5], "--alpha"),
        (["relu-power", "--stage-one", "none"], "--stage-one"),
        (["softmax", "--bias", 1], "--bias"),
        (["softmax", "--bias-factor", 1], "--bias-factor"),
    ]:
        (line,) = command(*own, *given, "--gamma", 1, code=2).stderr.splitlines()
        assert parts in line


def located(n, d, rho, replicates):
    study = load_study("relu_power").spec()
    axes = dataclasses.replace(study.axes, n=(n,), d=(d,), rho=(rho,), replicates=replicates)
    (found,) = study_thresholds(dataclasses.replace(study, axes=axes))
    return found


def agrees(found):
    shown = record(found)
    assert shown["predictor"] == "re-weighting (12.9)"
    assert shown["standard_error"] <= 0.003 * shown["critical"], shown
    assert shown["critical"] == pytest.approx(shown["predicted"], rel=0.02), shown
    assert shown["verdict"] in ("agrees", "within theory error")


@pytest.mark.parametrize(
    ("d", "rho", "draws"),
    [(256, 0.3, 8), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((64, 0.1, 12), (256, 0.6, 8)))],
)
def test_critical_p_is_as_predicted(d, rho, draws):
    agrees(located(256, d, rho, draws))


@pytest.mark.slow
@pytest.mark.parametrize("n", [256, 1024, 4096])
@pytest.mark.parametrize("d", [16, 64, 256])
@pytest.mark.parametrize("rho", [0.1, 0.3, 0.6])
def test_critical_p_is_as_predicted_everywhere(n, d, rho):
    agrees(located(n, d, rho, DRAWS[n]))


def test_theory_is_what_the_predictor_calls():
    where = {"kind": "near-simplex", "n": 256, "d": 32, "rho": 0.2, "quantity": "half_weight_p", "zeta": 1.2}
    rho = 0.24 / 1.04
    assert predict(where).value == pytest.approx(relu_power.critical_p(rho, np.log(256), 32), rel=1e-9)
