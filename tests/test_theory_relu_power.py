"""ReLU^p re-weighting against direct simulation, other quadratures, mpmath and reference numbers."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from critattn.errors import DomainError
from critattn.theory import needle, reweighting
from critattn.theory import relu_power as theory

# n, d, rho, simulation of reference, predictor by a quadrature good to 2e-4, printed to three digits: 27 cases
CASES = [
    (256, 16, 0.1, 3.896, 3.922),
    (256, 16, 0.3, 4.456, 4.498),
    (256, 16, 0.6, 4.805, 4.876),
    (1024, 16, 0.1, 5.896, 5.930),
    (1024, 16, 0.3, 6.660, 6.700),
    (1024, 16, 0.6, 7.150, 7.196),
    (4096, 16, 0.1, 8.371, 8.378),
    (4096, 16, 0.3, 9.367, 9.369),
    (4096, 16, 0.6, 10.008, 10.004),
    (256, 64, 0.1, 2.273, 2.271),
    (256, 64, 0.3, 2.506, 2.514),
    (256, 64, 0.6, 2.596, 2.607),
    (1024, 64, 0.1, 3.183, 3.184),
    (1024, 64, 0.3, 3.473, 3.475),
    (1024, 64, 0.6, 3.595, 3.599),
    (4096, 64, 0.1, 4.165, 4.162),
    (4096, 64, 0.3, 4.507, 4.506),
    (4096, 64, 0.6, 4.664, 4.665),
    (256, 256, 0.1, 1.656, 1.662),
    (256, 256, 0.3, 1.751, 1.757),
    (256, 256, 0.6, 1.799, 1.802),
    (1024, 256, 0.1, 2.276, 2.279),
    (1024, 256, 0.3, 2.379, 2.384),
    (1024, 256, 0.6, 2.444, 2.445),
    (4096, 256, 0.1, 2.905, 2.907),
    (4096, 256, 0.3, 3.028, 3.027),
    (4096, 256, 0.6, 3.107, 3.105),
]
LAMBERT = [5.726, 6.826, 9.329, 10.191, *[np.nan] * 5, 2.729, 2.857, 2.986, 3.683, 3.875, 4.073, 4.735, 5.010, 5.296]
LAMBERT += [1.910, 1.966, 2.019, 2.504, 2.582, 2.657, 3.131, 3.234, 3.333]
GAUSSIAN = [4.995, 5.791, 7.072, 8.581, *[np.nan] * 5, 2.483, 2.596, 2.710, 3.417, 3.592, 3.770, 4.448, 4.700, 4.961]
GAUSSIAN += [1.747, 1.797, 1.846, 2.337, 2.409, 2.478, 2.959, 3.055, 3.148]
BETA = [4.642, 5.119, 5.651, 6.937, 7.791, 8.776, 9.804, 11.227, 12.919, 2.479, 2.591, 2.703, 3.403, 3.572, 3.742]
BETA += [4.413, 4.651, 4.892, 1.747, 1.798, 1.846, 2.336, 2.408, 2.478, 2.957, 3.053, 3.145]


def draw(rng, n, d, rho, *, unit_norm=True):
    common = rng.standard_normal(d)
    common *= np.sqrt(d) / np.linalg.norm(common)
    tokens = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((n, d))
    return tokens / np.linalg.norm(tokens, axis=1, keepdims=True) if unit_norm else tokens


def excesses(scores, steepness):
    """n a - 1, cut at 0, of the first stage as it is written down."""
    first = np.logaddexp(0, steepness * scores)
    first /= first.sum(axis=1, keepdims=True)
    return np.maximum(len(scores) * first - 1, 0)


def self_weights(scores, steepness, p):
    """Both stages, the second from the excesses to the power p."""
    second = excesses(scores, steepness) ** p
    return second.diagonal() / second.sum(axis=1)


def simulate(n, d, rho, *, draws, seed=3):
    """Half-weight p of the mean over the rows of each draw, with its standard error."""
    rng, roots = np.random.default_rng(seed), []
    for _ in range(draws):
        tokens = draw(rng, n, d, rho)
        over = excesses(tokens @ tokens.T, np.log(d) * np.log(n))

        def excess(p, over=over):
            second = over**p
            return (second.diagonal() / second.sum(axis=1)).mean() - 0.5

        roots.append(optimize.brentq(excess, 0.5, 20, xtol=1e-4))
    return np.mean(roots), np.std(roots, ddof=1) / np.sqrt(draws)


def plain_quadrature(n, d, rho, *, rows=32, keys=64, angles=500, guess=3.0):
    """The same average in quantiles of the noncentral t law and a fixed grid of angles."""
    steepness = np.log(d) * np.log(n)

    def cosines(count):
        nodes, weights = special.roots_legendre(count)
        v = stats.nct.ppf((nodes + 1) / 2, d - 1, np.sqrt(rho * d / (1 - rho))) / np.sqrt(d - 1)
        return v / np.sqrt(1 + v**2), weights / 2

    (t, row_weights), (u, key_weights) = cosines(rows), cosines(keys)
    nodes, weights = special.roots_legendre(angles)
    angle = np.pi * (nodes + 1) / 2
    weights = weights * np.sin(angle) ** (d - 3)
    weights /= weights.sum()
    along = t[:, None, None] * u[:, None]
    across = np.sqrt(1 - t**2)[:, None, None] * np.sqrt(1 - u**2)[:, None]
    values = np.logaddexp(0, steepness * (along + across * np.cos(angle)))
    top = np.logaddexp(0, steepness)
    mean = (top + (n - 1) * (values @ weights @ key_weights)) / n
    ratio = np.maximum(values - mean[:, None, None], 0) / (top - mean)[:, None, None]

    def excess(p):
        odds = (n - 1) * (ratio**p @ weights @ key_weights)
        return row_weights @ (1 / (1 + odds)) - 0.5

    return optimize.brentq(excess, guess / 3, guess * 3, xtol=1e-7)


def test_reference_numbers():
    log_n = math.log(1024)
    assert theory.critical_p_lambert(0, log_n, 64) == pytest.approx(3.566116952855, abs=6e-13)
    assert theory.critical_p_gaussian(0, log_n, 64) == pytest.approx(3.311512561293, abs=6e-13)
    assert theory.critical_p_beta(0, log_n, 64) == pytest.approx(3.300277437068, abs=6e-13)
    assert math.exp(needle.log_half_moment(15)) == pytest.approx(257365.643933, abs=6e-7)
    limit = needle.log_length_limit(15, math.sqrt(15))
    assert math.expm1(limit.log_n) == pytest.approx(2571.188227795, abs=2e-9)
    assert theory.critical_p(0.3, log_n, 64) == pytest.approx(3.4753, abs=2e-4)
    assert theory.critical_p(0.6, math.log(4096), 16) == pytest.approx(10.004, abs=2e-4)
    assert theory.critical_p(0.1, math.log(256), 256) == pytest.approx(1.6618, abs=2e-4)
    assert 1 + theory.diagonal_excess(math.log(64), 0.3, log_n) == pytest.approx(3.32568787006567)


@pytest.mark.parametrize(
    ("name", "low", "high", "digits"),
    [
        ("float16", 0.314980, 2.094554, 6e-7),
        ("bfloat16", 0.0020455, 370.4526, 5e-5),
        ("float32", 9.765625e-4, 370.500924, 6e-7),
    ],
)
def test_range_of_a_format(name, low, high, digits):
    found = theory.usable_excess(15, name)
    assert found == (pytest.approx(low, abs=5e-8 if name != "float16" else 5e-7), pytest.approx(high, abs=digits))


@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("p", [2.5, 3, 15])
def test_range_of_a_format_by_casting(name, p):
    low, high = theory.usable_excess(p, name)
    dtype = np.dtype(name).type
    with np.errstate(over="ignore"):
        cast = [
            dtype(float(x) ** p) for x in (low * (1 - 1e-6), low * (1 + 1e-6), high * (1 - 1e-6), high * (1 + 1e-6))
        ]
    assert [cast[0] == 0, cast[1] > 0, np.isfinite(cast[2]), np.isinf(cast[3])] == [True] * 4


def test_range_of_other_powers():
    assert theory.usable_excess(3, "float16") == (pytest.approx(0.00310039, abs=5e-9), pytest.approx(40.3142, abs=5e-5))
    assert theory.usable_excess(3, "bfloat16")[1] == pytest.approx(6.97692e12, rel=1e-6)
    assert theory.usable_excess(0.5, "float64")[1] == math.inf
    # n A_ii = 1 + x is 1/rho on the simplex
    assert 1 / (1 + theory.usable_excess(15, "float16")[1]) == pytest.approx(0.32315, abs=5e-6)


@pytest.mark.parametrize("column", ["critical_p_lambert", "critical_p_gaussian", "critical_p_beta"])
def test_closed_predictors_give_their_columns(column):
    expected = {"critical_p_lambert": LAMBERT, "critical_p_gaussian": GAUSSIAN, "critical_p_beta": BETA}[column]
    n, d, rho = (np.array(part) for part in list(zip(*CASES, strict=True))[:3])
    np.testing.assert_allclose(getattr(theory, column)(rho, np.log(n), d), expected, atol=5.1e-4)


@pytest.mark.parametrize(("n", "d", "rho", "simulated", "quoted"), CASES[::4])
def test_the_predictor_gives_its_column(n, d, rho, simulated, quoted):
    found = theory.critical_p(rho, math.log(n), d)
    # printed to three decimals from a coarser rule, good to 2e-4
    assert found == pytest.approx(quoted, abs=2e-4 * quoted + 5e-4)
    assert found == pytest.approx(simulated, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "rho", "simulated", "quoted"), CASES)
def test_the_predictor_against_a_long_simulation(n, d, rho, simulated, quoted):
    found = theory.critical_p(rho, math.log(n), d)
    assert found == pytest.approx(quoted, abs=2e-4 * quoted + 5e-4)
    mean, error = simulate(n, d, rho, draws=max(4, 12_000 // n))
    assert error < 0.003 * mean
    assert abs(mean - found) < 0.02 * found


@pytest.mark.parametrize(
    ("n", "d", "rho"),
    [(256, 16, 0.3), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((256, 64, 0.1), (256, 256, 0.6)))],
)
def test_the_predictor_against_simulation(n, d, rho):
    found = theory.critical_p(rho, math.log(n), d)
    mean, error = simulate(n, d, rho, draws=40)
    assert error < 0.003 * mean
    assert abs(mean - found) < 0.02 * found
    p = 0.8 * found
    tokens = draw(np.random.default_rng(8), n, d, rho)
    weights = self_weights(tokens @ tokens.T, np.log(d) * np.log(n), p)
    assert weights.mean() == pytest.approx(theory.self_weight(p, rho, math.log(n), d), abs=0.06)


@pytest.mark.parametrize(
    ("n", "d", "rho"),
    [
        (1024, 64, 0.3),
        (50, 3, 0.2),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((256, 16, 0.6), (100, 6, 0.4))),
    ],
)
def test_the_predictor_against_another_quadrature(n, d, rho):
    found = theory.critical_p(rho, math.log(n), d)
    plain = plain_quadrature(n, d, rho, keys=128, rows=48, angles=800, guess=found)
    assert found == pytest.approx(plain, rel=2e-4)


@pytest.mark.parametrize(("n", "d", "p"), [(512, 24, 3.5), (64, 3, 20.0), (1024, 64, 0.4), (200, 5, 1.0)])
def test_one_row_on_the_sphere_against_adaptive_integration(n, d, p):
    steepness = math.log(d) * math.log(n)

    def value(s):
        return math.log1p(math.exp(-abs(steepness * s))) + max(steepness * s, 0)

    def average(f, low=-1.0):
        norm = special.beta(0.5, (d - 1) / 2)
        inside = [point for point in (0.0, 0.1, 0.4) if point > low]
        return integrate.quad(
            lambda angle: f(math.sin(angle)) * math.cos(angle) ** (d - 2) / norm,
            math.asin(low),
            math.pi / 2,
            points=[math.asin(point) for point in inside],
            epsabs=1e-14,
            epsrel=1e-11,
            limit=400,
        )[0]

    mean = (value(1.0) + (n - 1) * average(value)) / n
    edge = optimize.brentq(lambda s: value(s) - mean, -1, 1, xtol=1e-15)
    odds = (n - 1) * average(lambda s: max(value(s) - mean, 0.0) ** p, edge) / (value(1.0) - mean) ** p
    assert theory.self_weight(p, 0.0, math.log(n), d) == pytest.approx(1 / (1 + odds), rel=1e-6)


def test_without_normalisation_scores_are_gaussian():
    for n, d, rho, quoted, simulated in [
        (256, 64, 0.3, 2.684, 2.692),
        (1024, 64, 0.3, 3.768, 3.756),
        (1024, 256, 0.3, 2.472, 2.462),
    ]:
        found = theory.critical_p(rho, math.log(n), d, unit_norm=False)
        assert found == pytest.approx(quoted, abs=5.1e-4)
        assert found == pytest.approx(simulated, rel=0.01)


def test_stated_value_at_rho_0():
    assert theory.critical_p(0, math.log(512), 24) == pytest.approx(3.524, abs=5e-4)
    assert theory.critical_p_beta(0, math.log(512), 24) == pytest.approx(4.219, abs=5e-4)
    assert theory.critical_p(1e-9, math.log(512), 24) == pytest.approx(
        theory.critical_p(0, math.log(512), 24), rel=1e-6
    )


def test_the_gaussian_row_joins_the_geometry():
    log_n, d, steepness = 100.0, 5e7, 18.0 * 100
    for rho in (0.0, 0.3):
        sigma = (1 - rho) * math.sqrt((1 + rho - rho**2 / 2) / d)
        gaussian = reweighting.gaussian_rows(steepness, rho, log_n, sigma)
        exact = reweighting.rows_of(steepness, rho, log_n, d, count=16)
        root = theory.critical_p(rho, log_n, d, gamma=18.0)
        assert exact.self_weight(root) == pytest.approx(0.5, abs=1e-4)
        assert gaussian.self_weight(root) == pytest.approx(0.5, abs=3e-3)


def test_monotonicity_and_shape():
    curve = theory.self_weight(np.linspace(0.5, 8, 6), 0.3, math.log(256), 16)
    assert np.all(np.diff(curve) > 0)
    root = theory.critical_p(0.3, math.log(256), 16)
    assert theory.self_weight(root, 0.3, math.log(256), 16) == pytest.approx(0.5, abs=1e-6)
    sizes = theory.critical_p(0.3, np.log([64.0, 256, 4096]), 16)
    dims = theory.critical_p(0.3, math.log(256), np.array([8, 16, 64]))
    assert np.all(np.diff(sizes) > 0)
    assert np.all(np.diff(dims) < 0)
    assert isinstance(root, float)


def test_where_there_is_none():
    assert theory.critical_p(0.3, math.log(3), 16) == 0
    assert theory.critical_p(0.3, math.log(5), 16) == 0
    # the self score lifts the mean above all noise
    assert theory.critical_p(0.3, math.log(65536), 1e12) == 0
    assert math.isnan(theory.critical_p(0.3, 690.0, 256))
    assert math.isnan(theory.critical_p(0.3, math.log(256), 3, p_max=50))
    assert theory.critical_p(0.3, math.log(256), 3) > 50
    assert math.isnan(theory.critical_p_lambert(0.3, math.log(1024), 16))
    assert math.isnan(theory.critical_p_gaussian(0.3, math.log(1024), 16))
    assert theory.critical_p_gaussian(0, math.log(3), 16) == theory.critical_p_beta(0, math.log(2), 16) == 0
    assert math.isnan(theory.critical_p_beta(0, 690.0, 256, p_max=1000))


def test_huge_sizes():
    log_n, d = 300 * math.log(10), 1e301
    for name in ("critical_p", "critical_p_gaussian", "critical_p_beta", "critical_p_lambert"):
        assert getattr(theory, name)(0.3, log_n, d) == pytest.approx(1.99, abs=0.01)
    with mpmath.workdps(460):
        p = mpmath.mpf(theory.critical_p_beta(0.0, log_n, 4))
        moment = mpmath.loggamma((p + 1) / 2) - mpmath.loggamma((p + 4) / 2) - mpmath.log(2 * mpmath.sqrt(mpmath.pi))
        assert abs(moment + mpmath.log(mpmath.mpf(10) ** 300)) < 1e-10


@pytest.mark.parametrize("n", [5, 256, 10**6, 10**300])
@pytest.mark.parametrize("d", [400, 10**4, 10**9])
def test_closed_predictors_solve_their_equations(n, d):
    log_n = math.log(n)
    with mpmath.workdps(40):
        p = mpmath.mpf(theory.critical_p_gaussian(0.0, log_n, d))
        moment = mpmath.gamma((p + 1) / 2) * 2 ** (p / 2 - 1) / mpmath.sqrt(mpmath.pi)
        if mpmath.isnan(p):
            turn = needle.turning_p(math.sqrt(d))
            assert needle.log_odds_against(turn, math.sqrt(d), log_n) > 0
        else:
            assert abs(mpmath.log((mpmath.mpf(n) - 1) * moment) - p * mpmath.log(d) / 2) < 1e-10 * log_n
        p = mpmath.mpf(theory.critical_p_beta(0.0, log_n, d))
        ratio = mpmath.loggamma((p + 1) / 2) + mpmath.loggamma(mpmath.mpf(d) / 2) - mpmath.loggamma((p + d) / 2)
        ratio += mpmath.log(mpmath.mpf(n) - 1) - mpmath.log(2 * mpmath.sqrt(mpmath.pi))
        assert abs(ratio) < 1e-9 * log_n
        p = mpmath.mpf(theory.critical_p_lambert(0.0, log_n, d))
        if not mpmath.isnan(p):
            kappa, r = p / (2 * log_n), mpmath.sqrt(2 * log_n / d)
            assert abs(1 - kappa + kappa * mpmath.log(kappa) + 2 * kappa * mpmath.log(r)) < 1e-12


def test_the_lambert_form_is_the_limit():
    limit = 0.3308724
    for log_n, value in ((7, 0.30552), (50, 0.32743), (1e3, 0.330701), (1e5, 0.3308707)):
        d = 2 * log_n / 0.4
        assert theory.critical_p_lambert(0, log_n, d) / (2 * log_n) == pytest.approx(limit, abs=6e-8)
        # n in place of n - 1 in the values quoted: 2e-4 at log n = 7
        assert theory.critical_p_gaussian(0, log_n, d) / (2 * log_n) == pytest.approx(value, rel=3e-4)


def test_signal_to_noise_against_tokens():
    rng = np.random.default_rng(4)
    for n, d, rho, variance in [(1500, 64, 0.3, 9.649e-3), (1500, 256, 0.6, 9.003e-4)]:
        tokens = draw(rng, n, d, rho)
        scores = tokens @ tokens.T
        others = scores[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        formula = ((1 - rho) / theory.signal_to_noise(rho, d)) ** 2
        assert others.var(axis=1).mean() == pytest.approx(formula, rel=0.03)
        assert variance == pytest.approx(formula, rel=0.02)
    assert theory.signal_to_noise(0.3, 64, unit_norm=False) == pytest.approx(math.sqrt(64 * 0.7))


def simplex_scores(n, rho):
    scores = np.full((n, n), float(rho))
    np.fill_diagonal(scores, 1.0)
    return scores


@pytest.mark.parametrize("n", [2, 3, 10, 1000])
@pytest.mark.parametrize("rho", [0, 0.5, 0.99, 1 - 1e-9])
def test_the_exact_simplex_is_the_identity(n, rho):
    for steepness in (0.01, 5.0, 50.0):
        gamma = steepness / math.log(n)
        excess = theory.diagonal_excess(gamma, rho, math.log(n))
        assert excess > 0
        for p in (0.2, 3, 15):
            assert theory.simplex_self_weight(p, rho, math.log(n), gamma=gamma) == 1
            if rho < 0.999 and excess**p > 0:
                np.testing.assert_allclose(self_weights(simplex_scores(n, rho), steepness, p), 1)
    assert theory.simplex_critical_p(rho, math.log(n)) == 0


def test_equal_scores_are_uniform():
    assert theory.simplex_self_weight(3, 1.0, math.log(8)) == pytest.approx(1 / 8)
    assert theory.simplex_self_weight(3, 0.5, math.log(8), gamma=0) == pytest.approx(1 / 8)
    assert math.isnan(theory.simplex_critical_p(1.0, math.log(8)))
    assert theory.diagonal_excess(1.0, 1.0, math.log(8)) == 0
    assert theory.diagonal_excess(4.0, 0.3, 690.0) == pytest.approx(1 / 0.3 - 1)


def test_hard_limit_with_ties():
    scores = np.array([[0.2, 0.9, 0.9, -1.0], [0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.5, 0.5]])
    found = theory.hard_limit(scores)
    np.testing.assert_allclose(found, [[0, 0.5, 0.5, 0], [0, 0, 0, 1], [0.25] * 4])
    first = np.exp(scores[:2])
    excess = np.maximum(4 * first / first.sum(axis=1, keepdims=True) - 1, 0)
    for p in (20, 60):
        weights = excess**p / (excess**p).sum(axis=1, keepdims=True)
        assert np.abs(weights - found[:2]).max() < (0.02 if p == 20 else 1e-6)
    ordered = np.sort(excess[1])
    bound = theory.hard_limit_distance(20, ordered[-2] / ordered[-1], math.log(4))
    assert 1 - (excess[1] ** 20 / (excess[1] ** 20).sum()).max() <= bound
    assert theory.hard_limit_distance(5, 0.0, 10.0) == 0
    assert theory.hard_limit_distance(5, 1.0, 690.0) == 1


def noise_odds(rng, n, snr, p, rows):
    noise = np.maximum(rng.standard_normal((rows, n - 1)), 0)
    return ((noise / snr) ** p).sum(axis=1)


def test_needle_against_simulation():
    rng = np.random.default_rng(12)
    medians = {5: 0.90, 10: -1.56, 14: -3.00, 20: -4.85, 40: -10.4}
    annealed = {5: 0.92, 10: -1.26, 14: -2.04, 20: -2.16, 40: 2.96}
    for p, quoted in medians.items():
        odds = noise_odds(rng, 1024, 4.2, p, 1500)
        found = needle.typical_log_odds_against(p, 4.2, math.log(1024))
        assert np.log(np.median(odds)) == pytest.approx(quoted, abs=0.3)
        assert found == pytest.approx(quoted, abs=0.21)
        assert needle.log_odds_against(p, 4.2, math.log(1024)) == pytest.approx(annealed[p], abs=5.1e-3)
    weights = 1 / (1 + noise_odds(rng, 1024, 3.5, 400, 1500))
    assert weights.mean() == pytest.approx(needle.hard_limit_weight(3.5, math.log(1024)), abs=0.04)


def test_needle_hard_limit():
    quoted = {2.5: 0.00170824, 3: 0.2511, 3.5: 0.7882, 4.2: 0.9864}
    for snr, weight in quoted.items():
        assert needle.hard_limit_weight(snr, math.log(1024)) == pytest.approx(weight, abs=5.1e-5)
    for n in (2, 3, 1024, 10**9, 10**300):
        boundary = needle.hard_boundary(math.log(n))
        if n > 2:
            assert needle.hard_limit_weight(boundary, math.log(n)) == pytest.approx(0.5, abs=1e-9)
        assert boundary == pytest.approx(-stats.norm.ppf(-np.expm1(-math.log(2) / (n - 1))), abs=1e-9)
    # r = 1 is soft: sqrt(2 log n) is larger
    assert needle.hard_boundary(math.log(1024)) < math.sqrt(2 * math.log(1024)) < 3.8


def test_needle_turns_and_freezes():
    for snr in (1.2, 3.0, 4.2, 20.0, 2e3):
        turn = needle.turning_p(snr)
        nearby = needle.log_odds_against(turn * np.array([0.9, 1.0, 1.1]), snr, 10.0)
        assert nearby.argmin() == 1
        assert turn == pytest.approx(snr**2, abs=0.3)
    assert needle.turning_p(0.2) == 0
    assert needle.turning_p(1e5) == 1e10
    lowest = needle.log_odds_against(needle.turning_p(5.0), 5.0, math.log(1e6))
    assert abs(lowest - (math.log(1e6) - 12.5)) < 1.0
    assert needle.freezing_p(math.log(1024)) == pytest.approx(13.86, abs=5e-3)


def test_longest_context():
    for snr_squared, quoted, simulated in ((15, 2572, 4589), (20, 22243, 27350)):
        limit = needle.log_length_limit(15, math.sqrt(snr_squared))
        assert math.exp(limit.log_n) == pytest.approx(quoted, abs=0.6)
        assert math.exp(limit.log_n) < simulated
        assert limit.stated is False
    assert needle.log_length_limit(3, 8.0).stated is True
    assert needle.required_snr(15, math.log(16384)) == pytest.approx(4.38, abs=5e-3)
    snr = needle.required_snr(np.array([3.0, 8.0]), 690.0)
    np.testing.assert_allclose(needle.log_length_limit(np.array([3.0, 8.0]), snr).log_n, 690.0)
    # at the critical p of the Gaussian form the longest context is n
    p = theory.critical_p_gaussian(0.3, math.log(1024), 64)
    assert needle.log_length_limit(p, theory.signal_to_noise(0.3, 64)).log_n == pytest.approx(math.log(1024))


def test_error_class():
    found = theory.error_class([0, 0.3, 0.3, 0.3], np.log([256, 1024, 255, 1024]), [16, 256, 64, 8])
    np.testing.assert_array_equal(found, [0.02, 0.02, np.nan, np.nan])


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.critical_p(1.0, 7.0, 8),
        lambda: theory.critical_p(-0.1, 7.0, 8),
        lambda: theory.critical_p(0.1, 0.0, 8),
        lambda: theory.critical_p(0.1, 7.0, 2),
        lambda: theory.critical_p(0.1, 7.0, 8, gamma=0),
        lambda: theory.critical_p(0.1, 7.0, 8, p_max=0),
        lambda: theory.self_weight(0.0, 0.1, 7.0, 8),
        lambda: theory.simplex_self_weight(-1.0, 0.1, 7.0),
        lambda: theory.simplex_self_weight(1.0, 0.1, 7.0, gamma=-1),
        lambda: theory.hard_limit(np.array([0.1, np.nan])),
        lambda: theory.hard_limit_distance(1.0, 1.5, 7.0),
        lambda: theory.usable_excess(15, "float8"),
        lambda: theory.usable_excess(0, "float16"),
        lambda: needle.log_half_moment(-1),
        lambda: needle.log_odds_against(1.0, 0.0, 7.0),
        lambda: needle.hard_boundary(0.0),
        lambda: needle.hard_limit_weight(-1.0, 7.0),
        lambda: needle.turning_p(0.0),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(DomainError):
        call()
