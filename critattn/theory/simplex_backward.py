"""The Jacobian of attention on a simplex of tokens: its mean square, exact at every n and d.

Equation numbers refer to docs/theory.md. Nothing here forms n or d, so n = 10^300 is an ordinary input; a
dimension below n, which no simplex has, gives the formal value.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.theory.simplex_limits import critical_window_self_weight, phase_step
from critattn.theory.simplex_state import (
    SimplexState,
    Value,
    as_value,
    finite,
    log_count,
    positive_norm,
    simplex_state,
)


def gradient_norm(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    log_d: ArrayLike,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Mean square eta = ||grad_X X'||_F^2/(n d) of the Jacobian of x' = a x + b ATT.

    eta = (b/r)^2 R/d + a^2 + (2ab/r) [A_ii (1-1/d) + beta tr(CP)/d], R as in (2.1).

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens.
        log_d: natural logarithm of the dimension; d >= n for real tokens, any d >= 1 formally.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        eta, in units of 1/(length of x)^2 per (length of x')^2; finite wherever the arguments are.

    Raises:
        DomainError: outside these ranges.

    Source: [Chen 2025, Thm 2.4 for the limits; derived, docs/theory.md (2.1)].
    """
    state = simplex_state(gamma, rho, log_n)
    inverse_d = np.exp(-log_count("log_d", log_d))
    kept = finite("identity_weight", identity_weight)
    added = finite("attention_weight", attention_weight) / positive_norm(norm)
    trace = query_trace(state)
    square = (1 - inverse_d) * state.sum_of_squares + inverse_d * _bounded_terms(state, trace)
    cross = (1 - inverse_d) * state.own + inverse_d * state.beta * trace
    return as_value(added**2 * square + kept**2 + 2 * kept * added * cross)


def log_gradient_norm_squared(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    log_d: ArrayLike,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Natural logarithm of ||grad_X X'||_F^2, for n d beyond the largest float.

    Args, Raises: as for `gradient_norm`.

    Returns:
        The logarithm.

    Source: [derived, docs/theory.md (2.1)].
    """
    update = {"identity_weight": identity_weight, "attention_weight": attention_weight, "norm": norm}
    mean = gradient_norm(gamma, rho, log_n, log_d=log_d, **update)
    with np.errstate(divide="ignore"):
        return as_value(np.log(mean) + np.asarray(log_n, dtype=float) + np.asarray(log_d, dtype=float))


def gradient_norm_squared(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    log_d: ArrayLike,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Sum of squares ||grad_X X'||_F^2 of the n d x n d Jacobian.

    Args, Raises: as for `gradient_norm`.

    Returns:
        The sum; infinity where it exceeds the largest float (`log_gradient_norm_squared` has it there).

    Source: [derived, docs/theory.md (2.1)].
    """
    update = {"identity_weight": identity_weight, "attention_weight": attention_weight, "norm": norm}
    mean = gradient_norm(gamma, rho, log_n, log_d=log_d, **update)
    with np.errstate(over="ignore"):
        return as_value(np.exp(np.asarray(log_n, dtype=float) + np.asarray(log_d, dtype=float)) * mean)


def gradient_norm_limit(
    gamma: ArrayLike,
    rho: ArrayLike,
    *,
    log_d: ArrayLike = math.inf,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Mean square a^2 + (1-1/d) (2 a b s/r + b^2 s^2/r^2) of the Jacobian as n goes to infinity, s = 0, 1/2, 1.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two tokens, in [0, 1).
        log_d: natural logarithm of the dimension; infinite by default, since d >= n.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        The limit; at the critical point it is approached as log(n)^2/n.

    Raises:
        DomainError: outside these ranges.

    Source: [Chen 2025, Thm 2.4; with residual derived, docs/theory.md (2.3)].
    """
    own, factor = phase_step(gamma, rho, log_d)
    kept = finite("identity_weight", identity_weight)
    attended = finite("attention_weight", attention_weight) / positive_norm(norm) * own
    return as_value(kept**2 + factor * (2 * kept * attended + attended**2))


def critical_window_gradient_norm(c: ArrayLike, rho: ArrayLike, *, norm: ArrayLike = 1.0) -> Value:
    """Mean square sigmoid(c (1-rho))^2/r^2 of the Jacobian at gamma = 1/(1-rho) + c/log n, without residual.

    Args:
        c: position in the window, (gamma - 1/(1-rho)) log n.
        rho: common cosine of two tokens, in [0, 1).
        norm: token norm r > 0.

    Returns:
        The limit for d >= n, up to O(log(n)^2/n).

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (2.2)].
    """
    return as_value((np.asarray(critical_window_self_weight(c, rho)) / positive_norm(norm)) ** 2)


def query_trace(state: SimplexState) -> NDArray[np.float64]:
    """Trace tr(C_i P_i) = theta (1-A_ii) (1 + rho A_ii - A_ij) of the weights' covariance off the query."""
    return state.theta * state.rest * (1 + state.rho * state.own - state.cross)


def query_square(state: SimplexState) -> NDArray[np.float64]:
    """Squared norm ||C_i P_i||_F^2, with the cancelling powers of A_ii multiplied out."""
    s, q, w = state.own, state.rest, state.cross
    spread = 1 + (1 + state.rho) * s**2 - 2 * w + q * w
    return state.theta**2 * (state.rho * (s * q) ** 2 + q * w * spread)


def _bounded_terms(state: SimplexState, trace: NDArray[np.float64]) -> NDArray[np.float64]:
    """What R holds beside (d-1) sum_j A_ij^2: query terms, and key terms of the other tokens."""
    s, q, w, beta, theta = state.own, state.rest, state.cross, state.beta, state.theta
    sine_square = theta * (1 + state.rho)
    alignment = state.contrast * sine_square + (1 - state.contrast) * state.mu * theta
    key = beta**2 * theta * sine_square * (1 - 2 * w + state.sum_of_squares) - 2 * beta * alignment
    return 2 * beta * s * trace + beta**2 * query_square(state) + q * w * key
