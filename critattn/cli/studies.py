"""`critattn studies`: which studies exist."""

from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, table
from critattn.errors import SpecError


@click.command(cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """List the studies, with their units of work in full and quick: chunks of a sweep, runs of a training.

    Example: critattn studies
    """
    from critattn.sweeps import studies

    found = [describe(study) for study in studies()]
    keys = ("name", "kind", "units", "units_quick")
    rows = [(*(item[key] for key in keys), item["title"] or item["error"]) for item in found]
    emit(settings, {"studies": found}, lambda: table(("study", "kind", "units", "quick", "title"), rows))


def describe(study: Any) -> dict[str, Any]:
    """One study for the list; a file that is wrong is listed with its error."""
    found = {"name": study.name, "kind": study.kind, "title": study.title, "error": None}
    counts: dict[str, Any] = {"mode": None, "observables": [], "units": None, "units_quick": None}
    try:
        return {**found, **(_training(study) if study.kind == "training" else _sweep(study))}
    except SpecError as error:
        return {**found, **counts, "error": str(error)}


def _training(study: Any) -> dict[str, Any]:
    """What a study trains, and how many runs that is."""
    from critattn.training.experiments import of_study

    full, quick = of_study(study), of_study(study, quick=True)
    runs = {"units": len(full.variants) * len(full.seeds), "units_quick": len(quick.variants) * len(quick.seeds)}
    return {"mode": full.preset.name, "observables": list(full.measures), **runs}


def _sweep(study: Any) -> dict[str, Any]:
    spec, quick = study.spec(), study.spec(quick=True)
    return {
        "mode": spec.mode,
        "observables": list(spec.observables),
        "units": _units(spec),
        "units_quick": _units(quick),
    }


def _units(spec: Any) -> int:
    from critattn.sweeps import layout_of

    return len(list(layout_of(spec).units()))
