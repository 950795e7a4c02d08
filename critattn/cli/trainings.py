"""What commands that train share: the packages they need, where runs lie, the bar, data for figures."""

import contextlib
import importlib.util
import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Settings, duration, progress
from critattn.errors import SpecError
from critattn.training.presets import MOST_STEPS

# the second with the heads of the trained decoders as well
HEADS = "training-heads:"
PREFIXES = ("training:", HEADS)
NEEDED = ("equinox", "optax")
FOLDER = "training"
FLAGS = {"smoke": "seconds", "small": "minutes on two cores", "paper": "the published size, for a GPU"}
# steps between two lines of -v
SAID = 100
log = logging.getLogger(__name__)


def need(doing: str = "training") -> None:
    """Refuse what needs the packages that train where they are not installed.

    Raises:
        SpecError: with the command that installs them.
    """
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise SpecError(f"{doing} needs {' and '.join(absent)}: pip install 'critattn[training]'")


def root(out: str | None, store: str | None = None) -> Path:
    """The folder of the runs: --out, else `training` below the stores.

    Raises:
        SpecError: for an empty --out.
    """
    from critattn.storage import store_root

    if out == "":
        raise SpecError("--out '': names no folder; allowed: a folder that can be written")
    if out is not None:
        return Path(out)
    return (store_root() if store is None else Path(store)) / FOLDER


def check_folder(folder: Path, preset: str) -> None:
    """Refuse a folder of runs where those of a preset cannot be written.

    Raises:
        StoreError: for a file in its place or in that of the preset's folder, or one that cannot be written.
    """
    from critattn.cli.report import writable

    writable(folder)
    writable(folder / preset)


def corpus(folder: str | None) -> Any:
    """The text to train on.

    Raises:
        SpecError: where the folder is none, or there is too little text.
    """
    from critattn.training import corpus as texts

    return texts.load(folder)


def chosen(preset: str | None, **flags: bool) -> str | None:
    """The preset among --preset and the flags that stand for one; None where none is given.

    Raises:
        UsageError: for two.
    """
    given = {**({} if preset is None else {"preset": preset}), **{key: key for key, there in flags.items() if there}}
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(f'--{key}' for key in given)}: allowed: one of them")
    return next(iter(given.values()), None)


