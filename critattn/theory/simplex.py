"""Attention on a simplex of tokens, forward: exact at every n, from n = 2 to n = 10^300 and beyond.

Tokens of norm r with pairwise cosine rho are normalised, attend with inverse temperature beta = gamma log n
and are updated as x' = a x + b ATT, where a is `identity_weight` and b is `attention_weight`. Every function
broadcasts over its arguments and returns a float for scalars. Equation numbers refer to docs/theory.md.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.theory.simplex_backward import (
    critical_window_gradient_norm as critical_window_gradient_norm,
)
from critattn.theory.simplex_backward import gradient_norm as gradient_norm
from critattn.theory.simplex_backward import gradient_norm_limit as gradient_norm_limit
from critattn.theory.simplex_backward import gradient_norm_squared as gradient_norm_squared
from critattn.theory.simplex_backward import log_gradient_norm_squared as log_gradient_norm_squared
from critattn.theory.simplex_limits import angle_ratio_limit as angle_ratio_limit
from critattn.theory.simplex_limits import critical_gamma as critical_gamma
from critattn.theory.simplex_limits import (
    critical_window_output_cosine as critical_window_output_cosine,
)
from critattn.theory.simplex_limits import critical_window_self_weight as critical_window_self_weight
from critattn.theory.simplex_limits import entropy_fraction_limit as entropy_fraction_limit
from critattn.theory.simplex_limits import output_cosine_limit as output_cosine_limit
from critattn.theory.simplex_limits import self_weight_limit as self_weight_limit
from critattn.theory.simplex_limits import transition_width as transition_width
from critattn.theory.simplex_spectrum import SingularValue as SingularValue
from critattn.theory.simplex_spectrum import critical_operator_slope as critical_operator_slope
from critattn.theory.simplex_spectrum import operator_norm as operator_norm
from critattn.theory.simplex_spectrum import singular_values as singular_values
from critattn.theory.simplex_state import (
    SimplexState,
    Value,
    as_value,
    finite,
    log_others,
    mean_square,
    positive_norm,
    require_resolved,
    simplex_state,
    update_scales,
)


def self_weight(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Weight A_ii = 1/(1 + (n-1) n^(-gamma (1-rho))) that a token gives to itself.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens n >= 1.

    Returns:
        The weight, in (0, 1]; 1 at n = 1.

    Raises:
        DomainError: for rho outside [-1/(n-1), 1), n < 1 or an argument that is not finite.

    Source: [Chen 2025, proof of Thm 2.1; derived, docs/theory.md (1.1)].
    """
    return as_value(simplex_state(gamma, rho, log_n).own)


