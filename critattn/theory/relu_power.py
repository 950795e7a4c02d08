"""Softplus-L1 attention with ReLU^p re-weighting: identity on the simplex, critical p near it.

With stage-one weights a_j = sp(c s_j)/sum_k sp(c s_k), c = gamma log n, the weights are
A_j = (n a_j - 1)_+^p/sum_k (n a_k - 1)_+^p: only keys above the row's mean survive. gamma is log d unless given.
Near the simplex (tokens as in `finite_dimension`) the transition is one in p. Everything takes log n.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.errors import DomainError
from critattn.theory.half_weight import checked, log_others, spread
from critattn.theory.needle import log_half_moment, turning_p
from critattn.theory.quadrature import Numbers, as_numbers, bracketed_root, elementwise
from critattn.theory.relu_power_exact import diagonal_excess as diagonal_excess
from critattn.theory.relu_power_exact import hard_limit as hard_limit
from critattn.theory.relu_power_exact import hard_limit_distance as hard_limit_distance
from critattn.theory.relu_power_exact import simplex_critical_p as simplex_critical_p
from critattn.theory.relu_power_exact import simplex_self_weight as simplex_self_weight
from critattn.theory.relu_power_exact import usable_excess as usable_excess
from critattn.theory.reweighting import Rows, critical_p_of, gaussian_rows, rows_of
from critattn.theory.simplex_state import finite, require

P_MAX = 1000.0
LARGEST_P = 1e300
TOLERANCE = 1e-6


def signal_to_noise(rho: ArrayLike, d: ArrayLike, *, unit_norm: bool = True) -> Numbers:
    """Self score above the row's mean in units of the row's spread, to first order in 1/d.

    SNR^2 = d/(1 + rho - rho^2/2) for L2-normalised tokens, d (1 - rho) for others.

    Args:
        rho: common cosine, in [0, 1).
        d: dimension.
        unit_norm: L2-normalised tokens.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.5)].
    """
    rho, _, d = checked(rho, 1.0, d)
    return as_numbers(np.sqrt(d / spread(rho) if unit_norm else d * (1 - rho)))


def _gaussian_p(snr: float, log_n: float) -> float:
    others, log_snr = float(log_others(log_n)), math.log(snr)
    if others <= math.log(2) + 1e-12:
        return 0.0

    def log_odds(p: float) -> float:
        return others + float(log_half_moment(p)) - p * log_snr

    lowest, high = float(turning_p(snr)), 1.0
    while high < lowest and log_odds(high) > 0:
        high *= 2
    high = min(high, lowest)
    return math.nan if log_odds(high) >= 0 else bracketed_root(log_odds, 0.0, high, xtol=1e-300)


def critical_p_gaussian(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Critical p with Gaussian scores: the smaller root of log(n-1) + log mu_p = p log SNR.

    mu_p = 2^(p/2-1) Gamma((p+1)/2)/sqrt(pi); the larger root is dominated by rare events and spurious.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Returns:
        p; 0 for n <= 3, nan where there is no root.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.6)], heuristic: within 3 % only for d = 256 and rho >= .3.
    """
    rho, log_n, d = checked(rho, log_n, d)
    return elementwise(_gaussian_p, signal_to_noise(rho, d), log_n)


