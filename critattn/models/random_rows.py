"""The critical multiplier of a row of independent Gaussian logits, at every number of keys and in the limit.

t_c is the factor t > 0 of a row's logits at which its largest weight is 1/2. Here the logits are k independent standard
normals; those of standard deviation s have t_c/s. Equation numbers refer to docs/theory.md.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.special import ndtr, ndtri_exp

from critattn.errors import DomainError
from critattn.theory.quadrature import bracketed_root

# Euler summation of the inverse Laplace transform: M terms are right to about 10^(-0.6 M) (Abate, Whitt 2006)
TERMS = 12
STEP_V = 0.03
STEP_X = 0.06
# what is left out of either integral, relative to 1
LEAST = 1e-9


def limiting_probability(reduced: ArrayLike) -> NDArray[np.float64]:
    """Limit of P(t_c <= t) as k goes to infinity: sin(pi m)/(pi m), m = sqrt(2 log k)/t < 1, and 0 for m >= 1.

    Args:
        reduced: t/sqrt(2 log k) > 0.

    Returns:
        The probability that the largest of the weights is above 1/2.

    Raises:
        DomainError: for reduced <= 0.

    Source: [derived, docs/theory.md (16.6)].
    """
    b = np.asarray(reduced, np.float64)
    if not np.all(b > 0):
        raise DomainError.of("reduced", reduced, "positive")
    return np.where(b > 1, np.sinc(1 / np.maximum(b, 1.0)), 0.0)


def limiting_median() -> float:
    """Limit 1.6574 of the median of t_c/sqrt(2 log k): the root of sin(pi m)/(pi m) = 1/2, inverted.

    Source: [derived, docs/theory.md (16.6)].
    """
    return 1 / bracketed_root(lambda m: float(np.sinc(m)) - 0.5, 0.1, 0.9, xtol=1e-15)


def crossing_probability(multiplier: float, keys: int) -> float:
    """P(t_c <= t) at finite k: the probability that the largest of k weights exp(t g_j) is above their half.

    k int phi(x) P(sum_{j<k} exp(t (g_j - x)) < 1) dx, the inner probability by Euler's sum for the inverse of its
    Laplace transform E[exp(-z exp(t (g - x)))]^(k-1)/z.

    Args:
        multiplier: t > 0, in nats per standard deviation of the logits.
        keys: k from 3 to 10^9.

    Returns:
        The probability, to about 1e-6.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (16.5)].
    """
    if not multiplier > 0:
        raise DomainError.of("multiplier", multiplier, "positive")
    _check_keys(keys)
    nodes, signs = _euler()
    # beyond these the others are not all below x, or no key is as high
    x = np.arange(-ndtri_exp(math.log1p(-(LEAST ** (1 / (keys - 1))))), -ndtri_exp(math.log(LEAST / keys)), STEP_X)
    lowest = max(-math.log(abs(nodes[-1]) * keys / LEAST), -multiplier * (x[-1] + 9))
    step = min(STEP_V, multiplier / 10)
    v = np.arange(lowest, math.log(40 / nodes[0].real), step)
    density = np.exp(-((x + v[:, None] / multiplier) ** 2) / 2) * (step / (multiplier * math.sqrt(2 * math.pi)))
    # einsum: where cores are busy, the threads of BLAS wait longer for each other than these products take
    real, imaginary = np.einsum("cij,jk->cik", _lost(nodes[:, None] * np.exp(v)), density)
    # 1 - E exp(-z exp v): the last key values beyond v are lost wholly
    missing = real + 1j * imaginary + ndtr(-(x + (v[-1] + step / 2) / multiplier))
    transforms = np.exp((keys - 1) * np.log1p(-missing)) / nodes[:, None]
    inner = math.pow(10.0, TERMS / 3) * (signs @ transforms.real)
    top = keys * np.exp(-(x**2) / 2) * (STEP_X / math.sqrt(2 * math.pi))
    return float(np.clip(np.sum(top * inner), 0, 1))


def _euler() -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """Nodes and weights of Euler's algorithm for the inverse Laplace transform at 1."""
    order = np.arange(2 * TERMS + 1)
    weights = np.ones(2 * TERMS + 1)
    weights[0] = 0.5
    binomials = np.array([math.comb(TERMS, j) for j in range(TERMS + 1)]) * 2.0**-TERMS
    weights[TERMS:] = np.cumsum(binomials[::-1])[::-1]
    nodes = np.asarray(TERMS * math.log(10) / 3 + 1j * math.pi * order, np.complex128)
    return nodes, (-1.0) ** order * weights


def _lost(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Real and imaginary part of 1 - exp(-z) along a first axis, without cancellation at small z."""
    decay, half = np.exp(-z.real), np.sin(z.imag / 2)
    return np.stack([2 * half**2 * decay - np.expm1(-z.real), decay * np.sin(z.imag)])


def _check_keys(keys: int) -> None:
    if not 3 <= keys <= 10**9:
        raise DomainError.of("keys", keys, "from 3 to 10^9")


@lru_cache(maxsize=1024)
def median_multiplier(keys: int, probability: float = 0.5) -> float:
    """Median, or another quantile, of t_c of k independent standard normal logits.

    Args:
        keys: k from 3 to 10^9.
        probability: which quantile, in (0, 1).

    Returns:
        t_c in nats per standard deviation.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (16.5)].
    """
    _check_keys(keys)
    if not 0 < probability < 1:
        raise DomainError.of("probability", probability, "in (0, 1)")
    scale = math.sqrt(2 * math.log(keys))
    low, high = 0.5 * scale, 2 * scale
    while crossing_probability(low, keys) > probability:
        low /= 2
    while crossing_probability(high, keys) < probability:
        high *= 2
    return bracketed_root(lambda t: crossing_probability(t, keys) - probability, low, high, xtol=1e-6)


def median_multipliers(keys: ArrayLike) -> NDArray[np.float64]:
    """`median_multiplier` of an array of key counts; more than eight different ones by a cubic spline in log k.

    Args:
        keys: whole numbers k >= 3, any shape.

    Returns:
        t_c in nats per standard deviation, same shape; the spline is right to about 1e-3 relative.

    Raises:
        DomainError: outside this range.

    Source: [derived, docs/theory.md (16.5)].
    """
    given = np.asarray(keys)
    unique, inverse = np.unique(given, return_inverse=True)
    if unique.size <= 8:
        return np.array([median_multiplier(int(k)) for k in unique])[inverse].reshape(given.shape)
    count = max(4, 3 + math.ceil(1.2 * math.log(unique[-1] / unique[0])))
    nodes = np.unique(np.round(np.geomspace(unique[0], unique[-1], count)).astype(int))
    if nodes.size < 4:
        nodes = unique
    found = [median_multiplier(int(k)) for k in nodes]
    return CubicSpline(np.log(nodes), found)(np.log(unique))[inverse].reshape(given.shape)
