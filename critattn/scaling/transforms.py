"""Transforms of the catalogue that are no factor per row, and a law seen from the theory's cosines."""

import jax.numpy as jnp

from critattn.errors import DomainError
from critattn.protocols import Array, RowContext, ScalingLaw, pytree
from critattn.scaling.lengths import scale_rows


@pytree()
class SoftCap:
    """`l -> z tanh(l/z)`: logits stay within (-z, z).

    Attributes:
        z: the cap, in nats.
    """

    z: Array | float

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Capped logits, of the same shape and dtype."""
        z = jnp.asarray(self.z).astype(logits.dtype)
        return z * jnp.tanh(logits / z)


@pytree()
class ScaleInvariant:
    """Scale-invariant attention: a factor and a shift for each pair of query and key [arXiv 2505.17083].

    With t = p_q - p_k, `logit = sqrt(1 + 2 ln(1 + t/tau)) q.k/sqrt(d) - 2 ln(1 + t/tau)`. Keys after the query have
    t = 0; a causal mask removes them.

    Attributes:
        tau: distance at which the logarithms begin.
    """

    tau: Array | float = 10.0

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Scores q.k (..., rows, keys) to logits, dtype of the input.

        Raises:
            DomainError: for a context without dimension.
        """
        if context.dim < 1:
            raise DomainError(f"dim = {context.dim}: needs the head dimension; give a context that has it")
        distance = jnp.maximum(context.query_positions[:, None] - context.key_positions[None, :], 0)
        growth = 2 * jnp.log1p(distance / jnp.asarray(self.tau))
        slope, shift = jnp.sqrt(1 + growth), growth.astype(logits.dtype)
        return logits * (slope * context.dim**-0.5).astype(logits.dtype) - shift


@pytree()
class OnCosines:
    """A law of scores q.k, applied to the cosines of q and k: `beta = beta_law |q||k|`.

    Attributes:
        law: the law.
        qk_norm: |q||k|; d for RMS-normalised q and k, which is the default.
    """

    law: ScalingLaw
    qk_norm: Array | float | None = None

    def beta(self, context: RowContext) -> Array:
        """Inverse temperature of the cosines, a scalar or (rows,)."""
        return self.law.beta(context) * (context.dim if self.qk_norm is None else jnp.asarray(self.qk_norm))

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Multiply each row by its beta: logits (..., rows, keys), dtype of the input."""
        return scale_rows(logits, self.beta(context))
