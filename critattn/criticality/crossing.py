"""Where a curve crosses a level: bracketed root finding on the curve itself, never on a grid of its values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize
from scipy.optimize import elementwise

from critattn.errors import DomainError
from critattn.protocols import Estimate

Curve = Callable[[float], Estimate]


@dataclass(frozen=True)
class Threshold:
    """A critical value of a control parameter, or why there is none.

    Attributes:
        parameter: name of the control parameter.
        critical: the critical value; None where there is none.
        standard_error: one standard deviation of `critical`; None for a curve without errors.
        method: how it was found.
        converged: True where `critical` can be used.
        reason: a sentence where not converged, or where the error is missing; else empty.
    """

    parameter: str
    critical: float | None
    standard_error: float | None
    method: str
    converged: bool
    reason: str = ""


class _NoCrossing(Exception):
    """Carries the sentence that says why a search ended without a root."""


class _Recorded:
    """A curve minus its level that refuses values which are not finite."""

    def __init__(self, curve: Curve, level: float, parameter: str):
        self.curve, self.level, self.parameter = curve, level, parameter

    def __call__(self, x: float) -> float:
        value = float(self.curve(float(x)).value)
        if not np.isfinite(value):
            raise _NoCrossing(f"the curve is {value} at {self.parameter} = {x:.6g}")
        return value - self.level


def _check_search(bracket: Sequence[float], level: float, tolerance: float, expand_to: float | None) -> None:
    if len(bracket) != 2 or not np.all(np.isfinite(bracket)) or not bracket[0] < bracket[1]:
        raise DomainError.of("bracket", tuple(bracket), "two finite numbers, the lower first")
    if not np.isfinite(level):
        raise DomainError.of("level", level, "finite")
    if not tolerance > 0:
        raise DomainError.of("tolerance", tolerance, "positive")
    if expand_to is not None and not (np.isfinite(expand_to) and expand_to >= bracket[1]):
        raise DomainError.of("expand_to", expand_to, f"finite and at least the upper end {bracket[1]:.6g}")


def _crossed_intervals(points: list[float], excess: list[float], increasing: bool | None) -> list[tuple[float, float]]:
    """Neighbouring points between which the sign changes, upwards or downwards as asked; 0 counts as above."""
    steps = pairwise(zip(points, excess, strict=True))
    found = [(x, y, g >= 0) for (x, f), (y, g) in steps if (f >= 0) != (g >= 0)]
    touched = [(x, x) for x, f in zip(points, excess, strict=True) if f == 0]
    wanted = [(x, y) for x, y, upwards in found if increasing is None or upwards == increasing]
    return wanted if found else touched[:1]


def _never_crosses(f: _Recorded, points: list[float], excess: list[float], quantity: str) -> str:
    values = [value + f.level for value in excess]
    ends = f"between {f.parameter} = {points[0]:.6g} and {points[-1]:.6g}"
    if max(values) - min(values) <= 1e-14 * max(map(abs, values)):
        return f"{quantity} is flat, {values[-1]:.3g}, {ends}"
    if max(excess) > 0 > min(excess):
        return f"{quantity} crosses {f.level:g} only in the other direction {ends}"
    if excess[-1] < 0:
        return f"{quantity} stays below {f.level:g} up to {f.parameter} = {points[-1]:.6g} ({values[-1]:.3g} there)"
    return f"{quantity} stays above {f.level:g} {ends} ({min(values):.3g} at least)"


def _bracket(
    f: _Recorded,
    bracket: Sequence[float],
    *,
    probes: int,
    expand_to: float | None,
    increasing: bool | None,
    quantity: str,
) -> tuple[float, float]:
    """The only interval of the probe that is crossed, after doubling the bracket's length where none is."""
    points = [float(x) for x in np.linspace(bracket[0], bracket[1], probes)]
    excess = [f(x) for x in points]
    limit = points[-1] if expand_to is None else expand_to
    while not (crossed := _crossed_intervals(points, excess, increasing)) and points[-1] < limit:
        points.append(min(2 * points[-1] - points[0], limit))
        excess.append(f(points[-1]))
    if not crossed:
        raise _NoCrossing(_never_crosses(f, points, excess, quantity))
    if len(crossed) > 1:
        where = ", ".join(f"{low:.6g} to {high:.6g}" for low, high in crossed)
        raise _NoCrossing(f"{quantity} crosses {f.level:g} {len(crossed)} times: {f.parameter} = {where}")
    return crossed[0]


def _slope(f: _Recorded, root: float, step: float, bracket: tuple[float, float]) -> float:
    low, high = max(root - step, bracket[0]), min(root + step, bracket[1])
    return (f(high) - f(low)) / (high - low)


def _delta_error(f: _Recorded, root: float, error: float, bracket: tuple[float, float]) -> float | None:
    """Error of the curve over its slope, taken across one standard error so that noise averages out."""
    length = bracket[1] - bracket[0]
    least, step = max(1e-7 * length, 1e-8 * max(1.0, abs(root))), 1e-3 * length
    slope = 0.0
    for _ in range(4):
        slope = _slope(f, root, step, bracket)
        if slope == 0:
            return None
        step = float(np.clip(error / abs(slope), least, 0.1 * length))
    return error / abs(slope)


