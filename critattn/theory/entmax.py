"""Alpha-entmax attention on the simplex: a transition at an inverse temperature of order 1, then exact identity.

Weights are A_j = [(alpha-1) beta s_j - tau]_+^(1/(alpha-1)). alpha = 1 is softmax, alpha = 2 sparsemax.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.theory.quadrature import bracketed_root, elementwise
from critattn.theory.simplex_state import Value, as_value, finite, log_count, log_others, require


def beta_of_self_weight(weight: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, alpha: ArrayLike) -> Value:
    """The beta at which the self weight is x: [x^(alpha-1) - ((1-x)/(n-1))^(alpha-1)]/((alpha-1)(1-rho)).

    Args:
        weight: x, in [1/n, 1].
        rho: common cosine, in [-1, 1).
        log_n: natural logarithm of the number of tokens n >= 2.
        alpha: entmax parameter, >= 1; the limit log(x (n-1)/(1-x))/(1-rho) at 1.

    Returns:
        beta in nats per unit of score; at x = 1 the `identity_beta`.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.3)], exact.
    """
    rho, others, power = _domain(rho, log_n, alpha)
    weight = finite("weight", weight)
    require("weight", weight, (weight > 0) & (weight <= 1), "in [1/n, 1]")
    with np.errstate(divide="ignore"):
        log_own, log_other = np.log(weight), np.log1p(-weight) - others
    require("weight", weight, log_own - log_other >= -1e-9, "in [1/n, 1]")
    return as_value(_power_gap(log_own, log_other, power) / (1 - rho))


def half_weight_beta(rho: ArrayLike, log_n: ArrayLike, *, alpha: ArrayLike) -> Value:
    """The beta at which the self weight is 1/2: (2^(1-alpha) - (2(n-1))^(1-alpha))/((alpha-1)(1-rho)).

    Args:
        rho: common cosine, in [-1, 1).
        log_n: natural logarithm of the number of tokens n >= 2.
        alpha: entmax parameter, >= 1.

    Returns:
        beta in nats per unit of score, bounded in n for alpha > 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.3)], exact.
    """
    rho, others, power = _domain(rho, log_n, alpha)
    half = np.full(np.broadcast_shapes(rho.shape, others.shape, power.shape), math.log(0.5))
    return as_value(_power_gap(half, half - others, power) / (1 - rho))


def identity_beta(rho: ArrayLike, *, alpha: ArrayLike) -> Value:
    """The beta 1/((alpha-1)(1-rho)) from which on the weights are exactly the identity, at every n.

    Args:
        rho: common cosine, in [-1, 1).
        alpha: entmax parameter, >= 1.

    Returns:
        beta in nats per unit of score; infinite at alpha = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.3)], exact.
    """
    rho, _, power = _domain(rho, 1.0, alpha)
    with np.errstate(divide="ignore"):
        return as_value(1 / (power * (1 - rho)))


def self_weight(beta: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, alpha: ArrayLike) -> Value:
    """Self weight on the simplex, the inverse of `beta_of_self_weight`; 1 from `identity_beta` on.

    Args:
        beta: inverse temperature in nats per unit of score, >= 0.
        rho: common cosine, in [-1, 1).
        log_n: natural logarithm of the number of tokens n >= 2.
        alpha: entmax parameter, >= 1.

    Returns:
        The weight, in [1/n, 1].

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.3)], exact.
    """
    rho, others, power = _domain(rho, log_n, alpha)
    beta = finite("beta", beta)
    require("beta", beta, beta >= 0, "at least 0")
    return as_value(elementwise(_self_weight, beta * (1 - rho), others, power))


def self_weight_limit(beta: ArrayLike, rho: ArrayLike, *, alpha: ArrayLike) -> Value:
    """Limit ((alpha-1) beta (1-rho))^(1/(alpha-1)) of the self weight as n goes to infinity, at most 1.

    Args:
        beta: inverse temperature in nats per unit of score, >= 0.
        rho: common cosine, in [-1, 1).
        alpha: entmax parameter, >= 1; the limit is 0 at 1, where beta must grow with log n.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.3)].
    """
    rho, _, power = _domain(rho, 1.0, alpha)
    beta = finite("beta", beta)
    require("beta", beta, beta >= 0, "at least 0")
    with np.errstate(divide="ignore"):
        exponent = np.minimum(np.log(power * beta * (1 - rho)), 0.0) / np.where(power > 0, power, 1.0)
    return as_value(np.exp(exponent))


def _power_gap(log_x: NDArray[np.float64], log_y: NDArray[np.float64], power: NDArray[np.float64]) -> np.ndarray:
    """(x^a - y^a)/a for x >= y, and log(x/y) at a = 0."""
    positive = power > 0
    a = np.where(positive, power, 1.0)
    with np.errstate(invalid="ignore"):
        gap = np.exp(a * log_x) * -np.expm1(a * (log_y - log_x)) / a
        return np.where(positive, gap, log_x - log_y)


def _self_weight(reduced: float, others: float, power: float) -> float:
    if power == 0:
        return float(special.expit(reduced - others))
    if power * reduced >= 1:
        return 1.0

    def excess(logit: float) -> float:
        own, other = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit) - others
        return float(_power_gap(own, other, np.asarray(power))) - reduced

    # at the uniform weight the gap is 0; log odds beyond 40 round to 1
    if excess(-others) >= 0:
        return float(special.expit(-others))
    high = 40.0 + 40.0 / min(power, 1.0)
    return float(special.expit(bracketed_root(excess, -others, high, xtol=1e-14))) if excess(high) > 0 else 1.0


def _domain(
    rho: ArrayLike, log_n: ArrayLike, alpha: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rho, log_n, alpha = finite("rho", rho), log_count("log_n", log_n), finite("alpha", alpha)
    require("rho", rho, (rho >= -1) & (rho < 1), "in [-1, 1)")
    require("log_n", log_n, log_n >= math.log(2) * (1 - 1e-12), "at least log 2 (n >= 2)")
    require("alpha", alpha, alpha >= 1, "at least 1")
    return rho, np.maximum(log_others(log_n), 0.0), alpha - 1
