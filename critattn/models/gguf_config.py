"""The metadata of a GGUF file as fields of a configuration: architectures llama and qwen2."""

from typing import TYPE_CHECKING, Any

from critattn.errors import SpecError
from critattn.models.keys import SIZES, Keys
from critattn.models.rope import Rope, check_rope, yarn_attention_factor

if TYPE_CHECKING:
    from critattn.models.sources import TensorSource

ARCHITECTURES = ("llama", "qwen2")
SCALINGS = ("none", "linear", "yarn")
FREQUENCIES = "rope_freqs.weight"
FOREIGN = (
    "expert_count",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.scaling.yarn_log_multiplier",
    "attention.temperature_scale",
)


def gguf_fields(source: "TensorSource") -> dict[str, Any]:
    """Fields of the configuration that a GGUF file states [llama.cpp, gguf-py/gguf/constants.py].

    The rows of q and k of architecture llama stand so that rotated pairs are neighbours; those of qwen2 are in halves.

    Raises:
        SpecError: for another architecture, and keys that are missing, absurd or not supported.
    """
    plain = Keys(source.path.name, source.metadata)
    name = plain.word("general.architecture", allowed=ARCHITECTURES)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): value for key, value in source.metadata.items() if key.startswith(prefix)}
    keys = Keys(f"{source.path.name}: {name}", own)
    keys.refuse(*FOREIGN)
    width = keys.whole("embedding_length", most=SIZES["width"])
    heads = keys.whole("attention.head_count", most=SIZES["heads"])
    if keys.find("attention.key_length")[1] is None and width % heads:
        raise SpecError(f"{keys.where}: embedding_length = {width} is not divided by {heads} heads")
    head_dim = keys.whole("attention.key_length", most=SIZES["width"], default=max(width // heads, 1))
    if keys.whole("attention.value_length", most=SIZES["width"], default=head_dim) != head_dim:
        raise SpecError(f"{keys.where}: attention.value_length differs from the key length {head_dim}: not supported")
    return {
        "family": f"gguf-{name}",
        "layers": keys.whole("block_count", most=SIZES["layers"]),
        "width": width,
        "heads": heads,
        "kv_heads": keys.whole("attention.head_count_kv", most=SIZES["heads"], default=heads),
        "head_dim": head_dim,
        "inner": keys.whole("feed_forward_length", most=SIZES["inner"]),
        "vocabulary": _vocabulary(source, keys),
        "max_length": keys.whole("context_length", most=SIZES["length"]),
        "norm": "rms",
        "norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "activation": "silu",
        "gated": True,
        "scale": keys.number("attention.scale", default=head_dim**-0.5),
        "rope": _rope(source, keys, head_dim, interleaved=name == "llama"),
        "window": _window(keys),
        "qkv_bias": name == "qwen2",
        "out_bias": False,
        "mlp_bias": False,
        "tied": True,
    }


def _window(keys: Keys) -> int | None:
    found = keys.find("attention.sliding_window")[1]
    return keys.whole("attention.sliding_window", most=SIZES["length"]) if found else None


def _vocabulary(source: "TensorSource", keys: Keys) -> int:
    tokens = source.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else None
    return keys.whole("vocab_size", most=SIZES["vocabulary"], default=count)


def _rope(source: "TensorSource", keys: Keys, head_dim: int, *, interleaved: bool) -> Rope:
    length = keys.whole("context_length", most=SIZES["length"])
    kind = keys.word(
        "rope.scaling.type", allowed=SCALINGS, default="linear" if "rope.scale_linear" in keys.values else "none"
    )
    fields: dict[str, Any] = {
        "theta": keys.number("rope.freq_base", default=10_000.0),
        "dims": keys.whole("rope.dimension_count", most=SIZES["width"], default=head_dim),
        "interleaved": interleaved,
        "divisors": _divisors(source, head_dim),
    }
    if kind != "none":
        factor = keys.number("rope.scaling.factor", "rope.scale_linear")
        fields |= {"kind": kind, "factor": factor}
    if kind == "yarn":
        original = keys.whole("rope.scaling.original_context_length", most=SIZES["length"], default=length)
        own = keys.number("rope.scaling.attn_factor", default=1.0)
        fields |= {"original_length": original, "attention_factor": own * yarn_attention_factor(fields["factor"])}
    return check_rope(Rope(**fields), head_dim, keys.where)


def _divisors(source: "TensorSource", head_dim: int) -> tuple[float, ...] | None:
    """The stretched frequencies of Llama 3, which converters store as divisors."""
    if FREQUENCIES not in source.tensors:
        return None
    shape = source.tensors[FREQUENCIES].shape
    if len(shape) != 1 or not 1 <= shape[0] <= head_dim // 2:
        raise SpecError(f"{source.path.name}: {FREQUENCIES!r} has shape {shape}; allowed: up to ({head_dim // 2},)")
    found = source.read(FREQUENCIES)
    if not (found > 0).all():
        raise SpecError(f"{source.path.name}: {FREQUENCIES!r} holds numbers that are not above 0")
    return tuple(found.tolist())
