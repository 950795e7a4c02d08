"""What runs leave behind, and tables of it; nothing here needs the packages that train."""

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from critattn.errors import StoreError
from critattn.storage import canonical_json, differences
from critattn.training.presets import Preset
from critattn.training.record_checks import wrong
from critattn.training.variants import Variant

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """Where the files of one run lie: `<folder>/<preset>/<variant>-seed<seed>.json`.

    The weights are beside it in `.npz` and, until it is done, its state in `.checkpoint.npz`.

    Attributes:
        folder: of all runs.
        variant: the attention.
        preset: sizes.
        seed: of start and batches.
    """

    folder: Path
    variant: Variant
    preset: Preset
    seed: int

    def file(self, ending: str) -> Path:
        """The file with that ending."""
        return self.folder / self.preset.name / f"{self.variant.name}-seed{self.seed}{ending}"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, whole or not at all; NaN becomes null.

    Raises:
        StoreError: where it cannot be written.
    """
    write_text(path, json.dumps(_without_nan(record), indent=1, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all.

    Raises:
        StoreError: where it cannot be written; what was there is untouched.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        raise StoreError(f"{str(path)!r}: was not written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path, config: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """A record; None where there is none.

    Args:
        path: of the JSON file.
        config: refuse a record of another configuration.

    Raises:
        StoreError: where it cannot be read, is no record of this format, holds not what tables need, with the key, or
            is of another configuration, with what differs.
    """
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        fault = wrong(record, FORMAT)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"record {str(path)!r}: cannot be read: {error}") from error
    if fault is not None:
        raise StoreError(f"record {str(path)!r}: cannot be read: {fault}")
    changed = [] if config is None else differences(record["config"], json.loads(canonical_json(config)))
    if changed:
        listed = "; ".join(f"{key} was {old!r}, is {new!r}" for key, old, new in changed[:6])
        raise StoreError(f"record {str(path)!r}: is of another configuration: {listed}; choose another folder")
    return record


def read_all(folder: Path, preset: str) -> list[dict[str, Any]]:
    """All records of a preset below a folder, by variant and seed.

    Raises:
        StoreError: where one cannot be read.
    """
    found = [read(path) for path in sorted((folder / preset).glob("*-seed*.json"))]
    return [one for one in found if one is not None]


@dataclass(frozen=True)
class Row:
    """One number of a variant, over seeds.

    Attributes:
        variant: its name.
        quantity: "loss", "last_loss", "passkey" or "needle".
        at: multiple of the training length, or distance in bytes.
        mean: over seeds; nats a byte, or a share; NaN where no seed has a number.
        low: lower end of the 95 % interval of the mean; None at one seed.
        high: upper end.
        seeds: how many have a number.
    """

    variant: str
    quantity: str
    at: int
    mean: float
    low: float | None
    high: float | None
    seeds: int


def table(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Means over seeds with Student's 95 % intervals, of losses by length and accuracies by distance.

    A null of a record is NaN; seeds with NaN are passed over.
    """
    groups: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        name = record["config"]["variant"]["name"]
        for one in record["losses"]:
            groups.setdefault((name, "loss", one["multiple"]), []).append(_number(one["window"]))
            groups.setdefault((name, "last_loss", one["multiple"]), []).append(_number(one["last"]))
        for one in record["retrieval"]:
            groups.setdefault((name, one["kind"], one["distance"]), []).append(_number(one["accuracy"]))
    return [Row(*key, *interval(values), len(_finite(values))) for key, values in groups.items()]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _finite(values: list[float]) -> list[float]:
    return [one for one in values if math.isfinite(one)]


def interval(values: list[float]) -> tuple[float, float | None, float | None]:
    """Mean of the finite values and Student's 95 % interval of it, None at both ends below two; NaN of none."""
    there = _finite(values)
    if not there:
        return math.nan, None, None
    mean = float(np.mean(there))
    if len(there) < 2:
        return mean, None, None
    half = float(stats.t.ppf(0.975, len(there) - 1) * np.std(there, ddof=1) / math.sqrt(len(there)))
    return mean, mean - half, mean + half


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows of a table as tables; a mean that is NaN stays so."""
    return [dataclasses.asdict(row) for row in rows]


def as_csv(rows: Iterable[Row]) -> str:
    """The rows of a table as CSV with a line of headings; empty fields where there is no interval."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([one.name for one in dataclasses.fields(Row)])
    writer.writerows(dataclasses.astuple(row) for row in rows)
    return out.getvalue()


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows of a table as CSV, whole or not at all; what a symbolic link points to, where it is one.

    Raises:
        StoreError: where it cannot be written.
    """
    write_text(behind(path), as_csv(rows))


def behind(path: Path) -> Path:
    """The file that a symbolic link stands for, there or not; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path
