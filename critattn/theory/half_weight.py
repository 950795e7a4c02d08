"""The half-weight point of random tokens in d dimensions: self weight, its root, its spread over rows.

Conventions of `finite_dimension`; the law of the cosine is `quadrature.CommonDirection`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import elementwise as vectorised

from critattn.errors import DomainError
from critattn.theory.quadrature import (
    CommonDirection,
    Numbers,
    as_numbers,
    bracketed_root,
    common_direction,
    elementwise,
    log_moment,
    root_near,
)

FIRST_NODES = 32
LAST_NODES = 1024
KEY_NODES = 128
# beyond this many dimensions per nat of n, the 1/d expansion is closer than round-off leaves the quadrature
EXPANSION_FROM = 1e7


@dataclass(frozen=True)
class HalfWeight:
    """A half-weight point with how far it moved in the last doubling of the quadrature nodes.

    Attributes:
        gamma: the root; nan where there is none below the largest gamma.
        residual: relative change in the last doubling; 0 for a closed form, nan without a root.
        nodes: nodes in each of the two rules; 0 for a closed form.
    """

    gamma: float
    residual: float
    nodes: int


def checked(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three as arrays, after a check of their ranges.

    Raises:
        DomainError: for rho outside [0, 1), n < 2, d < 1, or d < 2 with rho > 0.
    """
    rho, log_n, d = (np.asarray(value, dtype=float) for value in (rho, log_n, d))
    if not np.all((rho >= 0) & (rho < 1)):
        raise DomainError.of("rho", as_numbers(rho), "in [0, 1)")
    if not np.all((log_n >= np.log(2) * (1 - 1e-12)) & np.isfinite(log_n)):
        raise DomainError.of("log_n", as_numbers(log_n), "at least log 2 (n >= 2) and finite")
    if not np.all((d >= np.where(rho > 0, 2, 1)) & np.isfinite(d)):
        raise DomainError.of("d", as_numbers(d), "at least 1, and at least 2 for rho > 0")
    return rho, log_n, d


def log_others(log_n: Numbers) -> Numbers:
    """The number log(n - 1) from log n."""
    return log_n + np.log(-np.expm1(-np.asarray(log_n)))


def spread(rho: Numbers) -> Numbers:
    """In-row variance of the scores in units of theta^2/d: v = 1 + rho - rho^2/2."""
    return 1 + rho - rho**2 / 2


def _annealed_beta(log_n: float, d: float) -> float:
    """Root of beta - log M_d(beta) = log(n-1), increasing and concave in beta; inf where it overflows."""
    target = float(log_others(log_n))
    if target <= 1e-12:
        return 0.0

    def excess(log_beta: float) -> float:
        beta = np.exp(log_beta)
        return float(beta - log_moment(beta, d)) - target

    low = high = np.log(target)
    while excess(high) < 0:
        low, high = high, high + 1.0
        # beyond 1e14 the difference beta - log M has no digits left
        if high > 32 + np.log(d + target):
            return np.inf
    return float(np.exp(bracketed_root(excess, low - 1e-9, high, xtol=1e-14)))


