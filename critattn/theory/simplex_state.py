"""The state that every closed form on a simplex of tokens starts from, with its domain checks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit

from critattn.errors import DomainError

# A float where every argument was a scalar, else an array of the broadcast shape.
Value = Any

# 1 + (n-1) rho carries a few dozen roundings once n has been through its logarithm.
ROUNDING = 64 * np.finfo(float).eps


def as_value(result: ArrayLike) -> Value:
    """A float for a scalar result, the array otherwise."""
    result = np.asarray(result, dtype=float)
    return result.item() if result.ndim == 0 else result


def require(name: str, value: ArrayLike, ok: ArrayLike, allowed: str) -> None:
    """Refuse values outside the domain.

    Args:
        name: the argument's name.
        value: the argument.
        ok: whether each element is inside the domain; broadcasts with `value`.
        allowed: the domain in words.

    Raises:
        DomainError: naming the first element of `value` that is not ok.
    """
    value, ok = np.broadcast_arrays(np.asarray(value, dtype=float), np.asarray(ok))
    if not ok.all():
        raise DomainError.of(name, value[~ok].flat[0].item(), allowed)


def finite(name: str, value: ArrayLike, allowed: str = "a finite number") -> NDArray[np.float64]:
    """The argument as a float64 array.

    Raises:
        DomainError: where an element is NaN or infinite.
    """
    array = np.asarray(value, dtype=np.float64)
    require(name, array, np.isfinite(array), allowed)
    return array


def log_count(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """The natural logarithm of a count of at least one, as an array.

    Raises:
        DomainError: where the logarithm is negative or not finite.
    """
    value = finite(name, value, "a finite logarithm, >= 0")
    require(name, value, value >= 0, "a finite logarithm, >= 0")
    return value


def log_others(log_n: ArrayLike) -> NDArray[np.float64]:
    """log(n - 1) from log n without forming n; -inf at n = 1."""
    log_n = np.asarray(log_n, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return log_n + np.log(-np.expm1(-log_n))


def mean_square(rho: ArrayLike, log_n: ArrayLike) -> NDArray[np.float64]:
    """Squared length mu = rho + (1-rho)/n of the mean of the unit tokens [derived, docs/theory.md (1.0)].

    Args:
        rho: common cosine, in [-1/(n-1), 1).
        log_n: natural logarithm of n >= 1.

    Returns:
        mu of the broadcast shape, exactly 0 at rho = -1/(n-1).

    Raises:
        DomainError: outside the domain.
    """
    rho, log_n = finite("rho", rho), log_count("log_n", log_n)
    inverse_n = np.exp(-log_n)
    # (1 + (n-1) rho) / n, compared in units of 1/n so that n = 10^300 does not overflow
    mu = rho + (1 - rho) * inverse_n
    require("rho", rho, (rho < 1) & (mu >= -ROUNDING * inverse_n), "in [-1/(n-1), 1)")
    return np.where(np.abs(mu) <= ROUNDING * inverse_n, 0.0, mu)


def require_resolved(mu: ArrayLike, log_n: ArrayLike) -> None:
    """Refuse n beyond 10^304 where the mean token is as short as n^(-1/2), as at rho = 0: its square underflows.

    Raises:
        DomainError: there.
    """
    log_n = np.asarray(log_n, dtype=float)
    require("log_n", log_n, (log_n <= 700) | (np.asarray(mu) > 1e-290), "at most 700 at rho = 0")


@dataclass(frozen=True)
class SimplexState:
    """Weights of one attention row on a simplex, and what they are made of.

    Attributes:
        beta: inverse temperature gamma log n, in nats.
        rho: common cosine.
        theta: 1 - rho.
        log_n: natural logarithm of n.
        mu: squared length of the mean token.
        own: self weight A_ii.
        rest: 1 - A_ii, without cancellation.
        cross: weight A_ij of each other token (0 at n = 1).
        contrast: A_ii - A_ij, the (n-1)-fold eigenvalue of A.
    """

    beta: NDArray[np.float64]
    rho: NDArray[np.float64]
    theta: NDArray[np.float64]
    log_n: NDArray[np.float64]
    mu: NDArray[np.float64]
    own: NDArray[np.float64]
    rest: NDArray[np.float64]
    cross: NDArray[np.float64]
    contrast: NDArray[np.float64]

    @property
    def sum_of_squares(self) -> NDArray[np.float64]:
        """Sum of the squared weights of a row."""
        return self.own**2 + self.rest * self.cross

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Shannon entropy of a row, in nats."""
        others = np.where(self.log_n > 0, log_others(np.where(self.log_n > 0, self.log_n, 1.0)), 0.0)
        # near 1 the self weight has lost the digits that the rest has
        near_one = self.own * np.log1p(-np.minimum(self.rest, 0.5))
        binary = -np.where(self.rest < 0.5, near_one, _xlogx(self.own)) - _xlogx(self.rest)
        return binary + self.rest * others


def _xlogx(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * np.log(np.where(x > 0, x, 1.0))


def simplex_state(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> SimplexState:
    """The row weights of (1.1) and (1.2) in forms that neither overflow nor cancel.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine, in [-1/(n-1), 1).
        log_n: natural logarithm of n >= 1.

    Raises:
        DomainError: outside the domain.
    """
    gamma = finite("gamma", gamma)
    mu = mean_square(rho, log_n)
    rho, log_n = np.asarray(rho, dtype=float), np.asarray(log_n, dtype=float)
    theta, beta = 1 - rho, gamma * log_n
    others = log_others(log_n)
    advantage = beta * theta - others
    own = expit(advantage)
    with np.errstate(invalid="ignore"):
        cross = np.where(log_n > 0, np.exp(log_expit(-advantage) - others), 0.0)
    # the first form cancels nothing near gamma = 0, the second overflows nowhere below it
    gained = beta * theta
    contrast = np.where(gained > -1, -own * np.expm1(-np.maximum(gained, -1.0)), own - cross)
    contrast = np.where(log_n > 0, contrast, 1.0)
    return SimplexState(beta, rho, theta, log_n, mu, own=own, rest=expit(-advantage), cross=cross, contrast=contrast)


def update_scales(
    state: SimplexState, identity_weight: ArrayLike, attention_weight: ArrayLike, norm: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factors of the update on zero-sum combinations of tokens and on their sum (1.4).

    Returns:
        e = a r + b delta and kappa = a r + b.

    Raises:
        DomainError: for a weight that is not finite, a norm that is not positive, or a mean that underflows.
    """
    require_resolved(state.mu, state.log_n)
    identity_weight = finite("identity_weight", identity_weight)
    attention_weight = finite("attention_weight", attention_weight)
    norm = positive_norm(norm)
    kept = identity_weight * norm
    return kept + attention_weight * state.contrast, kept + attention_weight


def positive_norm(norm: ArrayLike) -> NDArray[np.float64]:
    """The token norm as an array.

    Raises:
        DomainError: where it is not a finite positive number.
    """
    norm = finite("norm", norm, "a finite positive number")
    require("norm", norm, norm > 0, "a finite positive number")
    return norm
