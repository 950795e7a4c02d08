"""Where a law stands against the critical line gamma_c = 1/(1-rho), and the lengths at which it crosses it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from critattn.errors import DomainError
from critattn.scaling.entries import Entry
from critattn.scaling.laws import Steps
from critattn.scaling.lengths import Lengths
from critattn.scaling.vectors import evaluate

LARGEST_LOG_N = 690.0
POINTS = 20_001
STEPS = 2_000
ON_THE_LINE = 1e-12
BISECTIONS = 100


class Crossing(NamedTuple):
    """A length at which gamma(n) passes gamma_c.

    Attributes:
        n: the length; where the law jumps, the length of the jump.
        log_n: its natural logarithm.
        upward: the law is above the line for larger n.
        jump: the law steps over the line.
    """

    n: float
    log_n: float
    upward: bool
    jump: bool


def critical_gamma(rho: float) -> float:
    """`gamma_c = 1/(1-rho)`, the limit d >> log n [Chen 2025, Thm 2.1].

    Raises:
        DomainError: for rho outside [-1, 1).
    """
    if not -1 <= rho < 1:
        raise DomainError.of("rho", rho, "in [-1, 1)")
    return 1 / (1 - rho)


def crossings(
    law: Entry,
    rho: float,
    dim: float,
    *,
    parameters: Mapping[str, Any] | None = None,
    qk_norm: float | None = None,
) -> list[Crossing]:
    """Every length from 2 to 1e299 at which the last row of a causal layer crosses the critical line.

    Args:
        law: of the catalogue.
        rho: common cosine.
        dim: head dimension d.
        parameters: parameters of the law to change.
        qk_norm: |q||k|; by default d, or 1 for laws on L2-normalised q and k.

    Returns:
        Crossings in order; empty where the law stays on one side. Found by sign changes on a grid of log n that
        holds the first steps of stepped laws, then bisected to rounding.

    Raises:
        SpecError: for a law that is no factor per row.
        DomainError: for rho outside [-1, 1).
    """
    line = critical_gamma(rho)

    def excess(log_n: Any) -> np.ndarray:
        n = np.exp(np.asarray(log_n, dtype=np.float64))
        lengths = Lengths.plain(n - 1, dim, keys_seen=n, total_keys=n)
        unlimited = evaluate(law, lengths, parameters=parameters, qk_norm=qk_norm).gamma
        return unlimited / line - 1

    grid = _grid(law, parameters)
    values = excess(grid)
    # a law that runs along the line is on it, whatever the rounding of each point
    side = np.where(np.abs(values) < ON_THE_LINE, 0.0, np.sign(values))
    keep = (side != 0) & np.isfinite(side)
    grid, side = grid[keep], side[keep]
    found = []
    for index in np.flatnonzero(side[1:] != side[:-1]):
        low, high = _bisect(excess, grid[index], grid[index + 1], side[index])
        ends = excess([low, high])
        jump = bool(np.abs(ends[1] - ends[0]) > 1e-6)
        root = high if jump else (low + high) / 2
        found.append(Crossing(float(np.exp(root)), float(root), bool(side[index + 1] > 0), jump))
    return found


def _grid(law: Entry, parameters: Mapping[str, Any] | None) -> np.ndarray:
    grid = np.linspace(np.log(2), LARGEST_LOG_N, POINTS)
    if not isinstance(law.law, Steps):
        return grid
    made: Any = law.made(parameters)
    jumps = np.log(float(made.interval) * np.arange(1, STEPS))
    # just before and just after each jump, which a position counted from 0 or 1 moves by a row
    near = np.log(np.exp(jumps)[:, None] + np.array([-2.0, -1.0, 0.0, 1.0, 2.0])).ravel()
    return np.unique(np.concatenate([grid, near[near > np.log(2)]]))


def _bisect(excess: Any, low: float, high: float, side: float) -> tuple[float, float]:
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if np.sign(excess(middle)) == side:
            low = middle
        else:
            high = middle
    return low, high
