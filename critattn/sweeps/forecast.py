"""Remaining time of a run: measured wall times of its units, weighted by what each of them costs."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from critattn.datasets import Layout, Unit

# Next to the d products of a score: its exponential and the sums over a row.
ROW_WORK = 16.0
# What a unit costs however small it is, in units of n^2 d.
DISPATCH = 1e7
# what compiled code depends on
SHAPE = ("n", "d", "normaliser", "law")


def unit_cost(point: Mapping[str, float]) -> float:
    """What a unit costs, up to a factor that all units of a study share: n^2 (d + 16) and a constant.

    Args:
        point: coordinates of the unit; without n (a token file) the cost is the constant alone.
    """
    return DISPATCH + point.get("n", 0.0) ** 2 * (point.get("d", 0.0) + ROW_WORK)


class Forecast:
    """How long a run still takes.

    The time since the last finished unit counts for the unit that finished, so that the sum is right for any number
    of workers. The first unit of each shape (n, d, normaliser, law) is compiled: its excess over the rate of the later
    ones is kept apart and expected again for each shape that is still to come.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.costs: dict[Unit, float] = {}
        self.shapes: dict[Unit, tuple[float, ...]] = {}

    def start(self, layout: Layout, units: Iterable[Unit]) -> None:
        """Begin the measurement; called by `run_sweep` with the units that are missing."""
        points = {unit: layout.point(unit) for unit in units}
        self.costs = {unit: unit_cost(point) for unit, point in points.items()}
        self.shapes = {unit: tuple(point.get(name, 0.0) for name in SHAPE) for unit, point in points.items()}
        self.to_come = Counter(self.shapes.values())
        self.cost_left = sum(self.costs.values())
        self.seen: set[tuple[float, ...]] = set()
        self.cold, self.warm = [0.0, 0.0], [0.0, 0.0]
        self.last = self.clock()
        self.estimate: float | None = None

    def finish(self, unit: Unit, *, computed: bool = True) -> None:
        """Take note of a finished unit; one that another process computed says nothing about the rate."""
        now = self.clock()
        shape = self.shapes[unit]
        self.to_come[shape] -= 1
        self.cost_left -= self.costs[unit]
        if computed:
            sums = self.warm if shape in self.seen else self.cold
            sums[0] += now - self.last
            sums[1] += self.costs[unit]
            self.seen.add(shape)
        self.last = now
        self.estimate = self._estimate()

    def seconds(self) -> float | None:
        """Seconds until the last unit is expected; None before the first one of this run is finished."""
        return None if self.estimate is None else max(0.0, self.estimate - (self.clock() - self.last))

    def _estimate(self) -> float | None:
        if not self.seen:
            return None
        measured = self.warm if self.warm[1] else self.cold
        rate = measured[0] / measured[1]
        compiling = max(0.0, self.cold[0] - rate * self.cold[1]) / len(self.seen)
        new_shapes = sum(count > 0 and shape not in self.seen for shape, count in self.to_come.items())
        return rate * self.cost_left + compiling * new_shapes
