"""The largest singular value of the Jacobian, by products with it only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import linalg

from critattn.attention import Attention, attention_step, block_rows
from critattn.protocols import Array, Estimate, precision, refuse_tracers
from critattn.tokens import Tokens, one_set

sparse: Any = linalg  # the type stubs at hand describe neither LinearOperator's nor eigsh's arguments


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

    Raises:
        DomainError: for queries that differ from keys, or inside a trace.
    """
    refuse_tracers("operator_norm", (attention, tokens))
    one_set("operator_norm", tokens)
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
        return _largest(product, size, tolerance)


def _largest(product: Any, size: int, tolerance: float) -> Estimate:
    """Square root of the largest eigenvalue of a positive operator."""
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
