"""Finite-dimension theory against mpmath, Monte Carlo, direct simulation and published-size reference numbers."""

import mpmath
import numpy as np
import pytest
from scipy import optimize, special

from critattn.errors import DomainError
from critattn.theory import finite_dimension as fd
from critattn.theory.quadrature import CommonDirection, bessel_ratio, log_moment

LOG_2048 = np.log(2048)
LIST_47 = [
    (512, 24, 0.3, 1.723, 1.743),
    (512, 24, 0.5, 2.464, 2.500),
    (512, 24, 0.7, 4.197, 4.259),
    (4096, 48, 0.5, 2.282, 2.297),
    (1024, 64, 0.5, 2.167, 2.178),
    (1024, 16, 0.5, 2.915, 2.979),
]


def exact_log_moment(k, d):
    with mpmath.workdps(40):
        return mpmath.log(mpmath.hyp0f1(mpmath.mpf(d) / 2, mpmath.mpf(k) ** 2 / 4))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 10, 61, 62, 63, 64, 500, 10**4])
def test_log_moment_against_mpmath(d):
    for k in (1e-6, 1e-3, 0.1, 1.0, 3.0, 10.0, 15.6, 16.1, 30.0, 100.0, 1e3, 1e4):
        exact = exact_log_moment(k, d)
        assert abs(log_moment(k, d) / exact - 1) < 1e-12, k


@pytest.mark.parametrize("d", [1, 2, 3, 16, 63, 64, 10**4])
def test_bessel_ratio_against_mpmath(d):
    for k in (1e-6, 0.1, 1.0, 5.0, 20.0, 300.0, 1e4):
        with mpmath.workdps(40):
            exact = mpmath.mpf(k) / d * mpmath.exp(exact_log_moment(k, d + 2) - exact_log_moment(k, d))
        assert abs(bessel_ratio(k, d) / exact - 1) < 1e-11, k


