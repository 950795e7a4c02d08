import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import critattn as ca
from critattn.attention import map_row_blocks
from critattn.errors import DomainError, SpecError
from critattn.protocols import precision


def relative(found, expected):
    return np.max(np.abs(np.asarray(found) - expected)) / np.max(np.abs(expected))


@given(
    n=st.sampled_from([1, 16]),
    d=st.just(6),
    gamma=st.floats(0, 6),
    causal=st.booleans(),
    block=st.just(3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
def test_dense_and_blocked_agree_with_brute_force(n, d, gamma, causal, block, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    layer = ca.Attention(ca.LogN(gamma), mask=ca.Causal() if causal else ca.Bidirectional())
    expected = oracles.layer(x, gamma * np.log(n), 0.7, 1.3, causal=causal)
    with precision("float64"):
        for rows in (None, block):
            moved = ca.attention_step(layer, jnp.asarray(x), identity_weight=0.7, attention_weight=1.3, block_rows=rows)
            # the largest logit is gamma log n, whose rounding is an absolute error of the exponent
            assert relative(moved, expected) < 1e-14 * (10 + gamma * np.log(n) * 10)


def test_row_length_uses_the_keys_a_row_sees():
    x = np.random.default_rng(0).standard_normal((9, 4))
    layer = ca.Attention(ca.LogN(2.0, length="row"), mask=ca.Causal())
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = oracles.softmax_weights(x, 2.0 * np.log(np.arange(1, 10)), causal=True)
    with precision("float64"):
        np.testing.assert_allclose(ca.attention_weights(layer, units @ units.T), expected, rtol=1e-13, atol=1e-16)


def test_heads_are_a_leading_axis():
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 2, 5, 4)).astype(np.float32)
    layer = ca.Attention(ca.LogN(0.5), mask=ca.Causal())
    together = ca.attend(layer, q, k, v, block_rows=2)
    assert together.shape == (2, 5, 4)
    for head in range(2):
        alone = ca.attend(layer, q[head], k[head], v[head])
        np.testing.assert_allclose(together[head], alone, rtol=1e-5, atol=1e-6)
    assert ca.attention_weights(layer, np.einsum("hid,hjd->hij", q, k)).shape == (2, 5, 5)


def test_works_inside_jit_vmap_and_grad_at_the_callers_precision():
    x = jnp.asarray(np.random.default_rng(2).standard_normal((6, 3)), jnp.float32)

    def total(gamma):
        return jnp.sum(ca.attention_step(ca.Attention(ca.LogN(gamma)), x) ** 2)

    values = jax.jit(jax.vmap(total))(jnp.asarray([0.5, 1.0]))
    assert values.dtype == jnp.float32
    step = (float(values[1]) - float(values[0])) / 0.5
    assert float(jax.grad(total)(0.75)) == pytest.approx(step, rel=0.2)


def test_float64_under_a_float32_trace_is_one_clear_error():
    x = np.random.default_rng(2).standard_normal((6, 3))
    with pytest.raises(DomainError, match="runs outside"):
        jax.jit(lambda gamma: ca.measure(ca.Attention(ca.LogN(gamma)), x)["self_weight"].value)(1.0)


def test_transforms_apply_in_order():
    class AddPosition:
        def __call__(self, logits, context):
            return logits + context.key_positions[None, :]

    scores = jnp.asarray([[0.0, 1.0], [1.0, 0.0]])
    first = ca.Attention(AddPosition(), ca.InverseTemperature(2.0)).logits(scores, _context(2))
    second = ca.Attention(ca.InverseTemperature(2.0), AddPosition()).logits(scores, _context(2))
    np.testing.assert_allclose(first, [[0, 4], [2, 2]])
    np.testing.assert_allclose(second, [[0, 3], [2, 1]])


def _context(n):
    return ca.Attention().context(jnp.arange(n), n, 1)


def test_a_row_without_keys_has_weight_zero_and_no_nan():
    layer = ca.Attention(ca.LogN(1.0))
    weights = layer.normaliser(jnp.ones((2, 3)), _context(3), where=jnp.asarray([[True, True, False], [False] * 3]))
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0, 0, 0]])


def test_extreme_logits_stay_finite():
    weights = ca.attention_weights(ca.Attention(ca.InverseTemperature(1e30)), jnp.asarray([[1.0, -1.0], [0.5, 0.5]]))
    np.testing.assert_allclose(weights, [[1, 0], [0.5, 0.5]])


@pytest.mark.parametrize(("rows", "block"), [(1, 1), (7, 1), (7, 3), (8, 4), (5, 9)])
def test_map_row_blocks_is_map(rows, block):
    result = map_row_blocks(lambda where: {"a": where**2, "b": where[:, None] * jnp.ones(3)}, jnp.arange(rows), block)
    np.testing.assert_array_equal(result["a"], np.arange(rows) ** 2)
    assert result["b"].shape == (rows, 3)


def test_iterate_layers_repeats_the_step():
    tokens = ca.near_simplex(0, 12, 5, rho=0.3, unit_norm=False)
    layer = ca.Attention(ca.LogN(1.5))
    x, seen = np.asarray(tokens.vectors), []
    for _ in range(4):
        seen.append(np.linalg.norm(x))
        x = oracles.layer(x, 1.5 * np.log(12), 0.7, 1.0)
    seen.append(np.linalg.norm(x))
    with precision("float64"):
        last, norms = ca.iterate_layers(
            layer, tokens, 4, record=lambda t: jnp.linalg.norm(t.vectors), identity_weight=0.7, block_rows=5
        )
        np.testing.assert_allclose(last.vectors, x, rtol=1e-12)
        np.testing.assert_allclose(norms, seen, rtol=1e-12)
    with pytest.raises(DomainError, match="layers"):
        ca.iterate_layers(layer, tokens, -1, record=lambda t: t.vectors)


def test_names_that_do_not_exist_say_what_does():
    with pytest.raises(SpecError, match="softmax"):
        ca.normalisers.get("softmex")
    with pytest.raises(SpecError, match="log-n"):
        ca.scaling.get("log", 1.0)
    from critattn import attention

    with pytest.raises(SpecError, match="causal"):
        attention.mask("caual")
    with pytest.raises(DomainError, match="context"):
        ca.attention_weights(ca.Attention(), np.ones((2, 3)))
