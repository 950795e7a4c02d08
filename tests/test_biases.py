"""Biases as transforms: against plain loops and real casts, under masks, jit, vmap and grad."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from critattn import Attention, Causal, Packed, Softmax, Window, attention_weights, formats
from critattn.biases import (
    Alibi,
    Cast,
    Clamp,
    KerpleLog,
    KerplePower,
    LogDistance,
    NtkScaled,
    Sandwich,
    T5Buckets,
    alibi_slopes,
    round_to,
)
from critattn.errors import DomainError, SpecError
from critattn.scaling import SoftCap

N = 33
SCORES = np.random.default_rng(3).standard_normal((N, N))
# float32 logits up to 100 carry an error of 100 x 2^-24; ten times that for the operations in between
FLOAT32 = 1e-4

PENALTIES = {
    "alibi": (Alibi(0.3), lambda d: 0.3 * d),
    "log": (LogDistance(1.5), lambda d: 1.5 * math.log(1 + d)),
    "kerple-log": (KerpleLog(1.2, 0.7), lambda d: 1.2 * math.log(1 + 0.7 * d)),
    "kerple-power": (KerplePower(0.2, 1.5), lambda d: 0.2 * d**1.5),
    "sandwich": (
        Sandwich(0.4, 16),
        lambda d: 0.4 * sum(1 - math.cos(d / 10000 ** (2 * k / 16)) for k in range(1, 9)),
    ),
    "clamp": (Clamp(Alibi(0.3), -2.0), lambda d: min(0.3 * d, 2.0)),
    "ntk": (NtkScaled(Alibi(0.3), 4.0), lambda d: 0.3 * d / 4),
}


def logits_of(*transforms, scores=SCORES, mask=None):
    layer = Attention(*transforms, mask=mask)

    def logits(scores):
        return layer.logits(scores, layer.context(jnp.arange(scores.shape[-2]), scores.shape[-1], 8))

    return np.asarray(jax.jit(logits)(np.asarray(scores, np.float32)))


def weights_of(layer, scores):
    return np.asarray(jax.jit(lambda scores: attention_weights(layer, scores))(scores))


@pytest.mark.parametrize("name", PENALTIES)
def test_a_bias_subtracts_its_amount_at_every_distance(name):
    bias, amount = PENALTIES[name]
    expected = [[SCORES[i, j] - amount(abs(i - j)) for j in range(N)] for i in range(N)]
    np.testing.assert_allclose(logits_of(bias), expected, atol=FLOAT32)
    np.testing.assert_allclose(bias.amount(np.arange(N)), [amount(d) for d in range(N)], atol=1e-12)
    with jax.enable_x64(True):
        layer = Attention(bias)
        wide = layer.logits(jnp.asarray(SCORES), layer.context(jnp.arange(N), N, 8))
        assert wide.dtype == jnp.float64
        np.testing.assert_allclose(wide, expected, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in PENALTIES if name != "sandwich"])
def test_the_inverse_undoes_the_amount(name):
    bias, amount = PENALTIES[name]
    for distance in (0.25, 1.0, 5.0):
        assert bias.inverse(amount(distance)) == pytest.approx(distance, rel=1e-13)
        assert bias.log_inverse(amount(distance)) == pytest.approx(math.log(distance), abs=1e-12)


def test_slopes_of_several_heads_are_a_leading_axis():
    slopes = alibi_slopes(4)
    scores = np.random.default_rng(5).standard_normal((2, 4, N, N)).astype(np.float32)
    together = logits_of(Alibi(slopes), scores=scores)
    for head, slope in enumerate(slopes):
        np.testing.assert_allclose(together[:, head], logits_of(Alibi(slope), scores=scores[:, head]), atol=1e-5)
    assert [one.slope for one in Alibi(slopes).heads()] == list(slopes)
    nested = Clamp(Alibi(slopes), -3.0).heads()
    assert [one.bias.slope for one in nested] == list(slopes)
    with pytest.raises(DomainError, match="heads"):
        KerpleLog(np.ones(3), np.ones(2)).heads()


def test_absolute_and_relative_alibi_give_the_same_causal_weights_in_exact_arithmetic():
    with jax.enable_x64(True):
        pair = [
            weights_of(Attention(Alibi(0.3, form=form), mask=Causal()), SCORES) for form in ("relative", "absolute")
        ]
        # logits up to 10 in double precision
        np.testing.assert_allclose(*pair, atol=1e-14)
    two_sided = [weights_of(Attention(Alibi(0.3, form=form)), SCORES) for form in ("relative", "absolute")]
    assert np.abs(two_sided[0] - two_sided[1]).max() > 0.1


def test_alibi_in_packed_documents_and_windows_is_a_matter_of_distance():
    ids = [0] * 10 + [1] * (N - 10)
    packed = weights_of(Attention(Alibi(0.3), mask=Packed(ids)), SCORES.astype(np.float32))
    alone = weights_of(Attention(Alibi(0.3), mask=Causal()), jnp.asarray(SCORES[10:, 10:], jnp.float32))
    np.testing.assert_allclose(packed[10:, 10:], alone, atol=1e-6)
    window = weights_of(Attention(Alibi(0.3), mask=Window(4)), jnp.asarray(SCORES, jnp.float32))
    assert np.count_nonzero(window) == 1 + 2 + 3 + 4 * (N - 3)


def test_the_order_of_cap_and_bias_is_the_order_given():
    capped_first, biased_first = logits_of(SoftCap(2.0), Alibi(0.5)), logits_of(Alibi(0.5), SoftCap(2.0))
    distance = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
    np.testing.assert_allclose(capped_first, 2 * np.tanh(SCORES / 2) - 0.5 * distance, atol=1e-5)
    np.testing.assert_allclose(biased_first, 2 * np.tanh((SCORES - 0.5 * distance) / 2), atol=1e-5)


def t5_bucket(distance, buckets=32, max_distance=128):
    """One distance, after the words of the T5 paper's code."""
    exact = buckets // 2
    if distance < exact:
        return distance
    far = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact))
    return min(far, buckets - 1)


