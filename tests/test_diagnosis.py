"""The diagnosis of measured tokens: Gaussian ones pass it, others show which assumption breaks."""

import numpy as np
import oracles
import pytest

from critattn import diagnosis, thresholds, tokens
from critattn.errors import DomainError
from critattn.theory import finite_dimension


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def anisotropic(seed, n=200, d=40):
    """Gaussian tokens whose variances fall as a power law, with a common direction."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, d + 1) ** -0.7
    return rng.standard_normal((n, d)) * scales + 0.5 * rng.standard_normal(d)


def clustered(seed, n=200, d=40):
    """Isotropic on the whole, but every token has a near copy."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n // 2, d))
    return np.vstack([half, half + 0.3 * rng.standard_normal((n // 2, d))])


def test_the_numbers_of_a_diagnosis():
    x = oracles.gaussian_tokens(0, 150, 20, 0.4)
    found = diagnosis.diagnose(tokens.from_array(x), draws=3)
    units = unit(x)
    cosines = (units @ units.T)[~np.eye(150, dtype=bool)].reshape(150, -1)
    assert found.effective_rho == pytest.approx(cosines.mean(), rel=1e-12)
    assert found.measured == thresholds.half_weight(tokens.from_array(x))
    expected = float(finite_dimension.half_weight_gamma(cosines.mean(), np.log(150), 20))
    assert found.predicted == pytest.approx(expected, rel=1e-12)
    covariance = np.cov(units.T)
    dimension = np.trace(covariance) ** 2 / np.trace(covariance @ covariance)
    assert found.effective_dimension == pytest.approx(dimension, rel=1e-9)
    assert found.in_row_deviation == pytest.approx(cosines.std(axis=1).mean(), rel=1e-12)
    roots = thresholds.row_half_weights(tokens.from_array(x))
    assert found.row_disorder == pytest.approx(roots.std(ddof=1), rel=1e-12)
    assert found.largest_cosine == cosines.max()
    share = (found.surrogate.critical - expected) / (found.measured.critical - expected)
    assert found.anisotropy_share == pytest.approx(share, rel=1e-9)


def test_gaussian_tokens_of_the_model_pass():
    found = diagnosis.diagnose(tokens.near_simplex(2, 400, 32, rho=0.4), draws=4)
    assert found.measured.critical == pytest.approx(found.predicted, rel=0.02)
    assert found.surrogate.critical == pytest.approx(found.predicted, rel=0.02)
    assert found.in_row_deviation == pytest.approx(found.in_row_predicted, rel=0.1)
    assert found.row_disorder == pytest.approx(found.row_disorder_predicted, rel=0.25)
    # (tr C)^2/tr C^2 of an empirical isotropic covariance is about d/(1 + d/n)
    assert found.effective_dimension == pytest.approx(32 / (1 + 32 / 400), rel=0.1)


@pytest.mark.slow
def test_a_gaussian_surrogate_explains_anisotropy():
    found = diagnosis.diagnose(tokens.from_array(anisotropic(0)), draws=4)
    assert found.effective_dimension < 25
    assert found.in_row_deviation > 1.2 * found.in_row_predicted
    assert found.measured.critical > 1.02 * found.predicted
    assert found.anisotropy_share == pytest.approx(1, abs=0.4)


def test_no_gaussian_explains_clusters():
    found = diagnosis.diagnose(tokens.from_array(clustered(0)), draws=4)
    assert found.largest_cosine > 0.95
    assert found.measured.critical > 1.2 * found.predicted
    assert abs(found.anisotropy_share) < 0.2


def test_the_seed_decides_about_the_surrogate_alone():
    made = tokens.from_array(anisotropic(1, n=60, d=10))
    first, again, other = (diagnosis.diagnose(made, draws=2, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert other.surrogate != first.surrogate
    assert other.measured == first.measured


def test_no_share_without_roots():
    made = np.vstack([np.eye(4), np.eye(4)])
    found = diagnosis.diagnose(tokens.from_array(made), draws=2)
    assert found.measured.critical is None
    assert found.anisotropy_share is None


@pytest.mark.parametrize(
    ("x", "draws", "part"),
    [
        (np.eye(2), 2, "at least 3 x 2"),
        (np.ones((5, 1)), 2, "at least 3 x 2"),
        (np.eye(5), 1, "draws = 1"),
        (np.ones((5, 3)), 2, "effective rho"),
        (np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2, "effective rho"),
    ],
)
def test_what_has_no_diagnosis(x, draws, part):
    with pytest.raises(DomainError, match=part):
        diagnosis.diagnose(tokens.from_array(x), draws=draws)
