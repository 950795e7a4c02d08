"""Between geometry and random energies: a common cosine with independent Gaussian scores on top.

Scores are s_ii = 1 and s_ij = rho + tau g_ij with g_ij independent standard normal, beta = gamma log n.
Equation numbers refer to docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from critattn.theory.simplex_state import Value, as_value, finite, log_count, log_others, require


class TriplePoint(NamedTuple):
    """Where the uniform, the self-attending and the frozen phase meet.

    Attributes:
        tau: spread of the scores.
        gamma: coefficient of log n.
    """

    tau: Value
    gamma: Value


def reduced_disorder(tau: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Spread of the scores y = tau sqrt(2 log n)/(1-rho) in units of what the self score withstands.

    Args:
        tau: standard deviation of the scores >= 0.
        rho: mean score of two distinct tokens, in [-1, 1).
        log_n: natural logarithm of the number of tokens.

    Returns:
        y; the self-attending phase of the median row ends at y = 1 as n goes to infinity.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (9.1)].
    """
    tau, theta, log_n = _domain(tau, rho, log_n)
    return as_value(tau * np.sqrt(2 * log_n) / theta)


def critical_gamma(tau: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """The gamma 2/((1-rho)(1 + sqrt(1 - y^2))) at which the median row's self weight is 1/2.

    Heuristic (annealed): within .1 % of simulation for y < .8, 2 % and 5 % above it at y = .94 and .99.

    Args, Raises: as for `reduced_disorder`.

    Returns:
        The critical gamma; NaN for y > 1, where raising gamma never reaches 1/2.

    Source: [heuristic, docs/theory.md (9.1)].
    """
    tau, theta, log_n = _domain(tau, rho, log_n)
    radicand = 1 - 2 * log_n * (tau / theta) ** 2
    root = np.sqrt(np.where(radicand >= 0, radicand, np.nan))
    return as_value(2 / (theta * (1 + root)))


def crossing_probability(tau: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Probability Phi((1-rho)/tau)^(n-1) that a row's self score is its largest, so that it crosses 1/2 at all.

    Args, Raises: as for `reduced_disorder`.

    Returns:
        The probability, from logarithms: right at n = 10^300.

    Source: [derived, docs/theory.md (9.1)].
    """
    tau, theta, log_n = _domain(tau, rho, log_n)
    with np.errstate(divide="ignore"):
        log_tail = log_ndtr(-(theta / tau))
    tail = np.exp(log_tail)
    correction = np.where(tail > 1e-8, -np.log1p(-tail) / np.where(tail > 0, tail, 1.0), 1 + tail / 2)
    with np.errstate(over="ignore"):
        expected = np.exp(log_others(log_n) + log_tail) * correction
    return as_value(np.exp(-np.where(log_n > 0, expected, 0.0)))


def median_boundary(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Spread tau = (1-rho)/Phi^(-1)(2^(-1/(n-1))) up to which at least half of the rows cross 1/2.

    Args:
        rho: mean score of two distinct tokens, in [-1, 1).
        log_n: natural logarithm of the number of tokens.

    Returns:
        The spread; infinite for n <= 2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (9.1)].
    """
    _, theta, log_n = _domain(0.0, rho, log_n)
    others = log_others(log_n)
    with np.errstate(over="ignore", divide="ignore"):
        rate = math.log(2) * np.exp(-np.minimum(others, 700.0))
        log_tail = np.where(others < 30, np.log(-np.expm1(-rate)), math.log(math.log(2)) - others)
        quantile = -ndtri_exp(log_tail)
        return as_value(np.where(others > 0, theta / np.where(others > 0, quantile, 1.0), np.inf))


def freezing_beta(tau: ArrayLike, log_n: ArrayLike) -> Value:
    """Inverse temperature sqrt(2 log n)/tau at which a row freezes on random keys.

    Args:
        tau: standard deviation of the scores >= 0.
        log_n: natural logarithm of the number of tokens.

    Returns:
        The inverse temperature in nats per unit of score; infinite at tau = 0.

    Raises:
        DomainError: outside these ranges.

    Source: [heuristic, docs/theory.md (9.2)].
    """
    tau, _, log_n = _domain(tau, 0.0, log_n)
    return as_value(np.where(tau > 0, np.sqrt(2 * log_n) / np.where(tau > 0, tau, 1.0), np.inf))


def triple_point(rho: ArrayLike, log_n: ArrayLike) -> TriplePoint:
    """Point tau = (1-rho)/sqrt(2 log n), gamma = 2/(1-rho) where the three phases meet.

    Heuristic, leading order as n goes to infinity.

    Args:
        rho: mean score of two distinct tokens, in [-1, 1).
        log_n: natural logarithm of the number of tokens.

    Raises:
        DomainError: outside these ranges.

    Source: [heuristic, docs/theory.md (9.2)].
    """
    _, theta, log_n = _domain(0.0, rho, log_n)
    with np.errstate(divide="ignore"):
        return TriplePoint(as_value(theta / np.sqrt(2 * log_n)), as_value(2 / theta))


def _domain(
    tau: ArrayLike, rho: ArrayLike, log_n: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    tau, rho = finite("tau", tau), finite("rho", rho)
    require("tau", tau, tau >= 0, "at least 0")
    require("rho", rho, (rho >= -1) & (rho < 1), "in [-1, 1)")
    return tau, 1 - rho, log_count("log_n", log_n)
