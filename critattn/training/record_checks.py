"""What a record of a run must hold: for each key what is allowed there, and one line for the first that is wrong."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from critattn.training.prompts import KINDS

# rows of the gradients of queries and keys have a number for each layer
PER_LAYER = ("query_gradient_norm", "key_gradient_norm")
PER_STEP = ("step", "loss", "gradient_norm")


class Allowed(NamedTuple):
    """What a key may hold.

    Attributes:
        words: that, for a person.
        test: whether a value is that.
    """

    words: str
    test: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _each(test: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(test, value))


TABLE = Allowed("a table", lambda value: isinstance(value, dict))
TABLES = Allowed("a list of tables", lambda value: isinstance(value, list) and all(map(TABLE.test, value)))
TEXT = Allowed("a text", lambda value: isinstance(value, str))
WHOLE = Allowed("a whole number from 0 to 2**63 - 1", _is_whole)
NUMBER = Allowed("a finite number", _is_number)
# a standard error of one block, say
MEASURED = Allowed("a finite number or null", lambda value: value is None or _is_number(value))
KIND = Allowed(" or ".join(KINDS), lambda value: value in KINDS)
ENDS = Allowed("two finite numbers", lambda value: _each(_is_number, value) and len(value) == 2)
STEPS = Allowed("a list of whole numbers, not empty", lambda value: _each(_is_whole, value))
CURVE = Allowed("a list of finite numbers, not empty", lambda value: _each(_is_number, value))
CURVES = Allowed(
    "a list of lists of finite numbers, none empty", lambda value: _each(lambda row: _each(_is_number, row), value)
)
# what tables, figures and commands read of a record
RECORD = {
    "config": TABLE,
    "corpus": TABLE,
    "curves": TABLE,
    "losses": TABLES,
    "retrieval": TABLES,
    "rounded_loss": TABLE,
    "parameters": WHOLE,
    "seconds": NUMBER,
}
CONFIG = {"variant": TABLE, "preset": TABLE, "seed": WHOLE, "corpus": TEXT}
LOSS = {"multiple": WHOLE, "length": WHOLE, "window": MEASURED, "last": MEASURED}
RETRIEVAL = {
    "kind": KIND,
    "distance": WHOLE,
    "accuracy": MEASURED,
    "right": WHOLE,
    "prompts": WHOLE,
    "interval": ENDS,
}


def wrong(record: Any, form: int) -> str | None:
    """What is wrong with a record, in a line with the key, its value and what is allowed; None where nothing is.

    Args:
        record: as parsed.
        form: the number of its format.
    """
    if not isinstance(record, dict):
        return f"it is a {type(record).__name__}; allowed: a table"
    if record.get("format") != form:
        return f"it has format {record.get('format')!r}; allowed: {form}"
    return next(_faults(record), None)


def _faults(record: Mapping[str, Any]) -> Iterator[str]:
    """All faults; each check may rely on those before it, because the first one ends the reading."""
    yield from _of_table("", record, RECORD)
    yield from _of_table("config.", record["config"], CONFIG)
    yield from _of_table("config.variant.", record["config"]["variant"], {"name": TEXT})
    yield from _not_finite("config", record["config"])
    for name, keys in (("losses", LOSS), ("retrieval", RETRIEVAL)):
        for at, one in enumerate(record[name]):
            yield from _of_table(f"{name}[{at}].", one, keys)
    yield from _of_curves(record["curves"])


def _of_table(where: str, table: Mapping[str, Any], keys: Mapping[str, Allowed]) -> Iterator[str]:
    for key, allowed in keys.items():
        if key not in table:
            yield f"it has no {where}{key}"
        elif not allowed.test(table[key]):
            yield f"it has {where}{key} = {_short(table[key])}; allowed: {allowed.words}"


def _of_curves(curves: Mapping[str, Any]) -> Iterator[str]:
    """Faults of curves: each has a number, or one for each layer, at every step."""
    kinds = {"step": STEPS, **dict.fromkeys(PER_STEP[1:], CURVE), **dict.fromkeys(PER_LAYER, CURVES)}
    yield from _of_table("curves.", curves, kinds)
    steps, layers = len(curves["step"]), len(curves[PER_LAYER[0]][0])
    for key in kinds:
        if len(curves[key]) != steps:
            yield f"it has {len(curves[key])} values in curves.{key}; allowed: {steps}, as in curves.step"
    for key in PER_LAYER:
        found = next((len(row) for row in curves[key] if len(row) != layers), layers)
        if found != layers:
            yield f"it has a row of {found} values in curves.{key}; allowed: {layers}, as in the first row"


def _not_finite(where: str, value: Any) -> Iterator[str]:
    """Faults of a configuration that is to be compared as JSON, which has no NaN and no infinities."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _not_finite(f"{where}.{key}", one)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _not_finite(f"{where}[{at}]", one)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"it has {where} = {value}; allowed: a finite number"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
