"""The exact squared Frobenius norm of the Jacobian, in blocks of rows, and its profile over queries."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from critattn.attention import MEMORY_BYTES, Attention, block_rows, map_row_blocks
from critattn.errors import DomainError
from critattn.gradient.terms import (
    key_terms,
    query_exact,
    query_probed,
    query_trace,
    row_moments,
    second_moments,
    without_own,
)
from critattn.protocols import Array, Estimate, as_host, map_layers, precision, refuse_tracers
from critattn.tokens import Tokens, normalise, one_set


@partial(jax.jit, static_argnames=("rows", "probes", "columns", "kept", "devices"))
def _profiles(
    attentions: Attention,
    vectors: Array,
    positions: Array,
    mixing: tuple[float, float],
    key: Array | None,
    *,
    rows: int,
    probes: int | None,
    columns: int,
    kept: int,
    devices: int,
) -> dict[str, Array]:
    identity_weight, attention_weight = mixing
    units, norms = normalise(vectors), jnp.linalg.norm(vectors, axis=1)
    dim = vectors.shape[1]
    products = second_moments(units, kept) if probes is None else None

    def block(attention: Attention, where: Array) -> dict[str, Array]:
        row = row_moments(attention, units, where)
        own = jnp.take_along_axis(row.weights, where[:, None], axis=1)[:, 0]
        row = without_own(row, units, where)
        trace, image = query_trace(row, units)
        if probes is None or key is None:
            query, variance = query_exact(row, units, image, products, columns), jnp.zeros_like(trace)
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, where)
            query, variance = query_probed(row, units, keys, probes)
        ratio = attention_weight / norms[where]
        value = attention_weight**2 * jnp.sum(key_terms(row, units) / norms**2, axis=1)
        value += ratio**2 * (2 * own * trace + query) + identity_weight**2 * dim
        value += 2 * identity_weight * ratio * (own * (dim - 1) + trace)
        return {"value": value, "variance": ratio**4 * variance}

    return map_layers(lambda a: map_row_blocks(partial(block, a), positions, rows, devices=devices), attentions)


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
    # a host array is handed to the compiled pass as it is: a small layer takes less than an operation of its own would
    dtype = jnp.result_type(float)
    vectors = tokens.vectors if isinstance(tokens.vectors, Array) else np.asarray(tokens.vectors)
    vectors = vectors.astype(dtype)
    size = vectors.dtype.itemsize
    rows = block_rows(tokens.n, size, memory_bytes)
    columns = int(np.clip(memory_bytes // (4 * size * tokens.n), 64, 1024))
    result = _profiles(
        attentions,
        vectors,
        positions,
        (identity_weight, attention_weight),
        None if probes is None else jax.random.key(seed),
        rows=rows,
        probes=probes,
        columns=columns,
        kept=memory_bytes // size,
        devices=jax.local_device_count(),
    )
    return {name: as_host(array) for name, array in result.items()}


def exact_operations(n: int, d: int) -> float:
    """Floating-point operations of the exact query term, `2 n^2 min(n, d(d+1)/2)`."""
    return 2.0 * n * n * min(n, d * (d + 1) // 2)


def query_profile(
    attention: Attention,
    tokens: Tokens,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    probes: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of each query: `sum_k ||dx'_i/dx_k||_F^2`, and its standard error.

    Under a causal mask this is the profile along positions [derived, docs/theory.md (3.9)].

    Args:
        attention: the layer.
        tokens: n x d.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        probes: as in `frobenius_norm_squared`.
        seed: as in `frobenius_norm_squared`.
        dtype: float64 or float32.

    Returns:
        Two float64 arrays (n,); the errors are 0 where exact.

    Raises:
        DomainError: as `frobenius_norm_squared`.
    """
    refuse_tracers("query_profile", (attention, tokens))
    one_set("query_profile", tokens)
    if not tokens.normalised:
        raise DomainError("tokens: are not normalised; the exact norm holds for the layer x' = a x + b ATT(N(x)) only")
    with precision(dtype):
        result = row_profiles(
            jax.tree_util.tree_map(
                lambda leaf: (leaf if isinstance(leaf, Array) else np.asarray(leaf))[None], attention
            ),
            tokens,
            np.arange(tokens.n),
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            probes=probes,
            seed=seed,
        )
    return result["value"][0], np.sqrt(result["variance"][0])


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
        DomainError: for fewer than 2 probes, tokens that are not normalised, queries that differ from keys, or inside
            a trace.
    """
    values, errors = query_profile(
        attention,
        tokens,
        identity_weight=identity_weight,
        attention_weight=attention_weight,
        probes=probes,
        seed=seed,
        dtype=dtype,
    )
    return Estimate(float(np.sum(values)), None if probes is None else float(np.linalg.norm(errors)))
