"""Timing in alternation: the speed of a shared machine drifts, a ratio within one run much less."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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


def alternate(
    first: Callable[[], Any], second: Callable[[], Any] | None, repeats: int, *, settle: bool = False
) -> Timing:
    """Time two functions in turn after one warm-up of each.

    Args:
        first: what is measured.
        second: what it is compared with; None times the first alone.
        repeats: alternations.
        settle: call the first once more before it is timed, where the second leaves memory to be given back.
    """
    for function in (first, second):
        if function is not None:
            once(function)
    pairs: list[tuple[float, float | None]] = []
    for _ in range(repeats):
        if settle:
            once(first)
        pairs.append((once(first), once(second) if second else None))
    seconds = statistics.median(pair[0] for pair in pairs)
    others = [pair[1] for pair in pairs if pair[1] is not None]
    if not others:
        return Timing(seconds, None, None, repeats)
    ratio = statistics.median(mine / other for mine, other in pairs if other)
    return Timing(seconds, statistics.median(others), ratio, repeats)


@dataclass(frozen=True)
class Alone:
    """What a measurement in a process of its own found.

    Attributes:
        seconds: of the work, imports excluded and compilation included.
        bytes: peak memory.
        critical: a critical value, where the work finds one.
        error: its relative standard error.
    """

    seconds: float
    bytes: float
    critical: float = float("nan")
    error: float = float("nan")


def alone(function: Callable[[], Alone]) -> Alone:
    """Call a function of a module in a new interpreter, so that its peak memory is its own.

    Args:
        function: a function at the top of a module.
    """
    program = (
        f"import json, dataclasses; from {function.__module__} import {function.__qualname__} as work; "
        "print(json.dumps(dataclasses.asdict(work())))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return Alone(**json.loads(done.stdout.splitlines()[-1]))


def peak_memory() -> float:
    """Largest resident memory of this process so far, in bytes."""
    # getrusage begins with the memory of the process that started this one
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def resident() -> float:
    """Resident memory of this process, in bytes; its peak where the system does not tell."""
    return _status("VmRSS") or peak_memory()


def _status(name: str) -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    found = [line.split()[1] for line in status.read_text().splitlines() if line.startswith(f"{name}:")]
    return 1024.0 * float(found[0]) if found else 0.0
