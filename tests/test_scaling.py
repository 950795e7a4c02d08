"""The catalogue of scaling laws: conformance numbers, lengths, order, transforms in layers, identification."""

import dataclasses
import importlib
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import critattn as ca
from critattn import scaling
from critattn.errors import DomainError, SpecError
from critattn.protocols import RowContext, ScalingLaw, Transform, precision
from critattn.scaling.entries import MARKS, STEPS
from critattn.scaling.identify import resolution
from critattn.scaling.lengths import FIXED_BASES

CATALOGUE = scaling.catalogue()
LAWS = [one for one in CATALOGUE if one.law is not None]
# laws that are one function of the lengths: factors cannot tell them apart
SAME = [
    {"constant", "deepseek-v4", "gemma-2", "granite", "mup", "falcon-alibi"},
    {"yarn", "gpt-oss"},
    {"log-n", "ssmax-tabicl", "go-attention", "uniception-log"},
]


def factor(name, positions, **parameters):
    lengths = scaling.Lengths.plain(positions, 64.0)
    return scaling.evaluate(scaling.entry(name), lengths, parameters=parameters).factor


def n(*counts):
    return [count - 1 for count in counts]


@pytest.mark.parametrize(
    ("name", "positions", "expected", "parameters"),
    [
        ("qwen-1", n(8192, 8193, 16384, 32767), [1, 1.0000135461, 1.0769230769, 1.1538427671], {}),
        (
            "llama-4",
            [8190, 8191, 16382, 16383, 131071],
            [1, 1.0693147181, 1.0693147181, 1.1098612289, 1.2833213344],
            {},
        ),
        (
            "ministral-3",
            [16383, 16384, 32767, 32768, 262143],
            [1, 1.0693147181, 1.0693147181, 1.1098612289, 1.2772588722],
            {},
        ),
        ("grok-2", [1024, 1025, 8191, 131071], [1, 1.0001408194, 1.2999823879, 1.6999988993], {}),
        ("grok-2-inverse", [8191, 131071], [0.125, 1 / 128], {}),
        ("yarn", [7], [1.8132604340], {}),
        ("yarn", [7], [1.6313902267], {"stretch": 16.0}),
        ("gpt-oss", [7], [1.8132604340], {}),
        ("deepseek-v3", [7], [1.8738542071], {}),
        ("deepseek-v2", [7], [1.5896261651], {}),
        ("deepseek-v3", [7], [2.2058280296], {"stretch": 128.0}),
        ("mistral-4", [0, 8192], [2.2058280296, 2.3587243776], {}),
        ("longrope", [7], [1.4166666667], {}),
        ("inkling", n(128000, 256000, 10**6), [1, 1.0693147181, 1.2055725015], {}),
        ("beam", [0, 2047, 131071], [1.0000488174, 1.0717734625, 1.5180683844], {}),
        ("uniception-sqrt", n(444, 870), [1.1832159566, 1.2467913682], {}),
    ],
)
def test_conformance_numbers(name, positions, expected, parameters):
    np.testing.assert_allclose(factor(name, positions, **parameters), expected, rtol=0, atol=6e-11)


def test_temperatures_of_yarn_are_resolved():
    assert scaling.Yarn(32.0).temperature() == pytest.approx(1.3465735903, abs=6e-11)
    assert scaling.Yarn(32.0, 1.0, 1.0).temperature() == 1
    assert scaling.Yarn(40.0, 1.0, 0.707).temperature() == pytest.approx(1.3688879454 / 1.2608037774, rel=1e-8)
    assert scaling.Yarn(16.0, attention_factor=1.0).temperature() == 1
    assert scaling.Yarn(0.5).temperature() == 1
    assert factor("deepseek-v4", [5]) == 1
    assert factor("yarn", [5], stretch=16.0) == pytest.approx(1.2772588722**2)
    assert factor("deepseek-v3", [5], mscale_all_dim=0.0) == 1
    assert factor("longrope", [5], stretch=0.5) == 1
    assert factor("longrope", [5], attention_factor=1.1) == pytest.approx(1.21)


