"""Sigmoid attention on the simplex: a window in gamma, or no transition at all.

Values are sigmoid(beta s + b) with beta = gamma log n and b = -B log n; B = 1 is the published bias, B = 0 none.
Unless said otherwise the weights are these values over their sum.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.theory.quadrature import bracketed_root, elementwise
from critattn.theory.simplex_state import Value, as_value, finite, log_count, log_others, require


class Window(NamedTuple):
    """An interval of gamma in which rows localise.

    Attributes:
        low: lower end; NaN where there is no window.
        high: upper end; infinite for rho <= 0.
    """

    low: Value
    high: Value


def self_weight(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, bias_factor: ArrayLike = 1.0) -> Value:
    """Self weight f/(f + (n-1) h), f = sigmoid((gamma - B) log n), h = sigmoid((gamma rho - B) log n).

    Args:
        gamma: coefficient of log n in the inverse temperature, >= 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        bias_factor: B.

    Returns:
        The weight, in (0, 1].

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.4)], exact.
    """
    gamma, rho, log_n, bias = _domain(gamma, rho, log_n, bias_factor)
    return as_value(special.expit(_log_odds(gamma, rho, log_n, bias)))


def raw_self_weight(gamma: ArrayLike, log_n: ArrayLike, *, bias_factor: ArrayLike = 1.0) -> Value:
    """Self weight 1/(1 + n^(B - gamma)) without normalisation: a transition at gamma = B.

    Args:
        gamma: coefficient of log n in the inverse temperature, >= 0.
        log_n: natural logarithm of the number of tokens n >= 1.
        bias_factor: B.

    Raises:
        DomainError: outside these ranges.

    Source: [Ramapuram 2024 for the layer; derived, docs/theory.md (13.5)], exact.
    """
    gamma, _, log_n, bias = _domain(gamma, 0.0, log_n, bias_factor)
    return as_value(special.expit((gamma - bias) * log_n))


def raw_row_mass(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, bias_factor: ArrayLike = 1.0) -> Value:
    """Sum of a row without normalisation, sigmoid((gamma-B) log n) + (n-1) sigmoid((gamma rho - B) log n).

    It grows as n^(1 + gamma rho - B) where that exponent is positive: the off-diagonal mass diverges.

    Args:
        gamma: coefficient of log n in the inverse temperature, >= 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        bias_factor: B.

    Returns:
        The mass; infinite beyond the largest float.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.5)], exact.
    """
    gamma, rho, log_n, bias = _domain(gamma, rho, log_n, bias_factor)
    with np.errstate(over="ignore"):
        rest = np.exp(log_others(log_n) + special.log_expit((gamma * rho - bias) * log_n))
    return as_value(special.expit((gamma - bias) * log_n) + rest)


def window(rho: ArrayLike, *, bias_factor: ArrayLike) -> Window:
    """The window 1/(1-rho) < gamma < (B-1)/rho of localisation as n goes to infinity.

    For rho > 0 it exists iff B > 1/(1-rho). For rho <= 0 it has no upper end; then its lower end is 1/(1-rho), or
    (1-B)/|rho| where B < 1/(1-rho) and rho < 0.

    Args:
        rho: common cosine, in [-1, 1].
        bias_factor: B.

    Returns:
        The ends; NaN where there is no window.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.4)].
    """
    _, rho, _, bias = (np.asarray(part) for part in np.broadcast_arrays(*_domain(0.0, rho, 1.0, bias_factor)))
    below = np.where(rho < 1, 1 - rho, 1.0)
    biased = (rho < 1) & (bias * below > 1)
    size = np.where(rho == 0, 1.0, np.abs(rho))
    low = np.where(biased, 1 / below, np.where(rho < 0, (1 - bias) / size, np.nan))
    high = np.where(rho > 0, np.where(biased, (bias - 1) / size, np.nan), np.where(np.isnan(low), np.nan, np.inf))
    return Window(as_value(low), as_value(high))


def half_weight_window(rho: ArrayLike, log_n: ArrayLike, *, bias_factor: ArrayLike) -> Window:
    """The two gammas at which the self weight is 1/2 in n tokens: above it between them.

    Args:
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.
        bias_factor: B.

    Returns:
        The ends; NaN where the weight stays below 1/2, or n <= 2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.4)], exact.
    """
    _, rho, log_n, bias = _domain(0.0, rho, log_n, bias_factor)
    low = elementwise(lambda *point: _half_weights(*point)[0], rho, log_n, bias)
    high = elementwise(lambda *point: _half_weights(*point)[1], rho, log_n, bias)
    return Window(as_value(low), as_value(high))


def self_weight_limit(gamma: ArrayLike, rho: ArrayLike, *, bias_factor: ArrayLike) -> Value:
    """Limit of the self weight as n goes to infinity: 1 inside of the `window`, 0 outside, between at its ends.

    Args:
        gamma: coefficient of log n in the inverse temperature, > 0.
        rho: common cosine, in [-1, 1].
        bias_factor: B.

    Returns:
        The limit, from the powers of n in f and (n-1) h: 1/2 where they are equal, as at rho = 0, B = 1 for every
        gamma > 1; 1/3 or 2/3 where one of the two sits at its own half point besides.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.4)].
    """
    gamma, rho, _, bias = _domain(gamma, rho, 1.0, bias_factor)
    require("gamma", gamma, gamma > 0, "positive")
    own, other = gamma - bias, gamma * rho - bias
    power = np.minimum(own, 0) - np.minimum(other, 0) - 1
    tied = np.where(own == 0, 0.5, 1.0) / (np.where(own == 0, 0.5, 1.0) + np.where(other == 0, 0.5, 1.0))
    return as_value(np.where(np.abs(power) < 1e-12, tied, np.where(power > 0, 1.0, 0.0)))


def _log_odds(
    gamma: NDArray[np.float64], rho: NDArray[np.float64], log_n: NDArray[np.float64], bias: NDArray[np.float64]
) -> NDArray[np.float64]:
    own, other = special.log_expit((gamma - bias) * log_n), special.log_expit((gamma * rho - bias) * log_n)
    return own - other - log_others(log_n)


def _half_weights(rho: float, log_n: float, bias: float) -> tuple[float, float]:
    others = float(log_others(log_n))
    if others <= 1e-12 or rho == 1:
        return math.nan, math.nan

    def excess(gamma: float) -> float:
        own, other = special.log_expit((gamma - bias) * log_n), special.log_expit((gamma * rho - bias) * log_n)
        return float(own - other) - others

    top = _steepest(rho, log_n, bias)
    if not excess(top) > 0:
        return math.nan, math.nan
    low = bracketed_root(excess, 0.0, top, xtol=1e-15)
    if rho <= 0:
        return low, math.inf
    high = 2 * top
    while excess(high) > 0:
        high *= 2
    return low, bracketed_root(excess, top, high, xtol=1e-15)


def _steepest(rho: float, log_n: float, bias: float) -> float:
    """A gamma with the largest log odds: they rise up to it and, for rho > 0, fall beyond."""
    if rho <= 0:
        # both sigmoids have saturated, or h falls as a power of n
        return (abs(bias) + 2 + 750 / log_n) * (1 if rho == 0 else 1 + 2 / abs(rho))

    def slope(gamma: float) -> float:
        own, other = special.log_expit((bias - gamma) * log_n), special.log_expit((bias - gamma * rho) * log_n)
        return float(own - other) - math.log(rho)

    high = 1.0
    while slope(high) > 0:
        high *= 2
    return bracketed_root(slope, 0.0, high, xtol=1e-15) if slope(0.0) > 0 else 0.0


def _domain(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, bias_factor: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    gamma, rho, bias = finite("gamma", gamma), finite("rho", rho), finite("bias_factor", bias_factor)
    require("gamma", gamma, gamma >= 0, "at least 0")
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    return gamma, rho, log_count("log_n", log_n), bias
