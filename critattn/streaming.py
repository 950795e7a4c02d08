"""Sampled rows against keys that are made block by block: memory for a block, time linear in n."""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from critattn.attention import Attention, Bidirectional, on_devices
from critattn.errors import DomainError
from critattn.observables import Observable
from critattn.protocols import Array, Masses, ScalingLaw, map_layers
from critattn.tokens import ROWS_PER_KEY, TokenStream, normalise

BLOCKS_AT_ONCE = 4
MASSES = "masses"


class StreamedRows(NamedTuple):
    """Sums over all keys of the masses of sampled rows; it answers like a RowBlock, without weights or logits.

    Attributes:
        own: (rows,) mass of the token itself.
        total: (rows,) sum of the masses.
        logs: (rows,) sum of masses times their logarithms.
        squares: (rows,) sum of their squares.
        largest: (rows,) the largest of them.
        mixed: (rows, d) sum of masses times values.
    """

    own: Array
    total: Array
    logs: Array
    squares: Array
    largest: Array
    mixed: Array

    @property
    def self_weight(self) -> Array:
        """A_ii, (rows,)."""
        return self.own / self.total

    @property
    def entropy(self) -> Array:
        """Entropy of each row in nats, (rows,)."""
        return jnp.log(self.total) - self.logs / self.total

    @property
    def sum_of_squares(self) -> Array:
        """Sum of squared weights, (rows,)."""
        return self.squares / self.total**2

    @property
    def largest_weight(self) -> Array:
        """Largest weight, (rows,)."""
        return self.largest / self.total

    @property
    def row_mass(self) -> Array:
        """Sum of the weights, 1, (rows,)."""
        return self.total / self.total

    @property
    def dead(self) -> Array:
        """No row is dead where masses are positive, (rows,)."""
        return jnp.zeros_like(self.total)

    def plus(self, other: "StreamedRows") -> "StreamedRows":
        """Join the sums of two sets of keys."""
        joined = jax.tree_util.tree_map(jnp.add, self, other)
        return joined._replace(own=self.own, largest=jnp.maximum(self.largest, other.largest))


def check(attention: Attention) -> None:
    """Refuse layers whose rows cannot be summed key by key.

    Raises:
        DomainError: for a mask, a transform that is no scaling law, or a normaliser without masses.
    """
    if not isinstance(attention.mask, Bidirectional):
        raise DomainError("mask: a stream of tokens has no positions to mask; allowed: bidirectional")
    if not all(isinstance(transform, ScalingLaw) for transform in attention.transforms):
        raise DomainError("transforms: a stream of tokens takes scaling laws only")
    if not hasattr(attention.normaliser, MASSES):
        raise DomainError(f"normaliser {attention.normaliser.name!r}: has no masses to sum over a stream of tokens")


@partial(jax.jit, static_argnames=("chosen", "devices"))
def stream_pass(
    layers: Attention,
    stream: TokenStream,
    own: Array,
    positions: Array,
    *,
    chosen: tuple[Observable, ...],
    devices: int = 1,
) -> tuple[dict[str, dict[str, Array]], Array]:
    """Row observables {name: {key: (batch, m)}} and attention outputs (batch, m, d) of sampled rows.

    Keys are made once and serve every layer of the batch. Cosines are at most 1, so beta itself bounds the logits.

    Args:
        layers: a batch of layers.
        stream: the keys.
        own: (m, d) the sampled tokens.
        positions: (m,) where they stand, which some scaling laws go by.
        chosen: row observables.
        devices: local devices among which the keys are divided.
    """
    units = normalise(own)
    width = min(stream.n, ROWS_PER_KEY)
    steps = -(-stream.n // (width * BLOCKS_AT_ONCE))
    context = layers.context(positions, stream.n, stream.d)
    ends = (jnp.full(units.shape[0], -1, units.dtype), jnp.ones(units.shape[0], units.dtype))

    def sums(attention: Attention, scores: Array, keys: Array, there: Array) -> StreamedRows:
        shift = attention.logit_bound(scores, context, ends)
        make: Any = getattr(attention.normaliser, MASSES)
        masses: Masses = make(attention.logits(scores, context), where=there, shift=shift)
        mine: Masses = make(attention.logits(jnp.ones_like(scores[:, :1]), context), where=None, shift=shift)
        return StreamedRows(
            own=mine.values[:, 0],
            total=jnp.sum(masses.values, axis=1),
            logs=jnp.sum(masses.values * masses.logs, axis=1),
            squares=jnp.sum(masses.values**2, axis=1),
            largest=jnp.max(masses.values, axis=1),
            mixed=masses.values @ keys,
        )

    def step(state: StreamedRows | None, index: Array) -> StreamedRows:
        blocks = index * BLOCKS_AT_ONCE + jnp.arange(BLOCKS_AT_ONCE)
        keys = normalise(jax.vmap(stream.block)(blocks).reshape(-1, stream.d))
        there = (blocks[:, None] * width + jnp.arange(width)).reshape(1, -1) < stream.n
        scores = units @ keys.T
        found = map_layers(lambda layer: sums(layer, scores, keys, there), layers)
        return found if state is None else state.plus(found)

    def share_of(indices: Array) -> StreamedRows:
        first = step(None, indices[0])
        total = jax.lax.scan(lambda state, index: (step(state, index), None), first, indices[1:])[0]
        return jax.tree_util.tree_map(lambda x: x[None], total)

    # blocks beyond the last one hold no keys
    indices = jnp.arange(-(-steps // devices) * devices)
    total = _sum_of_shares(on_devices(share_of, indices, devices))
    rows = jax.vmap(lambda row: {o.name: o.row(row) for o in chosen})(total)
    return rows, total.mixed / total.total[..., None]


def _sum_of_shares(parts: StreamedRows) -> StreamedRows:
    """Join the sums of several devices, along the leading axis."""
    shares = [jax.tree_util.tree_map(lambda x, k=k: x[k], parts) for k in range(parts.own.shape[0])]
    return reduce(StreamedRows.plus, shares)


def sampled(stream: TokenStream, positions: np.ndarray) -> Array:
    """The sampled tokens, (m, d)."""
    blocks, which = np.unique(positions // ROWS_PER_KEY, return_inverse=True)
    return _picked(stream, blocks, which, positions % ROWS_PER_KEY)


@jax.jit
def _picked(stream: TokenStream, blocks: Array, which: Array, rows: Array) -> Array:
    return jax.lax.map(stream.block, blocks, batch_size=BLOCKS_AT_ONCE)[which, rows]