def test_clamps_and_first_rows():
    assert factor("qwen-1", n(1, 8191, 8192)).tolist() == [1, 1, 1]
    assert np.isnan(factor("qwen-1", n(32768)))[0]
    assert factor("rerope", n(1, 4096)).tolist() == [1, 1]
    assert factor("su", n(1, 512)).tolist() == [0, 1]
    assert factor("su", n(100))[0] < 1
    assert factor("ssmax", [0]) == 0
    assert factor("ssmax-olmo", [0]) == 0
    assert factor("ssmax-axolotl", [0, 1]) == pytest.approx(0.43 * math.log(2))
    assert factor("asentmax-nakanishi", [0]) == pytest.approx(math.log(2))
    assert factor("grok-2", [0, 1, 1024]).tolist() == [1, 1, 1]
    assert factor("grok-2-inverse", [1023, 1024]) == pytest.approx([1, 1024 / 1025])
    assert factor("inkling", n(1, 128000)).tolist() == [1, 1]


def test_llama_and_ministral_differ_at_one_row_before_each_step():
    p = np.arange(3 * 8192 + 5)
    llama, ministral = factor("llama-4", p), factor("ministral-3", p, interval=8192.0)
    assert np.flatnonzero(llama != ministral).tolist() == [8191, 16383, 24575]
    np.testing.assert_array_equal(ministral, factor("llama-cpp", p))
    np.testing.assert_array_equal(llama, factor("llama-cpp", p, offset=1.0))


def test_a_normalised_logarithm_has_no_base_and_another_has():
    p = np.array(n(600, 4096, 10**6))
    np.testing.assert_allclose(factor("su", p), np.log2(p + 1) / np.log2(512), rtol=1e-15)
    np.testing.assert_allclose(factor("ssmax", p, s=0.43 / math.log(2)), 0.43 * np.log2(p + 1), rtol=1e-14)


def test_row_and_sequence_versions_differ_but_in_the_last_row():
    lengths = scaling.Lengths.plain([0, 99, 8191], 64.0, total_keys=8192)
    rows, sequence = (
        scaling.evaluate(scaling.entry(name), lengths, parameters={"reference": 4096.0}).factor
        for name in ("su", "clex")
    )
    assert sequence.tolist() == [sequence[0]] * 3
    assert (rows[:2] < sequence[:2]).all()
    assert rows[2] == sequence[2] == pytest.approx(13 / 12)


