import numpy as np
import oracles
import pytest

import critattn as ca
from critattn.errors import DomainError
from critattn.theory import depth


@pytest.mark.parametrize(("a", "b", "r"), [(0.0, 1.0, 1.0), (0.7, 1.0, 1.3)])
def test_simplex_layers_follow_the_recursion(a, b, r):
    n, layers = 40, 6
    gammas = np.array([1.0, 2.0, 3.5])
    found = ca.measure_layers(
        ca.Attention(ca.LogN(gammas)),
        ca.simplex(n, n, rho=0.5, norm=r),
        ["cosine", "token_norm"],
        layers,
        identity_weight=a,
        attention_weight=b,
    )
    for k, gamma in enumerate(gammas):
        path = depth.layers(gamma, 0.5, np.log(n), layers, identity_weight=a, attention_weight=b, norm=r)
        # what the recursion says of 1 - cos, which rounds at eps
        np.testing.assert_allclose(1 - found["cosine"].value[k], 1 - path.cosines, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found["token_norm"].value[k], path.norms, rtol=1e-12)


def test_general_tokens_against_brute_force():
    x = oracles.gaussian_tokens(0, 25, 6, 0.3)
    found = ca.measure_layers(ca.Attention(ca.LogN(1.5)), ca.Tokens(x), ["cosine"], 3, identity_weight=0.5)
    for layer in range(4):
        units = x / np.linalg.norm(x, axis=1, keepdims=True)
        mean = (units @ units.T)[np.triu_indices(25, 1)].mean()
        assert found["cosine"].value[0, layer] == pytest.approx(mean, rel=1e-12)
        x = oracles.layer(x, 1.5 * np.log(25), 0.5, 1.0)


def test_lifetime_of_simulated_tokens_is_that_of_the_recursion():
    # gamma = 4, rho = 1/2: 13 layers at n = 100 until 1 - cos has halved
    found = ca.measure_layers(ca.Attention(ca.LogN(4.0)), ca.simplex(100, 100, rho=0.5), ["cosine"], 16)
    halved = int(np.argmax(1 - found["cosine"].value[0] <= 0.25))
    assert halved == 13 == depth.lifetime(4.0, 0.5, np.log(100))


def test_unknown_record():
    with pytest.raises(DomainError, match="entropy"):
        ca.measure_layers(ca.Attention(ca.LogN(1.0)), ca.simplex(4, 4, rho=0.1), ["entropy"], 1)