def test_t5_buckets():
    table = np.random.default_rng(1).standard_normal((2, 32))
    bias = T5Buckets(table)
    distances = np.arange(300)
    buckets = [t5_bucket(int(d)) for d in distances]
    np.testing.assert_array_equal(bias.buckets(distances), buckets)
    np.testing.assert_array_equal(bias.amount(distances), -table[:, buckets])
    logits = logits_of(bias, scores=np.zeros((2, 300, 300), np.float32))
    np.testing.assert_allclose(logits[:, 299, ::-1], table[:, buckets], atol=1e-6)
    assert bias.head(1).amplitude() == -table[1].min()
    with pytest.raises(DomainError, match="table"):
        T5Buckets(np.zeros(3))
    with pytest.raises(DomainError, match="max_distance"):
        T5Buckets(np.zeros(32), 16)


def spread_of(name):
    """Numbers over the whole range of a format, its ties, its ends and what lies beyond; float32 normals only."""
    stated = formats.get(name)
    rng = np.random.default_rng(7)
    low = max(stated.least_exponent - stated.significand_bits - 2, -125)
    values = np.exp2(rng.uniform(low, min(math.log2(stated.largest) + 2, 127.5), 4000)) * rng.choice([-1, 1], 4000)
    # one more significand bit than the format: half of these are ties
    bits = stated.significand_bits + 1
    coarse = np.ldexp(rng.integers(2 ** (bits - 1), 2**bits, 4000), rng.integers(-6, 3, 4000) - bits)
    ends = [0.0, stated.largest, -stated.largest, np.inf, -np.inf, np.nan]
    return np.concatenate([values, coarse, ends]).astype(np.float32)


@pytest.mark.parametrize("name", formats.names())
def test_rounding_is_that_of_a_real_cast(name):
    values = spread_of(name)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(formats.get(name).dtype).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: round_to(x, name))(values), expected)
    # also in one piece with what comes before and after, where a compiler may drop conversions
    traced = jax.jit(lambda x: round_to(x * 0.5, name) * 2)(values)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(traced, (values / 2).astype(formats.get(name).dtype).astype(np.float32) * 2)
    once = np.asarray(round_to(jnp.asarray(values), name))
    np.testing.assert_array_equal(round_to(jnp.asarray(once), name), once)