def annealed_half_weight_gamma(log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Half-weight gamma for tokens uniform on the sphere: (n-1) M_d(beta) = e^beta.

    Args:
        log_n: natural logarithm of the number of tokens.
        d: dimension, >= 1; the two broadcast.

    Returns:
        gamma; inf where beta exceeds the range of float64 arithmetic or no root exists (d = 1, n > 3).

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.5)], exact for the annealed row.
    """
    _, log_n, d = checked(0.0, log_n, d)
    return elementwise(lambda size, dim: _annealed_beta(size, dim) / size, log_n, d)


def _log_odds_against(
    gamma: np.ndarray, angle: np.ndarray, log_n: float, *, law: CommonDirection, nodes: int
) -> np.ndarray:
    """Annealed log odds against the self weight, log T(a, gamma), for rows at the given angles (rows,)."""
    beta = gamma * log_n
    return log_others(log_n) - beta + law.log_crowd(beta, angle, count=min(nodes, KEY_NODES))


def _mean_self_weight(gamma: float, log_n: float, *, law: CommonDirection, nodes: int) -> float:
    angle, weights = law.nodes(nodes)
    against = _log_odds_against(np.full(nodes, gamma), angle, log_n, law=law, nodes=nodes)
    return float(weights @ special.expit(-against))


def _expanded_gamma(rho: float, log_n: float, d: float) -> float:
    """The simplex value with the first correction in 1/d."""
    return float(log_others(log_n) / ((1 - rho) * log_n) * (1 + spread(rho) * log_n / (2 * d)))


def _excess(kind: str, log_n: float, law: CommonDirection, nodes: int) -> Callable[[float], float]:
    """The increasing function of gamma whose root it is: log odds of the mean or of the median row."""
    if kind == "mean":

        def excess(gamma: float) -> float:
            weight = _mean_self_weight(gamma, log_n, law=law, nodes=nodes)
            return float(special.logit(np.clip(weight, 1e-300, 1 - 1e-16)))

    else:
        angle = np.array([law.median])

        def excess(gamma: float) -> float:
            return -_log_odds_against(np.array([gamma]), angle, log_n, law=law, nodes=nodes).item()

    return excess


def _quadrature_half_weight(
    kind: str, law: CommonDirection, log_n: float, *, limit: float, tolerance: float
) -> HalfWeight:
    nodes, guess = FIRST_NODES, _expanded_gamma(law.rho, log_n, law.d)
    gamma = root_near(_excess(kind, log_n, law, nodes), min(guess, limit), ratio=1.2, limit=limit)
    residual = np.nan
    while nodes < LAST_NODES and np.isfinite(gamma):
        nodes, coarse = 2 * nodes, gamma
        gamma = root_near(_excess(kind, log_n, law, nodes), coarse, ratio=1.0001, limit=limit)
        residual = abs(gamma / coarse - 1)
        if residual <= tolerance:
            break
    return HalfWeight(gamma, residual, nodes)


def solve_half_weight(
    rho: float,
    log_n: float,
    d: float,
    *,
    kind: str = "mean",
    gamma_max: float = 1000.0,
    tolerance: float = 1e-8,
) -> HalfWeight:
    """Half-weight point with its convergence: the quadrature nodes are doubled until the root stands still.

    Closed form at rho = 0, at n = 2 and, to relative order 1/d, beyond 1e7 dimensions a nat of n.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension.
        kind: `mean` (the mean self weight over rows is 1/2) or `median` (that of the median row is).
        gamma_max: largest gamma to search.
        tolerance: relative change of gamma at which doubling ends.

    Returns:
        the root, its relative change in the last doubling, and the nodes.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.5), (4.7)], heuristic.
    """
    checked(rho, log_n, d)
    if kind not in ("mean", "median"):
        raise DomainError.of("kind", kind, "mean or median")
    if gamma_max <= 0:
        raise DomainError.of("gamma_max", gamma_max, "positive")
    if rho == 0 or log_others(log_n) <= 1e-12:
        gamma = float(annealed_half_weight_gamma(log_n, d)) if rho == 0 else 0.0
    elif d > EXPANSION_FROM * log_n:
        gamma = _expanded_gamma(rho, log_n, d)
    else:
        law = common_direction(rho, d)
        return _quadrature_half_weight(kind, law, log_n, limit=gamma_max, tolerance=tolerance)
    return HalfWeight(gamma, 0.0, 0) if gamma <= gamma_max else HalfWeight(np.nan, np.nan, 0)


def half_weight_gamma(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike, *, gamma_max: float = 1000.0) -> Numbers:
    """Gamma at which the mean over rows of the self weight is 1/2, at |z_0|^2 equal to its mean.

    (n-1) M_d(beta) = e^beta at rho = 0; else E_a[1/(1 + T(a, gamma))] = 1/2 with
    T = (n-1) e^{-beta} E_u[e^{beta a u} M_{d-1}(beta sqrt(1-a^2) sqrt(1-u^2))], a and u the cosines of query
    and key with the common direction (`CommonDirection`): quenched over rows, annealed within a row.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.
        gamma_max: largest gamma to search.

    Returns:
        gamma; nan where there is no root up to gamma_max.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.5), (4.7)], heuristic; error in `error_class`.
    """

    def solve(cosine: float, size: float, dim: float) -> float:
        return solve_half_weight(cosine, size, dim, gamma_max=gamma_max).gamma

    return elementwise(solve, rho, log_n, d)


def median_half_weight_gamma(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike, *, gamma_max: float = 1000.0) -> Numbers:
    """Gamma at which the self weight of the median row is 1/2: T(median a, gamma) = 1.

    The same as `half_weight_gamma` at rho = 0, where all rows are alike.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.
        gamma_max: largest gamma to search.

    Returns:
        gamma; nan where there is no root up to gamma_max.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.7)], heuristic.
    """

    def solve(cosine: float, size: float, dim: float) -> float:
        return solve_half_weight(cosine, size, dim, kind="median", gamma_max=gamma_max).gamma

    return elementwise(solve, rho, log_n, d)


def _self_weight(gamma: float, rho: float, log_n: float, d: float) -> float:
    if rho == 0:
        beta = gamma * log_n
        return float(special.expit(beta - log_moment(beta, d) - log_others(log_n)))
    if d > EXPANSION_FROM * log_n:
        # the Gaussian row, whose corrections are of relative order 1/d here
        slope = (1 - rho) * (1 - (1 - rho) * spread(rho) * gamma * log_n / (2 * d))
        return float(special.expit(gamma * log_n * slope - log_others(log_n)))
    law, nodes, coarse = common_direction(rho, d), FIRST_NODES, np.inf
    weight = _mean_self_weight(gamma, log_n, law=law, nodes=nodes)
    while nodes < LAST_NODES and abs(weight - coarse) > 1e-7 * weight:
        nodes, coarse = 2 * nodes, weight
        weight = _mean_self_weight(gamma, log_n, law=law, nodes=nodes)
    return weight


def self_weight(gamma: ArrayLike, rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Mean self weight over rows, E_a[1/(1 + T(a, gamma))], with T as in `half_weight_gamma`.

    1/(1 + (n-1) e^{-beta} M_d(beta)) at rho = 0.

    Args:
        gamma: coefficient of log n in the inverse temperature, >= 0.
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; all four broadcast.

    Returns:
        a number in (0, 1).

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.5), (4.7)], heuristic.
    """
    checked(rho, log_n, d)
    gammas = np.asarray(gamma, dtype=float)
    if not np.all((gammas >= 0) & np.isfinite(gammas)):
        raise DomainError.of("gamma", as_numbers(gammas), "at least 0 and finite")
    return elementwise(_self_weight, gammas, rho, log_n, d)


