"""Moments of a coordinate on the sphere, and quadrature over the cosine with a common direction."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy import interpolate, optimize, special

from critattn.errors import DomainError

Numbers = float | np.ndarray
LARGE_ORDER = 30.0
HANKEL_FROM = 1e6


def elementwise(function: Callable[..., float], *arguments: ArrayLike) -> Numbers:
    """Apply a scalar function over broadcast arguments; scalars in give a float out.

    Args:
        function: takes as many floats as there are arguments.
        *arguments: scalars or arrays of broadcastable shapes.
    """
    arrays = np.broadcast_arrays(*(np.asarray(argument, dtype=float) for argument in arguments))
    values = [function(*map(float, items)) for items in zip(*(array.ravel() for array in arrays), strict=True)]
    return values[0] if arrays[0].ndim == 0 else np.reshape(values, arrays[0].shape)


def as_numbers(array: np.ndarray) -> Numbers:
    """A float where the array has no axes, else the array itself."""
    return float(array) if np.ndim(array) == 0 else array


def bracketed_root(f: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
    """Root of a continuous function between two points of opposite sign, by Brent's method."""
    return float(optimize.root_scalar(f, bracket=(low, high), method="brentq", xtol=xtol, rtol=1e-14).root)


def root_near(f: Callable[[float], float], guess: float, *, ratio: float, limit: float) -> float:
    """Root of an increasing function near a guess, by a geometric bracket; nan where above the limit."""
    low, high = guess / ratio, min(guess * ratio, limit)
    while f(low) > 0:
        low, high, ratio = low / ratio, low, ratio**1.5
    while f(high) < 0:
        if high >= limit:
            return np.nan
        low, high, ratio = high, min(high * ratio, limit), ratio**1.5
    return bracketed_root(f, low, high, xtol=1e-13 * high)


def _debye_polynomials(count: int) -> list[Polynomial]:
    """Polynomials u_1 ... u_count of the uniform expansion of I_nu, by their recurrence [DLMF 10.41.9]."""
    t2, polynomials = Polynomial([0, 0, 1.0]), [Polynomial([1.0])]
    for _ in range(count):
        u = polynomials[-1]
        polynomials.append(t2 * (1 - t2) * u.deriv() / 2 + ((1 - 5 * t2) * u).integ() / 8)
    return polynomials[1:]


DEBYE = _debye_polynomials(8)
DEBYE_SLOPES = [polynomial.deriv() for polynomial in DEBYE]


def _debye_series(polynomials: list[Polynomial], s: np.ndarray, nu: np.ndarray) -> np.ndarray:
    total = np.zeros_like(s)
    for polynomial in reversed(polynomials):
        total = (total + polynomial(s)) / nu
    return total


