"""Which predictor applies to a measured threshold, and the verdict."""

import numpy as np
import pytest

from critattn.comparison import ROUND_OFF, compare, compare_draws, predict
from critattn.criticality import Threshold
from critattn.errors import DomainError, SpecError
from critattn.theory import finite_dimension, mixed

LOG_2048 = float(np.log(2048))
SIMPLEX = {"kind": "simplex", "n": 512, "rho": 0.5}
NEAR = {"kind": "near-simplex", "n": 512, "d": 24, "rho": 0.5}
FILE = {"kind": "file", "n": 512, "d": 24, "rho": 0.5}
SPHERE = {"kind": "near-simplex", "n": 2048, "d": 16, "rho": 0.0}


def measured(critical, error=None, parameter="gamma"):
    return Threshold(parameter, critical, error, "brent", True)


@pytest.mark.parametrize(
    ("coordinates", "value", "predictor", "error_class"),
    [
        (SIMPLEX, 1.999373217986, "simplex (1.7)", 0.0),
        ({**SIMPLEX, "quantity": "median_half_weight"}, 1.999373217986, "simplex (1.7)", 0.0),
        ({**SIMPLEX, "quantity": "half_angle"}, 2.100947292405, "simplex (1.8)", 0.0),
        ({**SIMPLEX, "n": None, "log_n": np.log(512)}, 1.999373217986, "simplex (1.7)", 0.0),
        (SPHERE, 1.4044994693, "uniform sphere (4.5)", 0.005),
        ({**SPHERE, "d": 8}, 2.518622884430, "uniform sphere (4.5)", 0.02),
        ({**SPHERE, "d": 4}, 18.15654969892, "uniform sphere (4.5)", 0.08),
        ({**SPHERE, "d": 2}, None, "uniform sphere (4.5)", None),
        (NEAR, 2.4640052131, "common direction (4.7)", 0.005),
        ({**NEAR, "quantity": "median_half_weight"}, 2.4995730564, "common direction (4.7)", 0.005),
        ({**NEAR, "n": 1024, "d": 8}, 5.0925446447, "common direction (4.7)", 0.02),
        ({**NEAR, "quantity": "half_angle"}, None, None, None),
        (FILE, 2.4640052131, "common direction (4.7)", None),
        ({**FILE, "rho": 0.1, "effective_rho": 0.5}, 2.4640052131, "common direction (4.7)", None),
        ({**FILE, "rho": -0.01}, None, None, None),
        ({"kind": "random-scores", "n": 512, "rho": 0.5, "tau": 0}, 1.999373217986, "simplex (1.7)", 0.0),
        ({**SIMPLEX, "quantity": "row_disorder"}, None, None, None),
        ({**SIMPLEX, "normaliser": "softplus-l1"}, None, None, None),
        ({**SIMPLEX, "mask": "causal"}, None, None, None),
    ],
)
def test_predictors(coordinates, value, predictor, error_class):
    found = predict(coordinates)
    assert found.value == (None if value is None else pytest.approx(value, rel=1e-10))
    assert found.predictor == predictor
    assert found.error_class == error_class
    assert (found.value is not None) or found.reason


@pytest.mark.parametrize(("reduced", "error_class"), [(0.5, 0.002), (0.9, 0.05), (1.1, None)])
@pytest.mark.parametrize("quantity", ["half_weight", "median_half_weight"])
def test_random_scores(reduced, error_class, quantity):
    tau = reduced * 0.5 / np.sqrt(2 * LOG_2048)
    found = predict({"kind": "random-scores", "n": 2048, "rho": 0.5, "tau": tau, "quantity": quantity})
    assert found.predictor == "mixed (9.1)"
    assert found.error_class == error_class
    if error_class:
        assert found.value == pytest.approx(mixed.critical_gamma(tau, 0.5, LOG_2048))
    else:
        assert "no root" in found.reason


def test_free_common_vector_is_compared_at_its_effective_rho():
    found = predict({**NEAR, "zeta": 1.2})
    effective = 0.6 / 1.1
    expected = finite_dimension.half_weight_gamma(effective, np.log(512), 24)
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert "0.545" in found.reason
    assert predict({**SPHERE, "zeta": 3.0}).value == predict(SPHERE).value


def test_verdicts_with_errors():
    value = predict(NEAR).value
    theory = 0.005 * value
    for sign in (1, -1):
        cases = [(3.9, 0, "agrees"), (4.1, 0, "within theory error"), (3.9, 1, "within theory error")]
        cases.append((4.1, 1, "disagrees"))
        for errors, classes, verdict in cases:
            found = compare(measured(value + sign * (errors * 0.001 + classes * theory), 0.001), NEAR)
            assert found.verdict == verdict
            assert found.predicted == value