def _row_roots(law: CommonDirection, log_n: float, angle: np.ndarray, guess: float) -> np.ndarray:
    """Root gamma of T(a, gamma) = 1 for each row, in log gamma; nan where far outside of reach."""

    def against(log_gamma: np.ndarray, angle: np.ndarray) -> np.ndarray:
        return _log_odds_against(np.exp(log_gamma), angle, log_n, law=law, nodes=2 * FIRST_NODES)

    ends = (
        np.full(angle.shape, np.log(guess) - np.log(100)),
        np.full(angle.shape, np.log(guess) + np.log(100)),
    )
    found = vectorised.find_root(against, ends, args=(angle,), tolerances={"xatol": 1e-10, "xrtol": 1e-12})
    return np.where(found.success, np.exp(found.x), np.nan)


def _row_disorder(rho: float, log_n: float, d: float) -> float:
    if rho == 0 or log_others(log_n) <= 1e-12:
        return 0.0
    guess = _expanded_gamma(rho, log_n, d)
    if d > EXPANSION_FROM * log_n:
        return guess * float(np.sqrt(rho * (1 - rho / 2) / d))
    law = common_direction(rho, d)
    typical = solve_half_weight(rho, log_n, d, kind="median", gamma_max=1e6).gamma
    angle, weights = law.nodes(2 * FIRST_NODES)
    kept = weights > 1e-12
    roots, weights = _row_roots(law, log_n, angle[kept], typical), weights[kept] / weights[kept].sum()
    mean = weights @ roots
    return float(np.sqrt(weights @ (roots - mean) ** 2))


def row_disorder(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Standard deviation over rows of the gamma at which a row's own self weight is 1/2.

    The root gamma of T(a, gamma) = 1, a distributed as the cosine with the common direction; 0 at rho = 0,
    where the annealed row does not see the small spread that finite n leaves.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Returns:
        absolute standard deviation in gamma; nan where rows of noticeable weight have no root.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.9)], heuristic: within 3 % of simulation at d = 24 and 48.
    """
    checked(rho, log_n, d)
    return elementwise(_row_disorder, rho, log_n, d)
