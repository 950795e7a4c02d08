"""`critattn train`: train one small decoder, or go on where it was stopped."""

import functools
import shlex
from dataclasses import dataclass
from typing import Any

import click

from critattn.cli import trainings
from critattn.cli.common import Command, Settings, duration, emit, lines, table

PRESET = "small"


@click.command(cls=Command)
@click.argument("variant", required=False)
@click.option("--preset", help=f"Sizes: smoke, small, small-text or paper.  [default: {PRESET}]")
@trainings.size_options
@click.option("--out", help="Folder of the runs.  [default: training in $CRITATTN_STORE or ./runs]")
@click.option("--corpus", "text", help="Folder of *.py files to train on.  [default: this Python's library]")
@click.option("--list", "listed", is_flag=True, help="List the variants.")
@click.pass_obj
def command(
    settings: Settings,
    *,
    variant: str | None,
    preset: str | None,
    smoke: bool,
    small: bool,
    paper: bool,
    steps: int | None,
    out: str | None,
    text: str | None,
    listed: bool,
) -> None:
    """Train a small byte-level decoder with the attention VARIANT, then measure it at and beyond its length.

    A run that is there already is shown; one that was stopped goes on, with the same bits as without a stop.

    Example: critattn train lssar-p15 --smoke

    Example: critattn train softmax-alibi --seed 1

    Example: critattn train --list
    """
    chosen = trainings.chosen(preset, smoke=smoke, small=small, paper=paper)
    name = PRESET if chosen is None else chosen
    if listed:
        _list(settings)
        return
    if variant is None:
        raise click.UsageError("give a VARIANT (critattn train --list shows them)")
    trainings.in_float32(settings)
    asked = Asked(settings, variant, name, steps=steps, out=out, text=text)
    found = asked.carry_out()
    emit(settings, found, lambda: for_people(found))


@dataclass(frozen=True)
class Asked:
    """What was asked for; everything that can be wrong is refused before the first step.

    Attributes:
        settings: the settings of this run; its seed is that of the training.
        variant: name of the attention.
        preset: name of the sizes.
        steps: optimiser steps; None for the preset's.
        out: folder of the runs; None for that in the store.
        text: folder to train on; None for Python's library.
    """

    settings: Settings
    variant: str
    preset: str
    steps: int | None = None
    out: str | None = None
    text: str | None = None

    @property
    def command(self) -> str:
        """What to type to do it, or to go on."""
        given = {"--preset": self.preset, "--seed": self.settings.seed, "--steps": self.steps, "--out": self.out}
        options = {**given, "--corpus": self.text}.items()
        parts = [part for key, value in options if value is not None for part in (key, str(value))]
        return shlex.join(["critattn", "train", self.variant, *parts])

    def _run(self) -> Any:
        from critattn.training.presets import preset
        from critattn.training.results import Run
        from critattn.training.variants import named

        sizes = preset(self.preset) if self.steps is None else preset(self.preset).with_steps(self.steps)
        return Run(trainings.root(self.out), named(self.variant), sizes, self.settings.seed)

    def carry_out(self) -> dict[str, Any]:
        """Train, or read what is there; the stable keys.

        Raises:
            ClickException: where training diverges.
        """
        run = self._run()
        trainings.need()
        from critattn.training import loop, records

        corpus = trainings.corpus(self.text)
        trainings.check_folder(run.folder, run.preset.name)
        reused = not records.missing([run], corpus)
        self.settings.begin(self.command)
        follow = trainings.Follow(self.settings, 1)
        try:
            with follow.stack:
                progress = functools.partial(follow, run)
                record = records.perform(run, corpus, progress=progress, command=self.command)
        except loop.Diverged as error:
            kept = "" if not run.file(".checkpoint.npz").exists() else "; its last checkpoint is kept"
            raise click.ClickException(f"{run.variant.name}, seed {run.seed}: diverged at {error}{kept}") from error
        return {**payload(run, record), "reused": reused, "command": self.command}


def payload(run: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The stable keys of one run."""
    weights = run.file(".npz")
    return {
        "variant": run.variant.name,
        "preset": run.preset.name,
        "seed": run.seed,
        "steps": run.preset.steps,
        "parameters": record["parameters"],
        "seconds": record["seconds"],
        "training_loss": record["curves"]["loss"][-1],
        "losses": record["losses"],
        "retrieval": record["retrieval"],
        "rounded_loss": record["rounded_loss"],
        "corpus": record["corpus"],
        "record": str(run.file(".json")),
        "weights": str(weights) if weights.exists() else None,
    }


def for_people(found: dict[str, Any]) -> Any:
    """Losses by length, retrieval by distance, and where the files are."""
    title = (
        f"{found['variant']}, preset {found['preset']}, seed {found['seed']}: {found['parameters']:,} parameters, "
        f"{found['steps']} steps in {duration(found['seconds'])}{', trained before' if found['reused'] else ''}; "
        f"training loss {found['training_loss']:.3f}"
    )
    keys = ("length", "multiple", "window", "window_se", "last", "last_se")
    headings = ("length", "x T", "loss (nats a byte)", "s.e.", "last T bytes", "s.e.")
    shown = [table(headings, ([one.get(key) for key in keys] for one in found["losses"]), title=title)]
    if found["retrieval"]:
        rows = (
            (one["kind"], one["distance"], f"{one['right']} of {one['prompts']}", *one["interval"], one.get("digits"))
            for one in found["retrieval"]
        )
        shown.append(table(("prompt", "distance", "right", "low", "high", "digits right"), rows))
    return lines(*shown, f"record: {found['record']}", f"weights: {found['weights']}")


def _list(settings: Settings) -> None:
    from critattn.training.experiments import experiments
    from critattn.training.variants import every_variant

    found = [{**one.to_json(), "studies": []} for one in every_variant().values()]
    known = {one["name"]: one["studies"] for one in found}
    for study in experiments():
        for variant in study.variants:
            known[variant.name].append(study.name)
    rows = [(one["name"], _positions(one), _scores(one), _normaliser(one), ", ".join(one["studies"])) for one in found]
    headings = ("variant", "positions", "logits", "normaliser", "studies")
    emit(settings, {"variants": found}, lambda: table(headings, rows))


def _positions(one: dict[str, Any]) -> str:
    """Rotary, none, or ALiBi with its mitigations."""
    parts = {
        "clamp": one["clamp"] is not None,
        "explicit slopes": one["explicit"],
        "log distance": one["log_distance"],
        "soft cap": one["softcap"] is not None,
    }
    return ", ".join([one["positions"], *(name for name, there in parts.items() if there)])


def _scores(one: dict[str, Any]) -> str:
    """What multiplies the scores, and whether they are cosines."""
    law = ", ".join([one["law"], *(f"{key} {_short(value)}" for key, value in one["law_parameters"].items())])
    return f"{law}{', gain per head' if one['learned_gain'] else ''}{', cosines' if one['cosines'] else ''}"


def _normaliser(one: dict[str, Any]) -> str:
    options = (f"{key} {_short(value)}" for key, value in one["normaliser_options"].items())
    return ", ".join([one["normaliser"], *options])


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
