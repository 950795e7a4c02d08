"""Decoders trained here as models that `critattn inspect` reads: the same weights in the block of every family."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from critattn.attention import Attention
from critattn.errors import SpecError
from critattn.models import opening
from critattn.models.block import Settings
from critattn.models.config import Config
from critattn.models.forward import Model
from critattn.models.inspection import LEAST_LENGTH
from critattn.models.layouts import Layout
from critattn.models.rope import Rope
from critattn.models.tokenise import BYTES_KEY, Tokeniser, tokeniser
from critattn.protocols import Transform
from critattn.tensorfiles import TensorInfo
from critattn.training import rotary, weights
from critattn.training.layers import attention_of
from critattn.training.model import EPSILON, VOCABULARY, Decoder
from critattn.training.presets import Shape
from critattn.training.variants import Variant

FAMILY = "critattn"
# lengths of an inspection over the training length
SHARES = (1 / 2, 1, 2, 4)


@dataclass(frozen=True)
class Arrays:
    """The weights of a decoder as the tensors of a file: matrices (out, in), q, k and v apart.

    Attributes:
        path: the npz file.
        arrays: by name.
    """

    path: Path
    arrays: Mapping[str, np.ndarray]
    kind: str = "npz"

    @classmethod
    def of(cls, path: Path, model: Decoder) -> "Arrays":
        """The tensors of a decoder, float32."""
        found = {"embedding": model.embedding, "final_norm": model.final_norm, "unembedding": model.unembedding.T}
        for index, block in enumerate(model.blocks):
            q, k, v = jnp.split(block.qkv, 3, axis=1)
            parts = {"q": q, "k": k, "v": v, "out": block.out, "gate": block.gate, "up": block.up, "down": block.down}
            found |= {f"blocks.{index}.{name}": array.T for name, array in parts.items()}
            found |= {f"blocks.{index}.{name}": getattr(block, name) for name in ("attention_norm", "mlp_norm")}
        return cls(path, {f"{name}.weight": np.asarray(array, np.float32) for name, array in found.items()})

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Names and shapes."""
        return {name: TensorInfo(name, array.shape, "F32") for name, array in self.arrays.items()}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the tokeniser is made of: tokens are bytes."""
        return dict([BYTES_KEY])

    def read(self, name: str) -> np.ndarray:
        """One tensor.

        Raises:
            SpecError: for a name that is not there.
        """
        if name not in self.arrays:
            raise SpecError(f"{self.path.name}: no tensor {name!r}")
        return self.arrays[name]


@dataclass(frozen=True)
class Trained(Model):
    """A decoder of `critattn.training` in the forward pass of `critattn.models`.

    Scores are q.k, cosines where the variant normalises them, times the learned factor of a head; law, cap, bias and
    normaliser are the variant's.

    Attributes:
        variant: what its attention is.
        shape: sizes.
        gains: learned factors of the heads, layer by layer; None where it has none.
        header: what its file says of it.
    """

    variant: Variant
    shape: Shape
    gains: tuple[np.ndarray, ...] | None
    header: Mapping[str, Any]

    @classmethod
    def from_decoder(cls, decoder: Decoder, path: Path, header: Mapping[str, Any]) -> "Trained":
        """The model of a decoder; the file at the path stands for it in checksums."""
        source, config = Arrays.of(path, decoder), config_of(decoder.variant, decoder.shape)
        gains = tuple(np.asarray(block.gain) for block in decoder.blocks if block.gain is not None) or None
        layout = Layout.of(config, source)
        return cls(path.stem, config, source, layout, decoder.variant, decoder.shape, gains, header)

    @cached_property
    def attention(self) -> Attention:
        """The layer that makes weights of q.k."""
        return attention_of(self.variant, self.shape.heads, self.shape.length)

    @property
    def normaliser(self) -> str:
        """Name of what makes weights of the logits."""
        return self.variant.normaliser

    @property
    def usual_lengths(self) -> tuple[int, ...]:
        """Half, one, two and four times the training length."""
        return tuple(n for n in (round(share * self.shape.length) for share in SHARES) if n >= LEAST_LENGTH)

    def settings(self, index: int, n: int, *, transforms: Sequence[Transform] = (), factor: float = 1.0) -> Settings:
        """What is not static in the logits of a layer at length n."""
        plain = super().settings(index, n, transforms=transforms, factor=factor)
        scale = plain.scale if self.gains is None else jnp.asarray(self.gains[index], jnp.float32)[:, None, None]
        return Settings(scale, None, plain.factor, plain.table, plain.transforms, self.attention)


def config_of(variant: Variant, shape: Shape) -> Config:
    """The configuration of a decoder, its attention apart."""
    size = shape.width // shape.heads
    return Config(
        family=FAMILY,
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_dim=size,
        inner=shape.hidden,
        vocabulary=VOCABULARY,
        max_length=shape.length,
        scale=1.0,
        norm="rms",
        norm_eps=EPSILON,
        activation="silu",
        gated=True,
        rope=Rope(rotary.BASE, size) if variant.positions == "rope" else None,
        qk_norm="cosine" if variant.cosines else False,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        tied=False,
    )


def load(path: str | os.PathLike[str]) -> Trained:
    """A trained decoder from its npz file.

    Raises:
        StoreError: where the file cannot be read, or is no decoder.
    """
    decoder, header = weights.load(path)
    return Trained.from_decoder(decoder, Path(path), header)


def opened(name: str) -> tuple[Model, Tokeniser]:
    """A model and its tokeniser by what a person calls it.

    Args:
        name: `trained:NAME`, an npz file of a decoder, or whatever `critattn.models.opening.opened` takes.

    Raises:
        SpecError: for a name that is none of these, and files that cannot be understood.
        StoreError: for an npz file that is no decoder.
    """
    path = opening.located(name)
    if path.suffix != opening.DECODER:
        return opening.opened(name)
    model = load(path)
    return model, tokeniser(model)