def test_packed_documents_and_windows_decide_what_n_is():
    with precision("float64"):
        packed = ca.Attention(mask=ca.Packed([7] * 5 + [3] * 4)).context(jnp.arange(9), 9, 16)
        window = ca.Attention(mask=ca.Window(3)).context(jnp.arange(9), 9, 16)
        restart = np.log([1, 2, 3, 4, 5, 1, 2, 3, 4])
        clipped = np.log([1, 2, 3, 3, 3, 3, 3, 3, 3])
        plain = np.log(np.arange(1, 10))
        for name, context, expected in [
            ("ssmax-olmo", packed, restart),
            ("ssmax-olmo", window, plain),
            ("ssmax", packed, restart),
            ("ssmax", window, clipped),
            ("ssmax-tabicl", packed, np.log(9)),
        ]:
            given = {"s": 1.0}
            np.testing.assert_allclose(_factor(name, context, **given), expected, rtol=1e-14)
        steps = _factor("llama-4", packed, interval=4.0)
        np.testing.assert_allclose(steps, 1 + 0.1 * np.log1p((np.arange(9) + 1) // 4), rtol=1e-14)
        restarted = _factor("ministral-3", packed, interval=4.0)
        np.testing.assert_allclose(restarted, 1 + 0.1 * np.log1p([0, 0, 0, 0, 1, 0, 0, 0, 0]), rtol=1e-14)


def _factor(name, context, **parameters):
    return np.asarray(scaling.entry(name).made(parameters).beta(context)) * math.sqrt(context.dim)


def test_masks_allow_what_they_count():
    for mask in (ca.Window(3), ca.Packed([0, 0, 1, 1, 1, 0]), ca.Packed(np.array([2, 2, 2, 2, 2, 2])), ca.Window(9)):
        where = np.asarray(mask.allowed(jnp.arange(6), jnp.arange(6)))
        np.testing.assert_array_equal(where.sum(axis=1), mask.keys_seen(jnp.arange(6), 6))
        assert where.diagonal().all()
        assert not np.triu(where, 1).any()
    with pytest.raises(DomainError, match="width"):
        ca.Window(0)
    with pytest.raises(DomainError, match="6 entries"):
        ca.Attention(mask=ca.Packed([0] * 6)).context(jnp.arange(7), 7, 1)


@pytest.mark.slow
def test_packed_attention_is_attention_of_each_document():
    q, k, v = np.random.default_rng(0).standard_normal((3, 9, 4))
    with precision("float64"):
        law = scaling.law("ssmax-olmo")
        together = ca.attend(ca.Attention(law, mask=ca.Packed([1] * 5 + [0] * 4)), q, k, v)
        for part in (slice(0, 5), slice(5, 9)):
            alone = ca.attend(ca.Attention(law, mask=ca.Causal()), q[part], k[part], v[part])
            np.testing.assert_allclose(together[part], alone, rtol=1e-13)


@pytest.mark.parametrize("law", LAWS, ids=lambda one: one.name)
def test_every_law_is_a_transform_that_equals_its_factor_under_jit(law):
    scores = np.random.default_rng(1).standard_normal((40, 40))
    with precision("float64"):
        layer = ca.Attention(law.law, mask=ca.Causal())
        assert isinstance(law.law, ScalingLaw)
        found = jax.jit(lambda one, s: one.logits(s, one.context(jnp.arange(40), 40, 16)))(layer, scores)
        lengths = scaling.Lengths.plain(np.arange(40), 16.0, total_keys=40)
        expected = scaling.evaluate(law, lengths).beta
        np.testing.assert_allclose(found, expected[:, None] * scores, rtol=1e-13)
    single = law.law(jnp.asarray(scores, jnp.float32), ca.Attention().context(jnp.arange(40), 40, 16))
    assert single.dtype == jnp.float32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("llama-4", ca.Packed([0] * 5 + [1] * 7)),
        ("ministral-3", ca.Packed([0] * 5 + [1] * 7)),
        ("ssmax", ca.Window(4)),
        ("yarn", ca.Causal()),
        ("lssa", ca.Causal()),
    ],
)
def test_laws_in_measure_and_in_its_gradient(name, mask):
    n, d = 12, 5
    tokens = ca.near_simplex(0, n, d, rho=0.3)
    law = scaling.OnCosines(scaling.law(name, **({"interval": 4.0} if "4" in name or "3" in name else {})))
    layer = ca.Attention(law, mask=mask)
    found = ca.measure(layer, tokens, ["self_weight", "gradient_norm"])
    with precision("float64"):
        x = jnp.asarray(tokens.vectors, jnp.float64)
        weights = ca.attention_weights(layer, _cosines(x), layer.context(jnp.arange(n), n, d))
        jacobian = jax.jacobian(partial(ca.attention_step, layer))(x)
        assert found["self_weight"].value == pytest.approx(float(jnp.mean(jnp.diagonal(weights))), rel=1e-12)
        assert found["gradient_norm"].value == pytest.approx(float(jnp.sum(jacobian**2)) / x.size, rel=1e-9)


def _cosines(x):
    units = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    return units @ units.T


