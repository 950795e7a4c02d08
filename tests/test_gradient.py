import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import critattn as ca
from critattn import gradient, tokens
from critattn.errors import DomainError
from critattn.measurement import batch
from critattn.protocols import precision


def causal_or_not(causal):
    return ca.Causal() if causal else ca.Bidirectional()


# few shapes, since each is compiled anew; one token, one dimension, more and fewer tokens than dimensions
SHAPES = [(1, 3), (2, 1), (4, 6), (9, 3)]


def check_against_automatic_differentiation(n, d, gamma, *, causal, a, repeats, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + 0.3
    x[: min(repeats, n - 1)] = x[-1]  # equal tokens
    beta = gamma * np.log(n)
    expected = np.sum(oracles.jacobian(x, beta, a, 0.8, causal=causal) ** 2)
    layer = ca.Attention(ca.LogN(gamma), mask=causal_or_not(causal))
    found = gradient.frobenius_norm_squared(layer, tokens.from_array(x), identity_weight=a, attention_weight=0.8)
    assert found.standard_error is None
    # the terms (d + beta^2)/r^2 are summed and cancel: each rounds at its own size, n + d of them in a sum
    size = np.sum(0.64 * (d + beta**2) / np.sum(x**2, axis=1)) + n * d * a**2
    assert abs(found.value - expected) < (n + d) * np.finfo(float).eps * (size + expected) * 4


REST = {
    "gamma": st.floats(0, 4),
    "causal": st.booleans(),
    "a": st.sampled_from([0.0, 1.0, -0.7]),
    "repeats": st.integers(0, 3),
    "seed": st.integers(0, 10_000),
}


@given(shape=st.sampled_from(SHAPES), **REST)
@settings(max_examples=150)
def test_frobenius_norm_against_automatic_differentiation(shape, gamma, causal, a, repeats, seed):
    check_against_automatic_differentiation(*shape, gamma, causal=causal, a=a, repeats=repeats, seed=seed)


@pytest.mark.slow
@given(n=st.integers(1, 14), d=st.integers(1, 8), **REST)
@settings(max_examples=60)
def test_frobenius_norm_at_any_size(n, d, gamma, causal, a, repeats, seed):
    check_against_automatic_differentiation(n, d, gamma, causal=causal, a=a, repeats=repeats, seed=seed)


# reference numbers T5: (a, b, causal, squared norm, operator norm)
REFERENCE = [
    (0.0, 1.0, False, 7.878450880922, 0.963965088770),
    (1.0, 0.5, False, 55.652636441475, 1.479044215231),
    (0.0, 1.0, True, 11.030555079791, 1.079012898851),
]


@pytest.mark.parametrize(("a", "b", "causal", "squared", "operator"), REFERENCE)
def test_reference_numbers(a, b, causal, squared, operator):
    layer = ca.Attention(ca.LogN(1.2), mask=causal_or_not(causal))
    x = tokens.from_array(oracles.sine_tokens())
    mixing = {"identity_weight": a, "attention_weight": b}
    # the references are rounded to 12 decimals
    assert gradient.frobenius_norm_squared(layer, x, **mixing).value == pytest.approx(squared, abs=6e-13 * squared)
    assert gradient.operator_norm(layer, x, **mixing).value == pytest.approx(operator, abs=6e-13)


@pytest.mark.parametrize(
    ("a", "b", "r", "d", "squared"),
    [
        (0.0, 1.0, 1.0, 8, 23.359406525333),
        (0.0, 1.0, 1.0, 12, 31.231044093917),
        (1.0, 0.5, 1.3, 8, 93.098443628456),
        (1.0, 0.5, 1.3, 12, 137.348897128659),
    ],
)
def test_simplex_reference_numbers(a, b, r, d, squared):
    x = ca.simplex(8, d, rho=0.3, norm=r)
    found = gradient.frobenius_norm_squared(ca.Attention(ca.LogN(1.2)), x, identity_weight=a, attention_weight=b)
    assert found.value == pytest.approx(squared, rel=1e-13)
    assert found.value == pytest.approx(
        ca.theory.simplex.gradient_norm_squared(
            1.2, 0.3, np.log(8), log_d=np.log(d), identity_weight=a, attention_weight=b, norm=r
        ),
        rel=1e-12,
    )


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "d"), [(150, 4), (70, 20)])
def test_blocks_both_second_moment_routes_and_the_dense_matrix_agree(n, d, causal):
    x = oracles.gaussian_tokens(4, n, d, 0.4)
    layer = ca.Attention(ca.LogN(1.4), mask=causal_or_not(causal))
    expected = np.sum(oracles.jacobian(x, 1.4 * np.log(n), 0.0, 1.0, causal=causal) ** 2)
    with precision("float64"):
        small, large = (
            gradient.row_profiles(batch(layer), ca.Tokens(x), np.arange(n), memory_bytes=budget)
            for budget in (1, 10**9)
        )
    np.testing.assert_allclose(small["value"], large["value"], rtol=1e-12)
    assert np.sum(small["value"]) == pytest.approx(expected, rel=1e-12)


