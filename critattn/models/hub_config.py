"""The `config.json` of each family, with its old and its new keys, as fields of a configuration."""

from collections.abc import Callable
from typing import Any

from critattn.biases import alibi_slopes
from critattn.errors import SpecError
from critattn.models.keys import LENGTHS, SIZES, Keys, sizes
from critattn.models.rope import KINDS, Kind, Rope, check_rope, yarn_attention_factor

ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish")
# keys of relatives of these families that change the computation
FOREIGN = (
    "quantization_config",
    "num_local_experts",
    "num_experts",
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "logit_scale",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "attn_temperature_tuning",
    "use_logn_attn",
    "use_qk_norm",
    "no_rope_layers",
    "add_cross_attention",
    "is_encoder_decoder",
)
Fields = dict[str, Any]


def hub_fields(values: dict[str, Any], where: str = "config.json") -> Fields:
    """Fields of the configuration that a `config.json` states.

    Raises:
        SpecError: for an unknown model type, and keys that are missing, absurd, or change the computation in a way
            that is not implemented.
    """
    keys = Keys(where, values)
    family = keys.word("model_type", allowed=FAMILIES)
    keys.refuse(*FOREIGN)
    return {"family": family, **sizes(keys), **FAMILIES[family](keys)}


def _length(keys: Keys, default: int | None = None) -> int:
    return keys.whole(*LENGTHS, most=SIZES["length"], default=default)


def _inner(keys: Keys, width: int) -> int:
    return keys.whole("intermediate_size", "n_inner", "ffn_hidden_size", most=SIZES["inner"], default=4 * width)


def _epsilon(keys: Keys, default: float = 1e-5) -> float:
    return keys.number("layer_norm_epsilon", "layer_norm_eps", default=default)


def _tied(keys: Keys, default: bool) -> bool:
    return keys.flag("tie_word_embeddings", default)


def rope_of(keys: Keys, head_dim: int, *, share: float = 1.0, theta: float = 10_000.0) -> Rope:
    """The rotation: `rope_parameters`, or the older `rope_theta` beside `rope_scaling`.

    Args:
        keys: the configuration.
        head_dim: channels of a head.
        share: rotated share of the channels by default.
        theta: base of the wavelengths by default.

    Raises:
        SpecError: for an unknown rope type or numbers without meaning.
    """
    new = keys.inner("rope_parameters")
    nested = new if new.values else keys.inner("rope_scaling")
    apart = [name for name, value in nested.values.items() if isinstance(value, dict)]
    if apart:
        raise SpecError(f"{nested.where}: {apart[0]}: a rotation for each kind of layer is not supported")
    kind = _kind(nested)
    share = keys.number("partial_rotary_factor", "rotary_pct", default=share)
    share = nested.number("partial_rotary_factor", default=share)
    theta = nested.number("rope_theta", default=keys.number("rope_theta", "rotary_emb_base", default=theta))
    length = _length(keys, default=2048)
    fields: Fields = {"theta": theta, "dims": int(head_dim * share), "kind": kind}
    if kind != "default":
        fields["factor"] = nested.number("factor")
    if kind == "dynamic":
        fields["original_length"] = length
    if kind in ("yarn", "llama3"):
        outer = keys.whole("original_max_position_embeddings", most=SIZES["length"], default=length)
        fields["original_length"] = nested.whole(
            "original_max_position_embeddings", most=SIZES["length"], default=outer
        )
    if kind == "llama3":
        fields["low_frequency"] = nested.number("low_freq_factor")
        fields["high_frequency"] = nested.number("high_freq_factor")
    if kind == "yarn":
        fields |= _yarn(nested, fields["factor"])
    return check_rope(Rope(**fields), head_dim, keys.where)


def _kind(nested: Keys) -> Kind:
    found = nested.word("rope_type", "type", allowed=KINDS, default="default")
    return next(kind for kind in KINDS if kind == found)


def _yarn(nested: Keys, factor: float) -> Fields:
    scales = [nested.number(name, default=0.0, positive=False) for name in ("mscale", "mscale_all_dim")]
    return {
        "attention_factor": nested.number("attention_factor", default=yarn_attention_factor(factor, *scales)),
        "beta_fast": nested.number("beta_fast", default=32.0),
        "beta_slow": nested.number("beta_slow", default=1.0),
        "truncate": nested.flag("truncate", True),
    }


