"""From studies to comparisons: which thresholds are searched, on which tokens, against which prediction."""

import dataclasses

import numpy as np
import oracles
import pytest

from critattn import tokens
from critattn.errors import SpecError
from critattn.sweeps import AttentionSpec, Axes, SweepSpec, TokenSpec, analysis, evaluation, run_sweep
from critattn.theory import finite_dimension, simplex


def spec(kind, observables=("self_weight",), *, attention=None, dtype="float64", options=None, **axes):
    made = TokenSpec(kind=kind, **(options or {}))
    return SweepSpec(observables, made, attention or AttentionSpec(), Axes(**axes), dtype=dtype)


def curves(**changes):
    return spec("simplex", **{"n": (8, 16, 32), "d": "n", "rho": (0.3, 0.5), "gamma": (0.0, 2.0, 4.0), **changes})


def near(observables=("half_weight",), *, fixed=False, rho=(0.5,), replicates=3):
    axes = {"n": (64,), "d": (16,), "rho": rho, "replicates": replicates}
    return spec("near-simplex", observables, options={"fix_common": fixed}, **axes)


def test_a_study_of_curves_is_searched_in_float64_on_the_same_tokens():
    study = spec("near-simplex", n=(16,), d=(4,), rho=(0.2,), gamma=(0.0, 1.0), dtype="float32")
    searched = analysis.threshold_spec(study)
    assert (searched.mode, searched.dtype) == ("threshold", "float64")
    assert searched.observables == ("half_weight", "median_half_weight", "common_ratio")
    unit = (0, 0, 0, 0)
    np.testing.assert_array_equal(
        evaluation.make_tokens(study, unit).vectors, evaluation.make_tokens(searched, unit).vectors
    )


def test_a_study_of_thresholds_is_taken_as_it_is():
    study = near()
    assert analysis.threshold_spec(study) is study


def test_depth_has_no_threshold():
    study = curves(attention=AttentionSpec(layers=3), observables=("cosine",))
    with pytest.raises(SpecError, match=r"attention\.layers"):
        analysis.threshold_spec(study)


def test_simplex_thresholds_are_the_closed_forms():
    found = analysis.study_thresholds(curves())
    assert [one.coordinates["quantity"] for one in found[:2]] == ["half_weight", "half_angle"]
    assert len(found) == 12
    for one in found:
        formula = {"half_weight": simplex.half_weight_gamma, "half_angle": simplex.half_angle_gamma}
        where = one.coordinates
        expected = float(formula[where["quantity"]](where["rho"], np.log(where["n"])))
        assert one.threshold.critical == pytest.approx(expected, rel=1e-9)
        assert (one.predicted, one.verdict) == (pytest.approx(expected, rel=1e-12), "agrees")
        assert one.threshold.standard_error is None


def test_residual_and_norm_enter_the_angle():
    layer = AttentionSpec(identity_weight=0.2, attention_weight=0.8)
    options = {"norm": 0.7}
    axes = {"n": (16,), "d": "n", "rho": (0.3,)}
    (one,) = analysis.study_thresholds(spec("simplex", ("half_angle",), attention=layer, options=options, **axes))
    parts = {"identity_weight": 0.2, "attention_weight": 0.8, "norm": 0.7}
    expected = float(simplex.half_angle_gamma(0.3, np.log(16), **parts))
    assert one.verdict == ("agrees" if np.isfinite(expected) else None)
    if np.isfinite(expected):
        assert one.threshold.critical == pytest.approx(expected, rel=1e-8)


def test_a_mask_has_thresholds_but_no_predictor():
    (one, _) = analysis.study_thresholds(
        spec("simplex", attention=AttentionSpec(mask="causal"), n=(16,), d="n", rho=(0.3,), gamma=(1.0,))
    )
    assert one.threshold.critical is not None
    assert (one.predicted, one.verdict) == (None, None)
    assert "causal" in one.reason


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.slow
def test_draws_are_combined_and_held_against_their_own_effective_rho(fixed, rho):
    study = near(fixed=fixed, rho=(rho,), replicates=4)
    data = run_sweep(study)
    (one,) = analysis.study_thresholds(study, data)
    roots = data["half_weight"].values[0, 0, 0]
    draws = [evaluation.make_tokens(study, (0, 0, 0, draw)) for draw in range(4)]
    ratios = np.array([1.0 if fixed else draw.common_ratio for draw in draws])
    effective = rho * ratios / (rho * ratios + 1 - rho)
    predicted = np.array([float(finite_dimension.half_weight_gamma(value, np.log(64), 16)) for value in effective])
    assert one.threshold.critical == pytest.approx(roots.mean(), rel=1e-12)
    assert one.predicted == pytest.approx(predicted.mean(), rel=1e-12)
    assert one.threshold.standard_error == pytest.approx((roots - predicted).std(ddof=1) / 2, rel=1e-9)
    assert one.verdict in ("agrees", "within theory error")


def test_a_stored_common_ratio_is_used_and_a_missing_one_drawn_again():
    with_ratio = analysis.study_thresholds(near(("half_weight", "common_ratio")))
    without = analysis.study_thresholds(near())
    assert [analysis.record(one) for one in with_ratio] == [analysis.record(one) for one in without]