def test_profile_is_the_squared_norm_of_each_row_of_the_jacobian():
    n, d = 10, 4
    x = oracles.gaussian_tokens(5, n, d, 0.5)
    full = oracles.jacobian(x, 2.0 * np.log(n), 0.3, 1.0, causal=True).reshape(n, d, n * d)
    layer = ca.Attention(ca.LogN(2.0), mask=ca.Causal())
    found, errors = gradient.query_profile(layer, ca.Tokens(x), identity_weight=0.3)
    np.testing.assert_allclose(found, np.sum(full**2, axis=(1, 2)), rtol=1e-12)
    np.testing.assert_array_equal(errors, 0)
    with pytest.raises(DomainError, match="normalised"):
        gradient.query_profile(layer, tokens.from_array(x, normalised=False))


def test_probes_are_unbiased_with_an_honest_standard_error():
    x = tokens.from_array(oracles.gaussian_tokens(6, 60, 6, 0.3))
    layer = ca.Attention(ca.LogN(1.5))
    exact = gradient.frobenius_norm_squared(layer, x).value
    draws = [gradient.frobenius_norm_squared(layer, x, probes=2, seed=seed) for seed in range(200)]
    values = np.array([draw.value for draw in draws])
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(200)
    # mean of the reported variances against the observed one; the latter scatters by sqrt(2/200) = 10 %
    reported = np.mean([draw.standard_error**2 for draw in draws if draw.standard_error is not None])
    assert reported == pytest.approx(values.var(), rel=0.4)
    with pytest.raises(DomainError, match="probes"):
        gradient.frobenius_norm_squared(layer, x, probes=1)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize(("a", "causal"), [(0.0, False), (1.0, True)])
def test_operator_norm_against_a_dense_decomposition(n, d, a, causal):
    x = np.random.default_rng(n * 10 + d).standard_normal((n, d)) + 0.2
    expected = np.linalg.norm(oracles.jacobian(x, 1.3 * np.log(n), a, 1.0, causal=causal), 2)
    layer = ca.Attention(ca.LogN(1.3), mask=causal_or_not(causal))
    found = gradient.operator_norm(layer, tokens.from_array(x), identity_weight=a)
    # eigenvalues of J^T J carry an absolute error of their largest term, a root of that where J vanishes (d = 1)
    assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-7)


def test_float32_agrees_with_float64_to_single_precision():
    x = tokens.from_array(oracles.gaussian_tokens(7, 300, 24, 0.5))
    layer = ca.Attention(ca.LogN(2.0))
    single = gradient.frobenius_norm_squared(layer, x, dtype="float32").value
    assert single == pytest.approx(gradient.frobenius_norm_squared(layer, x).value, rel=1e-4)
