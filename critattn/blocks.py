"""What observables are given: a block of rows of a layer, of its outputs, or of pairs of tokens."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp

from critattn.attention import Attention
from critattn.protocols import Array, Masses, RowContext, pytree


class RowBlock:
    """A block of query rows of one layer, all keys; whatever is asked for is computed once.

    Args:
        attention: the layer.
        context: what the rows know about themselves.
        scores: (rows, n) scores before any transform.
        extremes: smallest and largest allowed score of each row.
    """

    def __init__(self, attention: Attention, context: RowContext, scores: Array, extremes: tuple[Array, Array]) -> None:
        self.attention, self.context, self.scores, self.extremes = attention, context, scores, extremes

    @property
    def positions(self) -> Array:
        """Positions of the queries, (rows,)."""
        return self.context.query_positions

    def own(self, matrix: Array) -> Array:
        """The entries (i, i) of a (rows, n) matrix, (rows,)."""
        return jnp.take_along_axis(matrix, self.positions[:, None], axis=1)[:, 0]

    @cached_property
    def logits(self) -> Array:
        """(rows, n), in nats."""
        return self.attention.logits(self.scores, self.context)

    @cached_property
    def weights(self) -> Array:
        """(rows, n) attention weights."""
        where = self.attention.allowed(self.context)
        return self.attention.normaliser(self.logits, self.context, where=where)

    @cached_property
    def masses(self) -> Masses:
        """(rows, n) weights before they are divided by their sum; the weights themselves where that is all there is."""
        make = getattr(self.attention.normaliser, "masses", None)
        if make is None:
            return self._shares()
        shift = self.attention.logit_bound(self.scores, self.context, self.extremes)
        values, logs = make(self.logits, where=self.attention.allowed(self.context), shift=shift)
        # kept from being fused into each of the sums below, which would take the exponentials anew
        return Masses(jax.lax.optimization_barrier(values), logs)

    def _shares(self) -> Masses:
        """The weights; equal masses in rows without weight, whose row mass is 0."""
        where, weights = self.attention.allowed(self.context), self.weights
        empty = ~jnp.any(weights > 0, axis=1, keepdims=True)
        seen = jnp.ones_like(weights) if where is None else jnp.where(where, jnp.ones_like(weights), 0)
        values = jnp.where(empty, seen, weights)
        return Masses(values, jnp.log(jnp.where(values > 0, values, 1)))

    @cached_property
    def dead(self) -> Array:
        """1 in rows that see keys but whose normaliser gives weight to none of them, (rows,)."""
        find = getattr(self.attention.normaliser, "dead_rows", None)
        if find is None:
            return jnp.zeros(self.scores.shape[0], self.scores.dtype)
        where = self.attention.allowed(self.context)
        return find(self.logits, self.context, where=where).astype(self.scores.dtype)

    @cached_property
    def total(self) -> Array:
        """Sum of the masses of each row, (rows,); 1 for a row without any."""
        total = jnp.sum(self.masses.values, axis=1)
        return jnp.where(total > 0, total, 1)

    @cached_property
    def row_mass(self) -> Array:
        """Sum of the weights of each row, (rows,)."""
        if hasattr(self.attention.normaliser, "masses"):
            return jnp.sum(self.masses.values, axis=1) / self.total
        return jnp.sum(self.weights, axis=1)

    @cached_property
    def self_weight(self) -> Array:
        """A_ii, (rows,)."""
        return self.own(self.masses.values) / self.total * self._unnormalised

    @cached_property
    def sum_of_squares(self) -> Array:
        """Sum of squares of the shares A_ij / sum_j A_ij, (rows,)."""
        return jnp.sum(self.masses.values**2, axis=1) / self.total**2

    @cached_property
    def entropy(self) -> Array:
        """Entropy of the shares in nats, (rows,): log Z - sum_j m_j log m_j / Z for masses m and their sum Z."""
        return jnp.log(self.total) - self._mass_logs / self.total

    @property
    def _mass_logs(self) -> Array:
        """Sum of masses times their logarithms, (rows,)."""
        values, logs = self.masses
        if not self.attention.centred or not hasattr(self.attention.normaliser, "masses"):
            return jnp.sum(values * logs, axis=1)
        # logits are multiples of the scores, which lie in the cache; other logarithms would be written and read again
        moment = jnp.sum(values * self.scores, axis=1, keepdims=True)
        shift = self.attention.logit_bound(self.scores, self.context, self.extremes)
        return self.attention.logits(moment, self.context)[:, 0] - jnp.where(shift == 0, 0, shift * self.total)

    @cached_property
    def largest_weight(self) -> Array:
        """max_j A_ij, (rows,)."""
        return jnp.max(self.masses.values, axis=1) / self.total * self._unnormalised

    def outputs(self, values: Array) -> Array:
        """sum_j A_ij v_j of values (n, width), (rows, width)."""
        return self.masses.values @ values / self.total[:, None] * jnp.reshape(self._unnormalised, (-1, 1))

    @property
    def _unnormalised(self) -> Array:
        """Row mass of normalisers whose weights do not sum to 1; 1 for those with masses."""
        return jnp.ones(()) if hasattr(self.attention.normaliser, "masses") else self.row_mass


@pytree()
class OutputBlock:
    """Directions of a block of tokens, before and after the layer, with the sums over all (sampled) tokens.

    Attributes:
        before: (rows, d) unit vectors.
        after: (rows, d) unit vectors.
        sum_before: (d,) sum of all m unit vectors before the layer.
        sum_after: (d,) the same after it.
        count: m.
    """

    before: Array
    after: Array
    sum_before: Array
    sum_after: Array
    count: Array | float


@pytree()
class PairBlock:
    """Pairs of a block of tokens with another one, before and after the layer: observables are sums over these pairs.

    Attributes:
        cosines: (rows, keys) before.
        row_spread: (rows, d) unit vectors after the layer, less a vector common to all.
        key_spread: (keys, d) the same of the keys.
        other: (rows, keys) False on the token itself.
        distinct: (rows, keys) False on the token itself and where two tokens have the same direction to rounding.
    """

    cosines: Array
    row_spread: Array
    key_spread: Array
    other: Array
    distinct: Array

    @property
    def output_cosines(self) -> Array:
        """Cosines after the layer, (rows, keys)."""
        mine, theirs = (jnp.sum(spread**2, axis=1) for spread in (self.row_spread, self.key_spread))
        return 1 - (mine[:, None] + theirs) / 2 + self.row_spread @ self.key_spread.T

    def weighted_angles(self, weights: Array) -> Array:
        """`sum_j w_ij (1 - c'_ij)` for cosines c' after the layer, (rows,), by a product of w with vectors alone.

        With unit vectors y' less a common one, z, `1 - c'_ij = (|z_i|^2 + |z_j|^2)/2 - z_i.z_j`.

        Args:
            weights: w, (rows, keys).
        """
        squares = jnp.sum(self.key_spread**2, axis=1, keepdims=True)
        sums = weights @ jnp.concatenate([self.key_spread, squares], axis=1)
        mine = jnp.sum(self.row_spread**2, axis=1) * jnp.sum(weights, axis=1)
        return (mine + sums[:, -1]) / 2 - jnp.sum(self.row_spread * sums[:, :-1], axis=1)


@dataclass(frozen=True)
class Sample:
    """How many rows were measured out of how many.

    Attributes:
        size: rows (tokens) measured.
        total: rows there are.
        dim: dimension of the tokens.
    """

    size: int
    total: int
    dim: int

    @property
    def correction(self) -> float:
        """Finite-population factor (1 - m/n) of a variance; 0 where every row was measured."""
        return 1.0 - self.size / self.total
