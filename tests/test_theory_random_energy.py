import math

import mpmath
import numpy as np
import pytest

from critattn.errors import DomainError
from critattn.theory import random_energy


def at(b, n):
    """E sum A^2 at reduced inverse temperature b and n keys."""
    return random_energy.sum_of_squares(b * math.sqrt(2 * math.log(n)), math.log(n))


@pytest.mark.parametrize(
    ("n", "b", "value", "digits"),
    [
        (64, 0.5, 0.07889633, 8),
        (64, 1.0, 0.308333921066, 12),
        (64, 1.5, 0.49257386, 8),
        (64, 2.0, 0.60727279, 8),
        (64, 3.0, 0.73280778, 8),
        (16384, 1.0, 0.19718793, 8),
        (16384, 1.5, 0.42071031, 8),
        (16384, 2.0, 0.55695559, 8),
        (16384, 3.0, 0.70143245, 8),
        (1e20, 1.0, 0.087, 3),
    ],
)
def test_sum_of_squares_reference(n, b, value, digits):
    assert abs(at(b, n) - value) <= 0.5001 * 10.0**-digits


@pytest.mark.parametrize(("n", "b"), [(2, 1.0), (5, 0.3), (64, 0.5), (64, 2.5), (1024, 1.2)])
def test_sum_of_squares_against_monte_carlo(n, b):
    rng = np.random.default_rng(7)
    draws = 200_000 // n + 20_000 // 5
    scores = rng.standard_normal((draws, n)) * (b * math.sqrt(2 * math.log(n)))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    squares = (weights**2).sum(axis=1)
    # 4 standard errors
    assert abs(squares.mean() - at(b, n)) <= 4 * squares.std() / math.sqrt(draws)


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_sum_of_squares_of_two_keys(beta):
    # for n = 2 the sum is 1 - 2 A (1-A) with A = sigmoid(beta (g1 - g2)), and g1 - g2 is normal with variance 2
    with mpmath.workdps(20):
        scale = beta * mpmath.sqrt(2)

        def integrand(g):
            own = 1 / (1 + mpmath.exp(-scale * g))
            return (1 - 2 * own * (1 - own)) * mpmath.npdf(g)

        exact = float(mpmath.quad(integrand, [-12, -4, -1, 0, 1, 4, 12]))
    assert random_energy.sum_of_squares(beta, math.log(2)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("beta", "n"), [(0.3, 2), (1.99, 1e4), (2.01, 1e4), (9.6, 1e20), (40.0, 1e20), (5.0, 1e100)])
def test_sum_of_squares_stands_still_when_refined(beta, n):
    coarse = random_energy._sum_of_squares(beta, math.log(n))
    assert coarse == pytest.approx(random_energy._sum_of_squares(beta, math.log(n), refine=1.7), rel=1e-11)


def test_sum_of_squares_edges():
    assert random_energy.sum_of_squares(0.0, math.log(64)) == pytest.approx(1 / 64)
    assert random_energy.sum_of_squares(3.0, 0.0) == 1
    # annealed at high temperature: E w^2/(n (E w)^2), corrections O(e^(2 beta^2)/n)
    assert random_energy.sum_of_squares(0.5, math.log(1e12)) == pytest.approx(1e-12 * math.exp(0.25), rel=1e-9)
    # the two integration rules meet
    below, above = random_energy.sum_of_squares([2.0, 2.0 + 1e-12], math.log(1000))
    assert below == pytest.approx(above, rel=1e-10)
    assert random_energy.sum_of_squares(1e4, math.log(1000)) == pytest.approx(1, abs=1e-3)