def test_parameters_are_differentiable_and_may_be_one_a_head():
    scores = jnp.asarray(np.random.default_rng(2).standard_normal((2, 6, 6)), jnp.float32)

    def total(s):
        return jnp.sum(ca.attention_weights(ca.Attention(scaling.SSMax(s), mask=ca.Causal()), scores, context) ** 2)

    context = ca.Attention(mask=ca.Causal()).context(jnp.arange(6), 6, 4)
    assert np.isfinite(jax.grad(total)(0.43))
    heads = scaling.SSMax(jnp.asarray([[0.5], [1.0]]))
    both = ca.attention_weights(ca.Attention(heads, mask=ca.Causal()), scores, context)
    for head, s in enumerate((0.5, 1.0)):
        alone = ca.attention_weights(ca.Attention(scaling.SSMax(s), mask=ca.Causal()), scores[head], context)
        np.testing.assert_allclose(both[head], alone, rtol=1e-5)


def test_values_per_token_are_taken_at_the_place_of_the_row():
    f = jnp.linspace(-1, 1, 9)
    context = ca.Attention(mask=ca.Causal()).context(jnp.asarray([2, 8]), 9, 1)
    found = scaling.Ssa(f).factor(scaling.Lengths.of(context))
    np.testing.assert_allclose(found, 1 + np.tanh(f[np.array([2, 8])]) + 0.5 * np.log([3, 9]), rtol=1e-6)


def published_ssa(f, n):
    return 1 + np.tanh(f) + np.log(np.arange(1, n + 1)) / (1 + np.exp(-0.3))


PER_TOKEN = np.linspace(-1.5, 1, 13)
WAYS = {
    "(n,)": (PER_TOKEN, PER_TOKEN),
    "(1, n)": (PER_TOKEN[None], PER_TOKEN),
    "list": (PER_TOKEN.tolist(), PER_TOKEN),
    "scalar": (0.4, 0.4),
    "(1,)": (np.array([0.4]), 0.4),
}
LATE = {name: () if name == "(n,)" else pytest.mark.slow for name in WAYS}


@pytest.mark.parametrize("way", [pytest.param(name, marks=LATE[name]) for name in WAYS])
def test_selective_attention_takes_values_as_they_come(way):
    n, d = 13, 5
    x = np.random.default_rng(3).standard_normal((n, d)) + 0.5
    f, values = WAYS[way]
    layer = ca.Attention(scaling.OnCosines(scaling.law("ssa", f=f, alpha=0.3)), mask=ca.Causal())
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    logits = (published_ssa(values, n) * np.sqrt(d))[:, None] * (units @ units.T)
    masses = np.where(np.tri(n) > 0, np.exp(logits), 0)
    own = (np.diag(masses) / masses.sum(axis=1)).mean()
    assert ca.measure(layer, x, ["self_weight"])["self_weight"].value == pytest.approx(own, rel=1e-12)


def test_values_of_each_token_may_differ_by_head():
    f, n = np.stack([np.linspace(-1, 1, 6), np.zeros(6)]), 6
    context = ca.Attention(mask=ca.Causal()).context(jnp.arange(n), n, 4)
    with precision("float64"):
        found = scaling.law("ssa", f=f, alpha=0.3).beta(context)
    np.testing.assert_allclose(found, 0.5 * np.stack([published_ssa(one, n) for one in f]), rtol=1e-12)


def test_values_that_are_not_one_a_token_are_one_line():
    layer = ca.Attention(scaling.OnCosines(scaling.law("ssa", f=np.ones(7))))
    with pytest.raises(DomainError, match="f: has 7 values; allowed: one, or one for each of the 12 keys"):
        ca.measure(layer, np.eye(12), ["self_weight"])
    with pytest.raises(DomainError, match="f: has 7 values; allowed: one, or one for each of the 9 tokens"):
        factor("ssa", [2, 8], f=np.ones(7))


def test_the_order_of_scale_and_cap():
    with precision("float64"):
        scores = jnp.full((2, 1), 1e4)
        context = RowContext(jnp.asarray([5, 131071]), jnp.arange(1), jnp.asarray([6, 131072]), 131072, 4)
        grok = ca.Attention(*scaling.transforms("grok-2")).logits(scores, context)
        np.testing.assert_allclose(grok[:, 0], 30 * factor("grok-2", [5, 131071]), rtol=1e-14)
        gemma = ca.Attention(*scaling.transforms("gemma-2")).logits(scores, context)
        np.testing.assert_allclose(gemma, 50, rtol=1e-9)
        small = ca.Attention(*scaling.transforms("gemma-2")).logits(jnp.full((2, 1), 1.6), context)
        np.testing.assert_allclose(small, 50 * math.tanh(0.1 / 50), rtol=1e-14)


