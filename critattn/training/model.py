"""A small byte-level decoder whose attention is a variant of the package's layers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from critattn.errors import SpecError
from critattn.protocols import Array
from critattn.training import fused, rotary
from critattn.training.layers import attention_of, normaliser_of, parts_of
from critattn.training.presets import Shape
from critattn.training.variants import Variant

VOCABULARY = 256
EPSILON = 1e-6


def rms_norm(x: Array, gain: Array) -> Array:
    """`x / sqrt(mean x^2 + 1e-6) * gain` over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain


def unit(x: Array) -> Array:
    """`x / |x|` over the last axis, 0 at 0."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + EPSILON**2)


class Block(eqx.Module):
    """A pre-norm layer: attention, then SwiGLU, each added to the residual stream.

    Attributes:
        attention_norm: gains (d,).
        qkv: (d, 3 d), columns q, k, v, each in the order of the heads.
        out: (d, d).
        gain: factors of the scaling law, (heads,); None where the variant has none.
        mlp_norm: gains (d,).
        gate: (d, f).
        up: (d, f).
        down: (f, d).
    """

    attention_norm: Array
    qkv: Array
    out: Array
    gain: Array | None
    mlp_norm: Array
    gate: Array
    up: Array
    down: Array


class Decoder(eqx.Module):
    """Bytes to logits of the next byte; the unembedding is not tied to the embedding.

    Attributes:
        embedding: (256, d).
        blocks: the layers.
        final_norm: gains (d,).
        unembedding: (d, 256).
        variant: what the attention is.
        shape: sizes.
    """

    embedding: Array
    blocks: tuple[Block, ...]
    final_norm: Array
    unembedding: Array
    variant: Variant = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)

    def __call__(self, tokens: Array, *, generic: bool = False) -> Array:
        """Logits (batch, n, 256) of tokens (batch, n), integers below 256.

        Args:
            tokens: bytes; n may exceed the training length.
            generic: take the package's own layer even where a fused form exists; equal to rounding.
        """
        # sequences end to end: products with two axes are half as dear as with three, in XLA on a CPU
        x = self.embedding[tokens.reshape(-1)]
        for block in self.blocks:
            x = self.layer(block, x, len(tokens), generic=generic)
        logits = rms_norm(x, self.final_norm) @ self.unembedding
        return logits.reshape(*tokens.shape, VOCABULARY)

    def layer(self, block: Block, x: Array, batch: int, *, generic: bool = False) -> Array:
        """The residual stream (batch n, d) after one layer: attention, then SwiGLU."""
        x = x + self.attend(block, rms_norm(x, block.attention_norm), batch, generic=generic)
        inner = rms_norm(x, block.mlp_norm)
        return x + (jax.nn.silu(inner @ block.gate) * (inner @ block.up)) @ block.down

    def heads(self, tokens: Array) -> list[tuple[Array, Array, Array]]:
        """Queries, keys and values of every layer on tokens (batch, n), each (batch, heads, n, d/heads).

        Scores are their products q.k; `layers.attention_of` makes weights of them.
        """
        x, found = self.embedding[tokens.reshape(-1)], []
        for block in self.blocks:
            found.append(self.queries_keys_values(block, rms_norm(x, block.attention_norm), len(tokens)))
            x = self.layer(block, x, len(tokens))
        return found

    def queries_keys_values(self, block: Block, x: Array, batch: int) -> tuple[Array, Array, Array]:
        """What enters the scores of a layer: rotated and normalised as the variant says, (batch, heads, n, d/heads)."""
        width, heads = self.shape.width, self.shape.heads
        n = x.shape[0] // batch
        split = (x @ block.qkv).reshape(batch, n, 3, heads, width // heads)
        q, k, v = jnp.moveaxis(split, (2, 3), (0, 2))
        if self.variant.cosines:
            q, k = unit(q), unit(k)
        if self.variant.positions == "rope":
            turned = rotary.angles(jnp.arange(n), width // heads)
            q, k = rotary.rotate(q, turned), rotary.rotate(k, turned)
        return (q if block.gain is None else q * block.gain[:, None, None]), k, v

    def attend(self, block: Block, x: Array, batch: int, *, generic: bool = False) -> Array:
        """Output (batch n, d) of one attention layer on normalised inputs of that shape, sequences end to end."""
        q, k, v = self.queries_keys_values(block, x, batch)
        n, dim = q.shape[-2:]
        variant, heads, length = self.variant, self.shape.heads, self.shape.length
        kernel = None if generic else fused.kernel_of(normaliser_of(variant), bounded=variant.cosines)
        if kernel is None:
            layer = attention_of(variant, heads, length)
            scores = jnp.einsum("bhtd,bhsd->bhts", q, k)
            mixed = layer.weights(scores, layer.context(jnp.arange(n), n, dim)) @ v
        else:
            parts = parts_of(variant, heads, length, keys=n, dim=dim)
            beta = parts.beta.astype(q.dtype)
            scaled = q * (beta[:, None] if beta.ndim else beta)
            mixed = fused.attend_in_blocks(kernel, parts.cap, (scaled, k, v), parts.bias.astype(q.dtype))
        return jnp.moveaxis(mixed, 1, 2).reshape(x.shape) @ block.out


def make(variant: Variant, shape: Shape, seed: int) -> Decoder:
    """A decoder at its random start: matrices normal of variance 1/inputs, those into the residual stream 1/(2L) of it.

    The start depends on the seed and the sizes, not on the variant.

    Raises:
        SpecError: where the width is no multiple of twice the heads.
    """
    width, hidden, layers = shape.width, shape.hidden, shape.layers
    if width % (2 * shape.heads):
        raise SpecError(f"width = {width}: must be a multiple of twice the heads, {2 * shape.heads}")
    rng = np.random.default_rng(seed)

    def normal(rows: int, columns: int, scale: float = 1.0) -> Array:
        return jnp.asarray(rng.standard_normal((rows, columns)) * (scale / rows) ** 0.5, jnp.float32)

    into = 1 / (2 * layers)
    blocks = tuple(
        Block(
            attention_norm=jnp.ones(width, jnp.float32),
            qkv=normal(width, 3 * width),
            out=normal(width, width, into),
            gain=jnp.ones(shape.heads, jnp.float32) if variant.learned_gain else None,
            mlp_norm=jnp.ones(width, jnp.float32),
            gate=normal(width, hidden),
            up=normal(width, hidden),
            down=normal(hidden, width, into),
        )
        for _ in range(layers)
    )
    embedding = normal(VOCABULARY, width, VOCABULARY / 4)
    return Decoder(embedding, blocks, jnp.ones(width, jnp.float32), normal(width, VOCABULARY), variant, shape)


def losses(model: Decoder, windows: Array, *, generic: bool = False) -> Array:
    """`-log p(next byte)` at each place of windows (batch, n + 1): (batch, n), nats."""
    return cross_entropy(model(windows[:, :-1], generic=generic), windows[:, 1:])


def cross_entropy(logits: Array, right: Array) -> Array:
    """`-log p` of the right bytes (...), nats, of logits (..., 256)."""
    taken = jnp.take_along_axis(logits, right[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - taken
