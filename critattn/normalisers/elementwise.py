"""Weights that are a function of their own logit alone: the rows have no fixed sum."""

import jax
import jax.numpy as jnp

from critattn.normalisers.ratios import biased
from critattn.normalisers.rows import prepare
from critattn.protocols import Array, JacobianParts, RowContext, pytree


@pytree()
class Sigmoid:
    """`A_j = sigm(s_j - B log n_i)`, n_i keys seen by the row [Ramapuram 2024; docs/theory.md (6.4)].

    The row mass is free: it is about 1 at equal logits 0 and B = 1, and at most n_i.

    Attributes:
        bias_factor: B; 1 is the published bias -log n. A scalar, or (rows,).
    """

    bias_factor: Array | float = 1.0

    name = "sigmoid"
    analytic = True
    full_support = True
    shift_invariant = False
    unit_row_mass = False

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        return jnp.where(there, jax.nn.sigmoid(biased(s, context, self.bias_factor)), 0).astype(logits.dtype)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = sigm(z) sigm(-z)`, z = s - B log n_i, and `u = 0` [derived, docs/theory.md (6.4)]."""
        s, there = prepare(logits, where)
        z = biased(s, context, self.bias_factor)
        g = jnp.where(there, jax.nn.sigmoid(z) * jax.nn.sigmoid(-z), 0)
        return JacobianParts(g=g, u=jnp.zeros_like(g))


@pytree()
class Relu:
    """`A_j = max(s_j, 0)/n_i`, n_i keys seen by the row [Wortsman 2023; docs/theory.md (6.6)].

    The row mass is the mean of the positive logits. A row without any has mass 0, and is reported by `dead_rows`: its
    weights are 0 as published, its shares count as equal.
    """

    name = "relu"
    analytic = False
    full_support = False
    shift_invariant = False
    unit_row_mass = False

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        return jnp.where(there & (s > 0), s / _seen(s, context), 0).astype(logits.dtype)

    def dead_rows(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Rows that see keys but no positive logit, (..., rows)."""
        s, there = prepare(logits, where)
        return jnp.any(there, axis=-1) & ~jnp.any(there & (s > 0), axis=-1)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = 1/n_i` at positive logits, and `u = 0` [derived, docs/theory.md (6.6)]."""
        s, there = prepare(logits, where)
        g = jnp.where(there & (s > 0), 1 / _seen(s, context), 0)
        return JacobianParts(g=g, u=jnp.zeros_like(g))


def _seen(s: Array, context: RowContext) -> Array:
    return jnp.maximum(context.keys_seen, 1).astype(s.dtype)[..., None]