def _llama(keys: Keys) -> Fields:
    size = sizes(keys)
    bias = keys.flag("attention_bias", False)
    return {
        "kv_heads": keys.whole("num_key_value_heads", most=SIZES["heads"], default=size["heads"]),
        "inner": keys.whole("intermediate_size", most=SIZES["inner"]),
        "max_length": _length(keys, 2048),
        "norm": "rms",
        "norm_eps": keys.number("rms_norm_eps", default=1e-6),
        "activation": keys.word("hidden_act", allowed=ACTIVATIONS, default="silu"),
        "gated": True,
        "scale": size["head_dim"] ** -0.5,
        "rope": rope_of(keys, size["head_dim"]),
        "softcap": _softcap(keys),
        "qkv_bias": bias,
        "out_bias": bias,
        "mlp_bias": keys.flag("mlp_bias", False),
        "tied": _tied(keys, False),
    }


def _softcap(keys: Keys) -> float | None:
    found = keys.find("attn_logit_softcapping")[1]
    return None if found is None else keys.number("attn_logit_softcapping")


def _mistral(keys: Keys) -> Fields:
    return _llama(keys) | _window(keys)


def _window(keys: Keys) -> Fields:
    if keys.find("sliding_window")[1] is None:
        return {"window": None}
    width = keys.whole("sliding_window", most=SIZES["length"])
    kinds = keys.find("layer_types")[1]
    if kinds is None:
        return {"window": width}
    known = ("sliding_attention", "full_attention")
    layers = sizes(keys)["layers"]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in known for kind in kinds):
        raise SpecError(f"{keys.where}: layer_types: must be a list of {layers} words {' and '.join(known)}")
    return {"window": width, "windowed": tuple(i for i, kind in enumerate(kinds) if kind == known[0])}


def _qwen2(keys: Keys) -> Fields:
    fields = _llama(keys) | {"qkv_bias": True, "out_bias": False}
    if not keys.flag("use_sliding_window", False):
        return fields
    window = _window(keys)
    if window["window"] is not None and "windowed" not in window:
        first = keys.whole("max_window_layers", most=SIZES["layers"], default=28, least=0)
        window["windowed"] = tuple(range(first, sizes(keys)["layers"]))
    return fields | window


def _bert(keys: Keys) -> Fields:
    size = sizes(keys)
    keys.refuse("is_decoder")
    keys.word("position_embedding_type", allowed=("absolute",), default="absolute")
    return {
        "kv_heads": size["heads"],
        "inner": _inner(keys, size["width"]),
        "max_length": _length(keys, 512),
        "causal": False,
        "norm_eps": _epsilon(keys, 1e-12),
        "post_norm": True,
        "activation": keys.word("hidden_act", allowed=ACTIVATIONS, default="gelu"),
        "scale": size["head_dim"] ** -0.5,
        "learned_positions": True,
        "token_types": keys.whole("type_vocab_size", most=SIZES["vocabulary"], default=2),
        "embedding_norm": True,
        "tied": _tied(keys, True),
    }


def _gpt2(keys: Keys) -> Fields:
    size = sizes(keys)
    return {
        "kv_heads": size["heads"],
        "inner": _inner(keys, size["width"]),
        "max_length": _length(keys, 1024),
        "norm_eps": _epsilon(keys),
        "activation": keys.word("activation_function", allowed=ACTIVATIONS, default="gelu_new"),
        "scale": size["head_dim"] ** -0.5 if keys.flag("scale_attn_weights", True) else 1.0,
        "scale_by_layer": keys.flag("scale_attn_by_inverse_layer_idx", False),
        "learned_positions": True,
        "fused": "stacked",
        "transposed": True,
        "tied": _tied(keys, True),
    }