def critical_p_lambert(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Leading order of `critical_p_gaussian` in log n: p = -2 log n/W_(-1)(-2 log n/(e SNR^2)).

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Returns:
        p; nan for 2 log n > SNR^2, where no p localises as n goes to infinity.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.7)], heuristic: 7 to 20 % high.
    """
    rho, log_n, d = checked(rho, log_n, d)
    square = 2 * log_n / np.asarray(signal_to_noise(rho, d)) ** 2
    branch = special.lambertw(-np.minimum(square, 1.0) / math.e, -1).real
    return as_numbers(np.where(square <= 1, -2 * log_n / branch, np.nan))


def _log_sphere_moment(p: float, dim: float) -> float:
    """Log of E (s_+)^p for one coordinate s on the sphere in `dim` dimensions."""
    constant = math.log(2 * math.sqrt(math.pi))
    if p > dim:
        return float(special.gammaln(dim / 2)) - constant - _log_rising((p + 1) / 2, (dim - 1) / 2)
    return float(special.gammaln((p + 1) / 2)) - constant - _log_rising(dim / 2, p / 2)


def _log_rising(x: float, step: float) -> float:
    """Log of Gamma(x + step)/Gamma(x), without cancellation at large x."""
    if x < 1e4:
        return float(special.gammaln(x + step) - special.gammaln(x))
    # Stirling's series, whose next terms are below rounding here
    grown = x + step
    return (x - 0.5) * math.log1p(step / x) + step * (math.log(grown) - 1) + (1 / grown - 1 / x) / 12


def _beta_p(dim: float, log_n: float, p_max: float) -> float:
    others = float(log_others(log_n))
    if others <= math.log(2) + 1e-12:
        return 0.0

    def log_odds(p: float) -> float:
        return others + _log_sphere_moment(p, dim)

    high = 1.0
    while log_odds(high) > 0:
        if high >= p_max:
            return math.nan
        high = min(2 * high, p_max)
    return bracketed_root(log_odds, 0.0, high, xtol=1e-300)


def critical_p_beta(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike, *, p_max: float = math.inf) -> Numbers:
    """Critical p with the moment of one coordinate on the sphere: (n-1) M_p = 1.

    M_p = Gamma((p+1)/2) Gamma(D/2)/(2 sqrt(pi) Gamma((p+D)/2)), D = SNR^2, which is d at rho = 0.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.
        p_max: largest p to search.

    Returns:
        p; 0 for n <= 3, nan where there is no root up to p_max or within float range.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.8)], heuristic: 2 to 29 % high, most in few dimensions.
    """
    rho, log_n, d = checked(rho, log_n, d)
    limit = min(p_max, LARGEST_P)
    dim = np.asarray(signal_to_noise(rho, d)) ** 2
    return elementwise(lambda size, log_size: _beta_p(size, log_size, limit), dim, log_n)


def _steepness(gamma: ArrayLike | None, d: ArrayLike) -> NDArray[np.float64]:
    gamma = np.log(np.asarray(d, dtype=float)) if gamma is None else finite("gamma", gamma)
    require("gamma", gamma, gamma > 0, "positive")
    return np.asarray(gamma)


def _rows(gamma: float, rho: float, log_n: float, d: float, *, unit_norm: bool, count: int) -> Rows:
    if unit_norm:
        return rows_of(gamma * log_n, rho, log_n, d, count=count)
    return gaussian_rows(gamma * log_n, rho, log_n, math.sqrt((1 - rho) / d))


def _in_range(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> None:
    checked(rho, log_n, d)
    require("d", d, np.asarray(d) >= 3, "at least 3")


def critical_p(
    rho: ArrayLike,
    log_n: ArrayLike,
    d: ArrayLike,
    *,
    gamma: ArrayLike | None = None,
    unit_norm: bool = True,
    p_max: float = P_MAX,
) -> Numbers:
    """The p at which the mean over rows of the self weight is 1/2, at |z_0|^2 equal to its mean.

    E_t[1/(1+T(t,p))] = 1/2 with T = (n-1) E[((sp(c s) - m)_+/(sp(c) - m))^p], s = t u + sqrt(1-t^2) sqrt(1-u^2) b,
    t and u the cosines of query and key with the common direction, b a coordinate on the sphere S^(d-2), and m(t) the
    mean of the row, self score included: quenched over rows, annealed within a row.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension, >= 3; the three broadcast, with gamma.
        gamma: coefficient of log n in the steepness, > 0; log d by default.
        unit_norm: L2-normalised tokens; else scores are independent Gaussians of variance (1-rho)/d around rho.
        p_max: largest p to search.

    Returns:
        p, to about 1e-6; 0 where every p > 0 localises (few tokens), nan where there is no root up to p_max.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.9)], heuristic; error in `error_class`.
    """
    _in_range(rho, log_n, d)
    if not p_max > 0:
        raise DomainError.of("p_max", p_max, "positive")

    def solve(cosine: float, size: float, dim: float, slope: float) -> float:
        def make(count: int) -> Rows:
            return _rows(slope, cosine, size, dim, unit_norm=unit_norm, count=count)

        guess = _beta_p(max(dim / float(spread(cosine)), 1.0), size, p_max)
        guess = guess if guess > 0 else min(1.0, p_max)
        return critical_p_of(make, guess=guess, p_max=p_max, tolerance=TOLERANCE)[0]

    return elementwise(solve, rho, log_n, d, _steepness(gamma, d))


def self_weight(
    p: ArrayLike,
    rho: ArrayLike,
    log_n: ArrayLike,
    d: ArrayLike,
    *,
    gamma: ArrayLike | None = None,
    unit_norm: bool = True,
) -> Numbers:
    """Mean self weight over rows, E_t[1/(1 + T(t, p))], with T as in `critical_p`.

    Args:
        p: exponent, > 0.
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension, >= 3; all broadcast.
        gamma: coefficient of log n in the steepness, > 0; log d by default.
        unit_norm: as for `critical_p`.

    Returns:
        a number in (0, 1).

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.9)], heuristic.
    """
    _in_range(rho, log_n, d)
    p = finite("p", p)
    require("p", p, p > 0, "positive")

    def weight(power: float, cosine: float, size: float, dim: float, slope: float) -> float:
        return _rows(slope, cosine, size, dim, unit_norm=unit_norm, count=32).self_weight(power)

    return elementwise(weight, p, rho, log_n, d, _steepness(gamma, d))


def error_class(rho: ArrayLike, log_n: ArrayLike, d: ArrayLike) -> Numbers:
    """Stated relative error of `critical_p` against simulation: 2 % for d >= 16 and n >= 256, else nan.

    Args:
        rho: common cosine, in [0, 1).
        log_n: natural logarithm of the number of tokens.
        d: dimension; the three broadcast.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.9)], against simulations of 256 to 4096 tokens in 16 to 256 dimensions.
    """
    rho, log_n, d = np.broadcast_arrays(*checked(rho, log_n, d))
    return as_numbers(np.where((d >= 16) & (log_n >= math.log(256) - 1e-12), 0.02, np.nan))
