"""Numbers as people write them: `1e6`, `1,1.5,2`, `0:4:81`; shared by studies and the command line."""

import math
from collections.abc import Callable, Sequence

from critattn.errors import SpecError

FORMS = "a number (1.2), a list (1,1.5,2) or a range start:stop:points (0:4:81, both ends in)"
MAX_POINTS = 1_000_000
MAX_EXACT = 2**53
TOO_LARGE = "is beyond 1.8e308; give its natural logarithm (such as --log-n 1000)"


def parse_number(value: object) -> float:
    """A finite float of a number or of its text.

    Raises:
        SpecError: for words, NaN and infinities.
    """
    number = _as_float(value)
    if not math.isfinite(number):
        raise SpecError(f"{_shown(value)} is not a finite number (such as 1.2 or 1e6)")
    return number


def parse_count(value: object) -> int | float:
    """A count n or d: an int up to 2**53, a whole float beyond it (`1e300`).

    Raises:
        SpecError: below 1, for fractions and for words; above 1.8e308 the line names the logarithmic option.
    """
    exact = _as_int(value)
    if exact is None:
        number = _as_float(value)
        if number == math.inf and not _names_infinity(value):
            raise SpecError(f"{_shown(value)} is beyond 1.8e308; give its natural logarithm (such as --log-n 1000)")
        if not math.isfinite(number) or number != math.floor(number):
            raise SpecError(f"{_shown(value)} is not a whole number (such as 512, 1e6 or 1e300)")
        exact = int(number)
    if exact < 1:
        raise SpecError(f"{_shown(value)} is below 1; a count is a whole number >= 1 (such as 512 or 1e6)")
    return exact if exact <= MAX_EXACT else _large(value, exact)


def parse_grid(value: object) -> float | tuple[float, ...]:
    """A float of a single number; a tuple of a list, a range `start:stop:points`, or a sequence.

    A range holds both ends and equals `numpy.linspace(start, stop, points)`.

    Raises:
        SpecError: for anything else, with the three forms that are allowed.
    """
    if isinstance(value, str):
        return _parse_text(value, parse_number)
    if isinstance(value, Sequence):
        return _sequence(value, parse_number)
    return parse_number(value)


def parse_counts(value: object) -> int | float | tuple[int | float, ...]:
    """As `parse_grid`, for counts: `512`, `64,512,1e6`, `16:64:4` (whole points only).

    Raises:
        SpecError: for anything that is not a count or counts.
    """
    if isinstance(value, str):
        parsed = _parse_text(value, parse_count)
        if ":" in value and isinstance(parsed, tuple):
            return tuple(parse_count(point) for point in parsed)
        return parsed
    if isinstance(value, Sequence):
        return _sequence(value, parse_count)
    return parse_count(value)


def as_tuple(value: float | tuple[float, ...]) -> tuple[float, ...]:
    """The points of a parsed grid; a single number is a grid of one point."""
    return value if isinstance(value, tuple) else (value,)


def _parse_text(text: str, parse: Callable[[object], float]) -> float | tuple[float, ...]:
    if ":" in text:
        return _range(text)
    if "," in text:
        return tuple(_item(part, text, parse) for part in text.split(","))
    return parse(text)


def _item(part: str, text: str, parse: Callable[[object], float]) -> float:
    if not part.strip():
        raise SpecError(f"{text!r} has an empty item; allowed: {FORMS}")
    return parse(part)


def _sequence(values: Sequence[object], parse: Callable[[object], float]) -> tuple[float, ...]:
    if not values:
        raise SpecError(f"an empty list has no points; allowed: {FORMS}")
    return tuple(parse(value) for value in values)


def _range(text: str) -> tuple[float, ...]:
    parts = text.split(":")
    if len(parts) != 3:
        raise SpecError(f"{text!r} is not a range; allowed: {FORMS}")
    start, stop = (parse_number(part) for part in parts[:2])
    points = _as_int(parts[2])
    if points is None or not 2 <= points <= MAX_POINTS:
        raise SpecError(
            f"{text!r}: the number of points is {parts[2]!r}; allowed: a whole number from 2 to {MAX_POINTS}"
        )
    step = (stop - start) / (points - 1)
    return (*(start + index * step for index in range(points - 1)), stop)


def _as_int(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 400 else None


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SpecError(f"{_shown(value)} is not a number (such as 1.2 or 1e6)")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise SpecError(f"{_shown(value)} is not a number (such as 1.2 or 1e6)") from None


def _large(value: object, exact: int) -> float:
    try:
        return float(exact)
    except OverflowError:
        raise SpecError(
            f"{_shown(value)} is beyond 1.8e308; give its natural logarithm (such as --log-n 1000)"
        ) from None


def _names_infinity(value: object) -> bool:
    return not isinstance(value, str) or "inf" in value.lower()


def _shown(value: object) -> str:
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
