"""A constant taken off the scores of a row."""

import jax.numpy as jnp

from critattn.protocols import Array, RowContext, pytree


@pytree()
class Shift:
    """Subtract a constant, `s - b`: before a scaling law it is a bias b in units of the score.

    `Attention(Shift(b), LogN(gamma), normaliser=SoftplusL1())` has weights sp(beta (s - b)) over their sum
    [docs/theory.md (6.3)]. Nothing changes where the normaliser is shift-invariant.

    Attributes:
        b: the constant, in units of what comes in; a scalar, or (rows,) for one value per row.
    """

    b: Array | float

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Subtract b: logits (..., rows, keys), dtype of the input."""
        b = jnp.asarray(self.b, logits.dtype)
        return logits - (b[..., None] if b.ndim else b)
