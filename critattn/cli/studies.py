"""`critattn studies`: which studies exist."""

from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, table
from critattn.errors import SpecError


@click.command(cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """List the studies, with their units of work in full and quick.

    Example: critattn studies
    """
    from critattn.sweeps import studies

    found = [describe(study) for study in studies()]
    rows = [(item["name"], item["units"], item["units_quick"], item["title"] or item["error"]) for item in found]
    emit(settings, {"studies": found}, lambda: table(("study", "units", "quick", "title"), rows))


def describe(study: Any) -> dict[str, Any]:
    """One study for the list; a file that is wrong is listed with its error."""
    found = {"name": study.name, "kind": study.kind, "title": study.title, "error": None}
    counts: dict[str, Any] = {"mode": None, "observables": [], "units": None, "units_quick": None}
    if study.kind != "sweep":
        return {**found, **counts}
    try:
        spec, quick = study.spec(), study.spec(quick=True)
    except SpecError as error:
        return {**found, **counts, "error": str(error)}
    return {
        **found,
        "mode": spec.mode,
        "observables": list(spec.observables),
        "units": _units(spec),
        "units_quick": _units(quick),
    }


def _units(spec: Any) -> int:
    from critattn.sweeps import layout_of

    return len(list(layout_of(spec).units()))