def test_log_moment_special_dimensions_and_limits():
    k = np.array([0.0, 1e-8, 0.5, 4.0, 50.0, 700.0])
    np.testing.assert_allclose(log_moment(k, 1), np.logaddexp(k, -k) - np.log(2), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(log_moment(k, 2), np.log(special.ive(0, k)) + k, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(log_moment(4e8, 3), 4e8 - np.log(8e8), rtol=1e-15)
    assert log_moment(1.0, 1e301) == pytest.approx(0.5e-301, rel=1e-12)
    assert log_moment(1e301, 1e301) == pytest.approx(log_moment(1e8, 1e8) / 1e8 * 1e301, rel=1e-7)
    assert log_moment(k[:, None], np.array([2.0, 100.0])).shape == (6, 2)
    assert bessel_ratio(1e9, 3) == pytest.approx(1 - 1e-9, rel=1e-14)


def test_reference_numbers():
    assert fd.gaussian_gamma(0, LOG_2048, 64) == pytest.approx(1.0679357594, abs=6e-11)
    assert fd.gaussian_gamma(0.5, LOG_2048, 64) == pytest.approx(2.1978171802, abs=6e-11)
    assert fd.annealed_half_weight_gamma(LOG_2048, 16) == pytest.approx(1.4044994693, abs=6e-11)
    assert fd.annealed_half_weight_gamma(LOG_2048, 16) * LOG_2048 == pytest.approx(10.7087733198, abs=6e-11)
    assert fd.large_deviation_gamma(2.5, 10) == pytest.approx(1.162483434712, abs=6e-13)
    assert bessel_ratio(5, 16) == pytest.approx(0.288966189577, abs=6e-13)
    assert log_moment(5, 16) == pytest.approx(0.750456510474, abs=6e-13)


@pytest.mark.parametrize(("n", "d", "rho", "mean", "median"), LIST_47)
def test_common_direction_half_weights(n, d, rho, mean, median):
    assert fd.half_weight_gamma(rho, np.log(n), d) == pytest.approx(mean, abs=5.1e-4)
    assert fd.median_half_weight_gamma(rho, np.log(n), d) == pytest.approx(median, abs=5.1e-4)


@pytest.mark.parametrize(
    ("d", "annealed", "large_deviation", "gaussian"),
    [
        (512, 1.007, 1.008, 1.008),
        (64, 1.067, 1.067, 1.068),
        (32, 1.153, 1.153, 1.160),
        (16, 1.404, 1.396, 1.644),
        (8, 2.52, 2.32, np.nan),
        (4, 18.2, 8.6, np.nan),
    ],
)
def test_uniform_sphere_columns(d, annealed, large_deviation, gaussian):
    digits = 6e-4 if d >= 16 else 6e-3 if d == 8 else 0.06
    assert fd.half_weight_gamma(0, LOG_2048, d) == pytest.approx(annealed, abs=digits)
    assert fd.large_deviation_gamma(LOG_2048, d) == pytest.approx(large_deviation, abs=digits)
    assert fd.gaussian_gamma(0, LOG_2048, d) == pytest.approx(gaussian, abs=digits, nan_ok=True)


@pytest.mark.parametrize(
    ("d", "beta", "eta"),
    [(4, 3, 0.2433), (16, 5, 0.0919), (64, 6, 0.0447), (64, 8, 0.2875), (128, 7.6, 0.2255)],
)
def test_gradient_norm_list(d, beta, eta):
    log_n = np.log(2000)
    assert fd.gradient_norm(beta / log_n, log_n, d) == pytest.approx(eta, abs=5.1e-5)


def test_large_deviation_limits():
    assert fd.large_deviation_gamma(1.0, 1e12) == pytest.approx(1, abs=1e-11)
    assert fd.large_deviation_gamma(690.0, 1e301) == 1.0
    for load in (0.01, 0.001):
        assert fd.large_deviation_gamma(load * 1e4, 1e4) - 1 == pytest.approx(load / 2, rel=0.05)
    log_n, d = 60.0, 4.0
    beta = fd.large_deviation_gamma(log_n, d) * log_n
    assert beta == pytest.approx(d / np.e * np.exp(2 * log_n / d), rel=1e-6)
    assert fd.large_deviation_gamma(800.0, 1) == np.inf


def test_large_deviation_is_the_limit_of_the_annealed_root():
    errors = [
        fd.annealed_half_weight_gamma(0.25 * d, d) / fd.large_deviation_gamma(0.25 * d, d) - 1 for d in (1e2, 1e3, 1e4)
    ]
    assert abs(errors[2]) < 1e-4
    assert abs(errors[1]) < abs(errors[0]) / 5


def test_annealed_root_solves_its_equation():
    for log_n, d in [(np.log(3), 2), (7.0, 5), (690.0, 1000), (690.0, 1e301)]:
        beta = fd.annealed_half_weight_gamma(log_n, d) * log_n
        others = log_n + np.log1p(-np.exp(-log_n))
        assert beta - log_moment(beta, d) == pytest.approx(others, rel=1e-12)
    assert fd.annealed_half_weight_gamma(np.log(2), 8) == 0
    assert fd.annealed_half_weight_gamma(np.log(4), 1) == np.inf
    assert np.isnan(fd.half_weight_gamma(0, LOG_2048, 2))
    assert fd.half_weight_gamma(0, LOG_2048, 4, gamma_max=18.0) != fd.half_weight_gamma(0, LOG_2048, 4)


@pytest.mark.parametrize(("rho", "d"), [(0.5, 24), (0.3, 3), (0.9, 2), (0.99, 10**6), (0.05, 400)])
def test_law_of_the_cosine_against_monte_carlo(rho, d):
    rng, size = np.random.default_rng(7), 200_000
    along = np.sqrt(rho * d / (1 - rho)) + rng.standard_normal(size)
    cosine = along / np.sqrt(along**2 + rng.chisquare(d - 1, size))
    law = CommonDirection(rho, d)
    angle, weights = law.nodes(128)
    for power in (1, 2, 3):
        sample = cosine**power
        exact = weights @ np.cos(angle) ** power
        assert abs(sample.mean() - exact) < 4 * sample.std() / np.sqrt(size) + 1e-9
    below = np.mean(cosine < np.cos(law.median))
    assert abs(below - 0.5) < 4 * 0.5 / np.sqrt(size)


def test_mean_over_keys_against_monte_carlo():
    rho, d, beta, size = 0.5, 12, 8.0, 400_000
    rng = np.random.default_rng(3)
    common = np.zeros(d)
    common[0] = np.sqrt(d)
    keys = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((size, d))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    angle = np.array([0.5, 0.9])
    crowd = CommonDirection(rho, d).log_crowd(np.full(2, beta), angle, count=64)
    for a, exact in zip(angle, np.exp(crowd), strict=True):
        sample = np.exp(beta * (np.cos(a) * keys[:, 0] + np.sin(a) * keys[:, 1]))
        assert abs(sample.mean() - exact) < 4 * sample.std() / np.sqrt(size)


def test_limits_join():
    for d in (6, 40):
        assert fd.half_weight_gamma(1e-12, 7.0, d) == pytest.approx(fd.half_weight_gamma(0, 7.0, d), rel=1e-9)
    below, above = fd.half_weight_gamma(0.5, 7.0, np.array([6.99e7, 7.01e7]))
    assert below == pytest.approx(above, rel=1e-8)
    np.testing.assert_allclose(*fd.self_weight(2.0, 0.5, 7.0, np.array([[6.99e7], [7.01e7]])), rtol=1e-6)
    simplex = np.log(1e300 - 1) / (0.5 * np.log(1e300))
    assert fd.half_weight_gamma(0.5, np.log(1e300), 1e301) == pytest.approx(simplex, rel=1e-14)
    for d in (1e4, 1e6):
        typical = fd.median_half_weight_gamma(0.5, 7.0, d)
        assert typical == pytest.approx(fd.gaussian_gamma(0.5, 7.0, d) * np.log(np.expm1(7)) / 7, rel=2.5 / d)


def test_self_weight_meets_the_half_weight_point():
    for rho, d in [(0.0, 24), (0.5, 24), (0.7, 5)]:
        gamma = fd.half_weight_gamma(rho, 6.0, d)
        assert fd.self_weight(gamma, rho, 6.0, d) == pytest.approx(0.5, abs=1e-8)
    curve = fd.self_weight(np.linspace(0, 50, 26), 0.5, 6.0, 24)
    assert curve[0] == pytest.approx(np.exp(-6.0), rel=1e-12)
    assert np.all(np.diff(curve) > 0)
    assert curve[-1] > 1 - 1e-9
    assert isinstance(fd.self_weight(1.0, 0.5, 6.0, 24), float)


def test_quadrature_stands_still():
    found = fd.solve_half_weight(0.5, np.log(1e300), 300.0)
    assert found.residual < 1e-8
    assert found.nodes <= 1024
    assert fd.solve_half_weight(0.99, 7.0, 1e6).residual < 1e-8
    missing = fd.solve_half_weight(0.5, np.log(512), 2, gamma_max=100.0)
    assert np.isnan(missing.gamma)
    assert fd.half_weight_gamma(0.5, np.log(2), 8) == 0


def test_row_disorder():
    sizes = [(256, 0.5, 0.081), (64, 0.5, 0.185), (32, 0.5, 0.305), (64, 0.2, 0.077), (128, 0.8, 0.339)]
    for d, rho, simulated in sizes:
        assert fd.row_disorder(rho, np.log(1024), d) == pytest.approx(simulated, rel=0.03)
    leading = [0.078, 0.167, 0.265, 0.071, 0.320]
    for (d, rho, _), value in zip(sizes, leading, strict=True):
        assert fd.row_disorder_leading(rho, np.log(1024), d) == pytest.approx(value, abs=6e-4)
    assert fd.row_disorder(0, 7.0, 24) == 0
    assert fd.row_disorder(0.5, 7.0, 1e6) == pytest.approx(fd.row_disorder_leading(0.5, 7.0, 1e6), rel=1e-3)
    np.testing.assert_allclose(*fd.row_disorder(0.5, 7.0, np.array([[6.99e7], [7.01e7]])), rtol=2e-3)


def test_closed_forms():
    assert fd.score_variance(0.5, 10) == pytest.approx(0.25 * 1.375 / 10)
    assert fd.row_mean_variance(0.5, 10) == pytest.approx(0.25 * 0.375 / 10)
    assert fd.effective_rho(0.5, 3.0) == pytest.approx(0.75)
    assert fd.width(0.5, np.log(65536)) == pytest.approx(0.79, abs=0.003)
    low, high = fd.row_bounds(0.0, np.array([0.5, 1.0]), np.log(101))
    assert low == pytest.approx(np.log(100) / np.log(101))
    np.testing.assert_allclose(high, [2 * low, np.inf])
    stated = fd.error_class([0, 0, 0, 0, 0.5, 0.5, 0.5], 7.0, [16, 8, 4, 3, 16, 8, 7])
    np.testing.assert_array_equal(stated, [0.005, 0.02, 0.08, np.nan, 0.005, 0.02, np.nan])
    small = fd.error_class(0.5, np.log([128, 127, 32, 31]), 16)
    np.testing.assert_array_equal(small, [0.005, 0.01, 0.01, np.nan])


@pytest.mark.parametrize(
    "call",
    [
        lambda: fd.half_weight_gamma(1.0, 7.0, 8),
        lambda: fd.half_weight_gamma(-0.1, 7.0, 8),
        lambda: fd.half_weight_gamma(0.5, 0.0, 8),
        lambda: fd.half_weight_gamma(0.5, 7.0, 1),
        lambda: fd.half_weight_gamma(0.5, 7.0, 8, gamma_max=0),
        lambda: fd.solve_half_weight(0.5, 7.0, 8, kind="mode"),
        lambda: fd.self_weight(-1.0, 0.5, 7.0, 8),
        lambda: fd.self_weight(np.nan, 0.5, 7.0, 8),
        lambda: fd.row_bounds(0.5, 0.2, 7.0),
        lambda: fd.effective_rho(0.5, 0.0),
        lambda: log_moment(-1.0, 3),
        lambda: log_moment(1.0, 0.5),
        lambda: fd.width(0.5, np.inf),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(DomainError):
        call()


def draw_cosines(rng, n, d, rho):
    common = rng.standard_normal(d)
    common *= np.sqrt(d) / np.linalg.norm(common)
    tokens = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((n, d))
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    return tokens @ tokens.T


def self_weights(cosines, gamma):
    return np.exp(-special.logsumexp(gamma * np.log(len(cosines)) * (cosines - 1), axis=1))


def simulate(n, d, rho, *, draws, reduce=np.mean):
    rng, roots = np.random.default_rng(11), []
    for _ in range(draws):
        cosines = draw_cosines(rng, n, d, rho)
        np.fill_diagonal(cosines, 1.0)

        def excess(gamma, scores=cosines):
            return reduce(self_weights(scores, gamma)) - 0.5

        roots.append(optimize.brentq(excess, 0.3 / (1 - rho), 20 / (1 - rho), xtol=1e-5))
    return np.mean(roots), np.std(roots, ddof=1) / np.sqrt(draws)


@pytest.mark.parametrize(
    ("n", "d", "rho", "draws"),
    [(256, 24, 0.5, 24), (512, 24, 0.3, 8), (512, 16, 0.0, 8), (128, 8, 0.5, 40), (32, 16, 0.0, 60)],
)
def test_half_weight_against_simulation(n, d, rho, draws):
    mean, error = simulate(n, d, rho, draws=draws)
    formula = fd.half_weight_gamma(rho, np.log(n), d)
    assert abs(mean - formula) < 4 * error + fd.error_class(rho, np.log(n), d) * formula
    cosines = draw_cosines(np.random.default_rng(5), n, d, rho)
    gamma, log_n = 0.8 * formula, np.log(n)
    assert np.mean(self_weights(cosines, gamma)) == pytest.approx(fd.self_weight(gamma, rho, log_n, d), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "rho", "draws"),
    [(512, 24, 0.7, 60), (1024, 64, 0.5, 20), (2048, 32, 0.5, 6), (2048, 16, 0.0, 4), (2048, 8, 0.0, 4)],
)
def test_half_weight_against_larger_simulation(n, d, rho, draws):
    log_n = np.log(n)
    mean, error = simulate(n, d, rho, draws=draws)
    formula = fd.half_weight_gamma(rho, log_n, d)
    assert abs(mean - formula) < 4 * error + fd.error_class(rho, log_n, d) * formula
    median, error = simulate(n, d, rho, draws=draws, reduce=np.median)
    formula = fd.median_half_weight_gamma(rho, log_n, d)
    assert abs(median - formula) < 4 * error + fd.error_class(rho, log_n, d) * formula


def test_row_bounds_hold_for_every_row():
    cosines = draw_cosines(np.random.default_rng(2), 64, 12, 0.4)
    others = cosines[~np.eye(64, dtype=bool)].reshape(64, 63)
    low, high = fd.row_bounds(others.min(axis=1), others.max(axis=1), np.log(64))
    np.fill_diagonal(cosines, 1.0)
    for row in range(64):

        def weight(gamma, row=row):
            return self_weights(cosines, gamma)[row] - 0.5

        assert weight(low[row] * (1 - 1e-9)) <= 0 <= weight(high[row] * (1 + 1e-9))
