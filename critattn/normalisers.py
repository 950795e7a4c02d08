"""Normalisers: the map from a row of logits to a row of weights, with its row Jacobian."""

import jax
import jax.numpy as jnp

from critattn.errors import SpecError
from critattn.protocols import Array, JacobianParts, Masses, Normaliser, RowContext, pytree


@pytree()
class Softmax:
    """`A_j = exp(s_j) / sum_k exp(s_k)` over the allowed keys [Chen 2025, eq. (1.1)].

    A row without any allowed key has weight 0 everywhere.
    """

    name = "softmax"
    analytic = True
    full_support = True
    shift_invariant = True

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

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`dA/ds = diag(A) - A A^T` [derived, docs/theory.md (3.1)]."""
        weights = self(logits, context, where=where)
        return JacobianParts(g=weights, u=weights)


_NORMALISERS: dict[str, type] = {"softmax": Softmax}


def register(name: str, normaliser: type) -> None:
    """Add a normaliser under a name; its instances follow `protocols.Normaliser`.

    Raises:
        SpecError: where the name is taken.
    """
    if name in _NORMALISERS:
        raise SpecError(f"normaliser {name!r} exists already")
    _NORMALISERS[name] = normaliser


def names() -> list[str]:
    """Names of the normalisers that can be asked for."""
    return sorted(_NORMALISERS)


def get(name: str, **options: float | str) -> Normaliser:
    """The normaliser of that name.

    Raises:
        SpecError: for an unknown name.
    """
    if name not in _NORMALISERS:
        raise SpecError(f"normaliser {name!r} is unknown; known: {', '.join(names())}")
    return _NORMALISERS[name](**options)