def test_limits():
    b = np.array([0.5, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_allclose(random_energy.sum_of_squares_limit(b), [0, 0, 1 / 3, 0.5, 2 / 3])
    np.testing.assert_allclose(
        random_energy.poisson_dirichlet_moment(b[2:], 2), random_energy.sum_of_squares_limit(b[2:])
    )
    assert random_energy.poisson_dirichlet_moment(2.0, 1) == pytest.approx(1)
    assert random_energy.critical_beta(math.log(64)) == pytest.approx(math.sqrt(2 * math.log(64)))
    assert random_energy.free_energy_exponent([0.5, 1.0, 2.0]).tolist() == [1.25, 2, 4]


def test_poisson_dirichlet_moment_against_sticks():
    # size-biased weights of Poisson-Dirichlet(m, 0): first stick Beta(1-m, m), E sum A^k = E stick^(k-1)
    m, k = 0.4, 3.5
    with mpmath.workdps(20):
        expected = mpmath.beta(1 - m + k - 1, m) / mpmath.beta(1 - m, m)
    assert random_energy.poisson_dirichlet_moment(1 / m, k) == pytest.approx(float(expected))


def test_max_weight_limit_reference():
    assert random_energy.max_weight_limit(2.0) == pytest.approx(0.6265075987671754, abs=1e-12)
    assert random_energy.max_weight_limit(1.5) == pytest.approx(0.480308435870, abs=5.1e-13)
    np.testing.assert_array_equal(random_energy.max_weight_limit([0.0, 0.7, 1.0]), 0)
    # between the largest moments: E sum A^2 <= E max A <= sqrt(E sum A^2)
    b = np.array([1.01, 1.3, 4.0, 50.0])
    square = random_energy.sum_of_squares_limit(b)
    assert (square <= random_energy.max_weight_limit(b)).all()
    assert (random_energy.max_weight_limit(b) <= np.sqrt(square)).all()


def test_max_weight_limit_against_sampled_sticks():
    # Poisson-Dirichlet(m, 0) by stick breaking: stick k is Beta(1-m, k m); what 400 sticks leave is below
    # the largest nearly always at m = 1/2
    m, rng, draws = 0.5, np.random.default_rng(11), 20_000
    sticks = rng.beta(1 - m, m * np.arange(1, 401), size=(draws, 400))
    weights = sticks * np.cumprod(np.hstack([np.ones((draws, 1)), 1 - sticks[:, :-1]]), axis=1)
    largest = weights.max(axis=1)
    assert abs(largest.mean() - random_energy.max_weight_limit(2.0)) <= 4 * largest.std() / math.sqrt(draws)


def test_exponents():
    assert random_energy.typical_exponent([0.5, 1.0, 2.0]).tolist() == [-0.5, 0, 0]
    joint = 1 / math.sqrt(3)
    for function, knee in ((random_energy.typical_exponent, 0.5), (random_energy.mean_exponent, joint)):
        assert function(knee - 1e-9) == pytest.approx(function(knee + 1e-9), abs=1e-8)
    # the mean is dominated by rare rows: never below the typical value
    b = np.linspace(0, 1.5, 31)
    assert (random_energy.mean_exponent(b) >= random_energy.typical_exponent(b)).all()
    slope = math.log(at(0.5, 16384) / at(0.5, 64)) / math.log(256)
    assert slope == pytest.approx(-0.476, abs=5e-4)
    # far enough out the exact mean has the exponent, up to powers of log n
    for b in (0.4, 0.8):
        slope = math.log(at(b, 1e80) / at(b, 1e60)) / math.log(1e20)
        assert slope == pytest.approx(random_energy.mean_exponent(b), abs=0.01)


def test_refusals():
    for wrong in ((-1.0, 2.0), (math.nan, 2.0), (1.0, -0.1), (1.0, 701.0)):
        with pytest.raises(DomainError):
            random_energy.sum_of_squares(*wrong)
    for function in (random_energy.sum_of_squares_limit, random_energy.max_weight_limit):
        with pytest.raises(DomainError):
            function([1.0, -0.5])
    with pytest.raises(DomainError):
        random_energy.poisson_dirichlet_moment(0.9, 2)
    with pytest.raises(DomainError):
        random_energy.poisson_dirichlet_moment(2.0, 0.5)
