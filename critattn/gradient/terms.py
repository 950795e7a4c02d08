"""The terms of the squared Jacobian of a block of rows, from inner products alone [docs/theory.md section 3]."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from critattn.attention import Attention
from critattn.protocols import Array


class RowMoments(NamedTuple):
    """Moments of a block of rows; names as in docs/theory.md section 3, the chain rule of the transforms included."""

    cosines: Array  # G_ij, (rows, n)
    weights: Array  # A_ij
    g: Array  # diagonal of dA/dG
    b: Array | None
    units: Array  # y_i, (rows, d)
    mu: Array  # sum_j u_ij y_j
    q: Array  # sum_j g_ij y_j
    e: Array | None  # sum_j c_ij y_j
    m0: Array | None  # sum_j b_ij y_j


def row_moments(attention: Attention, units: Array, positions: Array) -> RowMoments:
    """Moments of the rows at these positions of a layer on unit tokens (n, d) [derived, docs/theory.md (3.2)]."""
    own = units[positions]
    cosines = own @ units.T
    context = attention.context(positions, units.shape[0], units.shape[1])
    allowed = attention.allowed(context)
    logits, slope = jax.jvp(lambda s: attention.logits(s, context), (cosines,), (jnp.ones_like(cosines),))
    weights = attention.normaliser(logits, context, where=allowed)
    parts = attention.normaliser.jacobian_parts(logits, context, where=allowed)
    g = parts.g * slope
    mu, q = parts.u @ units, g @ units
    if parts.b is None or parts.c is None:
        return RowMoments(cosines, weights, g, None, own, mu, q, None, None)
    b = parts.b * slope
    return RowMoments(cosines, weights, g, b, own, mu, q, parts.c @ units, b @ units)


def _dot(left: Array, right: Array) -> Array:
    return jnp.sum(left * right, axis=-1)


def key_terms(row: RowMoments, all_units: Array) -> Array:
    """T_ik = ||(A_ik I + U_ik y_i^T) P_k||^2, (rows, n) [derived, docs/theory.md (3.4)]."""
    dim = all_units.shape[1]
    h = row.mu @ all_units.T
    tangent = -row.g * (_dot(row.mu, row.units)[:, None] - h * row.cosines)
    size = row.g**2 * (1 - 2 * h + _dot(row.mu, row.mu)[:, None])
    if row.b is not None and row.e is not None:
        eps = row.e @ all_units.T
        tangent -= row.b * (_dot(row.e, row.units)[:, None] - eps * row.cosines)
        size += row.b**2 * _dot(row.e, row.e)[:, None]
        size -= 2 * row.g * row.b * (eps - _dot(row.mu, row.e)[:, None])
    return (dim - 1) * row.weights**2 + 2 * row.weights * tangent + size * (1 - row.cosines**2)


def without_own(row: RowMoments, all_units: Array, positions: Array) -> RowMoments:
    """The row without g_ii and b_ii: P_i y_i = 0, so they add nothing to U_ii y_i^T P_i and K_i P_i but rounding.

    Left in, terms of the size beta^2 would have to cancel where a row attends to itself alone.
    """
    other = positions[:, None] != jnp.arange(all_units.shape[0])[None, :]
    g = jnp.where(other, row.g, 0)
    row = row._replace(g=g, q=g @ all_units)
    if row.b is None:
        return row
    b = jnp.where(other, row.b, 0)
    return row._replace(b=b, m0=b @ all_units)


def query_trace(row: RowMoments, all_units: Array) -> tuple[Array, Array]:
    """tr(K_i P_i), (rows,), and K_i y_i, (rows, d) [derived, docs/theory.md (3.5)]."""
    image = (row.g * row.cosines) @ all_units - row.mu * _dot(row.q, row.units)[:, None]
    trace = jnp.sum(row.g, axis=1) - _dot(row.mu, row.q)
    if row.e is not None and row.m0 is not None:
        image -= row.e * _dot(row.m0, row.units)[:, None]
        trace -= _dot(row.e, row.m0)
    return trace - _dot(row.units, image), image


def second_moments(units: Array, largest: int) -> Array | None:
    """Products y_ja y_jb, a <= b, times sqrt(2) for a < b, (n, d(d+1)/2); None where there are more than `largest`."""
    n, dim = units.shape
    if dim * (dim + 1) // 2 >= n or n * dim * (dim + 1) // 2 > largest:
        return None
    scaled = units * np.sqrt(2.0).astype(units.dtype)
    columns = [units[:, a : a + 1] * units[:, a : a + 1] for a in range(dim)]
    columns += [units[:, a : a + 1] * scaled[:, a + 1 :] for a in range(dim - 1)]
    return jnp.concatenate(columns, axis=1)


def query_exact(row: RowMoments, all_units: Array, image: Array, products: Array | None, columns: int) -> Array:
    """||K_i P_i||^2, (rows,) [derived, docs/theory.md (3.6)].

    Args:
        row: the rows.
        all_units: (n, d).
        image: K_i y_i, (rows, d).
        products: `second_moments`, where they are few enough to be kept.
        columns: how many of them, or how many keys, are handled at once where they are not.
    """
    n, dim = all_units.shape
    if products is not None:
        second = jnp.sum((row.g @ products) ** 2, axis=1)
    else:
        by = _second_by_moments if dim * (dim + 1) // 2 < n else _second_by_gram
        second = by(row.g, all_units, columns)
    h = row.mu @ all_units.T
    square = second - 2 * _dot(row.g * h, row.q @ all_units.T)
    square += _dot(row.mu, row.mu) * _dot(row.q, row.q) - _dot(image, image)
    if row.e is not None and row.m0 is not None:
        eps = row.e @ all_units.T
        square -= 2 * _dot(row.g * eps, row.m0 @ all_units.T)
        square += _dot(row.e, row.e) * _dot(row.m0, row.m0)
        square += 2 * _dot(row.mu, row.e) * _dot(row.q, row.m0)
    return square


def _second_by_moments(g: Array, units: Array, columns: int) -> Array:
    """Q_i = ||sum_j g_ij y_j y_j^T||_F^2 through the d(d+1)/2 second moments, `columns` of them at a time."""
    left, right = np.triu_indices(units.shape[1])
    scale = np.where(left == right, 1.0, np.sqrt(2.0))
    chunks = -(-left.size // columns)
    fill = chunks * columns - left.size
    left, right = (np.pad(index, (0, fill)).reshape(chunks, columns) for index in (left, right))
    scale = np.pad(scale, (0, fill)).reshape(chunks, columns)

    def add(total: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
        i, j, factor = chunk
        moments = g @ (units[:, i] * units[:, j] * factor)
        return total + _dot(moments, moments), None

    start = jnp.zeros(g.shape[0], g.dtype)
    chunks_of_pairs = (jnp.asarray(left), jnp.asarray(right), jnp.asarray(scale, g.dtype))
    return jax.lax.scan(add, start, chunks_of_pairs)[0]


def _second_by_gram(g: Array, units: Array, columns: int) -> Array:
    """Q_i = sum_jl g_ij g_il G_jl^2 through squared cosines, `columns` keys at a time."""
    n = units.shape[0]
    chunks = -(-n // columns)
    keys = np.arange(chunks * columns).reshape(chunks, columns)

    def add(total: Array, index: Array) -> tuple[Array, None]:
        there = index < n
        index = jnp.minimum(index, n - 1)
        squares = (units @ units[index].T) ** 2
        return total + _dot(g @ squares, jnp.where(there, g[:, index], 0)), None

    return jax.lax.scan(add, jnp.zeros(g.shape[0], g.dtype), jnp.asarray(keys))[0]


def query_probed(row: RowMoments, all_units: Array, keys: Array, probes: int) -> tuple[Array, Array]:
    """Unbiased estimate of ||K_i P_i||^2 = E_z |K_i P_i z|^2 and the variance of that estimate, (rows,)."""

    def probe(index: Array) -> Array:
        rows = jax.vmap(jax.random.fold_in, (0, None))(keys, index)
        dim = all_units.shape[1]
        z = jax.vmap(lambda key: jax.random.rademacher(key, (dim,), all_units.dtype))(rows)
        z -= row.units * _dot(row.units, z)[:, None]
        image = (row.g * (z @ all_units.T)) @ all_units - row.mu * _dot(row.q, z)[:, None]
        if row.e is not None and row.m0 is not None:
            image -= row.e * _dot(row.m0, z)[:, None]
        return _dot(image, image)

    draws = jax.lax.map(probe, jnp.arange(probes))
    return jnp.mean(draws, axis=0), jnp.var(draws, axis=0, ddof=1) / probes
