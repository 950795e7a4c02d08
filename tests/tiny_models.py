"""Random models small enough for a test, as files that the readers open."""

import json

import numpy as np
from safetensors.numpy import save_file

WIDTH, HEADS, KV_HEADS, INNER, LAYERS, VOCABULARY = 16, 4, 2, 24, 3, 256


def llama(folder, *, seed=0, length=64, sharp=1.5, **changes):
    """A random byte-level Llama in a folder: config.json and model.safetensors; returns the folder."""
    rng, size = np.random.default_rng(seed), WIDTH // HEADS
    shapes = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.o_proj": (WIDTH, WIDTH)}
    shapes |= {f"self_attn.{part}_proj": (KV_HEADS * size, WIDTH) for part in "kv"}
    shapes |= {"mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
    arrays = {"model.embed_tokens.weight": rng.normal(size=(VOCABULARY, WIDTH))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            scale = sharp if name.endswith(("q_proj", "k_proj")) else 0.4
            arrays[f"model.layers.{layer}.{name}.weight"] = scale * rng.normal(size=shape) / np.sqrt(shape[1])
        for name in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"model.layers.{layer}.{name}.weight"] = np.ones(WIDTH)
    arrays["model.norm.weight"] = np.ones(WIDTH)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, folder / "model.safetensors")
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "tokeniser": "bytes",
    }
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder
