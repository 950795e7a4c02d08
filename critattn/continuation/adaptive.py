"""Adaptive grids: a curve with kinks or jumps, bisected where its neighbours do not foretell its midpoints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import elementwise

from critattn.continuation.curves import (
    Curve,
    Curves,
    Evaluate,
    Evaluated,
    checked_interval,
    checked_tolerance,
    not_finite,
)
from critattn.errors import DomainError

FIRST_POINTS = 33
MAX_POINTS = 1025
# intervals shorter than this fraction of the whole hold a jump, and are not divided any more
SHORTEST = 1e-9
ROUNDING_ULPS = 4.0
# a midpoint may be foretold by chance: the error elsewhere in its interval is larger
SAFETY = 4.0


@dataclass(frozen=True)
class GridCurve(Curve):
    """Piecewise cubics through the values that keep their order (PCHIP): no overshoot at kinks and jumps.

    Attributes:
        evaluate: the curve itself, (k,) to (k,), on which crossings are bisected.
    """

    evaluate: Callable[[np.ndarray], np.ndarray]

    def _evaluate(self, gamma: np.ndarray) -> np.ndarray:
        return _pieces(self.nodes, self.values, gamma)

    def _slope(self, gamma: np.ndarray) -> np.ndarray:
        if not np.all(np.isfinite(self.values)):
            return np.full(gamma.shape, np.nan)
        return np.asarray(PchipInterpolator(self.nodes, self.values).derivative()(gamma))

    def _roots(self, level: float) -> np.ndarray:
        excess = self.values - level
        exact = self.nodes[excess == 0]
        crossed = np.flatnonzero(excess[:-1] * excess[1:] < 0)
        if not crossed.size:
            return exact
        bracket = self.nodes[crossed], self.nodes[crossed + 1]
        tolerances = {"xatol": 1e-14, "xrtol": 1e-13, "fatol": 0.0, "frtol": 0.0}
        found = elementwise.find_root(lambda gamma: self.evaluate(gamma) - level, bracket, tolerances=tolerances)
        return np.sort(np.concatenate([exact, np.atleast_1d(found.x)]))


def adaptive_grid(
    evaluate: Evaluate,
    *,
    interval: tuple[float, float],
    tolerance: float | None = None,
    dtype: str = "float64",
    max_points: int = MAX_POINTS,
    tolerances: Mapping[str, float] | None = None,
) -> Curves:
    """Continue curves that need not be analytic, from a grid that is refined where they bend or jump.

    Args:
        evaluate: maps parameters (k,) to a mapping from names to values (k,).
        interval: lower and upper end.
        tolerance: error allowed, as a fraction of each curve's range; 1e-6 in float64, 1e-5 in float32 by default.
        dtype: precision in which `evaluate` works.
        max_points: no interval is divided beyond this number of points; at least 33.
        tolerances: those of single curves, where they differ from `tolerance`.

    Returns:
        A GridCurve for each name; `error` is four times the largest difference between a midpoint and what its
        neighbours made expect, where the last division was. A jump is narrowed down to 1e-9 of the interval and named
        in `reason`.

    Raises:
        DomainError: for an interval, tolerance, dtype or number of points that makes no sense, and where `evaluate`
            gives other names or shapes than it should.
    """
    ends, limit = checked_interval(interval), checked_tolerance(tolerance, dtype)
    aim = _Aim(limit, float(np.finfo(dtype).eps), tolerances or {})
    if max_points < FIRST_POINTS:
        raise DomainError.of("max_points", max_points, f"at least {FIRST_POINTS}")
    seen = Evaluated(evaluate)
    seen.add(np.linspace(*ends, FIRST_POINTS))
    errors = {name: np.full(FIRST_POINTS - 1, np.inf) for name in seen.values}
    while True:
        divided = _to_divide(seen, errors, aim)[: max_points - len(seen.nodes)]
        if not divided.size:
            break
        errors = _divide(seen, errors, divided)
    curves = {name: _curve(seen, name, errors[name], aim) for name in seen.values}
    return Curves(curves, interval=ends, nodes=seen.nodes)


@dataclass(frozen=True)
class _Aim:
    """The error allowed for a curve."""

    tolerance: float
    eps: float
    tolerances: Mapping[str, float]

    def __call__(self, name: str, values: np.ndarray) -> float:
        tolerance = self.tolerances.get(name, self.tolerance)
        rounding = ROUNDING_ULPS * self.eps * float(np.max(np.abs(values)))
        return max(tolerance * float(np.ptp(values)), rounding, float(np.finfo(float).tiny))


def _to_divide(seen: Evaluated, errors: dict[str, np.ndarray], aim: _Aim) -> np.ndarray:
    """Indices of the intervals that some curve wants divided, or that lie beside one; the longest ones first."""
    length = np.diff(seen.nodes)
    wanted = np.zeros(len(length), dtype=bool)
    for name, values in seen.values.items():
        if np.all(np.isfinite(values)):
            wanted |= errors[name] > aim(name, values)
    long = length > SHORTEST * (seen.nodes[-1] - seen.nodes[0])
    wanted &= long
    beside = wanted.copy()
    beside[1:] |= wanted[:-1]
    beside[:-1] |= wanted[1:]
    chosen = np.flatnonzero(beside & long)
    return chosen[np.argsort(-length[chosen], kind="stable")]


def _divide(seen: Evaluated, errors: dict[str, np.ndarray], divided: np.ndarray) -> dict[str, np.ndarray]:
    """Bisect the intervals and return the errors of all intervals that there are now."""
    middle = (seen.nodes[divided] + seen.nodes[divided + 1]) / 2
    guesses = {name: _pieces(seen.nodes, values, middle) for name, values in seen.values.items()}
    seen.add(middle)
    halves = np.ones(len(next(iter(errors.values()))), dtype=int)
    halves[divided] = 2
    found = {}
    for name, error in errors.items():
        now = error.copy()
        found_there = seen.values[name][np.searchsorted(seen.nodes, middle)]
        with np.errstate(invalid="ignore"):
            now[divided] = SAFETY * np.abs(guesses[name] - found_there)
        found[name] = np.repeat(now, halves)
    return found


def _pieces(nodes: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(values)):
        return np.interp(where, nodes, values)
    return np.asarray(PchipInterpolator(nodes, values)(where))


def _curve(seen: Evaluated, name: str, errors: np.ndarray, aim: _Aim) -> GridCurve:
    ends, values = (float(seen.nodes[0]), float(seen.nodes[-1])), seen.values[name]

    def alone(gamma: np.ndarray) -> np.ndarray:
        return np.asarray(seen.evaluate(np.asarray(gamma, dtype=float))[name], dtype=float)

    bad = not_finite(seen.nodes, values)
    error = float("inf") if bad else float(np.max(errors))
    said = bad or _shortfall(seen.nodes, errors, aim(name, values))
    reason = f"{name}: {said}" if said else ""
    return GridCurve(name, ends, seen.nodes, values, error, not reason, reason, evaluate=alone)


def _shortfall(nodes: np.ndarray, errors: np.ndarray, target: float) -> str:
    """What is wrong where the largest error is above the target; empty where it is not."""
    worst = int(np.argmax(errors))
    if errors[worst] <= target:
        return ""
    if np.diff(nodes)[worst] <= SHORTEST * (nodes[-1] - nodes[0]):
        return f"there is a jump at {nodes[worst]:.9g}"
    return (
        f"an error of {errors[worst]:.1e} is left near {nodes[worst]:.6g}, above {target:.1e}, at {len(nodes)} points"
    )
