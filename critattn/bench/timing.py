"""Timing in alternation: the speed of a shared machine drifts, a ratio within one run much less."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Medians over alternations.

    Attributes:
        seconds: of the first function.
        other_seconds: of the second; None without one.
        ratio: median of the ratios within each alternation, first over second; None without a second.
        repeats: alternations.
    """

    seconds: float
    other_seconds: float | None
    ratio: float | None
    repeats: int


def once(function: Callable[[], Any]) -> float:
    """Seconds of one call; arrays of JAX are waited for."""
    import jax

    begun = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - begun


def alternate(first: Callable[[], Any], second: Callable[[], Any] | None, repeats: int) -> Timing:
    """Time two functions in turn after one warm-up of each.

    Args:
        first: what is measured.
        second: what it is compared with; None times the first alone.
        repeats: alternations.
    """
    for function in (first, second):
        if function is not None:
            once(function)
    pairs = [(once(first), once(second) if second else None) for _ in range(repeats)]
    seconds = statistics.median(pair[0] for pair in pairs)
    others = [pair[1] for pair in pairs if pair[1] is not None]
    if not others:
        return Timing(seconds, None, None, repeats)
    ratio = statistics.median(mine / other for mine, other in pairs if other)
    return Timing(seconds, statistics.median(others), ratio, repeats)
