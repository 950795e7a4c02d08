"""Softplus-L1 on a simplex of scores against mpmath, brute force and reference numbers."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critattn.errors import DomainError
from critattn.theory import simplex
from critattn.theory import softplus as theory

GAMMA = math.log(64)


def exact_softplus(z):
    return mpmath.log1p(mpmath.exp(z))


def exact_log_odds(beta, n, rho, own, bias):
    f, h = (exact_softplus(beta * (mpmath.mpf(score) - bias)) for score in (own, rho))
    return mpmath.log(f) - mpmath.log((n - 1) * h)


def exact_half_weight_gamma(n, rho, *, own=1.0, bias=0.0):
    """The root by bisection in 40 digits."""
    with mpmath.workdps(40):
        n = mpmath.mpf(n)
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while exact_log_odds(high, n, rho, own, bias) < 0:
            low, high = high, 2 * high
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if exact_log_odds(middle, n, rho, own, bias) < 0 else (low, middle)
        return float(low / mpmath.log(n))


def dense_row(gamma, n, rho, own=1.0, bias=0.0):
    scores = np.full(n, rho)
    scores[0] = own
    values = np.logaddexp(0, gamma * math.log(n) * (scores - bias))
    return values / values.sum()


def test_reference_numbers():
    log_n = math.log(1024)
    assert theory.self_weight(GAMMA, 0.3, log_n) == pytest.approx(0.003247742060611, abs=6e-16)
    assert theory.cross_weight(GAMMA, 0.3, log_n) == pytest.approx(0.000974342383127457, abs=6e-18)
    assert 1024 * theory.self_weight(GAMMA, 0.3, log_n) == pytest.approx(3.32568787006567, abs=6e-14)
    assert theory.half_weight_gamma(-0.3, math.log(1000)) == pytest.approx(2.05035294578, abs=6e-12)
    assert theory.half_weight_gamma_lambert(-0.3, math.log(1000)) == pytest.approx(2.05351650884, abs=6e-12)
    assert theory.half_weight_gamma(0.3, math.log(1000), bias=0.5) == pytest.approx(3.24582340463, abs=6e-12)
    assert theory.half_weight_gamma(0.3, math.log(1e6), bias=1) == pytest.approx(1.46646998908, abs=6e-12)
    assert theory.half_weight_gamma(0, log_n) * log_n == pytest.approx(709.089565712824, abs=6e-11)
    assert theory.entropy_deficit_limit(0.3) == pytest.approx(1.679909347753, abs=6e-13)
    # of softmax, which a large bias must give
    assert theory.half_weight_gamma(0.3, log_n, bias=60) == pytest.approx(1.428370061392, abs=6e-13)


@pytest.mark.parametrize(
    ("rho", "own", "bias"),
    [
        (0.3, 1, 0),
        (0.0, 1, 0),
        (-0.3, 1, 0),
        (-0.9, 0.2, 0),
        (0.3, 1, 0.5),
        (0.3, 0.8, 0.9),
        (0.9, -0.2, 0.1),
        (1, 1, 0),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.0, 40.0])
def test_weights_against_brute_force(rho, own, bias, n, gamma):
    row = dense_row(gamma, n, rho, own, bias)
    at = (gamma, rho, math.log(n))
    scores = {"self_score": own, "bias": bias}
    assert theory.self_weight(*at, **scores) == pytest.approx(row[0], rel=1e-12)
    positive = row[row > 0]
    brute = -np.sum(positive * np.log(positive))
    assert theory.entropy(*at, **scores) == pytest.approx(brute, abs=1e-12)
    assert theory.scaled_entropy_deficit(*at, **scores) == pytest.approx(n * (math.log(n) - brute), abs=2e-10)
    excess = theory.row_excess(*at, own, bias)
    assert excess == pytest.approx(n * row[0] - 1, abs=1e-12 * n)
    if n > 1:
        assert theory.cross_weight(*at, **scores) == pytest.approx(row[1], rel=1e-11, abs=1e-300)
    else:
        assert math.isnan(theory.cross_weight(*at, **scores))


@pytest.mark.parametrize("n", [3, 10, 1000, 10**6, 10**40, 10**300])
@pytest.mark.parametrize(
    ("rho", "own", "bias"),
    [
        (-0.3, 1, 0),
        (-0.05, 1, 0),
        (-1, 0.1, 0),
        (-0.3, 0.4, 0),
        (0.3, 1, 0.5),
        (0.3, 1, 1),
        (0.3, 0.9, 1.3),
        (0.2, 1, 0.9),
    ],
)
def test_half_weight_is_the_root(n, rho, own, bias):
    found = theory.half_weight_gamma(rho, math.log(n), self_score=own, bias=bias)
    assert found == pytest.approx(exact_half_weight_gamma(n, rho, own=own, bias=bias), rel=2e-13)
    assert theory.self_weight(found, rho, math.log(n), self_score=own, bias=bias) == pytest.approx(0.5, abs=1e-11)


def test_half_weight_at_the_bias_is_not_on_the_scale_of_log_n():
    for n in (3, 5, 1024, 10**6):
        exact = float(mpmath.log(mpmath.power(2, n - 1) - 1)) if n < 10**5 else (n - 1) * math.log(2)
        assert theory.half_weight_gamma(0, math.log(n)) * math.log(n) == pytest.approx(exact, rel=1e-9)
        assert theory.half_weight_gamma(0.5, math.log(n), bias=0.5) * math.log(n) == pytest.approx(2 * exact, rel=1e-9)
    assert theory.half_weight_gamma(0, 800.0) == math.inf


@pytest.mark.parametrize("rho", [0.01, 0.3, 0.9, 1.0])
def test_there_is_none_above_the_bias(rho):
    assert np.isnan(theory.half_weight_gamma(rho, np.array([math.log(2 + 1 / rho), 10.0, 690.0]))).all()
    assert math.isnan(theory.half_weight_gamma_lambert(rho, 10.0))
    assert math.isnan(theory.critical_gamma(rho))
    # the largest number of tokens for which there is one: n - 1 < 1/rho
    if rho < 0.3:
        n = math.ceil(1 / rho)
        root = theory.half_weight_gamma(rho, math.log(n))
        assert theory.self_weight(root, rho, math.log(n)) == pytest.approx(0.5, abs=1e-9)


def test_edges_of_the_half_weight():
    assert theory.half_weight_gamma(0.9, math.log(2)) == 0
    assert math.isnan(theory.half_weight_gamma(-0.3, 0.0))
    assert math.isnan(theory.half_weight_gamma(0.5, 5.0, self_score=0.5))
    assert math.isnan(theory.half_weight_gamma(0.5, 5.0, self_score=0.2, bias=1.0))
    grid = theory.half_weight_gamma(np.array([-0.3, 0.3])[:, None], np.array([5.0, 690.0]))
    assert grid.shape == (2, 2)
    assert np.isnan(grid[1]).all()


@pytest.mark.parametrize(("n", "error"), [(1e2, 1.5e-2), (1e3, 1.5e-3), (1e4, 1.6e-4), (1e6, 1.6e-6)])
def test_stated_errors_of_the_lambert_form(n, error):
    log_n = math.log(n)
    ratio = theory.half_weight_gamma_lambert(-0.3, log_n) / theory.half_weight_gamma(-0.3, log_n)
    assert ratio - 1 == pytest.approx(error, rel=0.05)
    absolute = {1e2: 0.34, 1e3: 0.063, 1e4: 0.0085, 1e6: 1.1e-4}[n]
    difference = theory.half_weight_gamma_lambert(-0.05, log_n) - theory.half_weight_gamma(-0.05, log_n)
    assert difference == pytest.approx(absolute, rel=0.1)


@pytest.mark.parametrize(
    ("bias", "rho", "n", "error"),
    [
        (0.5, 0.3, 1e3, 4e-3),
        (0.5, 0.3, 1e6, 5e-6),
        (0.8, 0.3, 1e3, 1e-2),
        (0.8, 0.3, 1e6, 2e-4),
        (0.9, 0.2, 1e3, 0.053),
        (0.31, 0.3, 1e3, 0.66),
    ],
)
def test_stated_errors_with_a_bias(bias, rho, n, error):
    log_n = math.log(n)
    lambert = theory.half_weight_gamma_lambert(rho, log_n, bias=bias)
    difference = abs(lambert - theory.half_weight_gamma(rho, log_n, bias=bias))
    assert difference == pytest.approx(error, rel=0.3)


def test_lambert_form_at_any_n():
    exact = float(mpmath.lambertw(mpmath.mpf("1e300") * 3 / 10).real) / (0.3 * math.log(1e300))
    assert theory.half_weight_gamma_lambert(-0.3, math.log(1e300)) == pytest.approx(exact, rel=1e-13)
    assert theory.half_weight_gamma(-0.3, 1e8) == pytest.approx(1 / 0.3, rel=1e-6)
    assert theory.half_weight_gamma_lambert(-0.3, math.log(1e6)) == pytest.approx(2.48, abs=5e-3)


def test_critical_gamma():
    found = theory.critical_gamma(np.array([-0.5, 0.0, 0.2, 0.2, 0.2]), bias=np.array([0, 0, 0.7, 1, 3]))
    np.testing.assert_allclose(found, [2, np.nan, 2, 1.25, 1.25])
    for rho, bias in ((-0.3, 0.0), (0.3, 0.6), (0.3, 1.0), (0.3, 2.0)):
        root = theory.half_weight_gamma(rho, 1e7, bias=bias)
        assert root == pytest.approx(theory.critical_gamma(rho, bias=bias), rel=1e-5)


def test_limits_of_the_weights():
    assert theory.scaled_self_weight_limit(0.3) == pytest.approx(1 / 0.3)
    assert theory.scaled_self_weight_limit(-0.3) == math.inf
    excess = theory.row_excess(GAMMA, 0.3, np.array([math.log(1e7), 300.0, 1000.0]), 1.0, 0.0)
    np.testing.assert_allclose(excess + 1, 1 / 0.3, rtol=1e-6)
    assert theory.self_weight_limit(np.array([1, 4]), -0.3).tolist() == [0, 1]
    assert theory.self_weight_limit(40.0, 0.3) == 0
    far = 1e9
    for rho, bias, gamma in ((0.5, 1.0, 2.0), (0.5, 3.0, 2.0), (-0.5, 0.0, 2.0)):
        limit = theory.self_weight_limit(gamma, rho, bias=bias)
        assert theory.self_weight(gamma, rho, far, bias=bias) == pytest.approx(limit, abs=1e-6)


def test_entropy_deficit():
    found = theory.scaled_entropy_deficit(GAMMA, 0.3, np.log([1e5, 1e9]))
    assert found[0] == pytest.approx(1.67984, abs=6e-6)
    assert found[1] == pytest.approx(theory.entropy_deficit_limit(0.3), rel=1e-7)
    slow = theory.scaled_entropy_deficit(1.0, 0.1, np.log([1e5, 1e9])) / theory.entropy_deficit_limit(0.1)
    assert 1 - slow == pytest.approx([0.30, 0.09], abs=0.01)
    assert theory.scaled_entropy_deficit(4.0, -0.3, 800.0) == math.inf
    assert theory.entropy(4.0, -0.3, 690.0) < 1e-20
    assert theory.entropy_deficit_limit(-0.1) == math.inf
    assert theory.entropy_deficit_limit(1.0) == 0


@settings(deadline=None, max_examples=200)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-2, 2), st.floats(0.1, 700), st.floats(0, 50), st.floats(1e-3, 5))
def test_the_self_weight_rises_with_gamma(rho, own, bias, log_n, gamma, step):
    low, high = (theory.self_weight(g, rho, log_n, self_score=own, bias=bias) for g in (gamma, gamma + step))
    assert 0 <= low <= 1
    assert (high - low) * np.sign(own - rho) >= -1e-12 * low


def test_a_large_bias_is_softmax():
    for gamma in (0.5, 1.4, 3.0):
        softmax = simplex.self_weight(gamma, 0.3, math.log(1024))
        assert theory.self_weight(gamma, 0.3, math.log(1024), bias=50) == pytest.approx(softmax, rel=1e-12)


def test_log_softplus_against_mpmath():
    for z in (-800.0, -40.0, -37.5, -36.5, -1.0, 0.0, 1e-9, 30.0, 1e5):
        with mpmath.workdps(400):
            exact = float(mpmath.log(exact_softplus(mpmath.mpf(z))))
        assert theory.log_softplus(z) == pytest.approx(exact, rel=1e-14, abs=1e-16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.self_weight(-1.0, 0.3, 5.0),
        lambda: theory.self_weight(1.0, 1.3, 5.0),
        lambda: theory.self_weight(1.0, 0.3, -5.0),
        lambda: theory.self_weight(1.0, 0.3, 5.0, self_score=-2),
        lambda: theory.self_weight(math.nan, 0.3, 5.0),
        lambda: theory.half_weight_gamma(0.3, 5.0, bias=math.inf),
        lambda: theory.scaled_self_weight_limit(1.5),
        lambda: theory.self_weight_limit(-1.0, 0.3),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(DomainError):
        call()