def _moment_series(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Power series of M_d, for k^2 <= 4 d: every term is positive."""
    y, term, total = k * (k / (2 * d)), np.ones_like(k), np.zeros_like(k)
    for m in range(1, 26):
        term = term * y / (m * (1 + 2 * (m - 1) / d))
        total = total + term
    return np.log1p(total)


def _moment_debye(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Uniform expansion, Stirling's series cancelled by hand: nothing of size nu log nu is left."""
    nu = d / 2 - 1
    z = k / nu
    w = np.hypot(1.0, z)
    excess = z * (z / (1 + w))
    small = 1 / nu
    stirling = np.polyval([-1 / 1680, 1 / 1260, -1 / 360, 1 / 12], small**2) * small
    series = np.log1p(_debye_series(DEBYE, 1 / w, nu))
    return nu * (excess - np.log1p(excess / 2)) - np.log(w) / 2 + stirling + series


def _log_scaled_bessel(nu: np.ndarray, k: np.ndarray) -> np.ndarray:
    """log(e^{-k} I_nu(k)) at moderate order: Hankel's expansion beyond the range of the library routine."""
    far, mu = np.maximum(k, HANKEL_FROM), 4 * nu**2
    factor = -(mu - 1) / (8 * far) * (1 - (mu - 9) / (16 * far) * (1 - (mu - 25) / (24 * far)))
    hankel = -np.log(2 * np.pi * far) / 2 + np.log1p(factor)
    return np.where(k < HANKEL_FROM, np.log(special.ive(nu, np.minimum(k, HANKEL_FROM))), hankel)


def _moment_bessel(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    nu = d / 2 - 1
    return special.gammaln(d / 2) - nu * np.log(k / 2) + _log_scaled_bessel(nu, k) + k


def _ratio_series(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    return k / d * np.exp(_moment_series(k, d + 2) - _moment_series(k, d))


def _ratio_debye(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Derivative of `_moment_debye` in k, term by term."""
    nu = d / 2 - 1
    z = k / nu
    w = np.hypot(1.0, z)
    slope = _debye_series(DEBYE_SLOPES, 1 / w, nu) / (1 + _debye_series(DEBYE, 1 / w, nu))
    return z / (1 + w) - (z / w) / w * (0.5 + slope / w) / nu


def _ratio_bessel(k: np.ndarray, d: np.ndarray) -> np.ndarray:
    return np.exp(_log_scaled_bessel(d / 2, k) - _log_scaled_bessel(d / 2 - 1, k))


def _by_regime(k: ArrayLike, d: ArrayLike, rules: tuple[Callable[..., np.ndarray], ...]) -> Numbers:
    """Evaluate the rule that is accurate at each (k, d): small k, large order, or moderate order."""
    k, d = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(d, dtype=float))
    if np.any(d < 1):
        raise DomainError.of("d", float(np.min(d)), "at least 1")
    if np.any(k < 0):
        raise DomainError.of("k", float(np.min(k)), "at least 0")
    out, small, uniform = np.full(k.shape, np.nan), k <= 2 * np.sqrt(d), d / 2 - 1 >= LARGE_ORDER
    for mask, rule in zip((small, ~small & uniform, ~small & ~uniform), rules, strict=True):
        if np.any(mask):
            out[mask] = rule(k[mask], d[mask])
    return as_numbers(out)


def log_moment(k: ArrayLike, d: ArrayLike) -> Numbers:
    """Logarithm of M_d(k) = E e^{k u_1}, u uniform on the unit sphere of R^d.

    M_d(k) = Gamma(d/2) (2/k)^{d/2-1} I_{d/2-1}(k); cosh k at d = 1, I_0(k) at d = 2.
    Power series for k^2 <= 4 d, else the uniform expansion of I_nu for nu >= 30, or the scaled I_nu.

    Args:
        k: inverse temperature (nats), >= 0; any shape.
        d: dimension, >= 1, broadcast against k.

    Returns:
        log M_d(k) in nats, relative error below 1e-12.

    Raises:
        DomainError: for k < 0 or d < 1.

    Source: [derived, docs/theory.md (4.5)].
    """
    return _by_regime(k, d, (_moment_series, _moment_debye, _moment_bessel))


def bessel_ratio(kappa: ArrayLike, d: ArrayLike) -> Numbers:
    """Mean resultant length of the von Mises-Fisher law, the derivative of `log_moment`.

    A_d(kappa) = I_{d/2}(kappa)/I_{d/2-1}(kappa).

    Args:
        kappa: concentration, >= 0; any shape.
        d: dimension, >= 1, broadcast against kappa.

    Returns:
        a number in [0, 1].

    Raises:
        DomainError: for kappa < 0 or d < 1.

    Source: [derived, docs/theory.md (4.10)].
    """
    return _by_regime(kappa, d, (_ratio_series, _ratio_debye, _ratio_bessel))


@functools.lru_cache(maxsize=32)
def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the Gauss-Legendre rule on [0, 1], each (count,)."""
    nodes, weights = special.roots_legendre(count)
    return (nodes + 1) / 2, weights / 2


def peak_window(
    log_f: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, *, drop: float = 40.0
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink intervals (rows, 1) to where unimodal functions are within e^-drop of their maxima.

    Args:
        log_f: maps points (rows, points) to logarithms of the functions, row by row.
        low: lower ends, (rows, 1).
        high: upper ends, (rows, 1).
        drop: nats below the maximum that may be cut off.
    """
    count = 17
    fractions = (np.arange(count) + 0.5) / count
    padded = np.concatenate([[0.0], fractions, [1.0]])
    for _ in range(16):
        values = log_f(low + (high - low) * fractions)
        inside = values > values.max(axis=1, keepdims=True) - drop
        first = padded[np.argmax(inside, axis=1)][:, None]
        last = padded[count + 1 - np.argmax(inside[:, ::-1], axis=1)][:, None]
        low, high = low + (high - low) * first, high - (high - low) * (1 - last)
        if np.all(last - first > 0.5):
            break
    return low, high


def _log_radial_remainder(q: np.ndarray, d: float) -> np.ndarray:
    """Log of the radial integral over its Gaussian approximation at the peak, times sqrt(2 pi).

    The trapezoidal rule in log r converges exponentially; the left tail falls like e^{tau sqrt(d)}.
    """
    tau = np.arange(-32.0, 14.0, 0.25)
    square = np.exp(2 * q)[:, None]
    step = tau / np.sqrt(d * (1 + square))
    exponent = d * (step - (square * np.expm1(2 * step) - 2 * (square - 1) * np.expm1(step)) / 2)
    return np.asarray(special.logsumexp(exponent, axis=1)) + np.log(0.25)


@dataclass(frozen=True)
class CommonDirection:
    """The law of the angle between a token and the common direction, and averages over it.

    Tokens are N(sqrt(rho) z_0 + sqrt(1-rho) z_i) with z_i Gaussian of variance 1/d a coordinate and
    |z_0|^2 = 1, so that v = a/sqrt(1-a^2), a the cosine, has v sqrt(d-1) noncentral t with d-1 degrees of
    freedom and noncentrality sqrt(rho d/theta). The density of the angle is used instead, which stays smooth
    at any d: sin^{d-2}(angle) times a radial integral [derived, docs/theory.md (4.7)].

    Attributes:
        rho: common cosine, in (0, 1).
        d: dimension, >= 2.
    """

    rho: float
    d: float

    @property
    def ratio(self) -> float:
        """Half of sqrt(rho/theta)."""
        return np.sqrt(self.rho / (1 - self.rho)) / 2

    @functools.cached_property
    def remainder(self) -> interpolate.CubicSpline:
        """The radial remainder as a function of q/q_max in [-1, 1]."""
        knots = np.linspace(-1.0, 1.0, 257)
        return interpolate.CubicSpline(knots, _log_radial_remainder(knots * np.arcsinh(self.ratio), self.d))

    def log_density(self, angle: np.ndarray) -> np.ndarray:
        """Logarithm of the density of the angle in (0, pi), up to a constant."""
        q, top = np.arcsinh(self.ratio * np.cos(angle)), np.arcsinh(self.ratio)
        radial = self.d * (q - top + (np.exp(2 * q) - np.exp(2 * top)) / 2)
        return (self.d - 2) * np.log(np.sin(angle)) + radial - np.log1p(np.exp(2 * q)) / 2 + self.remainder(q / top)

    @functools.cached_property
    def window(self) -> tuple[float, float]:
        """Interval of angles outside of which the density is negligible."""
        low, high = peak_window(self.log_density, np.zeros((1, 1)), np.full((1, 1), np.pi))
        return low.item(), high.item()

    def nodes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Angles and weights (count,) of a Gauss-Legendre rule for expectations over the law."""
        (low, high), (nodes, weights) = self.window, gauss_legendre(count)
        angle = low + (high - low) * nodes
        log_f = self.log_density(angle)
        weights = weights * np.exp(log_f - log_f.max())
        return angle, weights / weights.sum()

    @functools.cached_property
    def log_norm(self) -> float:
        """Log of the integral of exp(log_density)."""
        (low, high), (nodes, weights) = self.window, gauss_legendre(128)
        values = self.log_density(low + (high - low) * nodes)
        return float(np.asarray(special.logsumexp(values, b=weights * (high - low))))

    @functools.cached_property
    def median(self) -> float:
        """The median angle."""
        (low, high), (nodes, weights) = self.window, gauss_legendre(128)

        def excess(angle: float) -> float:
            values = self.log_density(low + (angle - low) * nodes)
            return float((angle - low) * weights @ np.exp(values - self.log_norm)) - 0.5

        return bracketed_root(excess, low + 1e-9 * (high - low), high, xtol=1e-14)

    def log_crowd(self, beta: np.ndarray, angle: np.ndarray, *, count: int) -> np.ndarray:
        """Log of the mean of e^{beta <y, y'>} over the law of the key y', for queries y at the given angles.

        E_u[e^{beta a u} M_{d-1}(beta sqrt(1-a^2) sqrt(1-u^2))], a and u the cosines of query and key
        [derived, docs/theory.md (4.7)].

        Args:
            beta: inverse temperature of each query, (rows,).
            angle: angle of each query with the common direction, (rows,).
            count: nodes of the rule, placed where the tilted integrand of each row lives.

        Returns:
            (rows,) nats.
        """
        along, across = (beta * np.cos(angle))[:, None], (beta * np.sin(angle))[:, None]

        def tilted(key: np.ndarray) -> np.ndarray:
            return self.log_density(key) + along * np.cos(key) + log_moment(across * np.sin(key), self.d - 1)

        ends = np.zeros((len(angle), 1)), np.full((len(angle), 1), np.pi)
        low, high = peak_window(tilted, *ends)
        nodes, weights = gauss_legendre(count)
        values = tilted(low + (high - low) * nodes)
        return np.asarray(special.logsumexp(values, b=weights * (high - low), axis=1)) - self.log_norm


@functools.lru_cache(maxsize=64)
def common_direction(rho: float, d: float) -> CommonDirection:
    """The law at (rho, d), kept so that a curve in gamma sets it up once."""
    return CommonDirection(rho, d)
