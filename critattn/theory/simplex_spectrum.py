"""The Jacobian of attention on a simplex of tokens: every singular value, with its multiplicity.

The permutations of the tokens split the n d perturbations into six blocks, in each of which the Jacobian is
a number or a matrix of at most 3 x 3. Equation numbers refer to docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.errors import DomainError
from critattn.theory.simplex_limits import critical_gamma
from critattn.theory.simplex_state import (
    SimplexState,
    Value,
    as_value,
    finite,
    log_count,
    positive_norm,
    require,
    simplex_state,
    update_scales,
)

LARGEST_EXACT = 2**53


class SingularValue(NamedTuple):
    """A singular value of the Jacobian.

    Attributes:
        value: the singular value.
        multiplicity: how often it occurs; an int for whole n and d, None beyond 2^53.
        log_multiplicity: natural logarithm of the multiplicity.
    """

    value: float
    multiplicity: int | float | None
    log_multiplicity: float


def singular_values(
    gamma: float,
    rho: float,
    log_n: float,
    *,
    log_d: float,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    norm: float = 1.0,
) -> list[SingularValue]:
    """All singular values of the n d x n d Jacobian of x' = a x + b ATT.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens; n is real above 4, whole below.
        log_d: natural logarithm of the dimension; d >= n, or d >= n - 1 at rho = -1/(n-1).
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        Values with their multiplicities, block by block: off the span of the tokens (common, zero-sum),
        symmetric, antisymmetric, standard (each n - 1 times), trivial (once). Values may coincide, and blocks
        of multiplicity 0 are left out.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (2.4)].
    """
    state = simplex_state(gamma, rho, log_n)
    if state.beta.ndim:
        raise DomainError.of("gamma, rho, log_n", state.beta.shape, "scalars (operator_norm broadcasts)")
    e, kappa = (float(scale) for scale in update_scales(state, identity_weight, attention_weight, norm))
    a, b = float(identity_weight), float(attention_weight) / float(norm)
    common, zero_sum = abs(kappa / norm), abs(e / norm)
    n, counts = _multiplicities(state, float(log_count("log_d", log_d)))
    values = {"common": [common], "zero_sum": [zero_sum]}
    if n < 4:
        values["once"] = _small_spectrum(state, n, a, b)
    else:
        shift = 2 * float(state.beta * state.cross * state.theta)
        values["symmetric"] = [abs(a + b * (float(state.contrast) + shift))]
        values["antisymmetric"] = [zero_sum]
        values["standard"] = _standard_block(state, a, b)
        values["once"] = _trivial_block(state, a, b)
    return [
        SingularValue(float(value), _exact(*counts[block]), counts[block][1])
        for block, members in values.items()
        for value in members
        if counts[block][1] > -math.inf
    ]


def operator_norm(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    log_d: ArrayLike,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Largest singular value of the Jacobian of x' = a x + b ATT.

    Unlike the mean square it does not vanish below the critical point, and at it grows as
    (b/r) sqrt(rho)/2 log n.

    Args, Raises: as for `singular_values`, here broadcasting.

    Returns:
        The operator norm.

    Source: [derived, docs/theory.md (2.4), (2.5)].
    """
    arguments = np.broadcast_arrays(gamma, rho, log_n, log_d, identity_weight, attention_weight, norm)
    result = np.empty(arguments[0].shape)
    for index in np.ndindex(result.shape):
        g, r, ln, ld, a, b, size = (float(argument[index]) for argument in arguments)
        levels = singular_values(g, r, ln, log_d=ld, identity_weight=a, attention_weight=b, norm=size)
        result[index] = max(level.value for level in levels)
    return as_value(result)


def critical_operator_slope(rho: ArrayLike, *, norm: ArrayLike = 1.0) -> Value:
    """Slope sqrt(rho)/(2 r) in log n of the operator norm at gamma = 1/(1-rho), without residual.

    Args:
        rho: common cosine of two tokens, in [0, 1).
        norm: token norm r > 0.

    Returns:
        The leading slope as n goes to infinity; at n = 1e4 the local slope is 2 % (rho = .5) to 15 % (.1) off.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (2.5)].
    """
    critical_gamma(rho)
    rho = finite("rho", rho)
    require("rho", rho, rho >= 0, "in [0, 1)")
    return as_value(np.sqrt(rho) / (2 * positive_norm(norm)))


