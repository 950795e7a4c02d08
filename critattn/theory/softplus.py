"""Softplus-L1 attention on a simplex of scores: where it localises, and where it stays diffuse at every n.

Weights are A_j = sp(beta (s_j - b))/sum_k sp(beta (s_k - b)), sp(z) = log(1 + e^z), beta = gamma log n; the self score
is a, every other score rho, the bias b is in score units. A causal row i is a row of n = i tokens: pass log i.
Scores need not come from one Gram matrix: rho < -1/(n-1) at a = 1 needs queries that differ from keys.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.theory.quadrature import bracketed_root, elementwise
from critattn.theory.simplex_state import Value, as_value, finite, log_count, log_others, require

# below this the softplus is its exponential to rounding
EXPONENTIAL_BELOW = -37.0
# beyond this argument the ratio of two softplus functions is that of their arguments to rounding
LINEAR_FROM = 800.0


def log_softplus(z: ArrayLike) -> Value:
    """Log of sp(z) = log(1 + e^z), finite for every finite z.

    Args:
        z: any real numbers.

    Source: [derived, docs/theory.md (11.1)].
    """
    z = np.asarray(z, dtype=float)
    return as_value(np.where(z < EXPONENTIAL_BELOW, z, np.log(np.logaddexp(0.0, np.maximum(z, EXPONENTIAL_BELOW)))))


def scores_checked(
    rho: ArrayLike, log_n: ArrayLike, self_score: ArrayLike, bias: ArrayLike
) -> tuple[NDArray[np.float64], ...]:
    """The four as arrays, after a check of their ranges.

    Raises:
        DomainError: for scores outside [-1, 1], n < 1, or a bias that is not finite.
    """
    rho, own = finite("rho", rho), finite("self_score", self_score)
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    require("self_score", own, np.abs(own) <= 1, "in [-1, 1]")
    return rho, log_count("log_n", log_n), own, finite("bias", bias)


def _log_ratio(beta: ArrayLike, rho: ArrayLike, own: ArrayLike, bias: ArrayLike) -> NDArray[np.float64]:
    """Log of sp(beta (a - b))/sp(beta (rho - b))."""
    beta, rho, own, bias = (np.asarray(value, dtype=float) for value in (beta, rho, own, bias))
    return np.asarray(log_softplus(beta * (own - bias))) - log_softplus(beta * (rho - bias))


def _row(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, self_score: ArrayLike, bias: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log ratio of the self value to another, and log(n-1), broadcast."""
    gamma = finite("gamma", gamma)
    require("gamma", gamma, gamma >= 0, "at least 0")
    rho, log_n, own, bias = scores_checked(rho, log_n, self_score, bias)
    ratio, others = np.broadcast_arrays(_log_ratio(gamma * log_n, rho, own, bias), log_others(log_n))
    return ratio, others


def self_weight(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0
) -> Value:
    """Self weight A_ii = f/(f + (n-1) h), f = sp(beta (a - b)), h = sp(beta (rho - b)).

    Args:
        gamma: coefficient of log n in the steepness, >= 0; the published layer has log d.
        rho: score of each other key, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        self_score: score a of the token with itself, in [-1, 1].
        bias: b, in score units.

    Returns:
        The weight, in (0, 1]; 1 at n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [Gao 2025 for the layer; derived, docs/theory.md (11.1)].
    """
    ratio, others = _row(gamma, rho, log_n, self_score, bias)
    return as_value(special.expit(ratio - others))


def cross_weight(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0
) -> Value:
    """Weight A_ij = h/(f + (n-1) h) of each other token.

    Args, Raises: as for `self_weight`.

    Returns:
        The weight; NaN at n = 1, where there is no other token.

    Source: [derived, docs/theory.md (11.1)].
    """
    ratio, others = _row(gamma, rho, log_n, self_score, bias)
    known = np.isfinite(others)
    others = np.where(known, others, 0.0)
    return as_value(np.where(known, np.exp(special.log_expit(others - ratio) - others), np.nan))


def row_excess(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, self_score: ArrayLike, bias: ArrayLike
) -> NDArray[np.float64]:
    """Excess n A_ii - 1 of the self weight over the uniform weight, without cancellation.

    (n-1)(f - h)/(f + (n-1) h); infinite beyond the largest float.

    Args, Raises: as for `self_weight`.

    Source: [derived, docs/theory.md (11.2)].
    """
    ratio, others = _row(gamma, rho, log_n, self_score, bias)
    positive = ratio > 0
    with np.errstate(over="ignore", divide="ignore"):
        gain = np.log(-np.expm1(-np.where(positive, ratio, 1.0))) - np.logaddexp(-ratio, -others)
        above = np.exp(np.where(positive, gain, 0.0))
        below = np.expm1(np.minimum(ratio, 0.0)) / (1 + np.exp(np.minimum(ratio, 0.0) - others))
    return np.where(np.isfinite(others), np.where(positive, above, below), 0.0)


