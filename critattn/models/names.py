"""Where the weights of each family are in its files: tensor names by canonical part, without `.weight` and `.bias`."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Names:
    """Names of a family's tensors.

    Attributes:
        prefixes: what may stand before the names of the model's body.
        layer: what stands before the names of a block, with a place for its number.
        parts: canonical parts of a block: norm1, qkv or q, k, v, out, norm2, gate, up, down, q_norm, k_norm.
        outer: canonical parts outside of the blocks: tokens, positions, types, embedding_norm, final_norm.
        head: parts of the output head, which have no prefix: head, and for encoders transform, transform_norm.
    """

    prefixes: tuple[str, ...]
    layer: str
    parts: Mapping[str, str]
    outer: Mapping[str, str]
    head: Mapping[str, str] = field(default_factory=lambda: {"head": "lm_head"})


LLAMA = Names(
    prefixes=("model.", ""),
    layer="layers.{}.",
    parts={
        "norm1": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "out": "self_attn.o_proj",
        "norm2": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    outer={"tokens": "embed_tokens", "final_norm": "norm"},
)
GGUF = Names(
    prefixes=("",),
    layer="blk.{}.",
    parts={
        "norm1": "attn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "out": "attn_output",
        "norm2": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
    },
    outer={"tokens": "token_embd", "final_norm": "output_norm"},
    head={"head": "output"},
)
BERT = Names(
    prefixes=("bert.", ""),
    layer="encoder.layer.{}.",
    parts={
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "out": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    },
    outer={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
    },
    head={
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions.decoder",
    },
)
GPT2 = Names(
    prefixes=("transformer.", ""),
    layer="h.{}.",
    parts={
        "norm1": "ln_1",
        "qkv": "attn.c_attn",
        "out": "attn.c_proj",
        "norm2": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    outer={"tokens": "wte", "positions": "wpe", "final_norm": "ln_f"},
)
GPT_NEOX = Names(
    prefixes=("gpt_neox.", ""),
    layer="layers.{}.",
    parts={
        "norm1": "input_layernorm",
        "qkv": "attention.query_key_value",
        "out": "attention.dense",
        "norm2": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    outer={"tokens": "embed_in", "final_norm": "final_layer_norm"},
    head={"head": "embed_out"},
)
BLOOM = Names(
    prefixes=("transformer.", ""),
    layer="h.{}.",
    parts={
        "norm1": "input_layernorm",
        "qkv": "self_attention.query_key_value",
        "out": "self_attention.dense",
        "norm2": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    outer={"tokens": "word_embeddings", "embedding_norm": "word_embeddings_layernorm", "final_norm": "ln_f"},
)
MPT = Names(
    prefixes=("transformer.", ""),
    layer="blocks.{}.",
    parts={
        "norm1": "norm_1",
        "qkv": "attn.Wqkv",
        "q_norm": "attn.q_ln",
        "k_norm": "attn.k_ln",
        "out": "attn.out_proj",
        "norm2": "norm_2",
        "up": "ffn.up_proj",
        "down": "ffn.down_proj",
    },
    outer={"tokens": "wte", "positions": "wpe", "final_norm": "norm_f"},
)
FALCON = Names(
    prefixes=("transformer.", ""),
    layer="h.{}.",
    parts={
        "norm1": "input_layernorm",
        "qkv": "self_attention.query_key_value",
        "out": "self_attention.dense",
        "norm2": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    outer={"tokens": "word_embeddings", "final_norm": "ln_f"},
)
# the two norms of Falcon's new decoder have names of their own
FALCON_TWO_NORMS = {"norm1": "ln_attn", "norm2": "ln_mlp"}
TRAINED_HERE = Names(
    prefixes=("",),
    layer="blocks.{}.",
    parts={
        "norm1": "attention_norm",
        "q": "q",
        "k": "k",
        "v": "v",
        "out": "out",
        "norm2": "mlp_norm",
        "gate": "gate",
        "up": "up",
        "down": "down",
    },
    outer={"tokens": "embedding", "final_norm": "final_norm"},
    head={"head": "unembedding"},
)
FAMILIES = {
    "critattn": TRAINED_HERE,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "gguf-llama": GGUF,
    "gguf-qwen2": GGUF,
    "bert": BERT,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "bloom": BLOOM,
    "mpt": MPT,
    "falcon": FALCON,
}
