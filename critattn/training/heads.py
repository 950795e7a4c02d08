"""Files of trained heads against their transitions, a file a run; nothing here needs the packages that train."""

import csv
import dataclasses
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from critattn.errors import StoreError
from critattn.reading import damage
from critattn.training.results import Run, write_text

# of what is read of a head: other numbers of the same weights make another one
FORMAT = "1"
ENDING = ".heads.csv"
DIGITS = 16
CONTROLS = ("gamma", "p")
# headings of predictions begin so
PREDICTED = "predicted:"


@dataclass(frozen=True)
class HeadPoint:
    """One head against its transition: the least control parameter at which its weights are half local.

    The control parameter is p where weights are powers `y^p`, else gamma: scores are gamma log n times the cosine of
    query and key, with the head's own |q||k| in gamma; a soft cap and a bias come after them and stay as they are.
    Means are over query rows.

    Attributes:
        layer: from 0.
        head: from 0.
        length: n, keys of the longest row.
        control: "p" or "gamma".
        value: of the head as it is.
        rho: mean cosine of a query with the keys of other positions.
        own: mean cosine with the key of its own position.
        top: mean of the largest cosine.
        rho_keys: mean cosine of two keys.
        largest: mean of the largest weight, under the head's own normaliser.
        own_weight: mean weight of the query's own position.
        measured: least control parameter at which the mean of the largest weight is 1/2, looked for between 10^-3 and
            10^4 times the head's own; 0 where it is above 1/2 at the lower end already, infinite where it stays below.
        measured_own: the same of the own weight, as in the theory of symmetric tokens.
        predicted: the same from `rho`, n and d or a few more numbers, by name; infinite where theory has none.
    """

    layer: int
    head: int
    length: int
    control: str
    value: float
    rho: float
    own: float
    top: float
    rho_keys: float
    largest: float
    own_weight: float
    measured: float
    measured_own: float
    predicted: dict[str, float]


@dataclass(frozen=True)
class Line:
    """A head of a run.

    Attributes:
        variant: name of the attention.
        seed: of the run.
        weights: the first sixteen digits of the sha256 of the file of weights that it was read from.
        text: the same of the text that it was read on.
        point: where it stands.
    """

    variant: str
    seed: int
    weights: str
    text: str
    point: HeadPoint


OF_RUN = tuple(one.name for one in dataclasses.fields(Line) if one.name != "point")
OF_HEAD = tuple(one.name for one in dataclasses.fields(HeadPoint) if one.name != "predicted")
WHOLE, WORDS = ("seed", "layer", "head", "length"), ("variant", "weights", "text", "control")
SHOWN = ("value", "measured", "largest")


def file(run: Run) -> Path:
    """Where the heads of a run lie."""
    return run.file(ENDING)


def digest(path: Path) -> str:
    """The first sixteen digits of the sha256 of a file.

    Raises:
        StoreError: where it cannot be read.
    """
    with damage(StoreError, f"{str(path)!r}: cannot be read"):
        return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]


def read(run: Run) -> list[Line]:
    """The heads of a run; none where they are not there, or were read by another version.

    Raises:
        StoreError: where the file cannot be read, is of another run, or holds what no head has.
    """
    path = file(run)
    if not path.exists():
        return []
    with damage(StoreError, f"heads {str(path)!r}: cannot be read"), path.open(encoding="utf-8", newline="") as stream:
        found = _parsed(stream)
        _check(run, found)
    return found


def _parsed(stream: Iterable[str]) -> list[Line]:
    """The heads in CSV, those of this format; ValueError, which the caller words."""
    rows = csv.DictReader(stream, strict=True)
    lost = [name for name in ("format", *OF_RUN, *OF_HEAD) if name not in (rows.fieldnames or ())]
    if lost:
        raise ValueError(f"it has no column {lost[0]!r}")
    return [_line(row) for row in rows if row["format"] == FORMAT]


def rounded(lines: Iterable[Line]) -> list[Line]:
    """The heads with the digits that a file keeps."""
    return _parsed(as_csv(lines).splitlines())


