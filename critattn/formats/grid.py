"""The numbers of a format in order, by their bits, and the first of them at which something happens."""

from collections.abc import Callable

import numpy as np

from critattn.formats.stated import Format

Predicate = Callable[[np.ndarray], np.ndarray]
# what a search asks about at once; four rounds of it reach any float32
BATCH = 256
SWEPT_BYTES = 2


def unsigned(dtype: np.dtype) -> np.dtype:
    """The unsigned integers as wide as the dtype."""
    return np.dtype(f"u{dtype.itemsize}")


def bits(values: np.ndarray) -> np.ndarray:
    """The magnitudes of `values` as integers in the same order, int64; the sign is dropped."""
    kind = unsigned(values.dtype)
    sign = np.array(1 << (8 * values.dtype.itemsize - 1), kind)
    return (np.ascontiguousarray(values).view(kind) & ~sign).astype(np.int64)


def magnitudes(form: Format, codes: np.ndarray) -> np.ndarray:
    """The numbers >= 0 with those bits, in the format's own dtype."""
    return np.asarray(codes).astype(unsigned(form.dtype)).view(form.dtype)


def largest_code(form: Format) -> int:
    """The bits of the largest finite number."""
    return int(bits(np.array([form.largest], form.dtype))[0])


def swept(form: Format) -> bool:
    """Whether a search asks about all numbers of the format."""
    return form.dtype.itemsize <= SWEPT_BYTES


def at_or_below(form: Format, x: float) -> float:
    """The largest number of the format that is <= x, for x < 0 [derived, docs/theory.md (14.6)].

    It is the first input at which `exp`, computed and rounded without error, has passed a threshold x.
    """
    code = int(bits(np.array([-x], form.dtype))[0])
    while float(magnitudes(form, np.array([code]))[0]) < -x:
        code += 1
    while code and float(magnitudes(form, np.array([code - 1]))[0]) >= -x:
        code -= 1
    return -float(magnitudes(form, np.array([code]))[0])


def first(form: Format, predicate: Predicate) -> tuple[int | None, bool]:
    """The bits of the smallest magnitude at which the predicate holds, and whether it holds at all larger ones.

    Formats of 16 and 8 bits are swept whole. float32 is bisected on its bits, 256 numbers at a time; there "all
    larger ones" are those that the search met.

    Args:
        form: the format.
        predicate: booleans of magnitudes in the dtype of the format, elementwise.

    Returns:
        (None, True) where it holds nowhere.
    """
    top = largest_code(form)
    if swept(form):
        found = np.asarray(predicate(magnitudes(form, np.arange(top + 1))))
        place = int(found.argmax())
        return (place, bool(found[place:].all())) if found.any() else (None, True)
    return _bisected(form, predicate, top)


def _bisected(form: Format, predicate: Predicate, top: int) -> tuple[int | None, bool]:
    low, high, monotone = -1, top, True
    known = None
    while known is None or high - low > 1:
        codes = np.unique(np.linspace(low + 1, high, BATCH).astype(np.int64))
        found = np.asarray(predicate(magnitudes(form, codes)))
        if known is None and not found.any():
            return None, True
        place = int(found.argmax())
        known, monotone = int(codes[place]), monotone and bool(found[place:].all())
        low, high = (int(codes[place - 1]) if place else low), known
    return known, monotone
