"""One special score against Gaussian noise under ReLU^p re-weighting: thresholds, freezing, the longest context.

A score s_* stands SNR = (s_* - rho)/sigma standard deviations above n-1 independent Gaussian scores N(rho, sigma^2);
keys below the mean are dropped. T is the odds against the special key.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from critattn.theory.half_weight import log_others
from critattn.theory.mixed import crossing_probability
from critattn.theory.quadrature import bracketed_root, elementwise
from critattn.theory.simplex_state import Value, as_value, finite, log_count, require


class LengthLimit(NamedTuple):
    """The longest context that an exponent serves, with whether the formula is used where it is stated to hold.

    Attributes:
        log_n: natural logarithm of the number of keys.
        stated: p <= log n there; beyond it the limit is conservative, by half at p = 15 and SNR^2 = 15.
    """

    log_n: Value
    stated: Value


def log_half_moment(p: ArrayLike) -> Value:
    """Log of mu_p = E (g_+)^p = 2^(p/2-1) Gamma((p+1)/2)/sqrt(pi), g standard normal.

    Args:
        p: exponent, > -1.

    Raises:
        DomainError: for p <= -1.

    Source: [classical, docs/theory.md (12.6)].
    """
    p = finite("p", p)
    require("p", p, p > -1, "above -1")
    return as_value((p / 2 - 1) * math.log(2) + special.gammaln((p + 1) / 2) - math.log(math.pi) / 2)


def log_odds_against(p: ArrayLike, snr: ArrayLike, log_n: ArrayLike) -> Value:
    """Annealed log T = log(n-1) + log mu_p - p log SNR: good up to p near log n.

    Args:
        p: exponent, > 0.
        snr: signal to noise, > 0.
        log_n: natural logarithm of the number of keys n >= 2.

    Returns:
        log T in nats; it is least at `turning_p` and rises beyond, where rare rows dominate the mean.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.6)], heuristic.
    """
    p, snr, others = _domain(p, snr, log_n)
    return as_value(others + log_half_moment(p) - p * np.log(snr))


def typical_log_odds_against(p: ArrayLike, snr: ArrayLike, log_n: ArrayLike) -> Value:
    """Log T of a typical row: the noise cut at its median maximum M, and that maximum itself.

    T = (n-1) mu_p P((p+1)/2, M^2/2)/SNR^p + (M/SNR)^p, P the regularised lower incomplete gamma function and
    M = Phi^(-1)(2^(-1/(n-1))): the annealed form for p below log n, (M/SNR)^p in the frozen phase p > 2 log n.

    Args, Raises: as for `log_odds_against`.

    Returns:
        log T in nats, within .25 of the median of simulations at n = 1024 and SNR = 4.2 for p up to 40.

    Source: [heuristic, docs/theory.md (12.12)].
    """
    p, snr, others = _domain(p, snr, log_n)
    largest = np.maximum(hard_boundary(log_n), 0.0)
    kept = special.gammainc((p + 1) / 2, largest**2 / 2)
    with np.errstate(divide="ignore"):
        cut = others + log_half_moment(p) + np.log(kept)
        return as_value(np.logaddexp(cut, p * np.log(largest)) - p * np.log(snr))


def turning_p(snr: ArrayLike) -> Value:
    """The p at which the annealed T is least: psi((p+1)/2) = log(SNR^2/2), close to SNR^2.

    A second crossing of T = 1 above it is spurious.

    Args:
        snr: signal to noise, > 0.

    Returns:
        p; 0 where T rises from the start.

    Raises:
        DomainError: for snr <= 0.

    Source: [derived, docs/theory.md (12.12)].
    """
    snr = finite("snr", snr)
    require("snr", snr, snr > 0, "positive")
    return as_value(elementwise(_turning_p, snr))


def _turning_p(snr: float) -> float:
    target = 2 * math.log(snr) - math.log(2)
    if target <= special.digamma(0.5):
        return 0.0
    if snr > 1e4:
        # psi(y) = log(y - 1/2) + 1/(24 y^2) + ...: p is SNR^2 up to 1/(6 SNR^2)
        return snr**2
    return bracketed_root(lambda p: float(special.digamma((p + 1) / 2)) - target, 0.0, snr**2 + 1, xtol=1e-12)


def freezing_p(log_n: ArrayLike) -> Value:
    """The p = 2 log n beyond which the odds rest on the largest noise alone.

    Args:
        log_n: natural logarithm of the number of keys.

    Raises:
        DomainError: for n < 1.

    Source: [derived, docs/theory.md (12.7)], leading order in log n.
    """
    return as_value(2 * log_count("log_n", log_n))


def hard_limit_weight(snr: ArrayLike, log_n: ArrayLike) -> Value:
    """Mean weight Phi(SNR)^(n-1) of the special key as p goes to infinity.

    Args:
        snr: signal to noise, > 0.
        log_n: natural logarithm of the number of keys.

    Returns:
        The weight, from logarithms.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.11)], exact.
    """
    snr = finite("snr", snr)
    require("snr", snr, snr > 0, "positive")
    return crossing_probability(1 / snr, 0.0, log_n)


def hard_boundary(log_n: ArrayLike) -> Value:
    """The SNR Phi^(-1)(2^(-1/(n-1))) at which `hard_limit_weight` is 1/2: the median of the largest noise.

    Args:
        log_n: natural logarithm of the number of keys n >= 2.

    Returns:
        SNR; 0 at n = 2.

    Raises:
        DomainError: for n < 2.

    Source: [derived, docs/theory.md (12.11)], exact.
    """
    others = _others(log_n)
    rate = math.log(2) * np.exp(-np.minimum(others, 700.0))
    log_tail = np.where(others < 30, np.log(-np.expm1(-rate)), math.log(math.log(2)) - others)
    return as_value(-special.ndtri_exp(log_tail))


def log_length_limit(p: ArrayLike, snr: ArrayLike) -> LengthLimit:
    """Longest context that p serves, T = 1 in annealed form: n_max = 1 + SNR^p/mu_p.

    Args:
        p: exponent, > 0.
        snr: signal to noise, > 0.

    Returns:
        log n_max, and whether p <= log n_max, where the formula is stated to hold; above, it is too low.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.13)], heuristic and conservative.
    """
    p, snr, _ = _domain(p, snr, 1.0)
    log_n = np.logaddexp(0.0, p * np.log(snr) - log_half_moment(p))
    return LengthLimit(as_value(log_n), np.asarray(p <= log_n).item() if np.ndim(log_n) == 0 else p <= log_n)


def required_snr(p: ArrayLike, log_n: ArrayLike) -> Value:
    """Signal to noise ((n-1) mu_p)^(1/p) that p needs to serve n keys, in annealed form.

    Args:
        p: exponent, > 0.
        log_n: natural logarithm of the number of keys n >= 2.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (12.13)], heuristic and conservative.
    """
    p, _, others = _domain(p, 1.0, log_n)
    return as_value(np.exp((others + log_half_moment(p)) / p))


def _others(log_n: ArrayLike) -> NDArray[np.float64]:
    log_n = log_count("log_n", log_n)
    require("log_n", log_n, log_n >= math.log(2) * (1 - 1e-12), "at least log 2 (n >= 2)")
    return np.asarray(log_others(log_n))


def _domain(
    p: ArrayLike, snr: ArrayLike, log_n: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    p, snr = finite("p", p), finite("snr", snr)
    require("p", p, p > 0, "positive")
    require("snr", snr, snr > 0, "positive")
    return p, snr, _others(log_n)