def _gpt_neox(keys: Keys) -> Fields:
    size = sizes(keys)
    bias = keys.flag("attention_bias", True)
    return {
        "kv_heads": size["heads"],
        "inner": _inner(keys, size["width"]),
        "max_length": _length(keys, 2048),
        "norm_eps": _epsilon(keys),
        "parallel": keys.flag("use_parallel_residual", True),
        "activation": keys.word("hidden_act", allowed=ACTIVATIONS, default="gelu"),
        "scale": size["head_dim"] ** -0.5,
        "rope": rope_of(keys, size["head_dim"], share=0.25),
        "fused": "grouped",
        "qkv_bias": bias,
        "out_bias": bias,
        "tied": _tied(keys, False),
    }


def _bloom(keys: Keys) -> Fields:
    size = sizes(keys)
    keys.refuse("apply_residual_connection_post_layernorm")
    return {
        "kv_heads": size["heads"],
        "inner": 4 * size["width"],
        "max_length": _length(keys, 2048),
        "norm_eps": _epsilon(keys),
        "activation": "gelu_new",
        "scale": size["head_dim"] ** -0.5,
        "slopes": tuple(alibi_slopes(size["heads"]).tolist()),
        "embedding_norm": True,
        "fused": "grouped",
        "tied": _tied(keys, True),
    }


def _mpt(keys: Keys) -> Fields:
    size, attention = sizes(keys), keys.inner("attn_config")
    attention.word("attn_type", allowed=("multihead_attention",), default="multihead_attention")
    attention.refuse("prefix_lm", "rope", "sliding_window_size", "kv_n_heads", "qk_gn", "attn_logit_softcapping")
    alibi, bias = attention.flag("alibi", True), not keys.flag("no_bias", True)
    most = attention.number("alibi_bias_max", default=8.0)
    clip = attention.find("clip_qkv")[1]
    return {
        "kv_heads": size["heads"],
        "inner": keys.whole("expansion_ratio", most=1024, default=4) * size["width"],
        "max_length": _length(keys, 2048),
        "norm_eps": _epsilon(keys),
        "activation": "gelu",
        "scale": attention.number("softmax_scale", default=size["head_dim"] ** -0.5),
        "slopes": tuple(alibi_slopes(size["heads"], most, rule="mpt").tolist()) if alibi else None,
        "learned_positions": not alibi and keys.flag("learned_pos_emb", True),
        "clip": attention.number("clip_qkv") if clip else None,
        "qk_norm": attention.flag("qk_ln", False),
        "fused": "stacked",
        "norm_bias": bias,
        "qkv_bias": bias,
        "out_bias": bias,
        "mlp_bias": bias,
        "tied": _tied(keys, True),
    }


def _falcon(keys: Keys) -> Fields:
    size, new = sizes(keys), keys.flag("new_decoder_architecture", False)
    parallel = new or keys.flag("parallel_attn", True)
    norms = keys.whole("num_ln_in_parallel_attn", most=2, default=2 if new else 1)
    if norms == 2 and not new:
        raise SpecError(f"{keys.where}: num_ln_in_parallel_attn = 2 is for new_decoder_architecture only")
    alibi, bias = keys.flag("alibi", False), keys.flag("bias", False)
    kv = size["heads"]
    if new:
        kv = keys.whole("num_kv_heads", "n_head_kv", most=SIZES["heads"], default=kv)
    elif keys.flag("multi_query", True):
        kv = 1
    return {
        "kv_heads": kv,
        "inner": _inner(keys, size["width"]),
        "max_length": _length(keys, 2048),
        "norm_eps": _epsilon(keys),
        "parallel": parallel,
        "mlp_norm": not parallel or norms == 2,
        "activation": keys.word("activation", allowed=ACTIVATIONS, default="gelu"),
        "scale": size["head_dim"] ** -0.5,
        "rope": None if alibi else rope_of(keys, size["head_dim"]),
        "slopes": tuple(alibi_slopes(size["heads"]).tolist()) if alibi else None,
        "bias_scaled": alibi,
        "bias_format": "bfloat16" if alibi else None,
        "fused": "grouped",
        "qkv_bias": bias,
        "out_bias": bias,
        "mlp_bias": bias,
        "tied": _tied(keys, True),
    }


FAMILIES: dict[str, Callable[[Keys], Fields]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
}
