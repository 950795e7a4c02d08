"""The thresholds of exp, softmax and attention on the libraries and the device at hand, measured, never looked up."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from critattn.formats import operations
from critattn.formats.grid import BATCH, at_or_below, bits, first, largest_code, magnitudes, swept
from critattn.formats.operations import Operation
from critattn.formats.stated import Format, get, names

# relative error of a float32 exponential in the libraries at hand: 4 units of 2^-24; in x it is that many nats
EXP_ERROR = 2.0**-22
CANNOT = (NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Measured:
    """What one operation does in one format; every number is measured.

    Attributes:
        backend: numpy, jax or torch.
        operation: its name within the backend.
        format: the name of the format.
        device: where it ran.
        first_zero: the largest x <= 0 of the format with result 0, in nats; None where no x has.
        last_nonzero: the next x above, None without a first zero.
        kind: "zero" or "normal", the stated threshold that it shows, docs/theory.md (14.3) and (14.1); "own" for any
            other; None without a first zero.
        subnormals: whether any subnormal result survives; None where it gives no number.
        first_overflow: the smallest x whose result is not finite, None for a weight, or where no x has.
        monotone: every x below the first zero that was asked for gave 0 too.
        note: why something is missing, else "".
    """

    backend: str
    operation: str
    format: str
    device: str
    first_zero: float | None = None
    last_nonzero: float | None = None
    kind: str | None = None
    subnormals: bool | None = None
    first_overflow: float | None = None
    monotone: bool = True
    note: str = ""


def thread_flushes() -> bool:
    """Whether this thread multiplies subnormal numbers to zero, as after `torch.set_flush_denormal(True)`."""
    tiny = np.full(1, 2.0**-130, np.float32)
    return not bits(tiny * np.float32(2))[0]


def kind_of(form: Format, first_zero: float) -> str:
    """The stated threshold that a first zero shows: "zero", "normal" (subnormals are flushed), or "own".

    A threshold tau shows as the largest number of the input's format <= tau [derived, docs/theory.md (14.6)], give or
    take the error of a float32 exponential; flushing may look at a result before or after it is rounded.
    """
    stated = form.thresholds()
    after_rounding = math.log1p(-math.ldexp(1.0, -form.significand_bits))
    for kind, low in (("zero", stated.zero), ("normal", stated.normal + after_rounding)):
        if at_or_below(form, low - EXP_ERROR) <= first_zero <= at_or_below(form, stated.of(kind) + EXP_ERROR):
            return kind
    return "own"


def measure(operation: Operation, format: str) -> Measured:
    """Measure one operation in one format, anew.

    Raises:
        SpecError: for an unknown format.
    """
    form = get(format)
    about = (operation.backend, operation.name, form.name, operations.device(operation.backend))
    try:
        with np.errstate(all="ignore"):
            return Measured(*about, **_numbers(operation, form))
    except CANNOT as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return Measured(*about, note=f"not computed in this format: {reason[:100]}")


def _numbers(operation: Operation, form: Format) -> dict[str, Any]:
    if not np.isfinite(_results(operation, form, np.zeros(1, form.dtype)).astype(np.float64)).all():
        return {"note": "gives NaN at equal logits"}
    code, monotone = first(form, lambda x: bits(_results(operation, form, -x)) == 0)
    found: dict[str, Any] = {"monotone": monotone, "subnormals": _subnormals(operation, form)}
    if code is not None:
        last, zero = (-float(x) for x in magnitudes(form, np.array([code - 1, code])))
        found |= {"first_zero": zero, "last_nonzero": last, "kind": kind_of(form, zero) if monotone else "own"}
        found["note"] = "" if monotone else "not every x below the first zero gives 0: places or threads differ"
    if operation.overflows:
        over, _ = first(form, lambda x: ~np.isfinite(_results(operation, form, x).astype(np.float64)))
        found["first_overflow"] = None if over is None else float(magnitudes(form, np.array([over]))[0])
    return found


def _results(operation: Operation, form: Format, x: np.ndarray) -> np.ndarray:
    # one length for all questions about a format, so that JAX compiles once
    filled = np.resize(x, largest_code(form) + 1 if swept(form) else BATCH)
    found = operation.run(filled)
    if found.shape != filled.shape:
        raise ValueError(f"shape {found.shape} for {filled.shape}")
    return found[: len(x)]


def _subnormals(operation: Operation, form: Format) -> bool:
    """Whether any result between the smallest subnormal and the smallest normal number is not 0."""
    stated = form.thresholds()
    ends = [int(bits(np.array([-x], form.dtype))[0]) for x in (stated.normal, stated.zero)]
    codes = np.unique(np.linspace(ends[0], min(ends[1], largest_code(form)), BATCH).astype(np.int64))
    found = _results(operation, form, -magnitudes(form, codes))
    # by their bits: a thread that flushes would read them as zeros
    least = bits(np.array([math.ldexp(1.0, form.least_exponent)]).astype(found.dtype))
    return bool(((bits(found) > 0) & (bits(found) < least)).any())


def measure_backend(backend: str, formats: tuple[str, ...] | None = None) -> tuple[Measured, ...]:
    """All operations of a backend in the formats, by default all; measured once in a process and device.

    Kept for the device and the thread's treatment of subnormals, since both change what comes out; versions cannot
    change within a process.

    Raises:
        SpecError: for an unknown backend or format, or a backend that is not installed.
    """
    made = operations.operations(backend)
    chosen = [get(name).name for name in (names() if formats is None else formats)]
    place, flushes = operations.device(backend), thread_flushes()
    return tuple(_kept(backend, index, name, place, flushes) for index in range(len(made)) for name in chosen)


@functools.cache
def _kept(backend: str, index: int, format: str, place: str, flushes: bool) -> Measured:
    return measure(operations.operations(backend)[index], format)
