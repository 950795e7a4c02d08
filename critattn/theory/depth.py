"""Depth: a simplex of tokens stays one, so that a stack of layers is a recursion of two numbers.

Equation numbers refer to docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from critattn.theory.simplex_state import (
    Value,
    as_value,
    finite,
    log_others,
    mean_square,
    positive_norm,
    require,
    require_resolved,
)


class Trajectory(NamedTuple):
    """Cosines and norms of the tokens before the first layer and after each layer.

    Attributes:
        cosines: (depth + 1, ...) cosine of two tokens.
        norms: (depth + 1, ...) norm of a token, as the layer leaves it.
    """

    cosines: NDArray[np.float64]
    norms: NDArray[np.float64]


def layers(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    depth: int,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
    renormalise: bool = False,
) -> Trajectory:
    """Cosine and norm of the tokens through `depth` layers x' = a x + b ATT.

    theta' = theta lambda(theta, r) and r'^2 = (1-mu) e^2 + mu kappa^2, with theta = 1 - cosine.

    Args:
        gamma: coefficient of log n in the inverse temperature, the same in every layer.
        rho: common cosine of two input tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens, n > 1.
        depth: number of layers >= 0.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: norm r > 0 of the input tokens.
        renormalise: bring the tokens back to `norm` before each layer.

    Returns:
        The trajectory; NaN from where the tokens vanish.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (8.1)].
    """
    require("depth", depth, depth >= 0, "a count of layers, >= 0")
    arguments = _checked(gamma, rho, log_n, a=identity_weight, b=attention_weight, norm=norm)
    shape = arguments["gamma"].shape
    thetas, norms = np.empty((2, depth + 1, *shape))
    for index in np.ndindex(shape):
        layer = _at(arguments, index)
        where = (slice(None), *index)
        thetas[where], norms[where] = layer.run(depth, renormalise=renormalise)
    return Trajectory(1 - thetas, norms)


def lifetime(
    gamma: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    *,
    identity_weight: ArrayLike = 0.0,
    attention_weight: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
    renormalise: bool = False,
    max_layers: int = 1_000_000,
) -> Value:
    """Number of layers until 1 - cosine is at most half of its first value, by the recursion.

    Args:
        gamma: coefficient of log n in the inverse temperature, the same in every layer.
        rho: common cosine of two input tokens, in [-1/(n-1), 1).
        log_n: natural logarithm of the number of tokens, n > 1.
        identity_weight: a in x' = a x + b ATT.
        attention_weight: b in x' = a x + b ATT.
        norm: norm r > 0 of the input tokens.
        renormalise: bring the tokens back to `norm` before each layer.
        max_layers: where the search ends; a million layers take about a second.

    Returns:
        The number of layers; NaN where it exceeds `max_layers` or the recursion stands still.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (8.1), (8.3)].
    """
    require("max_layers", max_layers, max_layers >= 1, "a count of layers, >= 1")
    arguments = _checked(gamma, rho, log_n, a=identity_weight, b=attention_weight, norm=norm)
    result = np.empty(arguments["gamma"].shape)
    for index in np.ndindex(result.shape):
        layer = _at(arguments, index)
        result[index] = layer.lifetime(max_layers, renormalise=renormalise)
    return as_value(result)


def lifetime_asymptotic(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike) -> Value:
    """Number of layers n^(gamma theta - 1)/(2 rho theta gamma log n) until theta = 1 - rho has halved.

    Heuristic: leading order for large n without residual, gamma (1-rho) > 1; within 2 % of the recursion from
    n = 1e4 at rho = .5, gamma >= 4, and 10 % off at rho = .2, where rho changes while theta decays.

    Args:
        gamma: coefficient of log n in the inverse temperature.
        rho: common cosine of two input tokens, in (0, 1).
        log_n: natural logarithm of the number of tokens.

    Returns:
        The number of layers, infinite beyond the largest float; NaN where gamma (1-rho) <= 1 or n = 1.

    Raises:
        DomainError: outside these ranges.

    Source: [heuristic, docs/theory.md (8.2)].
    """
    gamma, rho = finite("gamma", gamma), finite("rho", rho)
    require("rho", rho, (rho > 0) & (rho < 1), "in (0, 1)")
    mean_square(rho, log_n)
    theta, log_n = 1 - rho, np.asarray(log_n, dtype=float)
    with np.errstate(all="ignore"):
        count = np.exp((gamma * theta - 1) * log_n) / (2 * rho * theta * gamma * log_n)
    return as_value(np.where((gamma * theta > 1) & (log_n > 0), count, np.nan))


def _checked(
    gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, *, a: ArrayLike, b: ArrayLike, norm: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """The arguments of `_Layer`, broadcast against each other."""
    mu = mean_square(rho, log_n)
    require_resolved(mu, log_n)
    log_n = np.asarray(log_n, dtype=float)
    require("log_n", log_n, log_n > 0, "above 0: one token has no angles")
    arguments = {
        "gamma": finite("gamma", gamma),
        "rho": rho,
        "log_n": log_n,
        "mu": mu,
        "a": finite("identity_weight", a),
        "b": finite("attention_weight", b),
        "norm": positive_norm(norm),
    }
    return dict(zip(arguments, np.broadcast_arrays(*arguments.values()), strict=True))


def _at(arguments: dict[str, NDArray[np.float64]], index: tuple[int, ...]) -> "_Layer":
    return _Layer(**{name: float(array[index]) for name, array in arguments.items()})


class _Layer:
    """One layer on (theta, r), in scalar arithmetic: lifetimes run to millions of layers."""

    def __init__(self, *, gamma: float, rho: float, log_n: float, **rest: float):
        self.beta, self.log_others = gamma * log_n, float(log_others(log_n))
        self.others_share, self.theta = -math.expm1(-log_n), 1 - rho
        self.mu, self.a, self.b, self.norm = (rest[name] for name in ("mu", "a", "b", "norm"))

    def step(self, theta: float, mu: float, norm: float) -> tuple[float, float, float]:
        """(theta, mu, r) after one layer; mu is carried along, since 1 - (1-1/n) theta cancels at rho = 0."""
        advantage = self.beta * theta - self.log_others
        tail = math.exp(-abs(advantage))
        own = (1 if advantage >= 0 else tail) / (1 + tail)
        kappa = self.a * norm + self.b
        gained = self.beta * theta
        cross = tail if advantage >= 0 else 1.0
        contrast = own - cross / (1 + tail) * math.exp(-self.log_others)
        if gained > -1:
            contrast = -own * math.expm1(-gained)
        e = self.a * norm + self.b * contrast
        common, apart = math.sqrt(mu) * kappa, math.sqrt(self.others_share * theta) * e
        length = math.hypot(common, apart)
        if length == 0:
            return math.nan, math.nan, 0.0
        return theta * (e / length) ** 2, (common / length) ** 2, length

    def run(self, depth: int, *, renormalise: bool) -> tuple[list[float], list[float]]:
        """Lists of theta and r, the input first."""
        theta, mu, norm = self.theta, self.mu, self.norm
        thetas, norms = [theta], [norm]
        for _ in range(depth):
            theta, mu, norm = self.step(theta, mu, self.norm if renormalise else norm)
            thetas.append(theta)
            norms.append(norm)
        return thetas, norms

    def lifetime(self, max_layers: int, *, renormalise: bool) -> float:
        """Layers until theta <= half of its first value, or NaN."""
        theta, mu, norm = self.theta, self.mu, self.norm
        for layer in range(1, max_layers + 1):
            before = theta, norm
            theta, mu, norm = self.step(theta, mu, self.norm if renormalise else norm)
            if theta <= self.theta / 2:
                return float(layer)
            if (theta, norm) == before or math.isnan(theta):
                break
        return math.nan