def test_one_draw_has_the_error_over_rows():
    study = near(replicates=1)
    (one,) = analysis.study_thresholds(study)
    made = evaluation.make_tokens(study, (0, 0, 0, 0))
    from critattn import thresholds

    located = thresholds.half_weight(made)
    assert one.threshold.critical == pytest.approx(located.critical)
    assert one.threshold.standard_error == pytest.approx(located.standard_error)
    effective = 0.5 * made.common_ratio / (0.5 * made.common_ratio + 0.5)
    assert one.predicted == pytest.approx(float(finite_dimension.half_weight_gamma(effective, np.log(64), 16)))


def test_draws_without_a_threshold_are_counted():
    study = spec("random-scores", ("median_half_weight",), n=(64,), rho=(0.5,), tau=(0.6,), replicates=3)
    (one,) = analysis.study_thresholds(study)
    assert (one.threshold.critical, one.verdict) == (None, None)
    assert "3 of 3 draws" in analysis.record(one)["reason"]


def test_random_scores_between_theory_and_simulation():
    study = spec("random-scores", n=(256,), rho=(0.5,), tau=(0.0, 0.05), gamma=(1.0,), replicates=4)
    plain, noisy = analysis.study_thresholds(study)
    assert plain.predictor == "simplex (1.7)"
    assert plain.verdict == "agrees"
    assert noisy.predictor == "mixed (9.1)"
    assert noisy.threshold.critical == pytest.approx(noisy.predicted, rel=0.01)
    assert noisy.threshold.critical > plain.threshold.critical


def test_tokens_of_a_file(tmp_path):
    x = oracles.gaussian_tokens(0, 50, 10, 0.4)
    np.save(tmp_path / "x.npy", x)
    (one,) = analysis.study_thresholds(spec("file", gamma=(1.0,), options={"path": str(tmp_path / "x.npy")}))
    from critattn import thresholds

    located = thresholds.half_weight(tokens.from_array(x))
    assert one.threshold.critical == pytest.approx(located.critical, rel=1e-9)
    assert one.threshold.standard_error == pytest.approx(located.standard_error, rel=1e-6)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    rho = (units @ units.T)[~np.eye(50, dtype=bool)].mean()
    assert one.coordinates["effective_rho"] == pytest.approx(rho, rel=1e-12)
    assert one.predicted == pytest.approx(float(finite_dimension.half_weight_gamma(rho, np.log(50), 10)))
    assert one.error_class is None
    record = analysis.record(one)
    assert record["coordinates"]["kind"] == "file"
    assert "path" not in record["coordinates"]


def test_finite_size_scaling_uses_angles_of_simplices_only():
    found = analysis.study_thresholds(curves())
    low, high = analysis.finite_size(found)
    assert (low.rho, high.rho) == (0.3, 0.5)
    assert low.sizes == (8, 16, 32)
    for one in (low, high):
        sizes = np.log(np.array(one.sizes))
        roots = [float(simplex.half_angle_gamma(one.rho, log_n)) for log_n in sizes]
        assert one.limit == pytest.approx(np.polyfit(1 / sizes, roots, 1)[1], rel=1e-6)
        assert one.closed_form_limit == pytest.approx(one.limit, rel=1e-8)
        assert one.expected == 1 / (1 - one.rho)
    assert analysis.finite_size(analysis.study_thresholds(near())) == []


def test_finite_size_of_a_single_size_gives_a_reason():
    (one,) = analysis.finite_size(analysis.study_thresholds(curves(n=(8,), rho=(0.5,))))
    assert one.limit is None
    assert one.reason


def test_data_collapse_of_curves():
    grid = tuple(np.linspace(0, 4, 33))
    study = curves(rho=(0.5,), gamma=grid, n=(64, 128, 256))
    joined = analysis.collapse(run_sweep(study))
    assert joined is not None
    assert joined.critical == pytest.approx(2, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [
        curves(n=(8,), rho=(0.5,)),
        curves(rho=(0.3, 0.5)),
        curves(rho=(0.5,), observables=("entropy",)),
        near(),
    ],
)
def test_no_collapse_where_curves_are_no_family_in_n(study):
    assert analysis.collapse(run_sweep(study)) is None


def test_records_have_the_stable_keys():
    record = analysis.record(analysis.study_thresholds(curves(n=(8,), rho=(0.5,)))[0])
    assert list(record) == [
        "parameter",
        "coordinates",
        "critical",
        "standard_error",
        "method",
        "converged",
        "reason",
        "predicted",
        "predictor",
        "error_class",
        "verdict",
    ]
    assert record["coordinates"] == {
        "kind": "simplex",
        "quantity": "half_weight",
        "n": 8,
        "d": 8,
        "rho": 0.5,
        "mask": "bidirectional",
    }


def test_scaling_is_json_ready():
    (one,) = analysis.finite_size(analysis.study_thresholds(curves(rho=(0.5,))))
    assert set(dataclasses.asdict(one)) >= {"quantity", "rho", "sizes", "limit", "expected", "reason"}