def test_the_place_of_the_bias():
    @dataclasses.dataclass
    class Bias:
        def __call__(self, logits, context):
            return logits + 1.0

    scores, context = jnp.full((1, 1), 3.0), ca.Attention().context(jnp.asarray([255_999]), 256_000, 4)
    m = 1 + 0.1 * math.log(2)
    for name, expected in [
        ("inkling", m * (3 / 2 + 1)),
        ("falcon-alibi", (3 + 1) / 2),
        ("constant", 3 / 2 + 1),
        ("llama-cpp", 3 / 2 * float(factor("llama-cpp", [255_999])[0]) + 1),
    ]:
        found = ca.Attention(*scaling.transforms(name, bias=Bias())).logits(scores, context)
        assert float(found[0, 0]) == pytest.approx(expected, rel=1e-6)


def test_scale_invariant_attention_is_a_transform_of_pairs():
    with precision("float64"):
        scores = np.random.default_rng(3).standard_normal((12, 12))
        layer = ca.Attention(*scaling.transforms("scale-invariant"), mask=ca.Causal())
        found = layer.logits(jnp.asarray(scores), layer.context(jnp.arange(12), 12, 16))
        t = np.maximum(np.subtract.outer(np.arange(12), np.arange(12)), 0)
        growth = 2 * np.log(1 + t / 10)
        np.testing.assert_allclose(found, np.sqrt(1 + growth) * scores / 4 - growth, rtol=1e-13, atol=1e-15)
        a = b = math.exp(0.5)
        np.testing.assert_allclose(1 + growth, 2 * (np.log(t / 10 + 1) - math.log(a) + b / a), rtol=1e-14)
        assert np.isfinite(ca.attention_weights(layer, jnp.asarray(scores), _context(12))).all()
    assert not isinstance(scaling.ScaleInvariant(), ScalingLaw)


def _context(rows):
    return ca.Attention(mask=ca.Causal()).context(jnp.arange(rows), rows, 16)


def test_beta_and_gamma():
    lengths = scaling.Lengths.plain([0, 4095], 64.0)
    found = scaling.evaluate(scaling.entry("ssmax"), lengths)
    assert found.beta[1] == pytest.approx(0.43 * math.log(4096) / 8)
    assert found.gamma[1] == pytest.approx(0.43 * 8)
    assert np.isnan(found.gamma[0])
    assert scaling.evaluate(scaling.entry("ssmax"), lengths, qk_norm=1.0).gamma[1] == pytest.approx(0.43 / 8)
    assert scaling.evaluate(scaling.entry("lssa"), lengths).gamma[1] == pytest.approx(math.log(64))
    assert scaling.evaluate(scaling.entry("log-n"), lengths).gamma[1] == pytest.approx(1)
    assert scaling.evaluate(scaling.entry("muse-glimmer"), lengths).beta[1] == pytest.approx(3.87 / 8)
    assert scaling.evaluate(scaling.entry("mup"), lengths).beta[1] == 1 / 64
    assert scaling.evaluate(scaling.entry("gemma-2"), lengths).beta[1] == 1 / 16
    assert scaling.evaluate(scaling.entry("granite"), lengths).beta[1] == 1
    cold = scaling.OnCosines(scaling.law("ssmax")).beta(_context(3))
    assert float(cold[2]) == pytest.approx(0.43 * math.log(3) * 4, rel=1e-6)


