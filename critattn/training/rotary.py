"""Rotary positions: pairs of channels turned by an angle that grows with the position."""

import jax.numpy as jnp

from critattn.protocols import Array

BASE = 10_000.0


def angles(positions: Array, dim: int, base: float = BASE) -> Array:
    """`position * base^(-2c/d)` for the pairs c = 0 .. d/2 - 1, (positions, d/2) radians [arXiv 2104.09864]."""
    rates = base ** (-jnp.arange(0, dim, 2) / dim)
    return positions[:, None] * rates


def rotate(vectors: Array, turned: Array) -> Array:
    """Turn channels c and c + d/2 of each vector by the angle of its position and of c.

    Scores of rotated vectors depend on the difference of positions alone, and norms are kept.

    Args:
        vectors: (..., positions, d), d even.
        turned: (positions, d/2) radians, of `angles`.
    """
    half = vectors.shape[-1] // 2
    cos, sin = (one(turned).astype(vectors.dtype) for one in (jnp.cos, jnp.sin))
    first, second = vectors[..., :half], vectors[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
