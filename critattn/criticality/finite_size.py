"""Derivatives of curves with their peaks, and extrapolation of thresholds in 1/log n."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError


@dataclass(frozen=True)
class Susceptibility:
    """Derivative of a curve.

    Attributes:
        control: (m,) control values.
        values: (m,) derivative there.
        errors: (m,) standard errors; None for a curve without errors.
        peak: control value of the largest absolute derivative, from a parabola through three points; None where the
            largest value is at an end.
        peak_value: derivative at the peak; None with `peak`.
        peak_error: standard error of `peak`, to first order in the errors; None without them.
    """

    control: np.ndarray
    values: np.ndarray
    errors: np.ndarray | None
    peak: float | None
    peak_value: float | None
    peak_error: float | None


def _curve(
    control: ArrayLike, values: ArrayLike, errors: ArrayLike | None, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The three as float arrays of one length, in ascending order of the control."""
    x, y = np.asarray(control, dtype=float), np.asarray(values, dtype=float)
    if x.ndim != 1 or x.shape != y.shape or len(x) < least:
        raise DomainError.of("control, values", (x.shape, y.shape), f"two vectors of one length, at least {least}")
    e = None if errors is None else np.asarray(errors, dtype=float)
    if e is not None and (e.shape != x.shape or not np.all(e > 0)):
        raise DomainError("errors: must be positive and as many as the values (None for data without errors)")
    order = np.argsort(x, kind="stable")
    return x[order], y[order], None if e is None else e[order]


def _peak(x: np.ndarray, slope: np.ndarray) -> tuple[float, float] | None:
    """Vertex of the parabola through the largest absolute slope and its neighbours."""
    top = int(np.argmax(np.abs(slope)))
    if top in (0, len(x) - 1):
        return None
    scale = max(x[top] - x[top - 1], x[top + 1] - x[top])
    a, b, c = np.polyfit((x[top - 1 : top + 2] - x[top]) / scale, slope[top - 1 : top + 2], 2)
    if a == 0:
        return float(x[top]), float(slope[top])
    return float(x[top] - scale * b / (2 * a)), float(c - b**2 / (4 * a))


def _peak_error(x: np.ndarray, y: np.ndarray, errors: np.ndarray, derivative: np.ndarray) -> float:
    """First-order propagation through the peak, by differences small against the curve's own range."""
    centre, step, variance = _peak(x, derivative @ y), 1e-6 * np.ptp(y), 0.0
    top = int(np.argmax(np.abs(derivative @ y)))
    for index in range(max(top - 3, 0), min(top + 4, len(x))):
        moved = _peak(x, derivative @ (y + step * (np.arange(len(x)) == index)))
        if centre is None or moved is None:
            return np.nan
        variance += ((moved[0] - centre[0]) / step * errors[index]) ** 2
    return float(np.sqrt(variance))


def susceptibility(control: ArrayLike, values: ArrayLike, *, errors: ArrayLike | None = None) -> Susceptibility:
    """Derivative of an order parameter in its control parameter, and where it peaks.

    Second-order differences on any grid; errors of the points are taken as independent.

    Args:
        control: (m,) distinct control values, m >= 3.
        values: (m,) order parameter.
        errors: (m,) positive standard errors, or None.

    Returns:
        derivative and peak; a curve without a turning point inside its range has peak None.

    Raises:
        DomainError: for shapes that do not match, repeated control values, values not finite or errors not positive.
    """
    x, y, e = _curve(control, values, errors, 3)
    if not (np.all(np.isfinite(y)) and np.all(np.diff(x) > 0)):
        raise DomainError("control, values: must be distinct and finite")
    derivative = np.asarray(np.gradient(np.eye(len(x)), x, axis=0, edge_order=2))
    slope = derivative @ y
    spread = None if e is None else np.sqrt(derivative**2 @ e**2)
    peak = _peak(x, slope) if np.ptp(y) > 0 else None
    error = None if e is None or peak is None else _peak_error(x, y, e, derivative)
    return Susceptibility(x, slope, spread, *(peak or (None, None)), error)


@dataclass(frozen=True)
class Extrapolation:
    """A straight line in 1/log n through thresholds.

    Attributes:
        limit: its value at n -> infinity; None where there is none.
        slope: its coefficient of 1/log n; None with `limit`.
        limit_error: standard error of `limit`.
        slope_error: standard error of `slope`.
        reduced_chi_squared: chi^2 per degree of freedom; None for data without errors, whose residuals set the
            errors of limit and slope instead.
        converged: True where `limit` can be used.
        reason: a sentence where not converged.
    """

    limit: float | None
    slope: float | None
    limit_error: float | None
    slope_error: float | None
    reduced_chi_squared: float | None
    converged: bool
    reason: str = ""


def finite_size_scaling(log_n: ArrayLike, thresholds: ArrayLike, *, errors: ArrayLike | None = None) -> Extrapolation:
    """Extrapolate thresholds to infinite n by weighted least squares: gamma(n) = limit + slope/log n.

    Holds for the simplex and at fixed d/log n; at fixed d there is no limit to extrapolate to.

    Args:
        log_n: (m,) natural logarithms of the sizes, positive.
        thresholds: (m,) thresholds, nan where a size has none (left out).
        errors: (m,) positive standard errors, or None.

    Returns:
        the line; not converged for fewer than 3 distinct sizes, which leave nothing to judge it by.

    Raises:
        DomainError: for shapes that do not match, sizes or errors that are not positive.
    """
    x, y, e = _curve(log_n, thresholds, errors, 1)
    if not np.all(x > 0):
        raise DomainError.of("log_n", x.min(), "positive")
    known = np.isfinite(y) & np.isfinite(x)
    x, y, e = x[known], y[known], None if e is None else e[known]
    sizes = len(np.unique(x))
    if sizes < 3:
        return Extrapolation(None, None, None, None, None, False, f"{sizes} sizes with a threshold, 3 needed")
    weight = np.ones_like(x) if e is None else 1 / e
    design = np.stack([np.ones_like(x), 1 / x], axis=1) * weight[:, None]
    (limit, slope), *_ = np.linalg.lstsq(design, y * weight, rcond=None)
    chi = float(np.sum((design @ np.array([limit, slope]) - y * weight) ** 2) / (len(x) - 2))
    covariance = np.linalg.inv(design.T @ design) * (chi if e is None else 1.0)
    limit_error, slope_error = np.sqrt(np.diag(covariance))
    chi_squared = None if e is None else chi
    return Extrapolation(float(limit), float(slope), float(limit_error), float(slope_error), chi_squared, True)