def test_crossings_of_the_critical_line():
    constant = scaling.entry("constant")
    (only,) = scaling.crossings(constant, 0.3, 64.0)
    assert only.log_n == pytest.approx(8 * 0.7, rel=1e-13)
    assert (only.upward, only.jump) == (False, False)
    assert scaling.crossings(scaling.entry("ssmax"), 0.3, 64.0) == []
    critical = scaling.entry("log-n")
    assert scaling.crossings(critical, 0.5, 64.0, parameters={"gamma": 2.0}) == []
    (rises, *_), llama = scaling.crossings(scaling.entry("beam"), 0.3, 64.0)[::-1], scaling.entry("llama-4")
    assert rises.upward
    found = scaling.crossings(llama, 0.3, 2048.0, parameters={"a": 0.1})
    for one in found:
        before, after = (
            scaling.evaluate(llama, scaling.Lengths.plain([n - 1], 2048.0)).gamma[0] * 0.7
            for n in (math.floor(one.n) - 1, math.ceil(one.n) + 1)
        )
        assert (before < 1 < after) if one.upward else (before > 1 > after)
    geometric = scaling.crossings(scaling.entry("geometric"), 0.0, 16.0)
    assert [one.upward for one in geometric][-1]
    for one in geometric:
        assert one.n ** (2 / 15) == pytest.approx(one.log_n, rel=1e-11)
    with pytest.raises(DomainError, match="rho"):
        scaling.critical_gamma(1.0)


def test_a_step_law_crosses_at_its_step():
    law = scaling.entry("llama-4")
    # just above the line after the first step, just below it before
    dim = (1.04 * math.log(8192) / 0.7) ** 2 / 1.0693 / 1.0
    norm = {"qk_norm": 1.0, "parameters": {"gain": 1.0}}
    line = math.log(8192) / 0.7
    scale = line / 1.03
    found = scaling.crossings(law, 0.3, dim, **{**norm, "qk_norm": scale * dim**0.5})
    jumps = [one for one in found if one.jump]
    assert jumps
    assert jumps[0].upward
    assert jumps[0].n == pytest.approx(8192, abs=1)


@pytest.mark.parametrize("one", CATALOGUE, ids=lambda one: one.name)
def test_entries_are_complete(one):
    record = one.record()
    assert record["mark"] in MARKS.values()
    assert set(one.order) <= set(STEPS)
    assert "scale" in one.order
    assert one.source
    assert one.formula
    assert (one.law is None) == (bool(one.reason) and one.scope != "row" and one.name != "ssa")
    assert set(one.examples) | set(one.learned) <= set(one.parameters)
    assert one.base in ("1/sqrt(d)", "1/d", *FIXED_BASES)
    assert one.evidence in MARKS
    for name, alike in one.look_alikes.items():
        assert set(alike) <= set(scaling.entry(name).parameters)
    if one.law is None and one.transform is None:
        with pytest.raises(SpecError, match="no factor per row"):
            one.transforms()
    else:
        assert all(isinstance(made, Transform) for made in one.transforms())


def test_what_is_unverified_is_marked():
    assert scaling.entry("swan-gpt").flags == "UNVERIFIED"
    assert scaling.entry("deepseek-v3").flags == "stated (in part unverified)"
    assert scaling.entry("llama-4").flags == "stated"
    assert scaling.entry("geometric").mark == "heuristic"
    assert scaling.entry("qwen-1").mark == "unverified"


@pytest.mark.parametrize(
    "name", ["llama-4", "ministral-3", "qwen-1", "rerope", "ssmax", "ssmax-axolotl", "ssmax-olmo", "su", "grok-2"]
)
def test_vectors_have_the_rows_where_look_alikes_differ(name):
    law = scaling.entry(name)
    for one in scaling.look_alikes(law, scaling.conformance_rows(law)):
        assert one["differs_at"], one["law"]


def vectors(law):
    lengths = scaling.conformance_rows(law)
    return lengths, scaling.evaluate(law, lengths).factor


ROUNDED = {
    "float64": lambda m: m,
    "float32": lambda m: m.astype(np.float32).astype(float),
    "four decimals": lambda m: np.round(m, 4),
    "float16": lambda m: m.astype(np.float16).astype(float),
}


