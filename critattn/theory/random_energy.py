"""Attention on independent Gaussian scores: the random energy model, its freezing and its finite-n values.

Weights are A_j = exp(beta g_j)/sum_k exp(beta g_k) with g_j independent standard normal. `reduced_beta` is
b = beta/sqrt(2 log n). Equation numbers refer to docs/theory.md.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.special import gammainc, gammaln, log_ndtr

from critattn.theory.simplex_state import Value, as_value, finite, log_count, require

# beyond this inverse temperature the tail integrals are taken by parts, which keeps them smooth in beta
WIDE = 2.0
CHUNK = 64
# the largest float is exp(709)
LARGEST_LOG_N = 700.0


def critical_beta(log_n: ArrayLike) -> Value:
    """Inverse temperature sqrt(2 log n) at which the weights freeze on finitely many keys.

    Args:
        log_n: natural logarithm of the number of keys.

    Returns:
        The critical inverse temperature, in nats per unit of score.

    Raises:
        DomainError: for n < 1.

    Source: [classical random energy model, docs/theory.md (5.0)].
    """
    return as_value(np.sqrt(2 * log_count("log_n", log_n)))


def sum_of_squares_limit(reduced_beta: ArrayLike) -> Value:
    """Limit 1 - 1/b of E sum_j A_j^2 as n goes to infinity, 0 for b <= 1.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) >= 0.

    Returns:
        The limit. It is approached as 1/log n: at finite n use `sum_of_squares`.

    Raises:
        DomainError: for b < 0.

    Source: [classical random energy model, docs/theory.md (5.1)].
    """
    b = _reduced(reduced_beta)
    return as_value(1 - 1 / np.maximum(b, 1.0))


def poisson_dirichlet_moment(reduced_beta: ArrayLike, k: ArrayLike) -> Value:
    """Limit Gamma(k-m)/(Gamma(k) Gamma(1-m)) of E sum_j A_j^k for m = 1/b < 1.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) > 1.
        k: exponent of the weights, k > m.

    Returns:
        The limit.

    Raises:
        DomainError: outside these ranges.

    Source: [classical random energy model, docs/theory.md (5.1)].
    """
    b, k = _reduced(reduced_beta), finite("k", k)
    require("reduced_beta", b, b > 1, "above 1, the frozen phase")
    require("k", k, k > 1 / b, "above 1/reduced_beta")
    return as_value(np.exp(gammaln(k - 1 / b) - gammaln(k) - gammaln(1 - 1 / b)))


def max_weight_limit(reduced_beta: ArrayLike) -> Value:
    """Limit of E max_j A_j as n goes to infinity, 0 for b <= 1.

    The integral over t > 0 of exp(-t)/(exp(-t) + t^m gamma(1-m, t)), with m = 1/b and gamma the lower
    incomplete gamma function.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) >= 0.

    Returns:
        The limit, to about 1e-12.

    Raises:
        DomainError: for b < 0.

    Source: [derived, docs/theory.md (5.2)].
    """
    return as_value(np.vectorize(_max_weight, otypes=[float])(_reduced(reduced_beta)))


def sum_of_squares(beta: ArrayLike, log_n: ArrayLike) -> Value:
    """Mean E sum_j A_j^2 = n int_0^inf t E[w^2 e^(-t w)] (E e^(-t w))^(n-1) dt, w = exp(beta g), at finite n.

    Args:
        beta: inverse temperature >= 0, in nats per unit of score.
        log_n: natural logarithm of the number of keys, up to 700; checked for n from 2 to 1e43.

    Returns:
        The mean over the scores, to about 1e-11 relative.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (5.3)].
    """
    beta = finite("beta", beta)
    require("beta", beta, beta >= 0, "at least 0")
    log_n = log_count("log_n", log_n)
    require("log_n", log_n, log_n <= LARGEST_LOG_N, f"at most {LARGEST_LOG_N}")
    return as_value(np.vectorize(_sum_of_squares, otypes=[float])(beta, log_n))


def typical_exponent(reduced_beta: ArrayLike) -> Value:
    """Exponent of n in the typical sum_j A_j^2: 2 b^2 - 1 (b < 1/2), -2 (1-b)^2 (b < 1), 0 beyond.

    Heuristic: leading order; the slope between n = 64 and 16384 at b = .5 is -.476 against -.5.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) >= 0.

    Returns:
        The exponent.

    Raises:
        DomainError: for b < 0.

    Source: [heuristic, docs/theory.md (5.4)].
    """
    b = _reduced(reduced_beta)
    return as_value(np.where(b < 0.5, 2 * b**2 - 1, -2 * (1 - np.minimum(b, 1.0)) ** 2))


def mean_exponent(reduced_beta: ArrayLike) -> Value:
    """Exponent of n in E sum_j A_j^2: 2 b^2 - 1 (b < 1/sqrt 3), -(1-b^2)^2/(4 b^2) (b < 1), 0 beyond.

    Heuristic: leading order; above 1/sqrt 3 rare rows with one outstanding score dominate the mean.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) >= 0.

    Returns:
        The exponent.

    Raises:
        DomainError: for b < 0.

    Source: [heuristic, docs/theory.md (5.4)].
    """
    b = _reduced(reduced_beta)
    capped = np.clip(b, 1 / math.sqrt(3), 1.0)
    return as_value(np.where(b < 1 / math.sqrt(3), 2 * b**2 - 1, -((1 - capped**2) ** 2) / (4 * capped**2)))


def free_energy_exponent(reduced_beta: ArrayLike) -> Value:
    """Limit of log(sum_j exp(beta g_j))/log n: 1 + b^2 (b <= 1), 2 b beyond.

    Args:
        reduced_beta: b = beta/sqrt(2 log n) >= 0.

    Returns:
        The limit.

    Raises:
        DomainError: for b < 0.

    Source: [classical random energy model, docs/theory.md (5.4)].
    """
    b = _reduced(reduced_beta)
    return as_value(np.where(b <= 1, 1 + b**2, 2 * b))


def _reduced(reduced_beta: ArrayLike) -> NDArray[np.float64]:
    b = finite("reduced_beta", reduced_beta)
    require("reduced_beta", b, b >= 0, "at least 0")
    return b


def _max_weight(b: float) -> float:
    if b <= 1:
        return 0.0
    m = 1 / b
    scale = math.gamma(1 - m)

    def integrand(u: float) -> float:
        t = math.exp(u)
        return t / (1 + t**m * scale * gammainc(1 - m, t) * math.exp(t))

    return quad(integrand, -40.0, 6.0, epsabs=1e-14, epsrel=1e-13, limit=400)[0]


def _sum_of_squares(beta: float, log_n: float, *, refine: float = 1.0) -> float:
    """(5.3) by the trapezoidal rule in u = log t, which is exact to round-off for these entire integrands.

    `refine` divides every step: the result must stand still.
    """
    if log_n == 0 or beta == 0:
        return math.exp(-log_n)
    largest = math.sqrt(2 * (2 * log_n + 45))
    step = 0.2 * max(1.0, beta / largest) / refine
    u = np.arange(-(log_n + 25 + beta * largest), 8 + 9 * beta, step)
    moments = _moments_wide if beta > WIDE else _moments_narrow
    others_share, inverse_n = -math.expm1(-log_n), math.exp(-log_n)
    total = 0.0
    for start in range(0, len(u), CHUNK):
        square, missing = moments(u[start : start + CHUNK, None], beta, log_n, refine)
        lost = np.clip(missing * inverse_n, 1e-300, 1.0)
        with np.errstate(divide="ignore"):
            exponent = others_share * missing * np.log1p(-lost) / lost
        total += float(np.sum(square * np.exp(exponent)))
    return step * total


def _moments_narrow(
    u: NDArray[np.float64], beta: float, log_n: float, refine: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Moments n E (t w)^2 e^(-t w) and n (1 - E e^(-t w)) at t = e^u, by the trapezoidal rule in the score."""
    step = 0.1 / refine
    g = np.arange(-10.0, math.sqrt(2 * (2 * log_n + 45)) + step, step)
    log_density = log_n - g**2 / 2
    z = np.minimum(u + beta * g, 30.0)
    size = np.exp(z)
    square = np.exp(log_density + 2 * z - size).sum(axis=1)
    missing = (np.exp(log_density) * -np.expm1(-size)).sum(axis=1)
    return square * (step / math.sqrt(2 * math.pi)), missing * (step / math.sqrt(2 * math.pi))


def _moments_wide(
    u: NDArray[np.float64], beta: float, log_n: float, refine: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same for large beta, by the trapezoidal rule in z = u + beta g; 1 - E e^(-t w) by parts."""
    step = 0.15 / refine
    z = np.arange(-(log_n + 85), 5.0, step)
    g = (z - u) / beta
    log_bump = z - np.exp(z) + log_n
    square = np.exp(log_bump + z - g**2 / 2).sum(axis=1)
    missing = np.exp(log_bump + log_ndtr(-g)).sum(axis=1)
    return square * (step / (beta * math.sqrt(2 * math.pi))), missing * step
