"""Gradient norms of layers with every normaliser against automatic differentiation of the formulas as written."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import critattn as ca
from critattn import gradient, tokens
from critattn.protocols import precision

EPS = np.finfo(float).eps


def made(kind, parameter):
    """The package's normaliser for a name and parameter of `oracles.NAIVE`."""
    name, _, stage = kind.partition(" over ")
    if name == "relu-power":
        return ca.normalisers.get(name, p=parameter, stage_one=stage)
    options = {"power": "p", "entmax": "alpha", "sigmoid": "bias_factor", "sigmoid-l1": "bias_factor"}
    return ca.normalisers.get(name, **({options[name]: parameter} if name in options else {}))


PARAMETERS = {
    "softmax": [1.0],
    "softplus-l1": [1.0],
    "sigmoid": [1.0, 2.5],
    "sigmoid-l1": [1.0, 2.5],
    "relu": [1.0],
    "power": [1.0, 2.0, 15.0],
    "entmax": [1.1, 1.5, 2.0, 3.0],
    "sparsemax": [2.0],
    "hardmax": [1.0],
    "relu-power over softplus-l1": [1.0, 2.0, 3.0, 15.0],
    "relu-power over softmax": [1.0, 3.0, 15.0],
    "relu-power over sigmoid-l1": [2.0],
}


def sizes(layer, x, b):
    """Sum over rows of the squares of the terms that cancel in the norm: value, key and query path."""
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    with precision("float64"):
        context = layer.context(jnp.arange(len(x)), *x.shape)
        logits, where = layer.logits(jnp.asarray(units @ units.T), context), layer.allowed(context)
        parts = layer.normaliser.jacobian_parts(logits, context, where=where)
        beta = float(layer.transforms[0].beta(context))
        total = np.asarray(layer.normaliser(logits, context, where=where)).sum(axis=1) ** 2 * x.shape[1]
        total += (beta * np.asarray(parts.g).sum(axis=1)) ** 2
        if parts.b is not None:
            total += (beta * np.abs(np.asarray(parts.b)).sum(axis=1) * np.abs(np.asarray(parts.c)).sum(axis=1)) ** 2
    return b**2 * np.sum(total) / np.min(np.sum(x**2, axis=1))


def check(kind, parameter, shape, gamma, *, causal, a, repeats, seed):
    n, d = shape
    rng, b = np.random.default_rng(seed), 0.8
    base = rng.standard_normal((n, d)) + 0.3
    directions = rng.standard_normal((3, n, d))

    def repeated(x):
        x = x.copy()
        x[: min(repeats, n - 1)] = x[-1]  # equal tokens
        return x

    def expected(x, beta):
        return np.sum(oracles.naive_jacobian(kind, repeated(x), beta, a, b, parameter, causal=causal) ** 2)

    beta, h = gamma * np.log(n), 1e-7
    exact = expected(base, beta)
    # by how much the exact value moves when its inputs move by one part: no algorithm can do better
    moves = [abs(expected(base * (1 + h * e), beta) - exact) for e in directions]
    condition = (max(moves) + abs(expected(base, beta * (1 + h)) - exact)) / h
    layer = ca.Attention(
        ca.LogN(gamma), normaliser=made(kind, parameter), mask=ca.Causal() if causal else ca.Bidirectional()
    )
    x = repeated(base)
    found = gradient.frobenius_norm_squared(layer, tokens.from_array(x), identity_weight=a, attention_weight=b)
    assert found.standard_error is None
    size = sizes(layer, x, b) + n * d * a**2 + exact
    assert abs(found.value - exact) <= 4 * (n + d) * EPS * (size + condition), (found.value, exact, size, condition)


# one of each form of the row Jacobian; the slow tests have all kinds
FAST = ("sparsemax", "relu-power over softmax")
REST = {
    "gamma": st.sampled_from([0.0]) | st.floats(0.1, 3),
    "causal": st.booleans(),
    "a": st.sampled_from([0.0, 1.0, -0.7]),
    "repeats": st.integers(0, 3),
    "seed": st.integers(0, 10_000),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in sorted(oracles.NAIVE)]
)
@given(data=st.data(), **REST)
@settings(max_examples=8)
def test_frobenius_norm_against_automatic_differentiation(kind, data, gamma, causal, a, repeats, seed):
    parameter = data.draw(st.sampled_from(PARAMETERS[kind]))
    check(kind, parameter, (7, 3), gamma, causal=causal, a=a, repeats=repeats, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(oracles.NAIVE))
@given(data=st.data(), shape=st.sampled_from([(1, 3), (2, 1), (4, 6), (7, 3), (12, 2)]), **REST)
@settings(max_examples=100)
def test_frobenius_norm_at_other_shapes(kind, data, shape, gamma, causal, a, repeats, seed):
    parameter = data.draw(st.sampled_from(PARAMETERS[kind]))
    check(kind, parameter, shape, gamma, causal=causal, a=a, repeats=repeats, seed=seed)
