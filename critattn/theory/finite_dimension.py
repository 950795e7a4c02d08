"""Random tokens in d dimensions, near-simplex or uniform on the sphere: thresholds, gradients, bounds.

Tokens are N(sqrt(rho) z_0 + sqrt(theta) z_i), theta = 1 - rho, with Gaussian z_i of variance 1/d a
coordinate and |z_0|^2 = 1 (`effective_rho` for others). The inverse temperature is beta = gamma log n.
Everything takes log n.
"""

import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.theory.half_weight import HalfWeight as HalfWeight
from critattn.theory.half_weight import annealed_half_weight_gamma as annealed_half_weight_gamma
from critattn.theory.half_weight import checked, log_others, spread
from critattn.theory.half_weight import half_weight_gamma as half_weight_gamma
from critattn.theory.half_weight import median_half_weight_gamma as median_half_weight_gamma
from critattn.theory.half_weight import row_disorder as row_disorder
from critattn.theory.half_weight import self_weight as self_weight
from critattn.theory.half_weight import solve_half_weight as solve_half_weight
from critattn.theory.quadrature import Numbers, as_numbers, bracketed_root, elementwise
from critattn.theory.quadrature import bessel_ratio as bessel_ratio
from critattn.theory.quadrature import log_moment as log_moment


def score_variance(rho: ArrayLike, d: ArrayLike) -> Numbers:
    """Variance of the scores of one row around the row's mean, to leading order in 1/d.

    theta^2 v/d, v = 1 + rho - rho^2/2.

    Args:
        rho: common cosine, in [0, 1).
        d: dimension.

    Returns:
        squared cosine.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.2)].
    """
    rho, _, d = checked(rho, 1.0, d)
    return as_numbers((1 - rho) ** 2 * spread(rho) / d)


def row_mean_variance(rho: ArrayLike, d: ArrayLike) -> Numbers:
    """Variance over rows of a row's mean score at fixed common vector: theta^2 rho (1 - rho/2)/d.

    Args:
        rho: common cosine, in [0, 1).
        d: dimension.

    Returns:
        squared cosine.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.2)].
    """
    rho, _, d = checked(rho, 1.0, d)
    return as_numbers((1 - rho) ** 2 * rho * (1 - rho / 2) / d)


def effective_rho(rho: ArrayLike, zeta: ArrayLike) -> Numbers:
    """Common cosine of tokens whose common vector z_0 has squared norm zeta instead of 1.

    rho zeta/(rho zeta + theta).

    Args:
        rho: nominal common cosine, in [0, 1).
        zeta: |z_0|^2 in units of its mean (|z_0|^2/d for standard Gaussian z_0), > 0.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.2)].
    """
    rho, _, _ = checked(rho, 1.0)
    zeta = np.asarray(zeta, dtype=float)
    if not np.all((zeta > 0) & np.isfinite(zeta)):
        raise DomainError.of("zeta", as_numbers(zeta), "positive and finite")
    return as_numbers(rho * zeta / (rho * zeta + 1 - rho))


def gaussian_gamma(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Critical gamma with Gaussian scores, leading order in 1/d for the typical row (heuristic).

    gamma = (2/theta)/(1 + sqrt(1 - 2x)), x = v log n/d; nan for x > 1/2, where there is no root.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; all three broadcast.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.4)], heuristic: 1 to 5 % above the median row at d near 3 log n.
    """
    rho, log_n, d = checked(rho, log_n, d)
    root = 1 - 2 * spread(rho) * log_n / d
    root = np.where(root >= 0, root, np.nan)
    return as_numbers(2 / ((1 - rho) * (1 + np.sqrt(root))))


def _large_deviation_gamma(log_n: float, d: float) -> float:
    load = log_n / d

    def excess(y: float) -> float:
        s = np.tanh(y)
        log_cosh = np.log1p(2 * np.sinh(y / 2) ** 2) if y < 20 else y - np.log(2)
        return float(s / (1 + s) + log_cosh - load)

    y = bracketed_root(excess, load, load + 2, xtol=1e-300)
    return float(np.sinh(2 * y) / (2 * load)) if y < 350 else np.inf


def large_deviation_gamma(log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Critical gamma at rho = 0 in the limit n -> infinity at fixed L = log n/d.

    s/(1+s) = L + log(1-s^2)/2, gamma = s/(L (1-s^2)): 1 for L -> 0,
    and beta ~ (d/e) n^{2/d} for L -> infinity.

    Args:
        log_n: natural logarithm of the number of tokens.
        d: dimension; the two broadcast.

    Returns:
        gamma; inf where it overflows.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.6)].
    """
    _, log_n, d = checked(0.0, log_n, d)
    return elementwise(_large_deviation_gamma, log_n, d)


