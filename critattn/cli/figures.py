"""`critattn figures`: draw figures, from the store or from tables of closed forms."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, table
from critattn.cli.report import writable
from critattn.errors import StoreError

DEFAULT_OUT = "figures_out"


@click.command(cls=Command)
@click.argument("names", metavar="[NAME ...]", nargs=-1)
@click.option("--out", default=DEFAULT_OUT, show_default=True, help="Folder for the files.")
@click.option("--format", "formats", default="png,svg,pdf", show_default=True, help="Of png, svg, pdf.")
@click.option("--quick/--full", "quick", default=None, help="Which data.  [default: full, else quick]")
@click.option("--run", is_flag=True, help="Run the sweeps whose data are missing (the quick ones without --full).")
@click.option("--inspection", help="Trained models: the store of an inspection.  [default: inspect-smollm2]")
@click.option("--experiment", help="Training: another study than the figure's own.")
@click.option("--store", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.pass_obj
def command(
    settings: Settings,
    *,
    names: tuple[str, ...],
    out: str,
    formats: str,
    quick: bool | None,
    run: bool,
    inspection: str | None,
    experiment: str | None,
    store: str | None,
) -> None:
    """Draw figures from the data in the store; all of them without a NAME.

    Figures of closed forms need no store: their data are made on the spot. Those of trained models show the results of
    critattn inspect, those of training studies the results of critattn extrapolate. Each figure comes with its caption
    (.md), which says where the data come from.

    Example: critattn figures angle_ratio --format pdf

    Example: critattn figures heads_plane --inspection inspect-minilm

    Example: critattn figures ranking --experiment alibi_mitigations

    Example: critattn figures --run --out figures_out
    """
    from critattn import rooms
    from critattn.plotting import parse_formats

    kinds = parse_formats(formats)
    writable(Path(out))
    modules = {name: rooms.load("figures", name) for name in names or rooms.names("figures")}
    where = _Where(settings, quick, run, inspection, experiment, store)
    found = {name: where.data(module.DATA) for name, module in modules.items()}
    lacking = {name: text for name, text in found.items() if isinstance(text, str)}
    if lacking and (names or len(lacking) == len(modules)):
        raise StoreError("; ".join(dict.fromkeys(lacking.values())))
    settings.begin("the same command draws them again")
    drawn = []
    for name in (one for one in modules if one not in lacking):
        label, data = found[name]
        made_by = f"critattn figures {name}{_choice(modules[name].DATA, label)}"
        drawn.append({"store": label, **draw(name, data, out, formats=kinds, command=made_by)})
    drawn.sort(key=lambda one: one["name"])
    for text in dict.fromkeys(lacking.values()):
        click.echo(f"Warning: {text}", err=True)
    emit(settings, {"figures": drawn, "missing": sorted(lacking)}, lambda: _for_people(drawn))


def draw(name: str, data: Any, out: str | Path, *, formats: tuple[str, ...], command: str) -> dict[str, Any]:
    """Draw one figure and write its files and its caption.

    Args:
        name: a figure of the room `figures`.
        data: the dataset that it asks for.
        out: folder; it is made.
        formats: of png, svg, pdf.
        command: the command that makes it again, for the provenance.

    Returns:
        JSON-ready: name, title, data, data_sha256, caption, files.

    Raises:
        SpecError: for an unknown figure or format.
        StoreError: where the folder cannot be written.
    """
    from critattn import plotting, rooms

    module = rooms.load("figures", name)
    caption, origin = module.caption(data), plotting.provenance(command, data)
    files = plotting.save(
        module.draw(data), Path(out) / name, caption=caption, provenance=origin, formats=formats, title=module.TITLE
    )
    facts = {"name": name, "title": module.TITLE, "data": module.DATA, "data_sha256": origin.data_sha256}
    return {**facts, "caption": caption, "files": [str(file) for file in files]}


def _choice(source: str, label: str) -> str:
    """The option that chooses the data of this label; none for a table."""
    from critattn import tables
    from critattn.cli import inspections, trainings

    if tables.named(source) is not None:
        return ""
    if source.startswith(trainings.PREFIXES):
        return trainings.option(source, label)
    if source in inspections.KINDS:
        name = label.removesuffix(inspections.KINDS[source])
        return "" if name == inspections.DEFAULT else f" --inspection {shlex.quote(name)}"
    return " --quick" if label.endswith("-quick") else " --full"


@dataclass(frozen=True)
class _Where:
    """Where data come from: the options of the command."""

    settings: Settings
    quick: bool | None
    run: bool
    inspection: str | None
    experiment: str | None
    store: str | None

    def data(self, source: str) -> Any:
        """(label of the data, dataset) of what a figure asks for, or a sentence that says how to make it."""
        from critattn import tables
        from critattn.cli import inspections, trainings

        name = tables.named(source)
        if name is not None:
            return source, tables.make(name)
        if source in inspections.KINDS:
            return inspections.dataset(source, name=self.inspection, store=self.store)
        if source.startswith(trainings.PREFIXES):
            return trainings.dataset(source, name=self.experiment, quick=self.quick, store=self.store)
        return self.of_study(source.removeprefix("study:"))

    def of_study(self, study: str) -> Any:
        """The same of a study."""
        wanted = (False, True) if self.quick is None else (self.quick,)
        for choice in wanted:
            data = _complete(study, quick=choice, store=self.store)
            if data is not None:
                return data
        if self.run:
            return _run(self.settings, study, quick=self.quick is not False, store=self.store)
        flag, place = "" if self.quick is False else " --quick", f" --store {self.store}" if self.store else ""
        how = f"critattn sweep {study}{flag}{place} (or add --run)"
        return f"study {study!r} has no complete data; make them with: {how}"


def _complete(study: str, *, quick: bool, store: str | None) -> tuple[str, Any] | None:
    from critattn.storage import Store
    from critattn.sweeps import store_path

    path = store_path(study, quick=quick, root=store)
    if not (path / "zarr.json").is_file():
        return None
    data = Store.open(path).read()
    return None if data.attrs["units_missing"] else (path.name, data)


def _run(settings: Settings, study: str, *, quick: bool, store: str | None) -> tuple[str, Any]:
    from critattn.cli.sweep import Tell
    from critattn.sweeps import load_study, run_sweep, store_path

    path = store_path(study, quick=quick, root=store)
    tell = Tell(settings, study, f"critattn figures --run{'' if quick else ' --full'}")
    with tell.stack:
        return path.name, run_sweep(load_study(study).spec(quick=quick), path, progress=tell)


def _for_people(drawn: list[dict[str, Any]]) -> Any:
    rows = [(one["name"], one["store"], " ".join(Path(file).name for file in one["files"])) for one in drawn]
    where = Path(drawn[0]["files"][0]).parent
    return table(("figure", "data", "files"), rows, title=f"{len(drawn)} figures in {where}")
