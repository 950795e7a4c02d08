"""Data collapse: curves of several sizes on one master curve of (control - critical) scale(n)^exponent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike
from scipy import interpolate, optimize

from critattn.errors import DomainError

LEAST_OVERLAP = 0.2


@dataclass(frozen=True)
class Collapse:
    """The best collapse of curves of several sizes.

    Attributes:
        critical: critical value of the control parameter; None where no collapse was found.
        exponent: exponent of the scaling variable.
        quality: with errors, chi^2 per residual (near 1 is good); without, root-mean-square distance between the
            curves over the spread of their values (near 0 is good).
        standard_error: standard error of `critical`; None for data without errors.
        exponent_error: standard error of `exponent`; None where fixed or without errors.
        residuals: number of point-to-curve distances that entered.
        converged: True where `critical` can be used.
        reason: a sentence where not converged.
    """

    critical: float | None
    exponent: float | None
    quality: float | None
    standard_error: float | None
    exponent_error: float | None
    residuals: int
    converged: bool
    reason: str = ""


@dataclass(frozen=True)
class _Curves:
    """Curves with their interpolants; `bases` interpolate unit vectors, for the errors of interpolated values."""

    control: np.ndarray
    values: np.ndarray
    errors: np.ndarray | None
    scales: np.ndarray
    splines: list[interpolate.BSpline]
    bases: list[interpolate.BSpline]

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest control value."""
        return float(self.control.min()), float(self.control.max())

    def shifted(self, noise: np.ndarray) -> "_Curves":
        """The same curves with noise (sizes, points) added to their values."""
        values = self.values + noise
        rows = zip(self.control, values, self.splines, strict=True)
        splines = [interpolate.make_interp_spline(x, y, k=spline.k) for x, y, spline in rows]
        return replace(self, values=values, splines=splines)

    def pairs(self, critical: float, exponent: float) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """For each ordered pair of sizes: the points of one inside the range of the other, and where they land."""
        found = []
        for i, j in permutations(range(len(self.scales)), 2):
            landed = critical + (self.control[i] - critical) * (self.scales[i] / self.scales[j]) ** exponent
            inside = np.flatnonzero((landed >= self.control[j][0]) & (landed <= self.control[j][-1]))
            found.append((i, j, inside, landed[inside]))
        return found

    def residuals(self, critical: float, exponent: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distances of points from the other curves, their variances (ones without errors), and the values."""
        distance, variance, value = [], [], []
        for i, j, inside, landed in self.pairs(critical, exponent):
            value.append(self.values[i][inside])
            distance.append(value[-1] - self.splines[j](landed))
            if self.errors is None:
                variance.append(np.ones(len(inside)))
            else:
                borrowed = self.bases[j](landed) ** 2 @ self.errors[j] ** 2
                variance.append(self.errors[i][inside] ** 2 + borrowed)
        return np.concatenate(distance), np.concatenate(variance), np.concatenate(value)

    def quality(self, critical: float, exponent: float) -> float:
        """The quantity that the best collapse minimises; inf where too little overlaps.

        The spread of the values that overlap divides it, or flat tails, which collapse anywhere, would win.
        """
        distance, variance, value = self.residuals(critical, exponent)
        if distance.size < LEAST_OVERLAP * self.values.size * (len(self.scales) - 1) or np.ptp(value) == 0:
            return np.inf
        weighted = float(np.mean(distance**2 / variance))
        return weighted / float(np.var(value)) * float(np.var(self.values))


def _degree(points: int, errors: np.ndarray | None) -> int:
    wanted = 5 if errors is None else 3
    return max(degree for degree in (1, 3, 5) if degree <= min(wanted, points - 1))


def _checked_curves(
    control: ArrayLike, sizes: ArrayLike, values: ArrayLike, *, errors: ArrayLike | None, scale: Callable
) -> _Curves:
    y, n = np.asarray(values, dtype=float), np.asarray(sizes, dtype=float)
    if y.ndim != 2 or n.shape != y.shape[:1] or len(n) < 2 or y.shape[1] < 3:
        raise DomainError.of("values", y.shape, "(sizes, control values), at least 2 sizes of at least 3 values")
    try:
        x = np.broadcast_to(np.asarray(control, dtype=float), y.shape)
        e = None if errors is None else np.broadcast_to(np.asarray(errors, dtype=float), y.shape)
    except ValueError:
        raise DomainError("control, errors: must have the shape of the values, or of one row of them") from None
    if not (np.all(np.isfinite(y)) and np.all(np.diff(x, axis=1) > 0)):
        raise DomainError("control, values: must be finite, the control ascending")
    if e is not None and not np.all(e > 0):
        raise DomainError.of("errors", float(e.min()), "positive (None for data without errors)")
    s = np.asarray(scale(n), dtype=float)
    if not np.all((s > 0) & np.isfinite(s)) or len(np.unique(s)) < 2:
        raise DomainError.of("scale(sizes)", s, "positive, with at least two distinct values")
    degree = _degree(y.shape[1], e)
    splines = [interpolate.make_interp_spline(row, curve, k=degree) for row, curve in zip(x, y, strict=True)]
    bases = [interpolate.make_interp_spline(row, np.eye(len(row)), k=degree) for row in x] if e is not None else []
    return _Curves(x, y, e, s, splines, bases)


def _grid_start(curves: _Curves, exponent: float, fit_exponent: bool) -> np.ndarray | None:
    """The best (critical, exponent) of a grid over the range of the control; None where nothing overlaps."""
    grid = np.linspace(*curves.range, 129)
    exponents = exponent * (np.geomspace(0.25, 4.0, 17) if fit_exponent else np.ones(1))
    table = np.array([[curves.quality(x, power) for x in grid] for power in exponents])
    row, column = np.unravel_index(np.argmin(table), table.shape)
    return np.array([grid[column], exponents[row]]) if np.isfinite(table[row, column]) else None


def _minimise(curves: _Curves, start: np.ndarray, fit_exponent: bool, *, tolerance: float) -> np.ndarray:
    """Local search from (critical, exponent), the exponent held fixed unless fitted."""
    free = 1 + fit_exponent
    steps = np.array([(curves.range[1] - curves.range[0]) / 128, 0.1 * start[1]])[:free]

    def objective(point: np.ndarray) -> float:
        full = np.concatenate([point, start[free:]])
        return curves.quality(*map(float, full)) if full[1] > 0 else np.inf

    simplex = start[:free] + np.concatenate([np.zeros((1, free)), np.diag(steps)])
    options = {"initial_simplex": simplex, "xatol": tolerance * steps[0], "fatol": np.inf, "maxiter": 600}
    best = optimize.minimize(objective, start[:free], method="Nelder-Mead", options=options)
    return np.concatenate([best.x, start[free:]])


def _spread(curves: _Curves, best: np.ndarray, fit_exponent: bool, *, resamples: int, seed: int) -> np.ndarray:
    """Standard deviation of the fit when the errors are drawn once more on top of the data.

    Linear propagation is 20 % low at errors of 1 %: the slopes of the interpolants are noisy themselves.
    """
    rng, fits = np.random.default_rng(seed), []
    for _ in range(resamples):
        noise = rng.normal(0.0, curves.errors if curves.errors is not None else 0.0, curves.values.shape)
        fits.append(_minimise(curves.shifted(noise), best, fit_exponent, tolerance=1e-3))
    return np.std(fits, axis=0, ddof=1)


def _doubt(curves: _Curves, critical: float, quality: float) -> str:
    """Why the best collapse is none; empty where it is one."""
    low, high = curves.range
    if min(critical - low, high - critical) <= 1e-6 * (high - low):
        return "the best collapse is at the edge of the control range"
    if curves.errors is None and quality > 0.9:
        return "the curves do not collapse: they stay as far apart as their values spread"
    return ""


def data_collapse(
    control: ArrayLike,
    sizes: ArrayLike,
    values: ArrayLike,
    *,
    errors: ArrayLike | None = None,
    scale: Callable[[np.ndarray], np.ndarray] = np.log,
    exponent: float = 1.0,
    fit_exponent: bool = False,
    resamples: int = 50,
    seed: int = 0,
) -> Collapse:
    """Find the critical value that brings curves of several sizes onto one master curve.

    The scaling variable is (control - critical) scale(n)^exponent. Each point is compared with the curve of every
    other size, interpolated at the same scaling variable (splines of degree 5 for data without errors, 3 with), as
    in the method of Houdayer and Hartmann [PRB 70, 014418 (2004)], heuristic. The search covers the range of the
    control; points outside of another curve's range are left out.

    Args:
        control: (m,) or (sizes, m) ascending control values.
        sizes: (sizes,) numbers of tokens.
        values: (sizes, m) order parameter.
        errors: (sizes, m) positive standard errors, taken as independent, or None.
        scale: maps sizes to the scale, log n by default.
        exponent: exponent of the scale, or where its search starts.
        fit_exponent: fit the exponent too.
        resamples: fits to data with the errors drawn once more, for the standard errors.
        seed: of these draws.

    Returns:
        the collapse; not converged where the curves do not overlap or the best value is at the edge of the control.

    Raises:
        DomainError: for shapes that do not match, values that are not finite, errors that are not positive.
    """
    if not (exponent > 0 and np.isfinite(exponent)):
        raise DomainError.of("exponent", exponent, "positive")
    if resamples < 2:
        raise DomainError.of("resamples", resamples, "at least 2")
    curves = _checked_curves(control, sizes, values, errors=errors, scale=scale)
    start = _grid_start(curves, exponent, fit_exponent)
    if start is None:
        return Collapse(None, None, None, None, None, 0, False, "the scaled curves overlap too little, or are flat")
    fitted = _minimise(curves, start, fit_exponent, tolerance=1e-10)
    critical, power = map(float, fitted)
    distance, variance, value = curves.residuals(critical, power)
    quality = float(np.mean(distance**2 / variance))
    if curves.errors is None:
        quality, error, power_error = float(np.sqrt(quality / np.var(value))), None, None
    else:
        error, power_error = map(float, _spread(curves, fitted, fit_exponent, resamples=resamples, seed=seed))
    reason = _doubt(curves, critical, quality)
    power_error = power_error if fit_exponent else None
    return Collapse(critical, power, quality, error, power_error, distance.size, not reason, reason)