def gradient_norm(gamma: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Mean squared singular value of the layer's Jacobian at rho = 0, unit norms, no residual.

    eta = (1 - 1/d) (p + (1-p) A_d(beta))^2, p the self weight and A_d the mean resultant length.

    Args:
        gamma: coefficient of log n in the inverse temperature, >= 0.
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Returns:
        ||Jacobian||_F^2/(n d).

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.11)], heuristic, for d >= 2.5 log n: always low, by 2.7 % at d >= 24.
    """
    weight = self_weight(gamma, 0.0, log_n, d)
    resultant = bessel_ratio(np.multiply(gamma, log_n), d)
    dim = np.asarray(d, dtype=float)
    return as_numbers((1 - 1 / dim) * (weight + (1 - weight) * resultant) ** 2)


def row_disorder_leading(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Leading form of `row_disorder` in 1/d: gamma_c sqrt(rho (1 - rho/2)/d), gamma_c from `gaussian_gamma`.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Returns:
        absolute standard deviation in gamma; nan where `gaussian_gamma` is.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.9)], heuristic: low by 12 to 20 % at d <= 48.
    """
    return gaussian_gamma(rho, log_n, d) * np.sqrt(row_mean_variance(rho, d)) / (1 - np.asarray(rho, dtype=float))


def width(rho: ArrayLike, log_n: ArrayLike) -> Numbers:
    """Width in gamma of a simplex row's rise from self weight 0.1 to 0.9: 2 log 9/(theta log n).

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.9)].
    """
    rho, log_n, _ = checked(rho, log_n)
    return as_numbers(2 * np.log(9.0) / ((1 - rho) * log_n))


def row_bounds(min_cosine: ArrayLike, max_cosine: ArrayLike, log_n: ArrayLike) -> tuple[Numbers, Numbers]:
    """Deterministic bounds on the gamma at which a row's self weight is 1/2, for any tokens of unit norm.

    log(n-1)/((1 - min_j G_ij) log n) <= gamma_i <= log(n-1)/((1 - max_j G_ij) log n), j != i.

    Args:
        min_cosine: smallest cosine of the row with another token, in [-1, 1].
        max_cosine: largest such cosine, at least `min_cosine`.
        log_n: natural logarithm of the number of tokens.

    Returns:
        lower and upper bound, inf where the cosine is 1.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.8)].
    """
    low, high = np.asarray(min_cosine, dtype=float), np.asarray(max_cosine, dtype=float)
    _, log_n, _ = checked(0.0, log_n)
    if not np.all((low >= -1) & (low <= high) & (high <= 1)):
        raise DomainError("min_cosine, max_cosine: must satisfy -1 <= min_cosine <= max_cosine <= 1")
    numerator = log_others(log_n) / log_n
    bounds = [np.where(c < 1, numerator / np.where(c < 1, 1 - c, 1.0), np.inf) for c in (low, high)]
    return as_numbers(bounds[0]), as_numbers(bounds[1])


def _error_class(rho: float, log_n: float, d: float) -> float:
    steps = ((16, 0.005), (8, 0.02), (4, 0.08 if rho == 0 else np.nan))
    stated = next((error for least, error in steps if d >= least), np.nan)
    if log_n >= np.log(128) - 1e-12:
        return stated
    return 2 * stated if log_n >= np.log(32) - 1e-12 else np.nan


def error_class(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Stated relative error of `half_weight_gamma` against simulation.

    0.5 % for d >= 16, 2 % for 8 <= d < 16, and at rho = 0 also 8 % for 4 <= d < 8: the error seen at the lower
    end of each interval, so that it overstates in between. Twice that for 32 <= n < 128, where a row's own
    fluctuations count; nan elsewhere, where nothing is stated.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (4.5), (4.7)], against simulations of 32 to 16384 tokens, rho up to 0.9 (0.8 below
    16 dimensions). The formula is high at low d, up to 1.8 % at d = 8, 3.3 % at d = 6 and 9.7 % at d = 4.
    """
    checked(rho, log_n, d)
    return elementwise(_error_class, rho, log_n, d)
