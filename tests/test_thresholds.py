"""Critical points on given tokens against roots found by brute force, and the predictors against simulation."""

import numpy as np
import oracles
import pytest
from scipy import optimize

import critattn as ca
from critattn import thresholds, tokens
from critattn.errors import DomainError
from critattn.theory import finite_dimension, simplex


def brute_row_root(cosines, row):
    """gamma_i from sum over j != i of n^(gamma (G_ij - 1)) = 1, by bisection in numpy."""
    n = len(cosines)
    gaps = 1 - np.delete(cosines[row], row)
    return optimize.brentq(lambda gamma: np.sum(np.exp(-gamma * np.log(n) * gaps)) - 1, 0, 200, xtol=1e-13)


@pytest.mark.parametrize(("n", "d", "rho"), [(60, 12, 0.5), (90, 5, 0.0)])
def test_row_roots_and_their_mean_curve_against_brute_force(n, d, rho):
    x = oracles.gaussian_tokens(1, n, d, rho)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.array([brute_row_root(units @ units.T, row) for row in range(n)])
    found = thresholds.row_half_weights(x)
    np.testing.assert_allclose(found, expected, rtol=1e-11)

    def mean(gamma):
        return np.diag(oracles.softmax_weights(x, gamma * np.log(n))).mean() - 0.5

    root = optimize.brentq(mean, 0, 200, xtol=1e-12)
    located = ca.half_weight(x)
    assert located.critical == pytest.approx(root, rel=1e-9)
    own = np.diag(oracles.softmax_weights(x, root * np.log(n)))
    slope = (mean(root + 1e-4) - mean(root - 1e-4)) / 2e-4
    assert located.standard_error == pytest.approx(own.std(ddof=1) / np.sqrt(n) / slope, rel=1e-3)
    low, high = finite_dimension.row_bounds(units_min(units), units_max(units), np.log(n))
    assert np.all((found >= low - 1e-9) & (found <= high + 1e-9))


def units_min(units):
    return (units @ units.T)[~np.eye(len(units), dtype=bool)].min()


def units_max(units):
    return (units @ units.T)[~np.eye(len(units), dtype=bool)].max()


def test_simplex_has_the_closed_form_and_no_error():
    x = ca.simplex(512, 512, rho=0.5)
    half = ca.half_weight(x)
    assert half.critical == pytest.approx(1.999373217986, abs=2e-12 * 100)
    assert half.standard_error is None
    np.testing.assert_allclose(thresholds.row_half_weights(x), simplex.half_weight_gamma(0.5, np.log(512)), rtol=1e-11)
    assert ca.half_angle(x).critical == pytest.approx(2.100947292405, abs=1e-9)


def test_equal_tokens_never_cross_and_say_so():
    x = np.ones((6, 3))
    located = ca.half_weight(x)
    assert (located.critical, located.converged) == (None, False)
    assert "self weight" in located.reason
    assert np.isnan(thresholds.row_half_weights(x)).all()
    assert ca.half_weight(np.ones((1, 3))).critical is None


def test_row_roots_of_random_scores_against_brute_force():
    scores = tokens.random_scores(3, 80, rho=0.4, tau=0.15)
    import jax

    with jax.enable_x64(True):
        matrix = np.asarray(scores.score_rows(np.arange(80)))
    found = thresholds.row_half_weights(scores)
    for row in range(80):
        gaps = np.log(80) * (np.delete(matrix[row], row) - 1)
        reached = [np.sum(np.exp(gamma * gaps)) < 1 for gamma in np.linspace(0.1, 60, 600)]
        if np.isnan(found[row]):
            assert not any(reached)
        else:
            assert np.sum(np.exp(found[row] * gaps)) == pytest.approx(1, rel=1e-9)


@pytest.mark.slow
def test_a_stream_has_the_half_weight_point_of_its_tokens():
    whole, stream = (make(4, 3000, 24, rho=0.4) for make in (tokens.near_simplex, tokens.stream_near_simplex))
    first = ca.half_weight(whole, sample_rows=200)
    second = ca.half_weight(stream, sample_rows=200)
    # the continued curve is good to 1e-4 of its range, over the slope of about 1
    assert second.critical == pytest.approx(first.critical, abs=2e-4)
    # of 3000 rows 200 were drawn without replacement
    assert second.standard_error == pytest.approx(first.standard_error * np.sqrt(1 - 200 / 3000), rel=1e-3)
    below = ca.half_weight(stream, sample_rows=50, gamma_max=0.5)
    assert (below.critical, below.converged) == (None, False)


