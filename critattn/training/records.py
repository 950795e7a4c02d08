"""One variant at one seed from start to record."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from critattn import provenance
from critattn.storage import content_hash
from critattn.training import checkpoints, loop, weights
from critattn.training.corpus import Corpus
from critattn.training.evaluation import MULTIPLES, Evaluation, blocks, evaluate, length_losses
from critattn.training.presets import Preset
from critattn.training.results import FORMAT, Run, read, write

# steps of a curve that are averaged into one number of a record
EVERY = 10
log = logging.getLogger(__name__)


def perform(
    run: Run,
    corpus: Corpus,
    *,
    progress: Callable[[loop.Progress], None] | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Train, evaluate and record one run; one that is recorded already is read, one that was stopped goes on.

    The record states versions, machine and commit as they were before the first step of the session that finished the
    run; earlier sessions leave no trace in it. A checkpoint holds the training only: where a run is killed while it is
    evaluated (about a minute at the preset `small`), the evaluation begins again.

    Args:
        run: what to do, and where.
        corpus: the text.
        progress: called every ten steps, and after each that takes more than 5 s.
        command: what the user typed, for the record.

    Returns:
        The record, JSON-ready; the weights lie beside it.

    Raises:
        StoreError: where files cannot be read or written, or are of another configuration.
        Diverged: where training diverges.
    """
    made = _config(run, corpus)
    known = read(run.file(".json"), made)
    if known is not None:
        return known
    checkpoint = run.file(".checkpoint.npz")
    # a commit while it trains did not make it
    environment = {**provenance.environment(), "training": _versions()}
    trained = loop.train(run.variant, run.preset, corpus, seed=run.seed, checkpoint=checkpoint, progress=progress)
    found = evaluate(trained.model, corpus, run.preset)
    half = length_losses(weights.rounded(trained.model), corpus.held_out, count=run.preset.eval_blocks, multiples=(1,))
    record = {
        "format": FORMAT,
        "config": made,
        "config_hash": content_hash(made),
        "command": command,
        "corpus": corpus.summary(),
        "environment": environment,
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


def _config(run: Run, corpus: Corpus) -> dict[str, Any]:
    """What defines a record: the training and the evaluation."""
    return {**loop.config(run.variant, run.preset, run.seed, corpus), "preset": run.preset.to_json()}


def missing(runs: Sequence[Run], corpus: Corpus) -> list[Run]:
    """The runs that are not recorded yet, after a look at everything that could stop them before the first step.

    Args:
        runs: what to do.
        corpus: the text.

    Raises:
        StoreError: where a record or a checkpoint is of another configuration, with what differs.
        SpecError: where the held-out text is shorter than the longest window of the evaluation.
    """
    absent = [run for run in runs if read(run.file(".json"), _config(run, corpus)) is None]
    for run in absent:
        blocks(corpus.held_out, max(MULTIPLES) * run.preset.shape.length, 1)
        checkpoints.check(run.file(".checkpoint.npz"), loop.config(run.variant, run.preset, run.seed, corpus))
    return absent


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
        Runs that diverged; the log says where, and their checkpoints are kept.

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
