import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critattn.errors import DomainError
from critattn.theory import depth, simplex


def iterated(n, rho, gamma, layers, *, a, b, norm, renormalise=False):
    """Cosines and norms of actual tokens through actual layers."""
    # the symmetric square root of the Gram matrix
    mean = np.full((n, n), 1 / n)
    tokens = norm * (math.sqrt(1 - rho) * (np.eye(n) - mean) + math.sqrt(1 + (n - 1) * rho) * mean)
    cosines, norms = [rho], [norm]
    for _ in range(layers):
        lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
        unit = tokens / lengths
        tokens = norm * unit if renormalise else tokens
        weights = np.exp(gamma * math.log(n) * (unit @ unit.T))
        weights /= weights.sum(axis=1, keepdims=True)
        tokens = a * tokens + b * weights @ unit
        norms.append(np.linalg.norm(tokens[0]))
        cosines.append(tokens[0] @ tokens[1] / np.linalg.norm(tokens[0]) / np.linalg.norm(tokens[1]))
    return cosines, norms


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "gamma", "rho"),
    [
        (0.7, 1.0, 1.5, 0.3),
        (0.0, 1.0, 2.5, 0.5),
        (1.0, 0.2, 0.5, 0.0),
        (0.3, 1.0, 3.0, -1 / 11),
        (0.5, 1.0, -1.0, 0.4),
    ],
)
def test_recursion_against_actual_layers(a, b, gamma, rho, renormalise):
    cosines, norms = iterated(12, rho, gamma, 5, a=a, b=b, norm=1.4, renormalise=renormalise)
    trajectory = depth.layers(
        gamma, rho, math.log(12), 5, identity_weight=a, attention_weight=b, norm=1.4, renormalise=renormalise
    )
    # round-off of five layers
    np.testing.assert_allclose(trajectory.cosines, cosines, rtol=0, atol=1e-13)
    np.testing.assert_allclose(trajectory.norms, norms, rtol=1e-13)


@given(gamma=st.floats(0, 6), rho=st.floats(0, 0.99), log_n=st.floats(0.7, 700), a=st.floats(0, 2))
@settings(max_examples=100, deadline=None)
def test_one_layer_is_the_simplex_theory(gamma, rho, log_n, a):
    point = (gamma, rho, log_n)
    trajectory = depth.layers(*point, 1, identity_weight=a, norm=1.3)
    assert trajectory.cosines[1] == pytest.approx(simplex.output_cosine(*point, identity_weight=a, norm=1.3), abs=1e-12)
    assert trajectory.norms[1] == pytest.approx(simplex.output_norm(*point, identity_weight=a, norm=1.3), rel=1e-12)


@pytest.mark.parametrize(
    ("rho", "gamma", "exact", "formula"),
    [
        (0.5, 4.0, [13, 77, 551, 4365], [10.9, 72.4, 542.9, 4342.9]),
        (0.5, 5.0, [90, 1847, 43599], [86.9, 1831, 43429]),
        (0.5, 3.0, [3, 5, 10, 22], [1.4, 3.1, 7.2, 18.3]),
        (0.2, 2.5, [24, 159, 1207, 9815], [27.1, 181, 1357, 10857]),
    ],
)
def test_lifetime_reference(rho, gamma, exact, formula):
    log_n = np.log([1e2, 1e3, 1e4, 1e5])[: len(exact)]
    np.testing.assert_array_equal(depth.lifetime(gamma, rho, log_n), exact)
    units = np.where(np.array(formula) == np.round(formula), 1.0, 0.1)
    assert (np.abs(depth.lifetime_asymptotic(gamma, rho, log_n) - formula) <= 0.5 * units + 1e-9).all()


@pytest.mark.slow
def test_lifetime_of_a_million_layers():
    assert depth.lifetime(5.0, 0.5, math.log(1e5), max_layers=2_000_000) == 1101377
    assert depth.lifetime_asymptotic(5.0, 0.5, math.log(1e5)) == pytest.approx(1098687.8, abs=0.06)


def test_lifetime_is_where_theta_has_halved():
    point = (3.0, 0.4, math.log(200))
    count = int(depth.lifetime(*point, identity_weight=0.5))
    theta = 1 - depth.layers(*point, count, identity_weight=0.5).cosines
    assert theta[count] <= 0.3 < theta[count - 1]
    assert depth.lifetime(*point, identity_weight=0.5, renormalise=True) < count


def test_collapse_below_and_metastable_above():
    assert depth.lifetime(1.0, 0.5, math.log(1e6)) == 1
    assert math.isnan(depth.lifetime(4.0, 0.5, math.log(1e6), max_layers=10))
    # standing still to the last bit ends the search at once
    assert math.isnan(depth.lifetime(8.0, 0.5, 690.8, max_layers=10**9))
    assert math.isnan(depth.lifetime_asymptotic(1.9, 0.5, 20.0))
    assert depth.lifetime_asymptotic(8.0, 0.5, 690.8) == math.inf


def test_collapsed_tokens_keep_their_relative_angles():
    # below the threshold theta falls by orders a layer, and must not stop at the rounding of 1 - theta
    trajectory = depth.layers(1.0, 0.5, math.log(1e6), 30)
    assert trajectory.cosines[-1] == 1
    assert np.isfinite(trajectory.norms).all()
    assert depth.lifetime(1.0, 1 - 1e-9, math.log(1e6)) == 1


def test_broadcasting_and_refusals():
    trajectory = depth.layers(np.array([1.0, 4.0])[:, None], np.array([0.2, 0.5, 0.8]), math.log(50), 4)
    assert trajectory.cosines.shape == trajectory.norms.shape == (5, 2, 3)
    assert trajectory.cosines[3, 1, 1] == depth.layers(4.0, 0.5, math.log(50), 3).cosines[3]
    assert isinstance(depth.lifetime(1.0, 0.5, 3.0), float)
    # tokens of an uninformed layer without common direction vanish
    gone = depth.layers(0.0, -0.5, math.log(3), 2)
    assert math.isnan(gone.cosines[1])
    for wrong in ((1.0, 1.0, 2.0), (1.0, 0.3, 0.0), (math.nan, 0.3, 2.0)):
        with pytest.raises(DomainError):
            depth.layers(*wrong, 3)
        with pytest.raises(DomainError):
            depth.lifetime(*wrong)
    with pytest.raises(DomainError, match="depth"):
        depth.layers(1.0, 0.3, 2.0, -1)
    with pytest.raises(DomainError, match="rho"):
        depth.lifetime_asymptotic(1.0, 0.0, 2.0)