@pytest.mark.slow
def test_several_at_once_and_names():
    x = tokens.near_simplex(2, 100, 20, rho=0.3)
    found = thresholds.measure_thresholds(thresholds.log_n_softmax, x, thresholds.NAMES)
    roots = thresholds.row_half_weights(x)
    assert found["median_half_weight"].critical == pytest.approx(np.median(roots))
    assert found["row_disorder"].critical == pytest.approx(roots.std(ddof=1))
    assert found["common_ratio"].critical == x.common_ratio
    assert found["half_angle"].critical == pytest.approx(ca.half_angle(x).critical)
    # bootstrap of a median against the normal form 1.2533 s/sqrt(n); both scatter by some 20 %
    error = found["median_half_weight"].standard_error
    assert error == pytest.approx(1.2533 * roots.std() / 10, rel=0.6)
    with pytest.raises(DomainError, match="half_wait"):
        thresholds.measure_thresholds(thresholds.log_n_softmax, x, ["half_wait"])


def over_draws(locate, n, d, rho, draws):
    """A threshold over independent draws with |z_0|^2 = d: mean and standard error."""
    sets = (tokens.near_simplex(seed, n, d, rho=rho, fix_common=True) for seed in range(draws))
    values = np.array([locate(x) for x in sets])
    return values.mean(), values.std(ddof=1) / np.sqrt(draws)


def mean_root(x):
    return ca.half_weight(x).critical


def median_root(x):
    return np.median(thresholds.row_half_weights(x))


@pytest.mark.slow
@pytest.mark.parametrize("d", [32, 64])
def test_uniform_sphere_predictor_against_simulation(d):
    value, error = over_draws(mean_root, 2048, d, 0.0, 4)
    assert error < 0.001 * value
    # stated error class 0.5 %
    assert value == pytest.approx(finite_dimension.half_weight_gamma(0.0, np.log(2048), d), rel=0.005)


PREDICTED = [
    (mean_root, finite_dimension.half_weight_gamma),
    (median_root, finite_dimension.median_half_weight_gamma),
]


@pytest.mark.slow
@pytest.mark.parametrize(("locate", "predict"), PREDICTED)
def test_common_direction_predictor_against_few_draws(locate, predict):
    value, error = over_draws(locate, 512, 24, 0.5, 24)
    predicted = predict(0.5, np.log(512), 24)
    assert abs(value - predicted) < 0.005 * predicted + 4 * error
    assert error < 0.004 * value


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "draws"), [(512, 24, 160), (1024, 64, 60)])
@pytest.mark.parametrize(("locate", "predict"), PREDICTED)
def test_common_direction_predictor_against_many_draws(n, d, draws, locate, predict):
    value, error = over_draws(locate, n, d, 0.5, draws)
    assert error < 0.0015 * value
    assert value == pytest.approx(predict(0.5, np.log(n), d), rel=0.005)


@pytest.mark.slow
def test_gradient_norm_predictor_at_rho_0():
    # (4.11) is always low, by up to 2.7 % at d >= 24; here (d, beta) = (64, 8), n = 2000
    n, d, beta = 2000, 64, 8.0
    gamma = beta / np.log(n)
    layer = ca.Attention(ca.LogN(gamma))
    draws = [
        ca.measure(layer, tokens.near_simplex(seed, n, d, rho=0.0), ["gradient_norm"])["gradient_norm"].value
        for seed in range(3)
    ]
    predicted = finite_dimension.gradient_norm(gamma, np.log(n), d)
    assert 0 < np.mean(draws) / predicted - 1 < 0.027


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tokens_with_a_copy_tend_to_one_half_and_never_cross(dtype):
    half = oracles.gaussian_tokens(5, 20, 6, 0.3)
    located = ca.half_weight(np.vstack([half, half]), dtype=dtype)
    assert located.critical is None
    assert "self weight" in located.reason
    x = np.vstack([half, half[:3]])
    roots = thresholds.row_half_weights(x, dtype=dtype)
    copies = [0, 1, 2, 20, 21, 22]
    assert np.isnan(roots[copies]).all()
    assert np.isfinite(np.delete(roots, copies)).all()
