"""Softmax."""

import jax
import jax.numpy as jnp

from critattn.protocols import Array, JacobianParts, Masses, RowContext, pytree


@pytree()
class Softmax:
    """`A_j = exp(s_j) / sum_k exp(s_k)` over the allowed keys [Chen 2025, eq. (1.1)].

    A row without any allowed key has weight 0 everywhere; every other row sums to 1.
    """

    name = "softmax"
    analytic = True
    full_support = True
    shift_invariant = True
    unit_row_mass = True

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        top = logits if where is None else jnp.where(where, logits, -jnp.inf)
        masses = self.masses(logits, where=where, shift=jax.lax.stop_gradient(jnp.max(top, axis=-1))).values
        total = jnp.sum(masses, axis=-1, keepdims=True)
        return masses / jnp.where(total > 0, total, 1)

    def masses(self, logits: Array, *, where: Array | None, shift: Array) -> Masses:
        """`exp(s_j - shift)`, whose common factor cancels in the weights."""
        logs = logits - jnp.where(jnp.isfinite(shift), shift, 0)[..., None]
        if where is None:
            return Masses(jnp.exp(logs), logs)
        logs = jnp.where(where, logs, 0)
        return Masses(jnp.where(where, jnp.exp(logs), 0), logs)

    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`log phi(s) = s`, as a first stage."""
        return logits

    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`phi'(s)/phi(s) = 1`, as a first stage."""
        return jnp.ones_like(logits)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`dA/ds = diag(A) - A A^T` [derived, docs/theory.md (3.1)]."""
        weights = self(logits, context, where=where)
        return JacobianParts(g=weights, u=weights)
