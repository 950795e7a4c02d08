"""The alternatives compute what the package computes, and ratios come from alternation."""

import time

import numpy as np
import oracles
import pytest

import critattn as ca
from critattn import gradient
from critattn.bench import alternatives, cases
from critattn.bench.timing import alternate


def test_alternation_gives_the_ratio_of_each_pair():
    calls = []
    timing = alternate(lambda: (calls.append("a"), time.sleep(0.02)), lambda: (calls.append("b"), time.sleep(0.04)), 3)
    assert calls == ["a", "b"] * 4
    # sleeps are never shorter than asked for; the shorter one may be held up
    assert timing.ratio is not None
    assert timing.ratio == pytest.approx(0.5, abs=0.25)
    assert alternate(lambda: None, None, 1).ratio is None


def test_alternatives_are_the_same_layer():
    x = oracles.gaussian_tokens(0, 24, 5, 0.4).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    beta = float(1.5 * np.log(24))
    expected = oracles.layer(x.astype(np.float64), beta, 0.0, 1.0)
    for make in (alternatives.naive_numpy, alternatives.naive_jax):
        np.testing.assert_allclose(make(x, beta)(), expected, atol=1e-5)
    exact = gradient.frobenius_norm_squared(ca.Attention(ca.LogN(1.5)), ca.Tokens(x)).value
    assert float(alternatives.jacobian_norm(x, beta)()) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(("power", "met"), [(2.0, True), (1.5, False)])
def test_slopes_of_powers(power, met):
    outcome = cases._slope("exact", [(n, 1e-9 * n**power) for n in (1024, 2048, 4096)])
    assert outcome.figure == pytest.approx(power)
    assert outcome.met is met
