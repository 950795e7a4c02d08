import math

import mpmath
import numpy as np
import pytest

from critattn.errors import DomainError
from critattn.theory import mixed, simplex

LOG_N = math.log(65536)


def tau_at(y, rho=0.5, log_n=LOG_N):
    return y * (1 - rho) / math.sqrt(2 * log_n)


# y is printed to 3 decimals, and gamma moves by y/sqrt(1-y^2) times as much
@pytest.mark.parametrize(
    ("y", "gamma", "tolerance"), [(0.471, 2.125, 1e-3), (0.754, 2.413, 2e-3), (0.942, 2.994, 6e-3)]
)
def test_critical_gamma_reference(y, gamma, tolerance):
    assert mixed.critical_gamma(tau_at(y), 0.5, LOG_N) == pytest.approx(gamma, abs=tolerance)
    tau = tau_at(y)
    # the form with the difference of two large terms
    direct = 0.5 / (tau**2 * LOG_N) * (1 - math.sqrt(1 - 2 * tau**2 * LOG_N / 0.25))
    assert mixed.critical_gamma(tau, 0.5, LOG_N) == pytest.approx(direct, rel=1e-13)


def test_critical_gamma_solves_the_annealed_condition():
    # n^(1 - gamma theta + gamma^2 tau^2 log n/2) = 1
    tau = np.array([0.01, 0.05, 0.09])
    gamma = mixed.critical_gamma(tau, 0.5, LOG_N)
    np.testing.assert_allclose(1 - gamma * 0.5 + gamma**2 * tau**2 * LOG_N / 2, 0, atol=1e-14)


def test_critical_gamma_edges():
    assert mixed.critical_gamma(0.0, 0.3, LOG_N) == pytest.approx(simplex.critical_gamma(0.3))
    assert math.isnan(mixed.critical_gamma(tau_at(1.001), 0.5, LOG_N))
    assert mixed.reduced_disorder(tau_at(0.7), 0.5, LOG_N) == pytest.approx(0.7)


@pytest.mark.parametrize(("y", "probability"), [(1.13, 0.533), (1.0, 0.911), (1.3, 0.030)])
def test_crossing_probability_reference(y, probability):
    log_n = math.log(4096)
    assert mixed.crossing_probability(tau_at(y, log_n=log_n), 0.5, log_n) == pytest.approx(probability, abs=5.1e-4)


@pytest.mark.parametrize("n", [2, 3, 4096, 1e12, 1e300])
@pytest.mark.parametrize("y", [0.4, 0.99, 1.02, 3.0])
def test_crossing_probability_against_mpmath(n, y):
    log_n = math.log(n)
    tau = tau_at(y, log_n=log_n)
    with mpmath.workdps(700):
        others = mpmath.exp(mpmath.mpf(log_n)) - 1
        exact = float(mpmath.exp(others * mpmath.log(mpmath.ncdf(mpmath.mpf(0.5) / tau))))
    # the tail's exponent, up to 4300 at n = 1e300, is rounded to 1e-12
    assert mixed.crossing_probability(tau, 0.5, log_n) == pytest.approx(exact, rel=1e-11, abs=1e-300)


def test_crossing_probability_against_simulation():
    n, tau, rng, rows = 64, 0.2, np.random.default_rng(3), 20_000
    hits = (0.5 + tau * rng.standard_normal((rows, n - 1)) < 1).all(axis=1)
    probability = mixed.crossing_probability(tau, 0.5, math.log(n))
    # 4 standard errors
    assert abs(hits.mean() - probability) <= 4 * math.sqrt(probability * (1 - probability) / rows)
    assert mixed.crossing_probability(0.0, 0.5, 5.0) == 1
    assert mixed.crossing_probability(3.0, 0.5, 0.0) == 1


@pytest.mark.parametrize(("n", "y"), [(4096, 1.138), (65536, 1.108)])
def test_median_boundary_reference(n, y):
    tau = mixed.median_boundary(0.5, math.log(n))
    assert mixed.reduced_disorder(tau, 0.5, math.log(n)) == pytest.approx(y, abs=5.1e-4)


@pytest.mark.parametrize("log_n", [1.2, 3.0, 20.0, 35.0, 690.8, 1e4])
def test_median_boundary_is_where_half_of_the_rows_cross(log_n):
    tau = mixed.median_boundary(np.array([-0.2, 0.5]), log_n)
    # a relative error of 2e-14 of the quantile, amplified by its square 2 log n
    tolerance = 2e-14 * max(20, 2 * log_n)
    np.testing.assert_allclose(mixed.crossing_probability(tau, np.array([-0.2, 0.5]), log_n), 0.5, rtol=tolerance)


def test_median_boundary_edges():
    assert mixed.median_boundary(0.5, math.log(2)) == math.inf
    assert mixed.median_boundary(0.5, 0.0) == math.inf
    far = mixed.median_boundary(0.5, 1e6)
    assert mixed.reduced_disorder(far, 0.5, 1e6) == pytest.approx(1, abs=1e-5)


def test_phases_meet():
    point = mixed.triple_point(0.5, LOG_N)
    assert point.gamma == 4
    assert mixed.reduced_disorder(point.tau, 0.5, LOG_N) == pytest.approx(1)
    assert mixed.freezing_beta(point.tau, LOG_N) == pytest.approx(point.gamma * LOG_N)
    assert mixed.critical_gamma(point.tau * (1 - 1e-12), 0.5, LOG_N) == pytest.approx(point.gamma, rel=1e-5)
    assert mixed.freezing_beta(0.0, LOG_N) == math.inf


def test_self_weight_of_simulated_rows_at_the_critical_gamma():
    # the median row crosses at gamma_c: y = .5, stated error .1 %; the median over 4000 rows adds 4 s.e.
    n, rho, rng, rows = 4096, 0.5, np.random.default_rng(5), 400
    log_n = math.log(n)
    tau = tau_at(0.5, log_n=log_n)
    scores = rho + tau * rng.standard_normal((rows, n - 1)) - 1

    def median(gamma):
        return np.median(np.exp(gamma * log_n * scores).sum(axis=1))

    gamma = mixed.critical_gamma(tau, rho, log_n)
    assert median(gamma * 1.01) < 1 < median(gamma * 0.99)


def test_refusals():
    for function in (mixed.critical_gamma, mixed.crossing_probability, mixed.reduced_disorder):
        for wrong in ((-0.1, 0.5, 3.0), (0.1, 1.0, 3.0), (0.1, 0.5, -1.0), (math.nan, 0.5, 3.0)):
            with pytest.raises(DomainError):
                function(*wrong)
