"""A small random Llama in a folder, as a user would have one: weights, configuration, bytes as tokens."""

import json

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "model_type": "llama",
    "tokeniser": "bytes",
    "vocab_size": 256,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": True,
}


def tensors(seed=0, sharpness=0.5):
    """Random weights: projections of normal entries, `sharpness` times 1/sqrt of the width larger for q and k."""
    rng, width, inner = np.random.default_rng(seed), CONFIG["hidden_size"], CONFIG["intermediate_size"]
    size, heads, kv = CONFIG["head_dim"], CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    shapes = {
        "self_attn.q_proj": (heads * size, width),
        "self_attn.k_proj": (kv * size, width),
        "self_attn.v_proj": (kv * size, width),
        "self_attn.o_proj": (width, heads * size),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    made = {"model.embed_tokens.weight": rng.normal(size=(CONFIG["vocab_size"], width))}
    for layer in range(CONFIG["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for name, shape in shapes.items():
            scale = sharpness if name[-6] in "qk" else 0.3
            made[f"{p}{name}.weight"] = rng.normal(size=shape) * scale
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{p}{name}.weight"] = 1 + 0.2 * rng.normal(size=width)
    made["model.norm.weight"] = 1 + 0.2 * rng.normal(size=width)
    return {name: array.astype(np.float32) for name, array in made.items()}


def write(folder, **how):
    """The folder with `model.safetensors` and `config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors(**how), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder
