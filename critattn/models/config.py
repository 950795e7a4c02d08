"""What a transformer block computes, as data: one static description for every family."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from critattn.errors import SpecError
from critattn.models.gguf_config import gguf_fields
from critattn.models.hub_config import hub_fields
from critattn.models.rope import Rope

if TYPE_CHECKING:
    from critattn.models.sources import TensorSource


@dataclass(frozen=True)
class Config:
    """A model's computation; static in compiled functions, so that layers of equal shape share one.

    Attributes:
        family: the model type of its `config.json`, or `gguf-llama`, `gguf-qwen2`.
        layers: number of blocks.
        width: channels of the residual stream.
        heads: query heads.
        kv_heads: key and value heads; query head h reads key head h // (heads/kv_heads).
        head_dim: channels of a head.
        inner: channels inside the MLP.
        vocabulary: number of tokens.
        max_length: positions that the model states; a limit where positions are learned.
        scale: multiplies q.k.
        causal: a row sees the keys up to its own position; else every key.
        norm: root mean square, or mean and variance.
        norm_eps: added to the variance.
        post_norm: norms stand after the residual sums (BERT).
        parallel: attention and MLP read the same residual stream.
        mlp_norm: the MLP has a norm of its own; else it reads that of attention.
        activation: of the MLP.
        gated: the MLP multiplies a gate.
        scale_by_layer: the scale is divided by the number of the layer, from 1.
        rope: rotary positions.
        slopes: (heads,) ALiBi slopes, nats a position.
        bias_scaled: the ALiBi bias is multiplied by the scale as well (Falcon).
        bias_format: number format in which slopes, positions and their product are rounded (Falcon).
        window: keys that a row sees at most.
        windowed: the layers that have the window; None for all.
        softcap: c of `c tanh(l/c)` on the logits.
        clip: bound of the entries of q, k and v.
        qk_norm: q and k are normalised over all heads together (MPT), or each head's to unit length ("cosine").
        learned_positions: a table of positions is added to the tokens.
        token_types: rows of the table of token types; 0 for none.
        embedding_norm: the embedding is normalised.
        fused: q, k and v are one tensor: rows [q; k; v], or for each key head its query heads, then k, then v.
        transposed: matrices are stored (in, out).
        norm_bias: norms have a bias.
        qkv_bias: q, k and v have a bias.
        out_bias: the output of attention has a bias.
        mlp_bias: the MLP has biases.
        tied: the output head is the embedding where the file has none of its own.
    """

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    max_length: int
    scale: float
    causal: bool = True
    norm: Literal["rms", "layer"] = "layer"
    norm_eps: float = 1e-5
    post_norm: bool = False
    parallel: bool = False
    mlp_norm: bool = True
    activation: str = "gelu"
    gated: bool = False
    scale_by_layer: bool = False
    rope: Rope | None = None
    slopes: tuple[float, ...] | None = None
    bias_scaled: bool = False
    bias_format: str | None = None
    window: int | None = None
    windowed: tuple[int, ...] | None = None
    softcap: float | None = None
    clip: float | None = None
    qk_norm: bool | Literal["cosine"] = False
    learned_positions: bool = False
    token_types: int = 0
    embedding_norm: bool = False
    fused: Literal["", "stacked", "grouped"] = ""
    transposed: bool = False
    norm_bias: bool = True
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    tied: bool = True

    def __post_init__(self) -> None:
        if self.norm == "rms":
            object.__setattr__(self, "norm_bias", False)
        if self.heads % self.kv_heads:
            raise SpecError(f"config: {self.heads} query heads are no multiple of {self.kv_heads} key heads")
        if self.rope is not None and self.rope.dims > self.head_dim:
            raise SpecError(f"config: {self.rope.dims} rotated channels; a head has {self.head_dim}")
        out = [layer for layer in self.windowed or () if not 0 <= layer < self.layers]
        if out:
            raise SpecError(f"config: a window in layer {out[0]}; allowed: 0 to {self.layers - 1}")

    @classmethod
    def of(cls, source: "TensorSource", config_json: Mapping[str, Any] | None = None) -> "Config":
        """The configuration that a GGUF file carries, or that a `config.json` states.

        Args:
            source: the tensors; only the metadata and one small tensor of frequencies of a GGUF file are read.
            config_json: the parsed `config.json`, for every other file.

        Raises:
            SpecError: for an unknown family, and keys that are missing, absurd or not supported.
        """
        if source.kind == "gguf":
            return cls(**gguf_fields(source))
        if config_json is None:
            raise SpecError(f"{source.path.name}: has no config.json beside it, which states the shape of the model")
        return cls(**hub_fields(dict(config_json)))

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.kv_heads

    def scale_at(self, layer: int) -> float:
        """The factor of q.k in a layer."""
        return self.scale / (layer + 1) if self.scale_by_layer else self.scale

    def window_at(self, layer: int) -> int | None:
        """The window of a layer, None where a row sees all keys that the mask allows."""
        return self.window if self.windowed is None or layer in self.windowed else None

    def block(self, layer: int) -> "Config":
        """The configuration of one block: equal for layers that one compiled function serves."""
        return dataclasses.replace(self, window=self.window_at(layer), windowed=None, layers=1, max_length=1)
