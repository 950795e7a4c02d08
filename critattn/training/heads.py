"""Tables of trained heads against their transitions, one line a head; nothing here needs the packages that train."""

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from critattn.errors import StoreError
from critattn.tensorfiles import damage
from critattn.training.experiments import Experiment
from critattn.training.results import write_text

FILE = "heads.csv"
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
        text: the first sixteen digits of the sha256 of the text that it was read on.
        point: where it stands.
    """

    variant: str
    seed: int
    text: str
    point: HeadPoint


OF_RUN = tuple(one.name for one in dataclasses.fields(Line) if one.name != "point")
OF_HEAD = tuple(one.name for one in dataclasses.fields(HeadPoint) if one.name != "predicted")
SHOWN = ("value", "measured", "largest")
READERS = {"seed": int, "layer": int, "head": int, "length": int, "variant": str, "text": str, "control": str}


def table(folder: Path, preset: str) -> Path:
    """The file of the heads of all runs of a preset."""
    return folder / preset / FILE


def read(path: Path) -> list[Line]:
    """The heads of a table; none where there is no file.

    Raises:
        StoreError: where it cannot be read, with the reason.
    """
    if not path.exists():
        return []
    with damage(StoreError, f"heads {str(path)!r}: cannot be read"), path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        lost = [name for name in (*OF_RUN, *OF_HEAD) if name not in (rows.fieldnames or ())]
        if lost:
            raise StoreError(f"heads {str(path)!r}: cannot be read: it has no column {lost[0]!r}")
        return [_line(row) for row in rows]


def _line(row: Mapping[str, str]) -> Line:
    parts = {name: READERS.get(name, float)(row[name]) for name in (*OF_RUN, *OF_HEAD)}
    guesses = {name.removeprefix(PREDICTED): text for name, text in row.items() if name.startswith(PREDICTED)}
    predicted = {name: float(text) for name, text in guesses.items() if text}
    point = HeadPoint(**{name: parts[name] for name in OF_HEAD}, predicted=predicted)
    return Line(**{name: parts[name] for name in OF_RUN}, point=point)


def as_csv(lines: Iterable[Line]) -> str:
    """The heads as CSV with a line of headings, numbers to six digits; empty fields where there is no prediction."""
    kept = sorted(lines, key=lambda one: (one.variant, one.seed, one.point.layer, one.point.head))
    predictions = list(dict.fromkeys(name for one in kept for name in one.point.predicted))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*OF_RUN, *OF_HEAD, *(f"{PREDICTED}{name}" for name in predictions)])
    for one in kept:
        values = [*(getattr(one, name) for name in OF_RUN), *(getattr(one.point, name) for name in OF_HEAD)]
        values += [one.point.predicted.get(name, "") for name in predictions]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
    return out.getvalue()


def merge(path: Path, lines: Sequence[Line]) -> None:
    """Write heads into a table, in place of those of the same runs; heads of other runs stay.

    Raises:
        StoreError: where the table cannot be read or written; what was there is untouched.
    """
    runs = {(one.variant, one.seed) for one in lines}
    write_text(path, as_csv([*(one for one in read(path) if (one.variant, one.seed) not in runs), *lines]))


def of_study(experiment: Experiment, folder: Path) -> list[Line]:
    """The heads of the runs of a study that are in the table below a folder, in the order of its variants.

    Raises:
        StoreError: where the table cannot be read.
    """
    names = {one.name: index for index, one in enumerate(experiment.variants)}
    lines = read(table(folder, experiment.preset.name))
    there = [one for one in lines if one.variant in names and one.seed in experiment.seeds]
    return sorted(there, key=lambda one: (names[one.variant], one.seed))


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