def entropy(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0
) -> Value:
    """Entropy h(A_ii) + (1 - A_ii) log(n-1) of a row, h being the binary entropy.

    Args, Raises: as for `self_weight`.

    Returns:
        The entropy in nats, in [0, log n].

    Source: [derived, docs/theory.md (11.7)].
    """
    ratio, others = _row(gamma, rho, log_n, self_score, bias)
    own, rest = special.expit(ratio - others), special.expit(others - ratio)
    return as_value(special.entr(own) + special.entr(rest) + rest * np.where(np.isfinite(others), others, 0.0))


def scaled_entropy_deficit(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0
) -> Value:
    """The deficit n (log n - H) of the entropy, without cancellation.

    (1+x) log(1+x) + (n-1-x) log(1 - x/(n-1)) with x = n A_ii - 1.

    Args, Raises: as for `self_weight`.

    Returns:
        The deficit in nats, >= 0: bounded in n where the row stays diffuse; infinite beyond the largest float.

    Source: [derived, docs/theory.md (11.7)].
    """
    x = row_excess(gamma, rho, log_n, self_score, bias)
    ratio, others = _row(gamma, rho, log_n, self_score, bias)
    known = np.isfinite(others) & np.isfinite(x)
    x, ratio, others = (np.where(known, value, fill) for value, fill in ((x, 0.0), (ratio, 0.0), (others, 0.0)))
    # the others' share in units of its uniform value is 1 - missing, or `share` where that cancels
    missing, share = x * np.exp(-others), special.expit(others - ratio) * (1 + np.exp(-others))
    small = np.clip(missing, -0.5, 0.5)
    slope = np.log1p(-small) / np.where(small == 0, -1.0, small)
    near = x * (1 - small) * np.where(small == 0, -1.0, slope)
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.exp(others) * special.xlogy(share, share)
    deficit = special.xlog1py(1 + x, x) + np.where(small == missing, near, far)
    alone = np.exp(-log_count("log_n", log_n)) == 1
    return as_value(np.where(known, deficit, np.where(alone, 0.0, np.inf)))


def scaled_self_weight_limit(rho: ArrayLike) -> Value:
    """Limit of n A_ii without bias as n goes to infinity: 1/rho for rho > 0, at every gamma > 0.

    Args:
        rho: score of each other key, in [-1, 1].

    Returns:
        The limit; infinite for rho <= 0.

    Raises:
        DomainError: outside [-1, 1].

    Source: [derived, docs/theory.md (11.3)].
    """
    rho = finite("rho", rho)
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    return as_value(np.where(rho > 0, 1 / np.where(rho > 0, rho, 1.0), np.inf))


def entropy_deficit_limit(rho: ArrayLike) -> Value:
    """Limit of n (log n - H) without bias: (1/rho) log(1/rho) - (1/rho - 1) for rho > 0.

    It needs n^(gamma rho) >> 1: at gamma = 1 and rho = .1 it is off by 30 % at n = 1e5.

    Args:
        rho: score of each other key, in [-1, 1].

    Returns:
        The limit in nats; infinite for rho <= 0.

    Raises:
        DomainError: outside [-1, 1].

    Source: [derived, docs/theory.md (11.7)].
    """
    inverse = np.asarray(scaled_self_weight_limit(rho))
    known = np.isfinite(inverse)
    inverse = np.where(known, inverse, 1.0)
    return as_value(np.where(known, special.xlogy(inverse, inverse) - (inverse - 1), np.inf))


def critical_gamma(rho: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0) -> Value:
    """Critical coefficient of log n as n goes to infinity: 1/(min(b, a) - rho).

    Args:
        rho: score of each other key, in [-1, 1].
        self_score: score a of the token with itself, in [-1, 1].
        bias: b, in score units.

    Returns:
        gamma; NaN for rho >= min(b, a), where no gamma localises.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (11.5), (11.6)].
    """
    rho, _, own, bias = scores_checked(rho, 0.0, self_score, bias)
    gap = np.minimum(own, bias) - rho
    return as_value(np.where(gap > 0, 1 / np.where(gap > 0, gap, 1.0), np.nan))


