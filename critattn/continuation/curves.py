"""What a continued curve can do, and what every route to one shares."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.protocols import check_dtype

Evaluate = Callable[[np.ndarray], Mapping[str, ArrayLike]]
TOLERANCES = {"float64": 1e-6, "float32": 1e-5}


def default_tolerance(dtype: str) -> float:
    """The tolerance used where none is given: 1e-6 of a curve's range in float64, 1e-5 in float32.

    Raises:
        DomainError: for another dtype.
    """
    return TOLERANCES[check_dtype(dtype)]


@dataclass(frozen=True)
class Curve(ABC):
    """A curve on an interval, known everywhere from its values at a few nodes.

    Attributes:
        name: what it is.
        interval: lower and upper end of the parameter.
        nodes: (k,) parameters at which it was evaluated, ascending.
        values: (k,) values there, float64.
        error: estimate of the largest error on the interval, in the unit of the curve; inf where it is not known.
        converged: the error is within the tolerance asked for.
        reason: a sentence where it is not; else empty.
    """

    name: str
    interval: tuple[float, float]
    nodes: np.ndarray
    values: np.ndarray
    error: float
    converged: bool
    reason: str

    def __call__(self, gamma: ArrayLike) -> np.ndarray:
        """Values at gamma, of its shape.

        Raises:
            DomainError: outside of the interval: a continued curve is never extrapolated.
        """
        where = self._inside(gamma)
        return self._evaluate(where.ravel()).reshape(where.shape)

    def derivative(self, gamma: ArrayLike) -> np.ndarray:
        """Slopes d/d gamma at gamma, of its shape: the susceptibility where the curve is an order parameter.

        Raises:
            DomainError: outside of the interval.
        """
        where = self._inside(gamma)
        return self._slope(where.ravel()).reshape(where.shape)

    def crossings(self, level: float) -> np.ndarray:
        """All parameters of the interval at which the curve has the value `level`, ascending.

        Raises:
            DomainError: for a level that is not finite.
        """
        if not np.isfinite(level):
            raise DomainError.of("level", level, "finite")
        return self._roots(float(level)) if np.all(np.isfinite(self.values)) else np.empty(0)

    @abstractmethod
    def _evaluate(self, gamma: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _slope(self, gamma: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _roots(self, level: float) -> np.ndarray: ...

    def _inside(self, gamma: ArrayLike) -> np.ndarray:
        where = np.asarray(gamma, dtype=float)
        low, high = self.interval
        if not np.all((where >= low) & (where <= high)):
            raise DomainError(f"{self.name}: is known on [{low:g}, {high:g}] only, and is not extrapolated")
        return where


class Curves(Mapping[str, Curve]):
    """Curves by name, from the same evaluations.

    Attributes:
        interval: lower and upper end of the parameter.
        nodes: (k,) parameters that were evaluated, ascending.
    """

    def __init__(self, curves: Mapping[str, Curve], *, interval: tuple[float, float], nodes: np.ndarray) -> None:
        self._curves = dict(curves)
        self.interval = interval
        self.nodes = nodes

    def __getitem__(self, name: str) -> Curve:
        """The curve of that name."""
        return self._curves[name]

    def __iter__(self) -> Iterator[str]:
        """Names, in order."""
        return iter(self._curves)

    def __len__(self) -> int:
        """Number of curves."""
        return len(self._curves)

    def __repr__(self) -> str:
        parts = [f"{name}: error {curve.error:.1e}{_mark(curve)}" for name, curve in self.items()]
        return f"Curves({len(self.nodes)} nodes on [{self.interval[0]:g}, {self.interval[1]:g}]; {', '.join(parts)})"

    @property
    def converged(self) -> bool:
        """All curves are within the tolerance asked for."""
        return all(curve.converged for curve in self.values())


def _mark(curve: Curve) -> str:
    return "" if curve.converged else " (not converged)"


def checked_interval(interval: tuple[float, float]) -> tuple[float, float]:
    """Two finite numbers in order.

    Raises:
        DomainError: for anything else.
    """
    ends = tuple(float(end) for end in interval)
    if len(ends) != 2 or not np.all(np.isfinite(ends)) or not ends[0] < ends[1]:
        raise DomainError.of("interval", ends, "two finite numbers, the lower first")
    return ends


def checked_tolerance(tolerance: float | None, dtype: str) -> float:
    """A tolerance in (0, 1), by default that of the dtype.

    Raises:
        DomainError: for anything else.
    """
    chosen = default_tolerance(dtype) if tolerance is None else float(tolerance)
    if not 0 < chosen < 1:
        raise DomainError.of("tolerance", chosen, "above 0 and below 1, a fraction of the curve's range")
    return chosen


class Evaluated:
    """Everything that has been evaluated so far, for each curve ascending in the parameter.

    Attributes:
        nodes: (k,) parameters at which some curve was evaluated.
        values: name to (k,) float64 values; fewer for a curve that was left out on the way, see `at`.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate
        self.nodes = np.empty(0)
        self.values: dict[str, np.ndarray] = {}
        self._where: dict[str, np.ndarray] = {}

    def add(self, nodes: np.ndarray, names: Sequence[str] | None = None) -> None:
        """Evaluate what is new among these nodes, all at once, and file it.

        Args:
            nodes: (k,) parameters.
            names: the curves that need them; all by default.

        Raises:
            DomainError: where names or shapes are not what they should be.
        """
        kept = list(self.values) if names is None else list(names)
        known = [set(self._where[name].tolist()) for name in kept]
        new = nodes[[not known or any(node not in seen for seen in known) for node in nodes.tolist()]]
        if not new.size:
            return
        narrow = getattr(self.evaluate, "only", None)
        evaluate = self.evaluate if narrow is None or kept == list(self.values) else narrow(kept)
        found = {name: np.asarray(values, dtype=float) for name, values in evaluate(new).items()}
        if not found or not set(kept) <= set(found) or (names is None and kept and list(found) != kept):
            raise DomainError(f"evaluate: gives the curves {list(found)}; expected {kept or 'at least one'}")
        for name, values in found.items():
            if values.shape != new.shape:
                raise DomainError(f"evaluate: {name!r} has shape {values.shape}; expected {new.shape}, one a node")
        for name in kept or found:
            self._file(name, new, found[name])
        self.nodes = np.union1d(self.nodes, new)

    def _file(self, name: str, nodes: np.ndarray, values: np.ndarray) -> None:
        empty = np.empty(0)
        where = np.concatenate([self._where.get(name, empty), nodes])
        self._where[name], first = np.unique(where, return_index=True)
        self.values[name] = np.concatenate([self.values.get(name, empty), values])[first]

    def at(self, name: str, nodes: np.ndarray) -> np.ndarray:
        """Values of a curve at nodes where it was evaluated, (k,)."""
        return self.values[name][np.searchsorted(self._where[name], nodes)]


def not_finite(nodes: np.ndarray, values: np.ndarray) -> str:
    """A sentence about the first value that is not finite; empty where all are."""
    bad = np.flatnonzero(~np.isfinite(values))
    return f"the value at {nodes[bad[0]]:.6g} is {values[bad[0]]}" if bad.size else ""