def _line(row: Mapping[str, str]) -> Line:
    parts = {name: _value(name, row[name]) for name in (*OF_RUN, *OF_HEAD)}
    guesses = {name.removeprefix(PREDICTED): text for name, text in row.items() if str(name).startswith(PREDICTED)}
    predicted = {name: float(text) for name, text in guesses.items() if text}
    point = HeadPoint(**{name: parts[name] for name in OF_HEAD}, predicted=predicted)
    return Line(**{name: parts[name] for name in OF_RUN}, point=point)


def _value(name: str, text: str) -> Any:
    if text is None:
        raise ValueError("a line is too short")
    if name in WORDS:
        return text
    return int(text) if name in WHOLE else float(text)


def _check(run: Run, lines: Sequence[Line]) -> None:
    """Refuse heads of another run, and what is no head; ValueError, which the caller words."""
    seen = set()
    for one in lines:
        point, place = one.point, (one.point.layer, one.point.head)
        if (one.variant, one.seed) != (run.variant.name, run.seed):
            raise ValueError(f"it is of {one.variant}, seed {one.seed}")
        if place in seen:
            raise ValueError(f"layer {place[0]}, head {place[1]} is there twice")
        if point.control not in CONTROLS or min(*place, point.length - 1) < 0 or math.isnan(point.measured):
            raise ValueError(
                f"layer {place[0]}, head {place[1]} has control {point.control!r}, length {point.length} and measured "
                f"{point.measured}; allowed: layers and heads from 0, {' or '.join(CONTROLS)}, a number"
            )
        seen.add(place)


def as_csv(lines: Iterable[Line]) -> str:
    """The heads as CSV with a line of headings, numbers to six digits; empty fields where there is no prediction."""
    kept = list(lines)
    predictions = list(dict.fromkeys(name for one in kept for name in one.point.predicted))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["format", *OF_RUN, *OF_HEAD, *(f"{PREDICTED}{name}" for name in predictions)])
    for one in kept:
        values = [*(getattr(one, name) for name in OF_RUN), *(getattr(one.point, name) for name in OF_HEAD)]
        values += [one.point.predicted.get(name, "") for name in predictions]
        writer.writerow([FORMAT, *(f"{value:.6g}" if isinstance(value, float) else value for value in values)])
    return out.getvalue()


def write(run: Run, lines: Iterable[Line]) -> None:
    """Write the heads of a run, whole or not at all.

    Raises:
        StoreError: where the file cannot be written.
    """
    write_text(file(run), as_csv(lines))


def known(run: Run, corpus: str) -> list[Line]:
    """The heads of a run, if they were read from its weights as they are and on this text; none otherwise."""
    try:
        found = read(run)
        weights = digest(run.file(".npz"))
    except StoreError:
        return []
    sound = found and all((one.weights, one.text) == (weights, corpus[:DIGITS]) for one in found)
    return found if sound else []


def with_heads(data: xarray.Dataset, lines: Sequence[Line]) -> xarray.Dataset:
    """A dataset of `collected.dataset` with the heads along `row`.

    Args:
        data: of a study.
        lines: its heads, at least one.

    Returns:
        The same with `value`, `measured` and `largest` (row) of `HeadPoint`, `predicted` (prediction, row), NaN where
        a head has no prediction of that name, and coordinates `of` (name of the variant), `of_seed`, `layer`,
        `control` and `length` (row).
    """
    points = [one.point for one in lines]
    names = list(dict.fromkeys(name for one in points for name in one.predicted))
    guesses = np.array([[one.predicted.get(name, math.nan) for one in points] for name in names])
    added: dict[str, Any] = {name: ("row", [getattr(one, name) for one in points]) for name in SHOWN}
    rows = {name: ("row", [getattr(one, name) for one in points]) for name in ("layer", "control", "length")}
    rows |= {"of": ("row", [one.variant for one in lines]), "of_seed": ("row", [one.seed for one in lines])}
    added["predicted"] = (("prediction", "row"), guesses.reshape(len(names), len(points)))
    return data.assign(added).assign_coords({**rows, "prediction": names})