@pytest.mark.parametrize("rounding", ROUNDED)
@pytest.mark.parametrize("law", LAWS, ids=lambda one: one.name)
def test_every_law_is_named_from_its_own_vectors(law, rounding):
    lengths, m = vectors(law)
    if rounding == "float16" and law.name == "geometric":
        return
    found = scaling.identify(lengths, ROUNDED[rounding](m))
    assert found.holds != law.wrong
    fitting = {one.law for one in found.matches}
    assert law.name in fitting
    alike = next((group for group in SAME if law.name in group), {law.name})
    if rounding != "float16":
        assert found.law in alike
    if rounding == "float64":
        assert fitting == alike
    claimed = scaling.identify(lengths, ROUNDED[rounding](m), claim=law.name)
    assert claimed.law == law.name


@pytest.mark.parametrize("law", LAWS, ids=lambda one: one.name)
def test_noise_needs_a_tolerance(law):
    lengths, m = vectors(law)
    noisy = m * (1 + 1e-3 * np.random.default_rng(0).standard_normal(m.size))
    found = scaling.identify(lengths, noisy, tolerance=5e-3, claim=law.name)
    assert found.law == law.name
    blind = scaling.identify(lengths, noisy)
    assert blind.verdict == "none"
    assert blind.law is None
    assert blind.closest[0].rms < 2e-3


POSITIONS = np.array([0, 1, 5, 20, 100, 511, 1024, 4096, 8191, 8192, 16383, 16384, 65535, 131071])
ROWS = scaling.Lengths.plain(POSITIONS, 64.0)
COUNTS = POSITIONS + 1.0


def test_the_inverse_is_named():
    for reference in (1024, 2048):
        found = scaling.identify(ROWS, np.where(reference > POSITIONS, 1, reference / COUNTS))
        assert (found.verdict, found.law, found.holds) == ("inverse", "grok-2-inverse", False)
        assert found.parameters["reference"] == pytest.approx(reference)
    found = scaling.identify(ROWS, 1 / factor("llama-4", POSITIONS))
    assert (found.verdict, found.law, found.holds) == ("inverse", "llama-4", False)


def test_the_pair_that_is_one_row_apart_is_named():
    found = scaling.identify(ROWS, factor("ministral-3", POSITIONS, interval=8192.0))
    assert (found.verdict, found.law, found.holds) == ("law", "llama-cpp", True)
    assert [(one.law, one.rows) for one in found.also] == [("llama-4", -1)]
    assert "llama-4" not in {one.law for one in found.matches}
    found = scaling.identify(ROWS, scaling.entry("ministral-3").factor(ROWS.moved(1)))
    assert (found.verdict, found.law, found.holds) == ("off by one", "ministral-3", False)
    assert "early" in found.sentence
    found = scaling.identify(ROWS, scaling.entry("ssmax").factor(ROWS.moved(1)))
    assert (found.verdict, found.law) == ("off by one", "ssmax")


@pytest.mark.parametrize(("stretch", "name"), [(32, "yarn"), (16, "yarn"), (8, "yarn")])
@pytest.mark.parametrize("decimals", [4, 15])
def test_a_missing_square_is_named(stretch, name, decimals):
    t = round(0.1 * math.log(stretch) + 1, decimals)
    found = scaling.identify(ROWS, np.full(POSITIONS.size, t))
    assert (found.verdict, found.law, found.holds) == ("missing square", name, False)
    assert found.parameters["stretch"] == pytest.approx(stretch, rel=1e-3)
    found = scaling.identify(ROWS, np.full(POSITIONS.size, round(t**2, decimals)))
    assert found.holds
    assert found.law == name
    assert found.parameters["stretch"] == pytest.approx(stretch, rel=1e-3)


def test_a_factor_applied_twice_or_not_at_all():
    found = scaling.identify(ROWS, factor("llama-4", POSITIONS) ** 2)
    assert (found.verdict, found.law, found.holds) == ("applied twice", "llama-4", False)
    found = scaling.identify(ROWS, np.ones(POSITIONS.size), claim="llama-4")
    assert found.law == "constant"