@pytest.mark.parametrize("name", formats.names())
def test_saturating_casts_never_leave_the_numbers(name):
    largest = formats.get(name).largest
    found = round_to(jnp.asarray([np.inf, -np.inf, 3e38, -3e38, 1.0], jnp.float32), name, saturate=True)
    inside = min(largest, 3e38)
    np.testing.assert_allclose(found, [largest, -largest, inside, -inside, 1.0], rtol=2**-7)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("name", formats.names())
def test_masked_rows_have_defined_weights_in_every_format(name):
    """A fully masked row, and the lowest number plus a bias [huggingface/transformers pull 18185]."""
    lowest = -formats.get(name).largest
    scores = np.full((3, 4), lowest, np.float32)
    scores[0] = 0
    bias = Alibi(64.0)
    for cast in (Cast(name), Cast(name, saturate=True)):
        layer = Attention(bias, cast)
        context = layer.context(jnp.arange(3), 4, 8)
        nothing = jnp.zeros((3, 4), bool).at[0].set(True)
        logits = jax.jit(lambda scores, layer=layer, context=context: layer.logits(scores, context))(scores)
        softmax = jax.jit(lambda logits, where=None, context=context: Softmax()(logits, context, where=where))
        weights = np.asarray(softmax(logits, where=nothing))
        assert np.all(np.isfinite(weights))
        assert np.all(weights[1:] == 0)
        if cast.saturate or formats.get(name).has_infinity:
            assert np.all(np.isfinite(softmax(logits)))


def test_a_mask_added_to_a_bias_is_absorbed_or_overflows():
    """Float16 gives -inf, bfloat16 and float32 forget the bias: a row that is not ALiBi-shaped either way."""
    for name, expected in (
        ("fp16", -np.inf),
        ("bf16", -formats.get("bf16").largest),
        ("fp32", -formats.get("fp32").largest),
    ):
        lowest = jnp.full((1, 4), -formats.get(name).largest, jnp.float32)
        layer = Attention(Alibi(64.0), Cast(name))
        logits = layer.logits(lowest, layer.context(jnp.asarray([3]), 4, 8))
        assert np.asarray(logits)[0, 0] == np.float32(expected)
    # the last number that stays: half a unit of 65504 is 16
    assert round_to(jnp.float32(-65504 - 15.99), "fp16") == -65504
    assert round_to(jnp.float32(-65504 - 16), "fp16") == -np.inf


def test_casts_pass_gradients_and_transformations():
    scores = jnp.asarray(SCORES[:8, :8], jnp.float32)

    def loss(slope, *casts):
        return jnp.sum(attention_weights(Attention(Alibi(slope), *casts, mask=Causal()), scores) ** 2)

    slopes = jnp.asarray([0.1, 0.3])
    value, cast = jax.jit(jax.vmap(jax.value_and_grad(lambda slope: loss(slope, Cast("bf16")))))(slopes)
    exact_value, exact = jax.jit(jax.vmap(jax.value_and_grad(loss)))(slopes)
    # to the derivative the cast is the identity; logits up to 4 move by 2^-8 at most, weights by twice that share
    np.testing.assert_allclose(cast, exact, rtol=0.03)
    np.testing.assert_allclose(value, exact_value, rtol=0.03)
    assert np.all(value != exact_value)


def test_double_precision_is_rounded_once():
    """A cast by way of float32 would see a tie and go down."""
    with jax.enable_x64(True):
        value = jnp.asarray([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 2.0**-134 * (1 + 2.0**-40), 2.0**-134])
        np.testing.assert_array_equal(round_to(value, "bf16"), [1 + 2.0**-7, 1, 2.0**-133, 0])


def test_a_bias_may_be_rounded_before_it_is_added():
    positions = np.arange(N, dtype=np.float32)
    expected = (np.float32(0.3) * positions).astype(formats.get("bf16").dtype).astype(np.float32)
    logits = logits_of(Alibi(0.3, form="absolute", format="bfloat16"), scores=np.zeros((1, N), np.float32))
    np.testing.assert_array_equal(logits[0], expected)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Alibi(0.5, form="diagonal"), SpecError),
        (lambda: Alibi(0.5, format="bf61"), SpecError),
        (lambda: Cast("float17"), SpecError),
        (lambda: Sandwich(1.0, 7), DomainError),
        (lambda: NtkScaled(Alibi(0.5), 0.0), DomainError),
    ],
)
def test_what_makes_no_bias(make, kind):
    with pytest.raises(kind):
        make()