def self_weight_limit(gamma: ArrayLike, rho: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0) -> Value:
    """Self weight as n goes to infinity: 1 above `critical_gamma`, 0 below it and where there is none.

    Args:
        gamma: coefficient of log n in the steepness, >= 0.
        rho: score of each other key, in [-1, 1].
        self_score: score a of the token with itself, in [-1, 1].
        bias: b, in score units.

    Returns:
        The limit; at the critical gamma itself 1 for b < a, log 2/(1 + log 2) at b = a, 1/2 for b > a.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (11.3)-(11.6)].
    """
    gamma = finite("gamma", gamma)
    require("gamma", gamma, gamma >= 0, "at least 0")
    rho, _, own, bias = scores_checked(rho, 0.0, self_score, bias)
    power = gamma * np.maximum(np.minimum(own, bias) - rho, 0.0) - 1
    tied = np.where(bias < own, 1.0, np.where(bias == own, math.log(2) / (1 + math.log(2)), 0.5))
    return as_value(np.where(np.abs(power) < 1e-12, tied, np.where(power > 0, 1.0, 0.0)))


def half_weight_gamma_lambert(
    rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0
) -> Value:
    """Half-weight gamma with the other scores' exponential tail: W(n (b-rho)/(a-b))/((b-rho) log n).

    Args:
        rho: score of each other key, below the bias.
        log_n: natural logarithm of the number of tokens.
        self_score: score a of the token with itself, above the bias.
        bias: b, in score units.

    Returns:
        gamma; NaN outside rho < b < a or at n = 1.

    Raises:
        DomainError: for scores outside [-1, 1] or n < 1.

    Source: [derived, docs/theory.md (11.5)], heuristic: 1.6e-6 high at rho = -.3 and n = 1e6, 1.5e-2 at n = 100.
    """
    rho, log_n, own, bias = np.broadcast_arrays(*scores_checked(rho, log_n, self_score, bias))
    known = (rho < bias) & (bias < own) & (log_n > 0)
    below, above, size = np.where(known, bias - rho, 1), np.where(known, own - bias, 1), np.where(known, log_n, 1)
    # W(e^y) is the Wright omega function of y, which needs no e^y
    root = special.wrightomega(size + np.log(below / above)) / (below * size)
    return as_value(np.where(known, root, np.nan))


def half_weight_gamma(rho: ArrayLike, log_n: ArrayLike, *, self_score: ArrayLike = 1.0, bias: ArrayLike = 0.0) -> Value:
    """The gamma at which the self weight is 1/2: the root of sp(beta (a - b)) = (n-1) sp(beta (rho - b)).

    Args:
        rho: score of each other key, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        self_score: score a of the token with itself, in [-1, 1].
        bias: b, in score units.

    Returns:
        gamma; NaN where there is none: n = 1, a <= rho, and b < rho with n - 1 >= (a-b)/(rho-b). At rho = b it is
        of the order of n, and infinite beyond the largest float. 0 at n = 2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (11.3)-(11.6)], exact.
    """
    return as_value(elementwise(_half_weight_gamma, *scores_checked(rho, log_n, self_score, bias)))


def _half_weight_gamma(rho: float, log_n: float, own: float, bias: float) -> float:
    others = float(log_others(log_n))
    if abs(others) <= 1e-12 and own > rho:
        return 0.0
    if log_n <= 0 or own <= rho or others < 0:
        return math.nan
    if rho == bias:
        return _half_weight_at_bias(others) / ((own - bias) * log_n)
    if bias < rho and math.log((own - bias) / (rho - bias)) <= others:
        return math.nan

    def log_odds(log_beta: float) -> float:
        return float(_log_ratio(math.exp(log_beta), rho, own, bias)) - others

    low = high = math.log(others / (own - rho))
    while log_odds(low) > 0:
        low -= 1.0
    while log_odds(high) < 0:
        high += 1.0
        # below the bias a root is sure to come
        if high > 700 or (bias < rho and math.exp(high) * (rho - bias) > LINEAR_FROM):
            return math.inf if bias > rho else math.nan
    return math.exp(bracketed_root(log_odds, low, high, xtol=1e-15)) / log_n


def _half_weight_at_bias(others: float) -> float:
    """The argument z with sp(z) = (n-1) log 2."""
    if others > 709 - math.log(math.log(2)):
        return math.inf
    size = math.exp(others) * math.log(2)
    return size + math.log1p(-math.exp(-size))