@pytest.mark.parametrize("s", [0.01, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("form", ["power", "sum", "relative"])
def test_a_shift_is_no_scaling(s, form):
    m = {"power": COUNTS**-s, "sum": -s * np.log(COUNTS), "relative": 1 - s * np.log(COUNTS)}[form]
    found = scaling.identify(ROWS, m)
    assert (found.verdict, found.law, found.holds) == ("shift", None, False)
    assert found.parameters["s"] == pytest.approx(s)
    assert "no scaling" in found.sentence


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ministral-3", {"a": 0.2, "interval": 4096.0}),
        ("inkling", {"a": 0.2, "reference": 3000.0}),
        ("beam", {"reference": 1000.0, "exponent": 0.2}),
        ("ssmax", {"s": 0.7, "b": 0.2}),
        ("rerope", {"reference": 2048.0}),
        ("uniception-sqrt", {"gain": 2.0}),
        ("grok-2-inverse", {"reference": 5000.0}),
        ("asentmax", {"b": 0.3, "g": 1.5}),
        ("swan-gpt", {"shift": 50.0}),
        ("constant", {"m": 1.2345678}),
        ("longrope", {"stretch": 16.0}),
    ],
)
def test_other_parameters_are_fitted(name, parameters):
    found = scaling.identify(ROWS, factor(name, POSITIONS, **parameters))
    mine = [one for one in found.matches if one.law == name] or [found]
    for key, value in parameters.items():
        assert mine[0].parameters[key] == pytest.approx(value, rel=1e-6)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10)
def test_what_is_no_law_is_said_to_be_none(seed):
    m = np.random.default_rng(seed).uniform(1, 2, POSITIONS.size)
    found = scaling.identify(ROWS, m)
    assert (found.verdict, found.law, found.holds, found.matches) == ("none", None, False, [])
    assert found.residual > 0.01
    assert found.closest
    assert "closest" in found.sentence


def test_rounding_is_seen_in_the_numbers():
    m = np.array([1.0, 1.0693147180559945, 1.1098612288668110])
    assert resolution(m).max() < 2e-9
    assert resolution(ROUNDED["float32"](m)).max() == pytest.approx(1e-6, rel=0.2)
    assert resolution(np.round(m, 4)).max() == pytest.approx(5.1e-5)
    assert resolution(np.array([12345.0, 1.235, 123.5])).max() > 0.5 * 0.51


def test_misuse_is_one_line():
    for call, words in [
        (lambda: scaling.entry("lama-4"), ["'lama-4'", "llama-4"]),
        (lambda: scaling.law("llama-4", f=3), ["'f'", "interval"]),
        (lambda: scaling.law("qassmax"), ["qassmax", "channel"]),
        (lambda: scaling.law("rerope", reference=0.0), ["reference", "positive"]),
        (lambda: scaling.law("rerope", reference=1.0), ["reference", "logarithm"]),
        (lambda: scaling.identify(ROWS, [math.nan]), ["finite"]),
        (lambda: scaling.law("ssmax").beta(ca.Attention().context(jnp.arange(3), 3, 0)), ["dim", "1/sqrt(d)"]),
        (lambda: scaling.ScaleInvariant()(jnp.ones((3, 3)), ca.Attention().context(jnp.arange(3), 3, 0)), ["dim"]),
        (lambda: scaling.add(scaling.entry("yarn")), ["exists"]),
    ]:
        with pytest.raises((SpecError, DomainError)) as caught:
            call()
        assert all(word in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


def test_a_law_of_the_user_joins_the_catalogue(monkeypatch):
    module = importlib.import_module("critattn.scaling.catalogue")
    monkeypatch.setattr(module, "_ENTRIES", dict(module._ENTRIES))
    mine = dataclasses.replace(scaling.entry("ssmax"), name="mine", law=scaling.SSMax(0.123))
    scaling.add(mine)
    found = scaling.identify(ROWS, 0.123 * np.log(COUNTS))
    assert (found.law, found.verdict) == ("mine", "law")
