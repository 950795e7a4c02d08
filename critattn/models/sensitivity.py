"""How alike tokens are, and how strongly a head's output depends on the input of its block."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.errors import DomainError, SpecError
from critattn.protocols import Array, Estimate, as_host

Values = NDArray[np.float64]
HeadMap = Callable[[Array], Array]


class EffectiveRho(NamedTuple):
    """Mean cosine of two different tokens.

    Attributes:
        raw: of the tokens as they are.
        centred: after their mean is taken off, which a softmax over keys does not see.
    """

    raw: Values
    centred: Values


def effective_rho(tokens: ArrayLike) -> EffectiveRho:
    """Mean off-diagonal cosine (|sum u_i|^2 - n)/(n (n - 1)) of directions u_i, raw and mean-centred, in O(n width).

    Independent centred tokens have about -1/(n - 1) after centring.

    Args:
        tokens: (..., n, width), n >= 2.

    Returns:
        Two arrays (...), float64. A token of length 0 has no direction and is left out; NaN where fewer than two are
        left.

    Raises:
        DomainError: for fewer than two axes or tokens, or numbers that are not finite.

    Source: [derived, docs/theory.md (16.8)].
    """
    given = np.asarray(tokens, np.float64)
    if given.ndim < 2 or given.shape[-2] < 2:
        raise DomainError(f"tokens: have shape {given.shape}; allowed: (..., n, width) with n at least 2")
    if not np.isfinite(given).all():
        raise DomainError("tokens: have NaN or infinite entries; allowed: finite numbers")
    centred = given - given.mean(axis=-2, keepdims=True)
    # equal tokens are 0 after centring up to rounding
    rounding = 8 * np.finfo(np.float64).eps * np.abs(given).max(axis=(-2, -1), keepdims=True)
    return EffectiveRho(_mean_cosine(given, 0.0), _mean_cosine(centred, rounding))


def _mean_cosine(vectors: Values, least: Any) -> Values:
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    there = largest > least
    scaled = np.where(there, vectors / np.where(there, largest, 1), 0)
    lengths = np.linalg.norm(scaled, axis=-1, keepdims=True)
    units = scaled / np.where(there, lengths, 1)
    count = there.sum(axis=(-2, -1))
    pairs = count * (count - 1)
    square = (units.sum(axis=-2) ** 2).sum(axis=-1)
    return np.where(pairs > 0, (square - count) / np.maximum(pairs, 1), np.nan)


def gradient_norm(
    head_map: HeadMap, inputs: Array, key: Array, *, probes: int = 8, mode: Literal["vjp", "jvp"] = "vjp"
) -> Estimate:
    """Squared Frobenius norm of the Jacobian of a head's attention map, by Hutchinson's estimator.

    The mean over probes of |J^T u|^2 (vjp) or |J v|^2 (jvp), u and v of independent signs: unbiased, with variance
    2 (|M|_F^2 - sum_a M_aa^2) of a probe for M = J J^T or J^T J. The first has the smaller variance where the output
    has fewer coordinates. Over n times the width of the input it compares with the gradient norm of (0.7).

    Args:
        head_map: x (n, width) -> (n, head_dim), differentiable. A `jax.tree_util.Partial` is compiled, once for all
            heads and layers whose function and shapes agree; any other callable runs as it is.
        inputs: (n, width), the normalised input of the block.
        key: of `jax.random`.
        probes: at least 2.
        mode: "vjp" or "jvp".

    Returns:
        The squared norm and its standard error, the spread of the probes over sqrt(probes).

    Raises:
        DomainError: for fewer than 2 probes.
        SpecError: for another mode.

    Source: [Hutchinson 1989; derived, docs/theory.md (16.9)].
    """
    if probes < 2:
        raise DomainError.of("probes", probes, "at least 2 (a standard error needs two)")
    if mode not in ("vjp", "jvp"):
        raise SpecError(f"mode {mode!r} is unknown; known: vjp, jvp")
    keys = jax.random.split(key, probes)
    if isinstance(head_map, jax.tree_util.Partial):
        squares = as_host(_compiled(head_map, inputs, keys, mode=mode))
    else:
        probe = _probe(head_map, inputs, mode)
        squares = np.array([float(probe(one)) for one in keys])
    return Estimate(float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(probes)))


def _probe(head_map: HeadMap, inputs: Array, mode: str) -> Callable[[Array], Array]:
    """The squared image of one probe, from a map that is linearised once."""
    if mode == "vjp":
        output, pull = jax.vjp(head_map, inputs)
        return lambda key: jnp.sum(pull(jax.random.rademacher(key, output.shape, output.dtype))[0] ** 2)
    _, push = jax.linearize(head_map, inputs)
    return lambda key: jnp.sum(push(jax.random.rademacher(key, inputs.shape, inputs.dtype)) ** 2)


@partial(jax.jit, static_argnames=("mode",))
def _compiled(head_map: HeadMap, inputs: Array, keys: Array, *, mode: str) -> Array:
    return jax.lax.map(_probe(head_map, inputs, mode), keys)
