"""What the normalisers share: working precision, keys that can be seen, sums and maxima over them, shares of masses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critattn.errors import DomainError
from critattn.protocols import Array

# products of unit vectors that are equal in exact arithmetic differ by a few rounding units
EQUAL_ULPS = 8


def prepare(logits: Array, where: Array | None) -> tuple[Array, Array]:
    """Logits in working precision, and which keys can be seen.

    Formats below float32 are widened: they hold no n beyond a few hundred. A logit of -inf forbids its key, as an
    additive mask means it to.

    Args:
        logits: (..., rows, keys).
        where: (rows, keys) booleans, or None.

    Returns:
        Logits, 0 on forbidden keys so that derivatives stay finite, and booleans, both of the shape of the logits.
    """
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    there = wide != -jnp.inf
    if where is not None:
        there &= where
    return jnp.where(there, wide, 0), there


def per_row(value: Any, like: Array) -> Array:
    """A parameter in the dtype of the logits, a scalar or (rows, 1)."""
    value = jnp.asarray(value, like.dtype)
    return value[..., None] if value.ndim else value


def count(there: Array, like: Array) -> Array:
    """Number of keys that can be seen, at least 1, (..., rows, 1)."""
    return jnp.maximum(jnp.sum(there, axis=-1, keepdims=True), 1).astype(like.dtype)


def top(values: Array, there: Array) -> Array:
    """Largest value over the keys, (..., rows, 1), without a derivative; 0 where there are none."""
    largest = jnp.max(jnp.where(there, values, -jnp.inf), axis=-1, keepdims=True)
    return jax.lax.stop_gradient(jnp.where(largest == -jnp.inf, 0, largest))


def total(values: Array) -> Array:
    """Sum over the keys, (..., rows, 1)."""
    return jnp.sum(values, axis=-1, keepdims=True)


def divide(values: Array) -> Array:
    """Values over their sum; a row whose sum is 0 stays 0."""
    found = total(values)
    return values / jnp.where(found > 0, found, 1)


def uniform(there: Array, like: Array) -> Array:
    """Equal weights on the keys that can be seen, (..., rows, keys)."""
    return there / count(there, like)


def relative(logs: Array, there: Array) -> Array:
    """`exp(logs)` over its largest value in the row, 0 on forbidden keys."""
    shifted = jnp.where(there, logs - top(logs, there), 0)
    return jnp.where(there, jnp.exp(shifted), 0)


def several(weights: Array, parts: Array) -> Array:
    """The parts of rows with more than one weight; a row with a single one has no derivative at all."""
    return jnp.where(jnp.sum(weights > 0, axis=-1, keepdims=True) > 1, parts, 0)


def equal(logits: Array, there: Array) -> Array:
    """Rows whose logits are equal to rounding, (..., rows, 1)."""
    high, low = top(logits, there), -top(-logits, there)
    units = EQUAL_ULPS * jnp.finfo(logits.dtype).eps
    return high - low <= units * jnp.maximum(jnp.abs(high), jnp.abs(low))


def check_above(name: str, value: Any, bound: float) -> None:
    """Refuse a parameter that is not finite and above the bound; arrays of JAX, which may be traced, pass.

    Raises:
        DomainError: with the name and the value.
    """
    if isinstance(value, int | float | np.generic | np.ndarray):
        numbers = np.asarray(value, dtype=float)
        if not np.all((numbers > bound) & (numbers < np.inf)):
            raise DomainError.of(name, value, f"finite and above {bound:g}")