def size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --smoke, --small and --paper, which stand for --preset, and --steps."""
    steps = "Optimiser steps in place of the preset's."
    command = click.option("--steps", type=click.IntRange(1, MOST_STEPS), help=steps)(command)
    for name, words in reversed(FLAGS.items()):
        command = click.option(f"--{name}", is_flag=True, help=f"--preset {name}: {words}.")(command)
    return command


def in_float32(settings: Settings) -> None:
    """Refuse --dtype float64.

    Raises:
        UsageError: where it was asked for.
    """
    if "dtype" in settings.given and settings.dtype != "float32":
        raise click.UsageError(f"--dtype {settings.dtype}: decoders are trained in float32; allowed: float32")


class Follow:
    """Follows runs: a bar for each with its loss, gradient norm and remaining time; a line every 100 steps with -v."""

    def __init__(self, settings: Settings, total: int) -> None:
        self.settings, self.total, self.number = settings, total, 0
        self.run: Any = None
        self.heard: Any = None
        self.stack = contextlib.ExitStack()
        self.advance: Callable[..., None] | None = None
        self.done = 0

    def __call__(self, run: Any, heard: Any) -> None:
        """What `perform` calls every ten steps, with the run before what it heard."""
        self.heard = heard
        if self.advance is None or run is not self.run:
            self.advance = self._next(run, heard)
        else:
            self.advance(heard.step - self.done)
        self.done = heard.step
        if heard.step % SAID == 0 or heard.step == heard.steps:
            place = f"{run.variant.name}, seed {run.seed}: step {heard.step} of {heard.steps}"
            found = f"loss {heard.loss:.3f}, gradient norm {heard.gradient_norm:.2g}"
            log.info("%s, %s, %s left", place, found, duration(heard.seconds_left))

    def _next(self, run: Any, heard: Any) -> Callable[..., None]:
        self.stack.close()
        self.run, self.number = run, self.number + 1
        place = f"[{self.number}/{self.total}] " if self.total > 1 else ""
        name = f"{place}{run.variant.name}, seed {run.seed}"
        bar = progress(
            self.settings,
            heard.steps,
            name,
            done=heard.step,
            remaining=lambda: self.heard.seconds_left,
            note=self.words,
        )
        return self.stack.enter_context(bar)

    def words(self) -> str:
        """Loss and gradient norm of the last steps, in a few characters; after the last one, what goes on."""
        one = self.heard
        return "measuring" if one.step == one.steps else f"loss {one.loss:.3f}, |g| {one.gradient_norm:.2g}"


def dataset(
    source: str,
    *,
    name: str | None = None,
    quick: bool | None = None,
    store: str | None = None,
) -> tuple[str, Any] | str:
    """(label, dataset) of what a figure asks for, or a sentence that says how to make it.

    Full results in the store come first, then those that come with the package, then quick ones in the store.

    Args:
        source: the figure's DATA, `training:STUDY`, or `training-heads:STUDY` for its heads as well.
        name: another study.
        quick: only quick or only full results.
        store: folder of the stores.

    Raises:
        SpecError: for an unknown study.
        StoreError: for results of another configuration.
    """
    from critattn.training.experiments import RECORDED, experiment

    heads = source.startswith(HEADS)
    study, folder = name or source.partition(":")[2], root(None, store)
    places: list[tuple[str, bool, Path]] = []
    if quick is not True:
        places += [(study, False, folder), (f"{study}-recorded", False, RECORDED)]
    if quick is not False:
        places.append((f"{study}-quick", True, folder))
    for label, choice, place in places:
        data = _complete(experiment(study, quick=choice), place, partly=place == RECORDED, heads=heads)
        if data is not None:
            kept = " --recorded" if place == RECORDED else ""
            made_by = f"critattn extrapolate {shlex.quote(study)}{_flags(study, choice, heads=heads)}{kept}"
            return label, data.assign_attrs(command=made_by)
    return _how(study, quick, store, heads=heads)


def _complete(wanted: Any, folder: Path, *, partly: bool, heads: bool) -> Any:
    """The dataset of a study; None where runs are missing, or the heads of one that is there."""
    from critattn.training import collected
    from critattn.training.heads import read, with_heads

    found = collected.records(wanted, folder)
    if not found or (len(found) < len(wanted.runs(folder)) and not partly):
        return None
    data = collected.dataset(wanted, found)
    if not heads:
        return data
    there = {(one["config"]["variant"]["name"], one["config"]["seed"]) for one in found}
    each = [read(run) for run in wanted.runs(folder) if (run.variant.name, run.seed) in there]
    return with_heads(data, [line for lines in each for line in lines]) if all(each) else None


def _how(study: str, quick: bool | None, store: str | None, *, heads: bool) -> str:
    # extrapolate's --out is the folder of the runs itself
    place = f" --out {shlex.quote(str(root(None, store)))}" if store else ""
    command = f"critattn extrapolate {shlex.quote(study)}{_flags(study, quick is not False, heads=heads)}{place}"
    return f"study {study!r} has no complete results{' with heads' if heads else ''}; train with: {command}"


def _flags(study: str, quick: bool, *, heads: bool) -> str:
    """The options of `critattn extrapolate` that make such data; --quick only where the study has such a table."""
    from critattn.training.experiments import experiment

    smaller = quick and experiment(study, quick=True) != experiment(study)
    return f"{' --quick' if smaller else ''}{' --heads' if heads else ''}"


def option(source: str, label: str) -> str:
    """The options of `critattn figures` that choose the data of this label."""
    default = source.partition(":")[2]
    study = label.removesuffix("-quick").removesuffix("-recorded")
    named = "" if study == default else f" --experiment {shlex.quote(study)}"
    return f"{named}{' --quick' if label.endswith('-quick') else ' --full'}"
