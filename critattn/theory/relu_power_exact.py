"""ReLU^p re-weighting where it is exact: on the simplex, for p to infinity, and in a number format."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.errors import DomainError
from critattn.theory.half_weight import log_others
from critattn.theory.simplex_state import Value, as_value, finite, require
from critattn.theory.softplus import row_excess, scores_checked

# bits of the significand after the point, largest and smallest exponent
FORMATS = {
    "float16": (10, 15, -14),
    "bfloat16": (7, 127, -126),
    "float32": (23, 127, -126),
    "float64": (52, 1023, -1022),
}


def diagonal_excess(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0) -> Value:
    """Excess x_ii = n a_ii - 1 of the self score on the simplex; each other key has -x_ii/(n-1).

    x_ii = (n-1)(f - h)/(f + (n-1) h), f = sp(c), h = sp(c rho): tends to 1/rho - 1 for rho > 0.

    Args, Raises: as for `softplus.self_weight`.

    Returns:
        The excess, in (-1, n-1]; infinite beyond the largest float.

    Source: [derived, docs/theory.md (12.1)].
    """
    return as_value(row_excess(gamma, rho, log_n, self_score, 0.0))


def simplex_self_weight(p: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, gamma: ArrayLike = 1.0) -> Value:
    """Self weight on the exact simplex: 1 for every p, gamma > 0 and rho < 1.

    A row of equal scores (rho = 1 or gamma = 0) is 0/0 and counts as uniform: 1/n. The two limits do not commute.

    Args:
        p: exponent, > 0.
        rho: common score, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        gamma: coefficient of log n in the steepness, >= 0.

    Returns:
        1 or 1/n.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.1), (12.2)].
    """
    p, gamma = finite("p", p), finite("gamma", gamma)
    require("p", p, p > 0, "positive")
    require("gamma", gamma, gamma >= 0, "at least 0")
    rho, log_n, _, _ = scores_checked(rho, log_n, 1.0, 0.0)
    unequal = (rho < 1) & (gamma > 0) & (p > 0)
    return as_value(np.where(unequal, 1.0, np.exp(-log_n)))


def simplex_critical_p(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Critical p on the exact simplex: 0, as every p > 0 gives the identity; NaN at rho = 1 or n = 1.

    Args:
        rho: common score, in [-1, 1].
        log_n: natural logarithm of the number of tokens.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.1)].
    """
    rho, log_n, _, _ = scores_checked(rho, log_n, 1.0, 0.0)
    return as_value(np.where((rho < 1) & (log_n > 0), 0.0, np.nan))


def hard_limit(scores: ArrayLike) -> NDArray[np.float64]:
    """Weights in the limit p -> infinity: 1/m on each of the m largest scores, 0 elsewhere.

    A row of equal scores is uniform. The published limit, one-hot, is the case m = 1.

    Args:
        scores: any shape, keys on the last axis; only their order matters.

    Returns:
        The weights, of the same shape.

    Raises:
        DomainError: for scores that are not finite.

    Source: [Gao 2025 for m = 1; derived, docs/theory.md (12.3)].
    """
    scores = finite("scores", scores)
    largest = scores == scores.max(axis=-1, keepdims=True)
    return largest / largest.sum(axis=-1, keepdims=True)


def hard_limit_distance(p: ArrayLike, ratio: ArrayLike, log_n: ArrayLike) -> Value:
    """Bound (n-1) ratio^p on the weight outside of the maximum, ratio = x_(2)/x_(1) of the excesses.

    Args:
        p: exponent, > 0.
        ratio: second largest over largest excess of the row, in [0, 1].
        log_n: natural logarithm of the number of keys.

    Returns:
        The bound, at most 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.3)].
    """
    p, ratio, log_n = finite("p", p), finite("ratio", ratio), finite("log_n", log_n)
    require("p", p, p > 0, "positive")
    require("ratio", ratio, (ratio >= 0) & (ratio <= 1), "in [0, 1]")
    require("log_n", log_n, log_n > 0, "positive")
    with np.errstate(divide="ignore"):
        return as_value(np.exp(np.minimum(np.asarray(log_others(log_n)) + p * np.log(ratio), 0.0)))


def usable_excess(p: float, number_format: str) -> tuple[float, float]:
    """Range of the excess x = n a - 1 in which x^p neither flushes to zero nor overflows.

    (smallest subnormal/2)^(1/p) and (largest + half a unit)^(1/p), with rounding to nearest and subnormals kept.

    Args:
        p: exponent, > 0.
        number_format: float16, bfloat16, float32 or float64.

    Returns:
        lower and upper end.

    Raises:
        DomainError: for another format or p <= 0.

    Source: [derived, docs/theory.md (12.10)].
    """
    if number_format not in FORMATS:
        raise DomainError.of("number_format", number_format, f"one of {', '.join(FORMATS)}")
    if not (p > 0 and math.isfinite(p)):
        raise DomainError.of("p", p, "positive and finite")
    bits, largest, smallest = FORMATS[number_format]
    low = (smallest - bits - 1) * math.log(2)
    high = largest * math.log(2) + math.log(2 - 2.0 ** -(bits + 1))
    return math.exp(low / p), math.exp(high / p) if high / p < 709 else math.inf
