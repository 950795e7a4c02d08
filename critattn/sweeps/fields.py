"""Reading the tables of a study: known keys, checked values, one line where something is wrong."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from critattn.errors import CritattnError, SpecError
from critattn.grids import as_tuple, parse_counts, parse_grid, parse_number

Reader = Callable[[Any], Any]
MAX_COUNT = 2**31


def read_table(where: str, table: Any, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The checked values of the keys that are there.

    Args:
        where: name of the table, for messages; empty for the top level.
        table: as parsed.
        readers: for each allowed key a function from the raw value to the checked one.

    Raises:
        SpecError: for an unknown key, with the allowed ones, and for a wrong value, with its key.
    """
    if not isinstance(table, Mapping):
        raise SpecError(f"{where or 'study'} = {table!r}: allowed: a table")
    for key in table:
        if key not in readers:
            raise SpecError(f"{_dotted(where, key)}: unknown key; {_hint(key, readers)}allowed: {', '.join(readers)}")
    return {key: _read(_dotted(where, key), value, readers[key]) for key, value in table.items()}


def choice(allowed: Iterable[str]) -> Reader:
    """A reader of one of a few names."""
    names = tuple(allowed)

    def read(value: Any) -> str:
        if value not in names:
            raise SpecError(f"{value!r}; {_hint(value, names)}allowed: {', '.join(names)}")
        return value

    return read


def flag(value: Any) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise SpecError(f"{value!r}; allowed: true or false")
    return value


def text(value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{value!r}; allowed: a text")
    return value


def whole(minimum: int, maximum: int | None = None) -> Reader:
    """A reader of a whole number from `minimum` up, or to `maximum`."""
    allowed = f"a whole number {f'>= {minimum}' if maximum is None else f'from {minimum} to {maximum}'}"

    def read(value: Any) -> int:
        wrong = isinstance(value, bool) or not isinstance(value, int) or value < minimum
        if wrong or (maximum is not None and value > maximum):
            raise SpecError(f"{value!r}; allowed: {allowed}")
        return value

    return read


def number(value: Any) -> float:
    """A finite number."""
    return parse_number(value)


def grid(value: Any) -> tuple[float, ...]:
    """A grid of distinct finite numbers."""
    return _distinct(tuple(float(point) for point in as_tuple(parse_grid(value))))


def counts(value: Any) -> tuple[int, ...]:
    """A grid of distinct counts small enough to simulate."""
    points = as_tuple(parse_counts(value))
    if any(point > MAX_COUNT for point in points):
        raise SpecError(f"{value!r}; allowed in a simulation: up to {MAX_COUNT}")
    return _distinct(tuple(int(point) for point in points))


def counts_or_n(value: Any) -> tuple[int, ...] | str:
    """A grid of counts, or the text `n` for d = n."""
    return "n" if value == "n" else counts(value)


def names(value: Any) -> tuple[str, ...]:
    """A list of names, without repetitions."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) and item for item in items):
        raise SpecError(f"{value!r}; allowed: a list of names")
    return tuple(dict.fromkeys(items))


def _distinct(points: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(points)) != len(points):
        raise SpecError(f"{list(points)[:8]}; allowed: each point once")
    return points


def _read(where: str, value: Any, reader: Reader) -> Any:
    try:
        return reader(value)
    except CritattnError as error:
        inner = str(error).startswith((f"{where}.", f"{where} ="))
        raise SpecError(str(error) if inner else f"{where} = {error}") from None


def _hint(value: Any, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(value), list(allowed), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)
