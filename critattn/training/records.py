"""One variant at one seed from start to record, and tables over seeds."""

import dataclasses
import functools
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from critattn import provenance
from critattn.errors import StoreError
from critattn.storage import canonical_json, content_hash, differences
from critattn.training import loop, weights
from critattn.training.corpus import Corpus
from critattn.training.evaluation import Evaluation, evaluate, length_losses
from critattn.training.presets import Preset
from critattn.training.variants import Variant

FORMAT = 1
# steps of a curve that are averaged into one number of a record
EVERY = 10
log = logging.getLogger(__name__)


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


def perform(
    run: Run,
    corpus: Corpus,
    *,
    progress: Callable[[loop.Progress], None] | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Train, evaluate and record one run; one that is recorded already is read, one that was stopped goes on.

    Args:
        run: what to do, and where.
        corpus: the text.
        progress: called every ten steps.
        command: what the user typed, for the record.

    Returns:
        The record, JSON-ready; the weights lie beside it.

    Raises:
        StoreError: where files cannot be read or written, or are of another configuration.
        Diverged: where training diverges.
    """
    made = {**loop.config(run.variant, run.preset, run.seed, corpus), "preset": run.preset.to_json()}
    known = read(run.file(".json"), made)
    if known is not None:
        return known
    checkpoint = run.file(".checkpoint.npz")
    trained = loop.train(run.variant, run.preset, corpus, seed=run.seed, checkpoint=checkpoint, progress=progress)
    found = evaluate(trained.model, corpus, run.preset)
    half = length_losses(weights.rounded(trained.model), corpus.held_out, count=run.preset.eval_blocks, multiples=(1,))
    record = {
        "format": FORMAT,
        "config": made,
        "config_hash": content_hash(made),
        "command": command,
        "corpus": corpus.summary(),
        "environment": {**provenance.environment(), "training": _versions()},
        "seconds": trained.seconds,
        "parameters": int(sum(leaf.size for leaf in weights.names(trained.model).values())),
        **found.to_json(),
        "rounded_loss": _rounded_loss(found, half[0].window, run.preset),
        "curves": curves(trained.curves),
    }
    header = {name: record[name] for name in ("config", "config_hash", "command", "corpus", "environment")}
    weights.save(run.file(".npz"), trained.model, {**header, "rounded_loss": record["rounded_loss"]})
    write(run.file(".json"), record)
    checkpoint.unlink(missing_ok=True)
    return record


def perform_all(
    runs: Sequence[Run],
    corpus: Corpus,
    *,
    share: tuple[int, int] = (0, 1),
    progress: Callable[[Run, loop.Progress], None] | None = None,
    command: str = "",
) -> list[Run]:
    """Every run that is not recorded yet, one after the other; stopped at any moment, it goes on where it was.

    Args:
        runs: what to do.
        corpus: the text.
        share: (i, k) takes runs i, i + k, i + 2 k ..., for k processes on one folder.
        progress: called every ten steps.
        command: what the user typed, for the records.

    Returns:
        Runs that diverged; their checkpoints are kept.

    Raises:
        StoreError: where files cannot be read or written, or are of another configuration.
    """
    diverged = []
    for run in runs[share[0] :: share[1]]:
        heard = None if progress is None else functools.partial(progress, run)
        try:
            perform(run, corpus, progress=heard, command=command)
        except loop.Diverged as error:
            log.warning("%s, seed %d: %s", run.variant.name, run.seed, error)
            diverged.append(run)
    return diverged


def _rounded_loss(found: Evaluation, half: float, preset: Preset) -> dict[str, float]:
    """Loss at the training length before and after rounding to float16, over the same number of blocks."""
    full = next(one.window for one in found.losses if one.multiple == 1)
    return {"float32": full, "float16": half}


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("equinox", "optax")}


def curves(recorded: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Means over ten steps each, with the step after which each ends: lists, JSON-ready, to five digits."""
    steps = len(recorded["loss"])
    begins = np.arange(0, steps, EVERY)
    counts = np.diff(np.append(begins, steps))
    found: dict[str, Any] = {"step": (begins + counts).tolist()}
    for name, values in recorded.items():
        summed = np.add.reduceat(values.astype(np.float64), begins, axis=0)
        means = summed / counts.reshape(-1, *[1] * (values.ndim - 1))
        found[name] = np.vectorize(lambda number: float(f"{number:.5g}"))(means).tolist()
    return found


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, whole or not at all; NaN becomes null.

    Raises:
        StoreError: where it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(_without_nan(record), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        raise StoreError(f"{str(path)!r}: was not written: {error.strerror or error}") from error
    finally:
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
        StoreError: where it cannot be read, or is of another configuration, with what differs.
    """
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        kept = record["config"]
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"record {str(path)!r}: cannot be read: {error}") from error
    changed = [] if config is None else differences(kept, json.loads(canonical_json(config)))
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
        mean: over seeds; nats a byte, or a share.
        low: lower end of the 95 % interval of the mean; None at one seed.
        high: upper end.
        seeds: how many.
    """

    variant: str
    quantity: str
    at: int
    mean: float
    low: float | None
    high: float | None
    seeds: int


def table(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Means over seeds with Student's 95 % intervals, of losses by length and accuracies by distance."""
    groups: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        name = record["config"]["variant"]["name"]
        for one in record["losses"]:
            groups.setdefault((name, "loss", one["multiple"]), []).append(one["window"])
            groups.setdefault((name, "last_loss", one["multiple"]), []).append(one["last"])
        for one in record["retrieval"]:
            groups.setdefault((name, one["kind"], one["distance"]), []).append(one["accuracy"])
    return [Row(*key, *interval(values), len(values)) for key, values in groups.items()]


def interval(values: list[float]) -> tuple[float, float | None, float | None]:
    """Mean of the values and Student's 95 % interval of it, None at both ends for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None, None
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows of a table, JSON-ready."""
    return [dataclasses.asdict(row) for row in rows]
