"""`critattn threshold`: critical thresholds of a study with uncertainty, finite-size scaling, against theory."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, progress, table
from critattn.errors import StoreError

SCALING = ("limit", "limit_error", "closed_form_limit", "expected")
SCALING_HEADINGS = ("threshold", "rho", "n to infinity", "fit error", "same line, closed form", "1/(1-rho)")


@click.command(cls=Command)
@click.argument("name", metavar="STUDY_OR_STORE")
@click.option("--quick", is_flag=True, help="The study's quick axes.")
@click.option("--store", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.pass_obj
def command(settings: Settings, *, name: str, quick: bool, store: str | None) -> None:
    """Locate critical thresholds and hold them against theory.

    A study of thresholds is read from the store; of a study of curves the thresholds are searched here, on the same
    tokens. Verdicts: agrees (within 4 standard errors), within theory error (those plus the predictor's stated error),
    disagrees.

    Example: critattn threshold finite_dimension --quick

    Example: critattn threshold order_parameters --json
    """
    from critattn.sweeps import analysis

    spec, data = _study_or_store(settings, name, quick=quick, store=store)
    with progress(settings, 1, f"thresholds of {name}") as advance:
        found = analysis.study_thresholds(spec, data)
        advance(1)
    scaling = [dataclasses.asdict(one) for one in analysis.finite_size(found)]
    joined = analysis.collapse(data) if data is not None else None
    payload = {
        "study": name,
        "thresholds": [analysis.record(one) for one in found],
        "finite_size_scaling": scaling,
        "data_collapse": dataclasses.asdict(joined) if joined else None,
    }
    emit(settings, payload, lambda: for_people(payload["thresholds"], scaling))


def _study_or_store(settings: Settings, name: str, *, quick: bool, store: str | None) -> tuple[Any, Any]:
    """The spec, and the dataset where the store has it; a study of thresholds has to be there, and complete."""
    from critattn import storage
    from critattn.cli.sweep import with_globals
    from critattn.sweeps import SweepSpec, load_study, store_path
    from critattn.sweeps.running import identity_of

    again = f"critattn sweep {name}{' --quick' if quick else ''}{f' --store {store}' if store else ''}"
    if Path(name).joinpath("zarr.json").is_file():
        return _stored(storage.Store.open(Path(name)), again)
    own = load_study(name) if name.endswith(".toml") else None
    where = store_path(own.name if own else name, quick=quick, root=store)
    if name and where.joinpath("zarr.json").is_file():
        found = storage.Store.open(where)
        if own:
            found.check_same(identity_of(own.spec(quick=quick)))
        return _stored(found, again)
    spec: SweepSpec = with_globals(settings, (own or load_study(name)).spec(quick=quick))
    if spec.mode == "threshold":
        raise StoreError(f"store {str(where)!r}: is not there; `{again}` makes it")
    return spec, None


def _stored(store: Any, again: str) -> tuple[Any, Any]:
    from critattn.sweeps import SweepSpec

    spec, data = SweepSpec.from_identity(store.spec), store.read()
    missing = data.attrs["units_missing"]
    if missing and spec.mode == "threshold":
        units = data.attrs["units"]
        raise StoreError(f"store {str(store.path)!r}: {missing} of {units} units are missing; `{again}` makes them")
    return spec, data


def for_people(records: Sequence[Mapping[str, Any]], scaling: Sequence[Mapping[str, Any]] = ()) -> Any:
    """Predicted and measured thresholds with standard errors and verdicts, as a rich renderable."""
    from rich.console import Group as Lines

    rows = [
        (
            place(record["coordinates"]),
            quantity(record),
            record["critical"],
            record["standard_error"],
            record["predicted"],
            record["predictor"],
            record["verdict"] or record["reason"],
        )
        for record in records
    ]
    columns = ("tokens", "threshold", "measured", "std. error", "predicted", "predictor", "verdict")
    lines = [(one["quantity"].replace("_", " "), one["rho"], *(one[key] for key in SCALING)) for one in scaling]
    heading = "Finite-size scaling of the simplex, linear in 1/log n"
    before = [table(SCALING_HEADINGS, lines, title=heading)] if scaling else []
    # what the command is for comes last, where a terminal shows it
    return Lines(*before, table(columns, rows))


def quantity(record: Mapping[str, Any]) -> str:
    """Which threshold a record is of, in words."""
    return str(record["coordinates"].get("quantity", "half_weight")).replace("_", " ")


def place(coordinates: Mapping[str, Any]) -> str:
    """Where a threshold was measured, in a few words."""
    numbers = [f"{name} {coordinates[name]:g}" for name in ("n", "d", "rho", "tau") if name in coordinates]
    if "effective_rho" in coordinates:
        numbers.append(f"effective rho {coordinates['effective_rho']:.3f}")
    label = coordinates.get("label", coordinates["kind"])
    layer = [coordinates["normaliser"]] if "normaliser" in coordinates else []
    return ", ".join([label, *layer, *numbers])
