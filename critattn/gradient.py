r"""Gradient of a layer: the exact Frobenius norm of its Jacobian in row blocks, and its operator norm matrix-free.

For `x' = a x + b ATT(N(x))` with K = Q = V = I the block of the Jacobian is

    J_ik = a delta_ik I + (b/r_k) [A_ik I + U_ik y_i^T + delta_ik K_i] P_k,      P_k = I - y_k y_k^T,

with the value path A_ik, the key path U_ik and the query path K_i [derived, docs/theory.md section 3]. Its squared norm
follows from inner products alone; no (nd) x (nd) array is ever formed.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import linalg

from critattn.attention import Attention, attention_step, map_row_blocks
from critattn.errors import DomainError
from critattn.protocols import Array, Estimate, as_host, precision, refuse_tracers
from critattn.tokens import Tokens, normalise

sparse: Any = linalg  # the type stubs at hand describe neither LinearOperator's nor eigsh's arguments

MEMORY_BYTES = 256_000_000
LIVE_ARRAYS = 16


def block_rows(n: int, itemsize: int, memory_bytes: int = MEMORY_BYTES) -> int:
    """Rows in a block, a multiple of 64, such that about 16 (rows, n) arrays fit the budget."""
    return max(64, memory_bytes // (LIVE_ARRAYS * itemsize * n) // 64 * 64)


class _Row(NamedTuple):
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


def _row_moments(attention: Attention, units: Array, positions: Array) -> _Row:
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
        return _Row(cosines, weights, g, None, own, mu, q, None, None)
    b = parts.b * slope
    return _Row(cosines, weights, g, b, own, mu, q, parts.c @ units, b @ units)


def _dot(left: Array, right: Array) -> Array:
    return jnp.sum(left * right, axis=-1)


def _key_terms(row: _Row, all_units: Array) -> Array:
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


def _without_own(row: _Row, all_units: Array, positions: Array) -> _Row:
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


def _query_trace(row: _Row, all_units: Array) -> tuple[Array, Array]:
    """tr(K_i P_i), (rows,), and K_i y_i, (rows, d) [derived, docs/theory.md (3.5)]."""
    image = (row.g * row.cosines) @ all_units - row.mu * _dot(row.q, row.units)[:, None]
    trace = jnp.sum(row.g, axis=1) - _dot(row.mu, row.q)
    if row.e is not None and row.m0 is not None:
        image -= row.e * _dot(row.m0, row.units)[:, None]
        trace -= _dot(row.e, row.m0)
    return trace - _dot(row.units, image), image


def _query_exact(row: _Row, all_units: Array, image: Array, columns: int) -> Array:
    """||K_i P_i||^2, (rows,) [derived, docs/theory.md (3.6)]."""
    n, dim = all_units.shape
    second = _second_by_moments if dim * (dim + 1) // 2 < n else _second_by_gram
    h = row.mu @ all_units.T
    square = second(row.g, all_units, columns) - 2 * _dot(row.g * h, row.q @ all_units.T)
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


def _query_probed(row: _Row, all_units: Array, keys: Array, probes: int) -> tuple[Array, Array]:
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


@partial(jax.jit, static_argnames=("rows", "probes", "columns"))
def _profiles(
    attentions: Attention,
    vectors: Array,
    positions: Array,
    mixing: tuple[Array, Array],
    key: Array,
    *,
    rows: int,
    probes: int | None,
    columns: int,
) -> dict[str, Array]:
    identity_weight, attention_weight = mixing
    units, norms = normalise(vectors), jnp.linalg.norm(vectors, axis=1)
    dim = vectors.shape[1]

    def block(attention: Attention, where: Array) -> dict[str, Array]:
        row = _row_moments(attention, units, where)
        own = jnp.take_along_axis(row.weights, where[:, None], axis=1)[:, 0]
        row = _without_own(row, units, where)
        trace, image = _query_trace(row, units)
        if probes is None:
            query, variance = _query_exact(row, units, image, columns), jnp.zeros_like(trace)
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, where)
            query, variance = _query_probed(row, units, keys, probes)
        ratio = attention_weight / norms[where]
        value = attention_weight**2 * jnp.sum(_key_terms(row, units) / norms**2, axis=1)
        value += ratio**2 * (2 * own * trace + query) + identity_weight**2 * dim
        value += 2 * identity_weight * ratio * (own * (dim - 1) + trace)
        return {"value": value, "variance": ratio**4 * variance}

    return jax.lax.map(lambda a: map_row_blocks(partial(block, a), positions, rows), attentions)


def row_profiles(
    attentions: Attention,
    tokens: Tokens,
    positions: np.ndarray,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    probes: int | None = None,
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
) -> dict[str, np.ndarray]:
    """Squared norms `sum_k ||J_ik||^2` of the rows of the Jacobian, for a batch of layers [docs/theory.md (3.7)].

    Runs in the precision that is on: call it inside `protocols.precision`.

    Args:
        attentions: a layer whose leaves have a leading axis (batch,).
        tokens: n x d.
        positions: (m,) the rows wanted.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        probes: None for the exact norm; else the number of Rademacher probes, at least 2, for its costly term.
        seed: seed of the probes.
        memory_bytes: bound on the working memory of a block.

    Returns:
        "value" and "variance" (of the probe estimate; 0 where exact), each (batch, m), float64.

    Raises:
        DomainError: for fewer than 2 probes.
    """
    if probes is not None and probes < 2:
        raise DomainError.of("probes", probes, "None, or at least 2 (a standard error needs two)")
    vectors = jnp.asarray(tokens.vectors, jnp.result_type(float))
    size = vectors.dtype.itemsize
    rows = block_rows(tokens.n, size, memory_bytes)
    columns = int(np.clip(memory_bytes // (4 * size * tokens.n), 64, 1024))
    mixing = (jnp.asarray(identity_weight, vectors.dtype), jnp.asarray(attention_weight, vectors.dtype))
    result = _profiles(
        attentions,
        vectors,
        jnp.asarray(positions),
        mixing,
        jax.random.key(seed),
        rows=rows,
        probes=probes,
        columns=columns,
    )
    return {name: as_host(array) for name, array in result.items()}


def exact_operations(n: int, d: int) -> float:
    """Floating-point operations of the exact query term, `2 n^2 min(n, d(d+1)/2)`."""
    return 2.0 * n * n * min(n, d * (d + 1) // 2)


def frobenius_norm_squared(
    attention: Attention,
    tokens: Tokens,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    probes: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
) -> Estimate:
    """Sum of squares of the Jacobian, `||dX'/dX||_F^2` [derived, docs/theory.md (3.7)].

    Exact in O(n^2 min(n, d^2)) time and O(block n) memory; with `probes` the term that costs this much is estimated
    without bias in O(n^2 d) (Hutchinson), all else stays exact. A cast has no derivative: the gradient is that of the
    map without it.

    Args:
        attention: the layer.
        tokens: n x d.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        probes: None for the exact norm, else the number of random probes for each row, at least 2.
        seed: seed of the probes.
        dtype: float64 or float32.

    Returns:
        The norm squared; its standard error is None where exact.

    Raises:
        DomainError: for fewer than 2 probes, or inside a trace.
    """
    refuse_tracers("frobenius_norm_squared", (attention, tokens))
    if not tokens.normalised:
        raise DomainError("tokens: are not normalised; the exact norm holds for the layer x' = a x + b ATT(N(x)) only")
    with precision(dtype):
        result = row_profiles(
            jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[None], attention),
            tokens,
            np.arange(tokens.n),
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            probes=probes,
            seed=seed,
        )
    error = None if probes is None else float(np.sqrt(np.sum(result["variance"])))
    return Estimate(float(np.sum(result["value"])), error)


def operator_norm(
    attention: Attention,
    tokens: Tokens,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    tolerance: float = 1e-10,
) -> Estimate:
    """Largest singular value of the Jacobian, by Lanczos on `J^T J` with products only (float64).

    Args:
        attention: the layer.
        tokens: n x d.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        tolerance: relative accuracy asked of the eigenvalue.

    Returns:
        The norm, without a standard error; NaN where Lanczos did not converge, or the logits overflow.
    """
    refuse_tracers("operator_norm", (attention, tokens))
    with precision("float64"):
        vectors = jnp.asarray(tokens.vectors, jnp.float64)
        rows = block_rows(tokens.n, 8)

        def layer(flat: Array, layer_attention: Attention) -> Array:
            moved = attention_step(
                layer_attention,
                tokens.moved_to(flat.reshape(vectors.shape)),
                identity_weight=identity_weight,
                attention_weight=attention_weight,
                block_rows=rows if rows < tokens.n else None,
            )
            return jnp.asarray(moved.vectors).ravel()

        @jax.jit
        def gram(flat: Array, direction: Array, layer_attention: Attention) -> Array:
            image, push = jax.jvp(lambda x: layer(x, layer_attention), (flat,), (direction,))
            return jax.vjp(lambda x: layer(x, layer_attention), flat)[1](push)[0]

        flat, size = vectors.ravel(), vectors.size
        product = sparse.LinearOperator(
            (size, size),
            matvec=lambda v: np.asarray(gram(flat, jnp.asarray(v.ravel()), attention)),
            dtype=np.float64,
        )
        start = np.random.default_rng(0).standard_normal(size)
        image = product.matvec(start)
        if not np.isfinite(image).all() or not image.any():
            return Estimate(float("nan") if image.any() else 0.0)
        if size < 3:
            columns = np.column_stack([product.matvec(unit) for unit in np.eye(size)])
            return Estimate(float(np.sqrt(np.linalg.eigvalsh(columns)[-1])))
        try:
            top = sparse.eigsh(product, k=1, v0=start, tol=tolerance, maxiter=20 * size, return_eigenvectors=False)
        except linalg.ArpackError:
            return Estimate(float("nan"))
        return Estimate(float(np.sqrt(max(top[0], 0.0))))
