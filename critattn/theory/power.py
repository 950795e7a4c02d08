"""Powers of scores over their sum on the simplex: the exponent is the control parameter and must grow with log n."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.theory.simplex_state import Value, as_value, finite, log_count, log_others, require
from critattn.theory.softplus import log_softplus


def self_weight(p: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, threshold: ArrayLike = 0.0) -> Value:
    """Self weight of max(s - t, 0)^p over its sum: 1/(1 + (n-1) r^p), r = (rho - t)_+/(1 - t).

    Any inverse temperature cancels.

    Args:
        p: exponent, > 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        threshold: t, below 1.

    Returns:
        The weight; 1 for rho <= t, where every other key is dropped.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.1)], exact.
    """
    p = _positive("p", p)
    log_ratio, others = _log_ratio(rho, log_n, threshold)
    return as_value(special.expit(-p * log_ratio - others))


def critical_p(rho: ArrayLike, log_n: ArrayLike, *, threshold: ArrayLike = 0.0) -> Value:
    """The p at which the self weight is 1/2: log(n-1)/log((1-t)/(rho-t)).

    Args:
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        threshold: t, below 1.

    Returns:
        p; NaN where there is none: for rho <= t every p gives the identity, for rho = 1 none does; NaN at n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.1)], exact.
    """
    log_ratio, others = _log_ratio(rho, log_n, threshold)
    known = np.isfinite(log_ratio) & (log_ratio < 0) & np.isfinite(others)
    return as_value(np.where(known, np.where(known, others, 0.0) / np.where(known, -log_ratio, 1.0), np.nan))


def self_weight_limit(reduced_p: ArrayLike) -> Value:
    """Limit of the self weight at p = reduced_p log n/log((1-t)/(rho-t)): 0 below 1, 1/2 at 1, 1 above.

    Args:
        reduced_p: p in units of its critical value as n goes to infinity, > 0.

    Raises:
        DomainError: where it is not positive.

    Source: [derived, docs/theory.md (13.1)].
    """
    reduced_p = _positive("reduced_p", reduced_p)
    return as_value((1 + np.sign(reduced_p - 1)) / 2)


def softplus_critical_p(beta: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Critical p of sp(beta s)^p: log(n-1)/log(sp(beta)/sp(beta rho)), log(n-1)/log(1/rho) for beta -> infinity.

    Args:
        beta: steepness in nats per unit of score, > 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.

    Returns:
        p; NaN at rho = 1 or n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.1)], exact.
    """
    beta, rho = _positive("beta", beta), _cosine(rho)
    log_n = log_count("log_n", log_n)
    gap = np.asarray(log_softplus(beta)) - log_softplus(beta * rho)
    known = (gap > 0) & (log_n > 0)
    others = log_others(np.where(log_n > 0, log_n, 1.0))
    return as_value(np.where(known, others / np.where(known, gap, 1.0), np.nan))


def rectified_self_weight(beta: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, p: ArrayLike, tau: ArrayLike) -> Value:
    """Self weight of ReLU^p(beta s - tau) over its sum; a row without mass (beta <= tau) is uniform.

    Args:
        beta: inverse temperature in nats per unit of score, >= 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        p: exponent, > 0.
        tau: threshold in nats, > 0.

    Returns:
        The weight: 1 for tau < beta <= tau/rho, falling beyond.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.2)], exact.
    """
    beta, rho, p, tau = finite("beta", beta), _cosine(rho), _positive("p", p), _positive("tau", tau)
    require("beta", beta, beta >= 0, "at least 0")
    log_n = log_count("log_n", log_n)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = p * (np.log(np.maximum(beta - tau, 0)) - np.log(np.maximum(beta * rho - tau, 0))) - log_others(log_n)
    return as_value(np.where(beta > tau, special.expit(odds), np.exp(-log_n)))


def rectified_critical_beta(rho: ArrayLike, log_n: ArrayLike, *, p: ArrayLike, tau: ArrayLike) -> Value:
    """The beta tau (n'-1)/(rho n' - 1), n' = (n-1)^(1/p), at which ReLU^p(beta s - tau) falls to half weight.

    The direction is reversed: identity below, diffuse above.

    Args:
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        p: exponent, > 0.
        tau: threshold in nats, > 0.

    Returns:
        beta; NaN for p >= log(n-1)/log(1/rho) or rho <= 0, where every beta > tau localises, and at rho = 1 or n <= 2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.2)], exact.
    """
    rho, p, tau = _cosine(rho), _positive("p", p), _positive("tau", tau)
    log_n = log_count("log_n", log_n)
    inverse = np.exp(-np.maximum(log_others(np.where(log_n > 0, log_n, 1.0)), 0.0) / p)
    known = (rho > inverse) & (rho < 1) & (log_n > 0) & (inverse < 1)
    return as_value(np.where(known, tau * (1 - inverse) / np.where(known, rho - inverse, 1.0), np.nan))


def _cosine(rho: ArrayLike) -> NDArray[np.float64]:
    rho = finite("rho", rho)
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    return rho


def _positive(name: str, value: ArrayLike) -> NDArray[np.float64]:
    value = finite(name, value)
    require(name, value, value > 0, "positive")
    return value


def _log_ratio(
    rho: ArrayLike, log_n: ArrayLike, threshold: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log of (rho - t)_+/(1 - t), and log(n-1), broadcast."""
    rho, threshold = _cosine(rho), finite("threshold", threshold)
    require("threshold", threshold, threshold < 1, "below 1")
    with np.errstate(divide="ignore"):
        log_ratio = np.log(np.maximum(rho - threshold, 0.0)) - np.log1p(-threshold)
    log_ratio, others = np.broadcast_arrays(np.where(rho == 1, 0.0, log_ratio), log_others(log_count("log_n", log_n)))
    return log_ratio, others