def test_measured_tokens_have_no_theory_error():
    coordinates = FILE
    value = predict(coordinates).value
    assert compare(measured(value + 0.0039, 0.001), coordinates).verdict == "agrees"
    assert compare(measured(value + 0.0041, 0.001), coordinates).verdict == "disagrees"
    assert compare(measured(value + 0.0041, 0.001), coordinates).error_class is None


@pytest.mark.parametrize("dtype", sorted(ROUND_OFF))
def test_exact_data_agree_to_round_off(dtype):
    value, allowed, coordinates = predict(SIMPLEX).value, ROUND_OFF[dtype], {**SIMPLEX, "dtype": dtype}
    assert compare(measured(value * (1 + 0.9 * allowed)), coordinates).verdict == "agrees"
    assert compare(measured(value * (1 - 1.1 * allowed)), coordinates).verdict == "disagrees"


def test_exact_data_against_an_inexact_predictor():
    value = predict(NEAR).value
    assert compare(measured(value * 1.004), NEAR).verdict == "within theory error"
    lone = compare(measured(value * 1.006), NEAR)
    assert lone.verdict is None
    assert "no standard error" in lone.reason


@pytest.mark.slow
def test_draws_with_free_common_vectors_are_paired():
    rng = np.random.default_rng(3)
    zeta = rng.chisquare(24, 12) / 24
    values = np.array([predict({**NEAR, "zeta": value}).value for value in zeta])
    noise = 0.004 * rng.standard_normal(12)
    found = compare_draws(values + noise, NEAR, zeta=zeta)
    assert found.verdict == "agrees"
    assert found.predicted == pytest.approx(values.mean())
    assert found.threshold.critical == pytest.approx((values + noise).mean())
    assert found.threshold.standard_error == pytest.approx(noise.std(ddof=1) / np.sqrt(12))
    assert found.error_class == 0.005
    shifted = compare_draws(1.05 * values + noise, NEAR, zeta=zeta)
    assert shifted.verdict == "disagrees"
    gap = compare_draws(np.append(values[:-1], np.nan), NEAR, zeta=zeta)
    assert (gap.verdict, gap.threshold.critical) == (None, None)
    rootless = compare_draws([900.0, 901.0], {**SPHERE, "d": 2}, zeta=[1.0, 1.0])
    assert (rootless.verdict, rootless.predicted) == (None, None)
    single = compare_draws(values[:1] * 1.001, NEAR, zeta=zeta[:1])
    assert single.verdict == "within theory error"
    with pytest.raises(DomainError):
        compare_draws([1.0, 2.0], NEAR, zeta=[1.0])


def test_nothing_to_compare():
    lost = Threshold("gamma", None, None, "brent", False, "self weight stays below 0.5")
    found = compare(lost, NEAR)
    assert found.verdict is None
    assert found.predicted == predict(NEAR).value
    assert "stays below" in found.reason
    neither = compare(lost, {**SPHERE, "d": 2})
    assert neither.verdict is None
    assert "neither" in neither.reason
    rootless = compare(measured(900.0, 1.0), {**SPHERE, "d": 2})
    assert (rootless.verdict, rootless.predicted) == (None, None)
    assert "no root" in rootless.reason
    other = compare(measured(2.0, parameter="p"), SIMPLEX)
    assert (other.verdict, other.predictor) == (None, None)
    assert "critical p" in other.reason


def test_coordinates_are_kept():
    coordinates = {**NEAR, "seed": 3}
    found = compare(measured(2.4, 0.1), coordinates)
    coordinates["seed"] = 4
    assert found.coordinates["seed"] == 3
    assert found.threshold.critical == 2.4


@pytest.mark.parametrize(
    ("coordinates", "error"),
    [
        ({"n": 8, "rho": 0.5}, SpecError),
        ({**SIMPLEX, "kind": "cube"}, SpecError),
        ({**SIMPLEX, "rho": "high"}, SpecError),
        ({"kind": "simplex", "n": 8}, SpecError),
        ({**SIMPLEX, "rho": np.array([0.1, 0.2])}, SpecError),
        ({**SIMPLEX, "dtype": "bfloat16"}, SpecError),
        ({**SIMPLEX, "rho": np.nan}, DomainError),
        ({**SIMPLEX, "n": 1}, DomainError),
        ({**SIMPLEX, "rho": 1.0}, DomainError),
        ({**NEAR, "zeta": 0.0}, DomainError),
    ],
)
def test_misuse_raises(coordinates, error):
    with pytest.raises(error):
        compare(measured(2.0), coordinates)