def _multiplicities(state: SimplexState, log_d: float) -> tuple[float, dict[str, tuple[float, float]]]:
    """The number of tokens, and by block its multiplicity and the logarithm of that (-inf for none)."""
    log_n = float(state.log_n)
    n = _whole(_exp(log_n))
    log_off = _log_off_span(state, log_d)
    off = _whole(_exp(log_off))
    if n >= LARGEST_EXACT:
        log_square = 2 * log_n - math.log(2)
        huge = {"zero_sum": log_off + log_n, "symmetric": log_square, "antisymmetric": log_square}
        logs = {"common": log_off, "standard": log_n, "once": 0.0, **huge}
        return n, {block: (_exp(log), log) for block, log in logs.items()}
    counts = {
        "common": off,
        "zero_sum": off * (n - 1),
        "symmetric": n * (n - 3) / 2,
        "antisymmetric": (n - 1) * (n - 2) / 2,
        "standard": n - 1,
        "once": 1.0,
    }
    logs = {block: math.log(count) if count > 0 else -math.inf for block, count in counts.items()}
    if off > 0:
        logs["common"] = log_off
        logs["zero_sum"] = log_off + math.log(n - 1) if n > 1 else -math.inf
    return n, {block: (count, logs[block]) for block, count in counts.items()}


def _log_off_span(state: SimplexState, log_d: float) -> float:
    """Logarithm of the number of dimensions that the tokens do not span (-inf for none).

    Raises:
        DomainError: where the tokens do not fit into d dimensions.
    """
    n, d = _whole(_exp(float(state.log_n))), _whole(_exp(log_d))
    if max(n, d) < LARGEST_EXACT:
        free = d - n + (1 if state.mu == 0 and n > 1 else 0)
        if free < 0:
            raise DomainError.of("log_d", log_d, "at least log n (log(n-1) at rho = -1/(n-1))")
        return math.log(free) if free > 0 else -math.inf
    gap = float(state.log_n) - log_d
    require("log_d", log_d, gap <= 0, "at least log n")
    return log_d + math.log(-math.expm1(gap)) if gap < 0 else -math.inf


def _exp(log: float) -> float:
    return math.exp(min(log, 700.0))


def _whole(count: float) -> float:
    """The nearest whole number where `count` is one up to the rounding of its logarithm."""
    nearest = round(count)
    return float(nearest) if abs(count - nearest) <= 1e-14 * count * max(1.0, math.log(count + 2)) else count


def _exact(multiplicity: float, log_multiplicity: float) -> int | float | None:
    if log_multiplicity >= math.log(LARGEST_EXACT):
        return None
    return int(multiplicity) if multiplicity == int(multiplicity) else multiplicity


def _standard_block(state: SimplexState, a: float, b: float) -> list[float]:
    """Values on perturbations c_i y_i, c_i S and sum_j c_j y_j, with S the sum of the tokens and sum c = 0.

    S and the weighted sum are taken at unit length: their Gram matrix overflows at n = 1e150 otherwise.
    """
    beta, rho, theta, s, w, q, delta = _scalars(state)
    inverse_n = math.exp(-float(state.log_n))
    root_mu, tau = math.sqrt(state.mu), math.sqrt(theta * inverse_n)
    y, sums, weighted = np.eye(3)
    n_cross = q / (1 - inverse_n)
    w_sums, w_weighted = n_cross * root_mu * sums, n_cross * tau * weighted
    mean = delta * y + w_sums
    toward_sums = w_sums - w * y - q * mean
    toward_weighted = w_weighted - w * y + w * mean
    first = delta * sums - root_mu * (delta * y + w_weighted)
    first += beta * root_mu * theta * (toward_weighted - s * (y - mean))
    second = weighted - tau * (delta * y + w_weighted)
    second += beta * tau * (toward_sums - rho * toward_weighted + delta * y + w_weighted - delta * mean)
    second -= beta * theta * tau * s * (y - mean)
    tangent = np.column_stack([y, sums - root_mu * y, weighted - tau * y])
    image = b * np.column_stack([np.zeros(3), first, second]) + a * tangent
    rest = math.sqrt(theta * (1 - 2 * inverse_n))
    return _values(image, tangent, np.array([[root_mu, 1, 0], [tau, 0, 1], [rest, 0, 0]]), state)