def find_crossing(
    curve: Curve,
    *,
    level: float = 0.5,
    bracket: tuple[float, float],
    parameter: str = "gamma",
    tolerance: float = 1e-10,
    increasing: bool | None = None,
    expand_to: float | None = None,
    probes: int = 5,
    quantity: str = "the curve",
) -> Threshold:
    """Find where a curve crosses a level: Brent's method on the curve, the error by the delta method.

    standard error = se(curve)/|slope| at the root. The curve is first probed at `probes` equally spaced points of
    the bracket, which finds repeated crossings of a curve that is not monotone as far as that grid resolves them.

    Args:
        curve: maps the control parameter to an Estimate; the same tokens at every value make it smooth.
        level: the level, in the unit of the curve.
        bracket: lower and upper end of the search.
        parameter: name of the control parameter, for the result.
        tolerance: error of the root, relative to max(1, |root|).
        increasing: count upward (True) or downward (False) crossings only; None for either.
        expand_to: where no crossing is bracketed, the bracket doubles up to this value.
        probes: evaluations before the root is bracketed, at least 2.
        quantity: what the curve is, for the sentence of a failure.

    Returns:
        the threshold; a search that fails has critical None and a reason.

    Raises:
        DomainError: for a bracket, level, tolerance or limit that makes no search.
    """
    _check_search(bracket, level, tolerance, expand_to)
    if probes < 2:
        raise DomainError.of("probes", probes, "at least 2")
    f = _Recorded(curve, level, parameter)
    search = {"probes": probes, "expand_to": expand_to, "increasing": increasing}
    try:
        low, high = _bracket(f, bracket, **search, quantity=quantity)
        return _refine(f, low, high, tolerance=tolerance, quantity=quantity)
    except _NoCrossing as failure:
        return Threshold(parameter, None, None, "brent", False, str(failure))


def _refine(f: _Recorded, low: float, high: float, *, tolerance: float, quantity: str) -> Threshold:
    """Root inside an interval that is crossed, with its error."""
    if low == high:
        root, low, high = low, low - 1e-3 * max(1, abs(low)), high + 1e-3 * max(1, abs(high))
    else:
        xtol = tolerance * max(1.0, abs(low))
        found = optimize.root_scalar(f, bracket=(low, high), method="brentq", xtol=xtol, rtol=1e-14)
        root = float(found.root)
    error = f.curve(root).standard_error
    if error is None:
        return Threshold(f.parameter, root, None, "brent", True)
    spread = _delta_error(f, root, float(error), (low, high))
    reason = "" if spread is not None else f"no error: {quantity} has zero slope at the crossing"
    return Threshold(f.parameter, root, spread, "brent", True, reason)


@dataclass(frozen=True)
class Crossings:
    """Roots of many rows.

    Attributes:
        roots: (m,) roots, nan where the bracket holds none.
        found: (m,) booleans.
    """

    roots: np.ndarray
    found: np.ndarray


def find_crossings(
    curves: Callable[[np.ndarray], np.ndarray],
    *,
    level: float = 0.5,
    bracket: tuple[ArrayLike, ArrayLike],
    rows: int | None = None,
    tolerance: float = 1e-10,
) -> Crossings:
    """Find where each of m monotone curves crosses a level, all at once by bracketing.

    Args:
        curves: maps one control value a row, (m,), to the rows' values, (m,).
        level: the level.
        bracket: lower and upper ends, scalars or (m,).
        rows: m, needed where both ends are scalars.
        tolerance: absolute and relative error of the roots.

    Returns:
        roots and flags; a row that its bracket does not cross has nan and False.

    Raises:
        DomainError: for ends that are not ordered, or an unknown number of rows.
    """
    low, high = np.broadcast_arrays(*(np.asarray(end, dtype=float) for end in bracket))
    if low.ndim == 0 and rows is None:
        raise DomainError.of("rows", rows, "given where the bracket is a pair of scalars")
    if low.ndim == 0:
        low, high = np.full(rows or 0, float(low)), np.full(rows or 0, float(high))
    if not np.all(low < high):
        raise DomainError.of("bracket", bracket, "a lower end below the upper end in every row")
    current = low.copy()

    def excess(control: np.ndarray, row: np.ndarray) -> np.ndarray:
        # the solver drops rows that have converged, the curves want all of them
        current[row] = control
        return np.asarray(curves(current), dtype=float)[row] - level

    tolerances = {"xatol": tolerance, "xrtol": tolerance, "fatol": 0.0, "frtol": 0.0}
    found = elementwise.find_root(excess, (low, high), args=(np.arange(len(low)),), tolerances=tolerances)
    return Crossings(np.where(found.success, found.x, np.nan), np.asarray(found.success))