def cross_weight(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Weight A_ij = (1 - A_ii)/(n-1) that a token gives to each other token.

    Args, Raises: as for `self_weight`.

    Returns:
        The weight; NaN at n = 1, where there is no other token.

    Source: [derived, docs/theory.md (1.1)].
    """
    state = simplex_state(gamma, rho, log_n)
    return as_value(np.where(state.log_n > 0, state.cross, np.nan))


def contrast(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Eigenvalue delta = A_ii - A_ij of the weights on zero-sum vectors; the other eigenvalue is 1.

    Args, Raises: as for `self_weight`.

    Returns:
        delta, in [-1/(n-1), 1).

    Source: [derived, docs/theory.md (1.2)].
    """
    return as_value(simplex_state(gamma, rho, log_n).contrast)


def entropy(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Entropy h(A_ii) + (1 - A_ii) log(n-1) of a row of weights, h being the binary entropy.

    Args, Raises: as for `self_weight`.

    Returns:
        The entropy in nats, in [0, log n].

    Source: [derived, docs/theory.md (1.13)].
    """
    return as_value(simplex_state(gamma, rho, log_n).entropy)


def participation_ratio(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Effective number 1/sum_j A_ij^2 of tokens that a row attends to.

    Args, Raises: as for `self_weight`.

    Returns:
        The number, in [1, n]; infinite beyond the largest float.

    Source: [derived, docs/theory.md (1.13)].
    """
    with np.errstate(divide="ignore", over="ignore"):
        return as_value(1 / simplex_state(gamma, rho, log_n).sum_of_squares)


def angle_ratio(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Ratio lambda = (1 - cos')/(1 - cos) of a pair after and before the layer.

    lambda = e^2/(mu kappa^2 + (1-mu) e^2) with e = a r + b delta, kappa = a r + b, mu = rho + (1-rho)/n.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        The ratio, the same for every pair; NaN at n = 1 and where the output vanishes.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (1.5)].
    """
    state = simplex_state(gamma, rho, log_n)
    return as_value(_angle_ratio(state, *update_scales(state, identity_weight, attention_weight, norm)))


def output_cosine(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Cosine 1 - (1-rho) lambda of two output tokens.

    Args, Raises: as for `angle_ratio`.

    Returns:
        The cosine; NaN at n = 1 and where the output vanishes.

    Source: [Chen 2025, proof of Thm 2.1; derived, docs/theory.md (1.5)].
    """
    state = simplex_state(gamma, rho, log_n)
    scales = update_scales(state, identity_weight, attention_weight, norm)
    return as_value(1 - state.theta * _angle_ratio(state, *scales))


def output_norm(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """Norm sqrt((1-mu) e^2 + mu kappa^2) of an output token.

    Args, Raises: as for `angle_ratio`.

    Returns:
        The norm, in the unit of the input norm.

    Source: [derived, docs/theory.md (1.4)].
    """
    state = simplex_state(gamma, rho, log_n)
    e, kappa = update_scales(state, identity_weight, attention_weight, norm)
    zero_sum_share = -state.theta * np.expm1(-state.log_n)
    return as_value(np.hypot(np.sqrt(zero_sum_share) * e, np.sqrt(state.mu) * kappa))


def half_weight_gamma(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """The gamma log(n-1)/((1-rho) log n) at which the self weight is exactly 1/2.

    Args:
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens.

    Returns:
        The critical gamma of a system of n tokens; NaN at n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (1.7)].
    """
    mean_square(rho, log_n)
    log_n = np.asarray(log_n, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = log_others(log_n) / ((1 - np.asarray(rho, dtype=float)) * log_n)
    return as_value(np.where(log_n > 0, root, np.nan))


def half_angle_gamma(
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """The smallest gamma >= 0 at which the angle ratio crosses 1/2.

    lambda = 1/2 means e = +-kappa sqrt(mu/(1+mu)), hence delta and t = (1-delta)/(1+(n-1) delta), and
    gamma = -log t/((1-rho) log n). The closed form holds with and without residual.

    Args:
        rho: common cosine of two tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: token norm r > 0.

    Returns:
        The gamma; NaN where the ratio never crosses 1/2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (1.8)].
    """
    mu = mean_square(rho, log_n)
    require_resolved(mu, log_n)
    theta, log_n = 1 - np.asarray(rho, dtype=float), np.asarray(log_n, dtype=float)
    kept = finite("identity_weight", identity_weight) * positive_norm(norm)
    added = finite("attention_weight", attention_weight)
    target = np.abs(kept + added) * np.sqrt(mu / (1 + mu))
    roots = []
    with np.errstate(all="ignore"):
        for sign in (1, -1):
            steepness = _steepness((sign * target - kept) / added, log_n) / (theta * log_n)
            roots.append(np.where((mu > 0) & (log_n > 0) & (target > 0), steepness, np.nan))
        return as_value(np.fmin(*roots))


def half_angle_residual(
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
) -> Value:
    """The angle ratio at `half_angle_gamma`, less 1/2: round-off where that is a root.

    Args, Raises: as for `half_angle_gamma`.

    Returns:
        The residual; NaN where there is no root.

    Source: [derived, docs/theory.md (1.8)].
    """
    update = {"identity_weight": identity_weight, "attention_weight": attention_weight, "norm": norm}
    root = np.asarray(half_angle_gamma(rho, log_n, **update))
    ratio = np.asarray(angle_ratio(np.where(np.isnan(root), 0.0, root), rho, log_n, **update))
    return as_value(np.where(np.isnan(root), np.nan, ratio - 0.5))


def _angle_ratio(state: SimplexState, e: NDArray[np.float64], kappa: NDArray[np.float64]) -> NDArray[np.float64]:
    zero_sum_share = -state.theta * np.expm1(-state.log_n)
    # scaled by sqrt(mu) before squaring: e may be 1e-300 where mu is too
    with np.errstate(all="ignore"):
        ratio = 1 / (zero_sum_share + (np.sqrt(state.mu) * (kappa / e)) ** 2)
    return np.where(state.log_n > 0, ratio, np.nan)


def _steepness(delta: NDArray[np.float64], log_n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Beta (1-rho) at which the contrast is delta, for delta in [0, 1); NaN elsewhere."""
    log_t = np.log1p(-delta) - np.logaddexp(0.0, log_others(log_n) + np.log(delta))
    return np.where((delta >= 0) & (delta < 1), -log_t, np.nan)