def _trivial_block(state: SimplexState, a: float, b: float) -> list[float]:
    """Values on perturbations y_i and S that are the same combination for every token."""
    beta, _, theta, s, w, q, delta = _scalars(state)
    inverse_n = math.exp(-float(state.log_n))
    root_mu = math.sqrt(state.mu)
    y, sums = np.eye(2)
    w_sums = q / (1 - inverse_n) * root_mu * sums
    mean = delta * y + w_sums
    moved = sums - root_mu * mean
    moved += beta * root_mu * theta * (w_sums - w * y - q * mean - s * (y - mean))
    tangent = np.column_stack([y, sums - root_mu * y])
    image = b * np.column_stack([np.zeros(2), moved]) + a * tangent
    rest = math.sqrt(theta * (1 - inverse_n))
    return _values(image, tangent, np.array([[root_mu, 1], [rest, 0]]), state)


def _scalars(state: SimplexState) -> tuple[float, ...]:
    names = ("beta", "rho", "theta", "own", "cross", "rest", "contrast")
    return tuple(float(getattr(state, name)) for name in names)


def _values(
    image: NDArray[np.float64],
    tangent: NDArray[np.float64],
    frame: NDArray[np.float64],
    state: SimplexState,
) -> list[float]:
    """Singular values of the map that takes the columns of `tangent` to those of `image`.

    Args:
        image: images in the coordinates y_i, S, ...
        tangent: preimages in the same coordinates.
        frame: an orthonormal frame in which S, ... are the first axes: column k holds coordinate k.
        state: where the mean vanishes S is no direction, and its coordinate is dropped.
    """
    if state.mu == 0:
        image, tangent = (np.delete(np.delete(m, 1, axis=0), 1, axis=1) for m in (image, tangent))
        frame = frame[1:, [0, *range(2, frame.shape[1])]]
    matrix = frame @ image @ np.linalg.inv(frame @ tangent)
    return np.linalg.svd(matrix, compute_uv=False).tolist()


def _small_spectrum(state: SimplexState, n: float, a: float, b: float) -> list[float]:
    """Values inside the span of fewer than 4 tokens, from the dense Jacobian (3.3).

    Raises:
        DomainError: where n is not a whole number.
    """
    if n != int(n):
        raise DomainError.of("n", n, "a whole number below 4")
    jacobian = _dense_jacobian(_embedding(state, int(n)), float(state.beta), a, b)
    return np.linalg.svd(jacobian, compute_uv=False).tolist()


def _embedding(state: SimplexState, n: int) -> NDArray[np.float64]:
    """Unit tokens (n, span) with the cosine of `state`: the symmetric root of their Gram matrix."""
    mean = np.full((n, n), 1 / n)
    tokens = math.sqrt(state.theta) * (np.eye(n) - mean) + math.sqrt(n * state.mu) * mean
    return tokens if state.mu > 0 else np.linalg.svd(tokens)[0][:, : n - 1] * math.sqrt(state.theta)


def _dense_jacobian(tokens: NDArray[np.float64], beta: float, a: float, b: float) -> NDArray[np.float64]:
    """The Jacobian (n d, n d) of (3.3) at tokens (n, d) of unit norm, b being the weight over the norm."""
    n, d = tokens.shape
    weights = np.exp(beta * (tokens @ tokens.T - 1))
    weights /= weights.sum(axis=1, keepdims=True)
    away = tokens[None] - (weights @ tokens)[:, None]
    covariance = np.einsum("ij,ijk,ijl->ikl", weights, away, away)
    key = np.einsum("ij,ijk,il->ijkl", weights, away, tokens)
    blocks = weights[:, :, None, None] * np.eye(d) + beta * key
    blocks[np.arange(n), np.arange(n)] += beta * covariance
    blocks = blocks @ (np.eye(d) - tokens[:, :, None] * tokens[:, None, :])
    return b * blocks.transpose(0, 2, 1, 3).reshape(n * d, n * d) + a * np.eye(n * d)
