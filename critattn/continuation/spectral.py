"""Spectral continuation: a curve that is analytic in its parameter, from nested Chebyshev nodes.

The degree doubles until the estimated error of every curve is within the tolerance; docs/continuation.md derives the
estimate and says how fast it falls.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from critattn.continuation import chebyshev
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

FIRST_DEGREE = 8
MAX_NODES = 257
# calibrated in the tests: the true error stays below the estimate
SAFETY = 3.25
ROUNDING_ULPS = 16.0
PLATEAU_ULPS = 1000.0
# the logarithm has to be better by this factor to be preferred
PREFERENCE = 0.5
# how far beyond its nodes a curve may be predicted to need more before it is given up
PATIENCE = 1.25
# an estimate that is too large by at most this factor is checked at every second of the nodes that would come next,
# unless nodes or digits are so few that the error may be large between two checks only
NEARLY = 10.0
CHECKED_COUNT = 33
CHECKED_TOLERANCE = 1e-4
CHECK_SPACING = 2
# between two of these checks the error is larger than at them by less than this, calibrated in the tests
CHECK_SAFETY = 1.5


@dataclass(frozen=True)
class ChebyshevCurve(Curve):
    """The polynomial through a curve's values, or the exponential of the one through their logarithms.

    Attributes:
        variable: what is interpolated: `value`, or `log` for positive curves over orders of magnitude.
        coefficients: (k,) Chebyshev coefficients of that variable.
    """

    variable: str = "value"

    @property
    def coefficients(self) -> np.ndarray:
        """Chebyshev coefficients a_k of the variable, (k,); NaN where a value is not finite."""
        return chebyshev.coefficients(self._heights)

    @property
    def _heights(self) -> np.ndarray:
        return _forward(self.values, self.variable)

    def _unit(self, gamma: np.ndarray) -> np.ndarray:
        low, high = self.interval
        return np.clip((2 * gamma - (low + high)) / (high - low), -1, 1)

    def _evaluate(self, gamma: np.ndarray) -> np.ndarray:
        if np.ptp(self.values) == 0:
            return np.full(gamma.shape, self.values[0])
        return _backward(chebyshev.interpolate(self._unit(gamma), self._heights), self.variable)

    def _slope(self, gamma: np.ndarray) -> np.ndarray:
        low, high = self.interval
        slope = chebyshev.slope(self._unit(gamma), self.coefficients) * (2 / (high - low))
        return slope * self._evaluate(gamma) if self.variable == "log" else slope

    def _roots(self, level: float) -> np.ndarray:
        if self.variable == "log" and level <= 0:
            return np.empty(0)
        scale = max(abs(level), float(np.max(np.abs(self.values))))
        if np.ptp(self.values) <= 8 * np.finfo(float).eps * scale:
            return np.empty(0)
        touching = max(self.error, 8 * np.finfo(float).eps * scale)
        if self.variable == "log":
            touching /= level
        heights = self._heights - _forward(np.array(level), self.variable)
        low, high = self.interval
        return np.clip(((low + high) + (high - low) * chebyshev.zeros(heights, touching)) / 2, low, high)


def node_counts(max_nodes: int) -> list[int]:
    """Nested numbers of nodes, 9, 17, 33, 65, ..., up to `max_nodes`; a verdict needs two of them, so 17 at least."""
    counts, degree = [], FIRST_DEGREE
    while degree + 1 <= max_nodes:
        counts.append(degree + 1)
        degree *= 2
    return counts


def continue_curves(
    evaluate: Evaluate,
    *,
    interval: tuple[float, float],
    tolerance: float | None = None,
    dtype: str = "float64",
    max_nodes: int = MAX_NODES,
    ranges: Mapping[str, float] | None = None,
    tolerances: Mapping[str, float] | None = None,
) -> Curves:
    """Continue analytic curves over an interval from nested Chebyshev nodes, 17, 33, 65, ... of them.

    Args:
        evaluate: maps parameters (k,) to a mapping from names to values (k,); each node is asked for once.
        interval: lower and upper end.
        tolerance: error allowed, as a fraction of each curve's range; 1e-6 in float64, 1e-5 in float32 by default.
        dtype: precision in which `evaluate` works, which decides where rounding begins.
        max_nodes: largest number of nodes, at least 17.
        ranges: the range of a curve where it is not that of its values at the nodes.
        tolerances: those of single curves, where they differ from `tolerance`.

    Returns:
        A ChebyshevCurve for each name. One that is not converged, because `max_nodes` or the round-off plateau were
        reached, because it is predicted to need far more nodes, or because a value is not finite, says so in `reason`.

    Raises:
        DomainError: for an interval, tolerance, dtype or number of nodes that makes no sense, and where `evaluate`
            gives other names or shapes than it should.
    """
    ends, limit = checked_interval(interval), checked_tolerance(tolerance, dtype)
    counts = node_counts(max_nodes)
    if len(counts) < 2:
        raise DomainError.of("max_nodes", max_nodes, f"at least {2 * FIRST_DEGREE + 1}")
    judge = _Judge(ends, limit, float(np.finfo(dtype).eps), counts[-1], ranges or {}, tolerances or {})
    seen = Evaluated(evaluate)
    curves: dict[str, ChebyshevCurve] = {}
    unsettled: list[str] | None = None
    for count in counts[1:]:
        seen.add(judge.nodes(count), unsettled)
        verdicts = {name: judge.verdict(name, seen, count) for name in unsettled or seen.values}
        verdicts |= judge.checked(verdicts, seen, count)
        curves |= {name: curve for name, (curve, _) in verdicts.items()}
        unsettled = [name for name, (_, done) in verdicts.items() if not done]
        if not unsettled:
            break
    return Curves({name: curves[name] for name in seen.values}, interval=ends, nodes=seen.nodes)


Verdict = tuple[ChebyshevCurve, bool]


@dataclass(frozen=True)
class _Judge:
    """Decides for each curve whether its nodes are enough."""

    interval: tuple[float, float]
    tolerance: float
    eps: float
    max_nodes: int
    ranges: Mapping[str, float]
    tolerances: Mapping[str, float]

    def nodes(self, count: int) -> np.ndarray:
        low, high = self.interval
        found = ((low + high) + (high - low) * chebyshev.points(count - 1)) / 2
        found[[0, -1]] = low, high
        return found

    def target(self, name: str, values: np.ndarray) -> float:
        """The error allowed."""
        wanted = self.allowed(name) * self.range(name, values)
        return max(wanted, ROUNDING_ULPS * self.eps * float(np.max(np.abs(values))))

    def range(self, name: str, values: np.ndarray) -> float:
        """What the error is a fraction of."""
        return self.ranges.get(name, float(np.ptp(values)))

    def allowed(self, name: str) -> float:
        """The error allowed, as a fraction of the range."""
        return self.tolerances.get(name, self.tolerance)

    def verdict(self, name: str, seen: Evaluated, count: int) -> Verdict:
        """The curve through the first `count` nodes, and whether more nodes are of no use."""
        nodes = self.nodes(count)
        values = seen.at(name, nodes)
        bad = not_finite(nodes, values)
        if bad:
            return ChebyshevCurve(name, self.interval, nodes, values, float("inf"), False, f"{name}: {bad}"), True
        fit = _Fit.of(values, "value", self.eps)
        if np.all(values > 0):
            logarithm = _Fit.of(values, "log", self.eps)
            fit = logarithm if logarithm.error < PREFERENCE * fit.error else fit
        target = self.target(name, values)
        reason = "" if fit.error <= target else self._reason(fit, target, count)
        said = f"{name}: {reason}" if reason else ""
        curve = ChebyshevCurve(
            name, self.interval, nodes, values, fit.error, fit.error <= target, said, variable=fit.variable
        )
        return curve, fit.error <= target or fit.plateau or self._hopeless(fit, target, count)

    def checked(self, verdicts: Mapping[str, Verdict], seen: Evaluated, count: int) -> dict[str, Verdict]:
        """Verdicts on curves that nearly made it, from the error measured at some of the next nodes."""
        nearly = [
            name
            for name, (curve, done) in verdicts.items()
            if not done
            and self.allowed(name) <= CHECKED_TOLERANCE
            and curve.error <= NEARLY * self.target(name, curve.values)
        ]
        if not nearly or count < CHECKED_COUNT or 2 * count - 1 > MAX_NODES:
            return {}
        # the error of an interpolant is largest half-way, in angle, between its nodes: where the next ones would be
        where = self.nodes(2 * count - 1)[1::2][::CHECK_SPACING]
        seen.add(where, nearly)
        found: dict[str, Verdict] = {}
        for name in nearly:
            curve = verdicts[name][0]
            error = CHECK_SAFETY * float(np.max(np.abs(curve(where) - seen.at(name, where))))
            if error <= self.allowed(name) * self.range(name, curve.values):
                found[name] = replace(curve, error=error, converged=True, reason=""), True
        return found

    def _reason(self, fit: "_Fit", target: float, count: int) -> str:
        if fit.plateau:
            return f"rounding leaves an error of {fit.error:.1e}, above {target:.1e}; more nodes do not help"
        needed = fit.needed(target, count)
        return (
            f"an error of {fit.error:.1e} is left at {count} nodes, above {target:.1e}; about {needed:.0f} are needed"
        )

    def _hopeless(self, fit: "_Fit", target: float, count: int) -> bool:
        late = 2 * (count - 1) >= self.max_nodes - 1
        return late and fit.needed(target, count) > PATIENCE * self.max_nodes


@dataclass(frozen=True)
class _Fit:
    """How well the interpolant in one variable does.

    Its distance to that of degree N/2 measures the error of the latter, and the coefficients say by how much that fell
    since; the sum of the coefficients beyond N is the second witness, and the worse one counts.
    """

    variable: str
    error: float
    decay: float
    plateau: bool

    @classmethod
    def of(cls, values: np.ndarray, variable: str, eps: float) -> "_Fit":
        largest = float(np.max(np.abs(values)))
        if np.ptp(values) <= ROUNDING_ULPS * eps * largest:
            return cls(variable, float(np.ptp(values)), 0.0, True)
        heights, degree = _forward(values, variable), len(values) - 1
        series = np.abs(chebyshev.coefficients(heights))
        decay = max(_decay(series, width) for width in (degree // 4, max(4, degree // 8)))
        rate = min(decay, 0.99) ** (2 / degree)
        last = series[-max(4, degree // 8) :]
        tail = float(np.max(last * rate ** np.arange(len(last))[::-1]))
        # a logarithm that is off by t changes the value by t times the value, which is small over most of the range
        weight = 0.5 * largest if variable == "log" else 1.0
        flat = _is_flat(series, eps)
        beyond = weight * tail * (np.sqrt(degree) if flat else rate / (1 - rate))
        error = SAFETY * max(_distance(heights, variable) * decay, beyond) + _rounding(heights, variable, eps) * largest
        return cls(variable, error, decay, flat)

    def needed(self, target: float, count: int) -> float:
        """Nodes that a geometric decay at the present rate would need."""
        cautious = min(self.decay, 0.7 if count <= 2 * FIRST_DEGREE + 1 else 0.95)
        if cautious == 0 or self.error <= target or target == 0:
            return count
        return count + (count - 1) / 2 * np.log(self.error / target) / -np.log(cautious)


def _decay(series: np.ndarray, width: int) -> float:
    """By how much the coefficients fall from N/2 to N, by the largest of the last `width` up to either."""
    degree = len(series) - 1
    end, middle = (float(np.max(series[k + 1 - width : k + 1])) for k in (degree, degree // 2))
    return min(1.0, end / middle) if middle > 0 else 1.0


def _is_flat(series: np.ndarray, eps: float) -> bool:
    """The coefficients have stopped falling, at the level of rounding: the last quarter is as large as the third."""
    quarter = len(series) // 4
    third, last = (float(np.sqrt(np.mean(part**2))) for part in (series[-2 * quarter : -quarter], series[-quarter:]))
    return 2 * last > third and last <= PLATEAU_ULPS * eps * float(np.max(series))


def _distance(heights: np.ndarray, variable: str) -> float:
    """Largest distance between the interpolants through all nodes and through every second one, as values."""
    fine = chebyshev.points(4 * (len(heights) - 1))
    all_, half = (_backward(chebyshev.interpolate(fine, known), variable) for known in (heights, heights[::2]))
    return float(np.max(np.abs(all_ - half)))


def _rounding(heights: np.ndarray, variable: str, eps: float) -> float:
    """Relative error by rounding; an exponential multiplies that of its argument."""
    inner = float(np.max(np.abs(heights))) if variable == "log" else 0.0
    return ROUNDING_ULPS * (eps + inner * float(np.finfo(float).eps))


def _forward(values: np.ndarray, variable: str) -> np.ndarray:
    return np.log(values) if variable == "log" else values


def _backward(heights: np.ndarray, variable: str) -> np.ndarray:
    if variable != "log":
        return heights
    with np.errstate(over="ignore"):
        return np.exp(heights)
