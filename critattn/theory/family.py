"""The family of normalisers on the simplex: which of them has a transition, in which variable, and where.

Half weight means phi(beta)/phi(beta rho) = n - 1 for weights phi(beta s)/sum phi(beta s). With phi = exp(psi) the
control parameter must grow with log n iff psi(beta) - psi(beta rho) is proportional to it; where that difference is
bounded there is no transition. NaN stands for "none" in every half-weight function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from critattn.theory import entmax, power, relu_power, sigmoid, simplex, softplus
from critattn.theory.simplex_state import Value, as_value, finite, log_count, require


@dataclass(frozen=True)
class Member:
    """One normaliser of the family.

    Attributes:
        control: its control parameter.
        scale: how the control parameter must grow with n at the transition: `log n`, `1`, or `none`.
        self_weight: self weight on the simplex, of the control parameter, rho and log n.
        half_weight: the control parameter of self weight 1/2, of rho and log n; NaN where there is none.
        limit: self weight as n goes to infinity, of the control parameter (of p/log n for `power`) and rho.
    """

    control: str
    scale: str
    self_weight: Callable[..., Value]
    half_weight: Callable[..., Value]
    limit: Callable[..., Value]


def relu_self_weight(beta: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Self weight of max(beta s, 0) over its sum: 1/(1 + (n-1) rho_+), the same at every beta > 0.

    Division by n, as published, cancels in the sum. At beta = 0 the row has no mass and counts as uniform.

    Args:
        beta: inverse temperature in nats per unit of score, >= 0.
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.

    Raises:
        DomainError: outside these ranges.

    Source: [Wortsman 2023 for the layer; derived, docs/theory.md (13.6)], exact.
    """
    beta = finite("beta", beta)
    require("beta", beta, beta >= 0, "at least 0")
    weight = power.self_weight(1.0, rho, log_n)
    return as_value(np.where(beta > 0, weight, np.exp(-np.asarray(log_n, dtype=float))))


def hardmax_self_weight(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Self weight of the hard maximum: 1 for rho < 1, and 1/n at rho = 1, where all n keys share it.

    Args:
        rho: common cosine, in [-1, 1].
        log_n: natural logarithm of the number of tokens n >= 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (13.6)], exact.
    """
    rho, log_n = finite("rho", rho), log_count("log_n", log_n)
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    return as_value(np.where(rho < 1, 1.0, np.exp(-log_n)))


def no_half_weight(rho: ArrayLike, log_n: ArrayLike) -> Value:
    """NaN, of the broadcast shape: no value of the control parameter separates two phases.

    Args:
        rho: common cosine.
        log_n: natural logarithm of the number of tokens.
    """
    return as_value(np.full(np.broadcast_shapes(np.shape(rho), np.shape(log_n)), np.nan))


def relu_scaled_limit(rho: ArrayLike) -> Value:
    """Limit of n A_ii for ReLU and softplus without bias: 1/rho for rho > 0, else infinite.

    Args:
        rho: common cosine, in [-1, 1].

    Raises:
        DomainError: outside [-1, 1].

    Source: [derived, docs/theory.md (11.3), (13.6)].
    """
    return softplus.scaled_self_weight_limit(rho)


def sigmoid_scaled_limit(rho: ArrayLike) -> Value:
    """Limit of n A_ii for the sigmoid without bias: 1 for rho > 0, 2 at rho = 0, infinite below.

    Args:
        rho: common cosine, in [-1, 1].

    Raises:
        DomainError: outside [-1, 1].

    Source: [derived, docs/theory.md (13.4)].
    """
    rho = finite("rho", rho)
    require("rho", rho, np.abs(rho) <= 1, "in [-1, 1]")
    return as_value(np.where(rho > 0, 1.0, np.where(rho == 0, 2.0, np.inf)))


def _step_at_positive(control: ArrayLike, rho: ArrayLike) -> Value:
    """0 for rho > 0, else 1: the limit of ReLU."""
    return as_value(np.broadcast_to(np.where(np.asarray(rho) > 0, 0.0, 1.0), _shape(control, rho)))


def _identity(control: ArrayLike, rho: ArrayLike) -> Value:
    """1 for rho < 1, else 0."""
    return as_value(np.broadcast_to(np.where(np.asarray(rho) < 1, 1.0, 0.0), _shape(control, rho)))


def _power_limit(exponent: ArrayLike, rho: ArrayLike) -> Value:
    """Limit of powers at p = exponent log n."""
    rho = finite("rho", rho)
    inside = (rho > 0) & (rho < 1)
    reduced = finite("exponent", exponent) * -np.log(np.where(inside, rho, 0.5))
    return as_value(np.where(inside, power.self_weight_limit(reduced), np.where(rho < 1, 1.0, 0.0)))


def _entmax(alpha: float) -> Member:
    return Member(
        "beta",
        "1",
        partial(entmax.self_weight, alpha=alpha),
        partial(entmax.half_weight_beta, alpha=alpha),
        partial(entmax.self_weight_limit, alpha=alpha),
    )


def _sigmoid(bias_factor: float, scale: str) -> Member:
    def half_weight(rho: ArrayLike, log_n: ArrayLike) -> Value:
        return sigmoid.half_weight_window(rho, log_n, bias_factor=bias_factor).low

    return Member(
        "gamma",
        scale,
        partial(sigmoid.self_weight, bias_factor=bias_factor),
        half_weight,
        partial(sigmoid.self_weight_limit, bias_factor=bias_factor),
    )


def _hardmax(control: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    return as_value(np.broadcast_to(hardmax_self_weight(rho, log_n), _shape(control, rho, log_n)))


def _shape(*values: ArrayLike) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(value) for value in values))


# the scale is that for 0 < rho < 1; without a bias where a normaliser has one
MEMBERS: Mapping[str, Member] = MappingProxyType(
    {
        "softmax": Member("gamma", "log n", simplex.self_weight, simplex.half_weight_gamma, simplex.self_weight_limit),
        "softplus-l1": Member(
            "gamma", "none", softplus.self_weight, softplus.half_weight_gamma, softplus.self_weight_limit
        ),
        "relu-power": Member("p", "none", relu_power.simplex_self_weight, relu_power.simplex_critical_p, _identity),
        "sigmoid": _sigmoid(0.0, "none"),
        "sigmoid-log-n": _sigmoid(1.0, "none"),
        "sigmoid-2-log-n": _sigmoid(2.0, "log n"),
        "relu": Member("beta", "none", relu_self_weight, no_half_weight, _step_at_positive),
        "power": Member("p", "log n", power.self_weight, power.critical_p, _power_limit),
        "entmax": _entmax(1.5),
        "sparsemax": _entmax(2.0),
        "hardmax": Member("none", "none", _hardmax, no_half_weight, _identity),
    }
)
