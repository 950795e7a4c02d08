"""Attention on a simplex of tokens as n goes to infinity: the three phases and the critical window.

Equation numbers refer to docs/theory.md. The limits need rho >= 0, since rho >= -1/(n-1) at every n.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from critattn.theory.simplex_state import (
    Value,
    as_value,
    finite,
    log_count,
    mean_square,
    positive_norm,
    require,
)


def critical_gamma(rho: ArrayLike) -> Value:
    """Critical coefficient 1/(1-rho) of log n.

    Args:
        rho: common cosine of two tokens, in [-1, 1).

    Returns:
        The gamma that separates the uniform from the self-attending phase as n goes to infinity.

    Raises:
        DomainError: for rho outside [-1, 1).

    Source: [Chen 2025, Thm 2.1].
    """
    rho = finite("rho", rho)
    require("rho", rho, (rho >= -1) & (rho < 1), "in [-1, 1)")
    return as_value(1 / (1 - rho))


def transition_width(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Distance 2 log 9/((1-rho) log n) in gamma between self weights of 10 % and 90 %, exact at every n.

    Args:
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens.

    Returns:
        The width in gamma; NaN at n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (1.12)].
    """
    mean_square(rho, log_n)
    log_n = np.asarray(log_n, dtype=float)
    with np.errstate(divide="ignore"):
        width = 2 * math.log(9) / ((1 - np.asarray(rho, dtype=float)) * log_n)
    return as_value(np.where(log_n > 0, width, np.nan))


def self_weight_limit(gamma: ArrayLike, rho: ArrayLike) -> Value:
    """Self weight as n goes to infinity: 0, 1/2 or 1 below, at and above gamma = 1/(1-rho).

    Args:
        gamma: coefficient of log n; it counts as critical within 4 roundings of 1/(1-rho).
        rho: common cosine of two tokens, in [0, 1).

    Returns:
        The limit.

    Raises:
        DomainError: for rho outside [0, 1).

    Source: [Chen 2025, Thm 2.1; derived, docs/theory.md (1.6)].
    """
    return as_value(_step(finite("gamma", gamma) * (1 - _nonnegative(rho))))


def entropy_fraction_limit(gamma: ArrayLike, rho: ArrayLike) -> Value:
    """Limit 1, 1/2 or 0 of the row entropy over log n.

    Args, Raises: as for `self_weight_limit`.

    Returns:
        The limit.

    Source: [derived, docs/theory.md (1.13)].
    """
    return as_value(1 - _step(finite("gamma", gamma) * (1 - _nonnegative(rho))))


def angle_ratio_limit(
    gamma: ArrayLike,
    rho: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Angle ratio as n goes to infinity: e^2/(rho kappa^2 + (1-rho) e^2) with e = a r + b (0, 1/2 or 1).

    Without residual these are 0, 1/(1+3 rho) and 1. At rho = 0 without residual the mean token is as short
    as the contrast, and the step sits at gamma = 1/2 (ratio 1/2 there).

    Args:
        gamma: coefficient of log n; it counts as critical within 4 roundings of 1/(1-rho).
        rho: common cosine of two tokens, in [0, 1).
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        The limit; NaN where the output vanishes.

    Raises:
        DomainError: outside these ranges.

    Source: [Chen 2025, Thm 2.1 without residual; derived, docs/theory.md (1.6), (1.9)-(1.11)].
    """
    gamma, rho = finite("gamma", gamma), _nonnegative(rho)
    kept = finite("identity_weight", identity_weight) * positive_norm(norm)
    added = finite("attention_weight", attention_weight)
    ratio = _ratio(kept + added * _step(gamma * (1 - rho)), kept + added, rho)
    return as_value(np.where((rho == 0) & (kept == 0) & (added != 0), _step(2 * gamma), ratio))


def output_cosine_limit(
    gamma: ArrayLike,
    rho: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Output cosine as n goes to infinity: without residual 1, 4 rho/(1+3 rho) and rho.

    Args, Raises: as for `angle_ratio_limit`.

    Returns:
        The limit; NaN where the output vanishes.

    Source: [Chen 2025, Thm 2.1; with residual derived, docs/theory.md (1.9)-(1.11)].
    """
    ratio = angle_ratio_limit(gamma, rho, identity_weight=identity_weight, attention_weight=attention_weight, norm=norm)
    return as_value(1 - (1 - np.asarray(rho, dtype=float)) * ratio)


def critical_window_self_weight(c: ArrayLike, rho: ArrayLike) -> Value:
    """Self weight sigmoid(c (1-rho)) at gamma = 1/(1-rho) + c/log n, up to O(1/n).

    Args:
        c: position in the window, (gamma - 1/(1-rho)) log n.
        rho: common cosine of two tokens, in [0, 1).

    Returns:
        The weight.

    Raises:
        DomainError: for rho outside [0, 1).

    Source: [derived, docs/theory.md (1.12)].
    """
    return as_value(expit(finite("c", c) * (1 - _nonnegative(rho))))


def critical_window_output_cosine(c: ArrayLike, rho: ArrayLike) -> Value:
    """Output cosine 1 - (1-rho) s^2/(rho + (1-rho) s^2) in the critical window, s being the self weight there.

    Args, Raises: as for `critical_window_self_weight`.

    Returns:
        The cosine without residual, up to O(1/n); at rho = 0 the pairs are left as they are (cosine 0).

    Source: [derived, docs/theory.md (1.12)].
    """
    rho = _nonnegative(rho)
    return as_value(1 - (1 - rho) * _ratio(critical_window_self_weight(c, rho), np.ones(()), rho))


def phase_step(gamma: ArrayLike, rho: ArrayLike, log_d: ArrayLike) -> tuple[Value, Value]:
    """Limit of the self weight and the factor 1 - 1/d, for the gradient limits of (2.3).

    Args:
        gamma: coefficient of log n.
        rho: common cosine of two tokens, in [0, 1).
        log_d: natural logarithm of the dimension; infinity where d grows with n.

    Raises:
        DomainError: outside these ranges.
    """
    log_d = np.asarray(log_d, dtype=float)
    log_count("log_d", np.where(np.isposinf(log_d), 0.0, log_d))
    return self_weight_limit(gamma, rho), -np.expm1(-log_d)


def _nonnegative(rho: ArrayLike) -> NDArray[np.float64]:
    rho = finite("rho", rho)
    require("rho", rho, (rho >= 0) & (rho < 1), "in [0, 1) as n goes to infinity")
    return rho


def _step(reduced: NDArray[np.float64]) -> NDArray[np.float64]:
    critical = np.abs(reduced - 1) <= 4 * np.finfo(float).eps
    return np.where(critical, 0.5, np.where(reduced > 1, 1.0, 0.0))


def _ratio(e: ArrayLike, kappa: ArrayLike, rho: NDArray[np.float64]) -> NDArray[np.float64]:
    e, kappa = np.asarray(e, dtype=float), np.asarray(kappa, dtype=float)
    with np.errstate(invalid="ignore"):
        return e**2 / (rho * kappa**2 + (1 - rho) * e**2)
