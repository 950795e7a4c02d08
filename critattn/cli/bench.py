"""`critattn bench`: the package against its alternatives and the machine's own rates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, table
from critattn.errors import SpecError

MARKS = {True: "met", False: "not met", None: "-"}
# heading of the table -> key of an outcome
COLUMNS = {
    "figure": "figure",
    "of": "unit",
    "target": "target",
    "": "met",
    "x floor": "floor_ratio",
    "seconds": "seconds",
    "note": "note",
}


@click.command(cls=Command)
@click.option("--quick", is_flag=True, help="Fewer alternations and smaller sizes.")
@click.option("--training", is_flag=True, help="Only the training steps.")
@click.option("--out", help="Folder for bench.json and the plot of cost against n.")
@click.pass_obj
def command(settings: Settings, *, quick: bool, training: bool, out: str | None) -> None:
    """Measure ratios to alternatives in one run, and say which targets are met; about eight minutes on two cores.

    Times on shared machines mean little; ratios within one run more. torch is compared with where it is installed.

    Example: critattn bench --quick

    Example: critattn bench --training

    Example: critattn bench --out benchmarks
    """
    from critattn import bench, provenance
    from critattn.cli.report import writable, write_json

    if training:
        _training(settings, quick=quick, out=out)
        return
    folder = None if out is None else writable(Path(out))

    def tell(line: str) -> None:
        if not settings.quiet:
            click.echo(line, err=True)

    found = {"quick": quick, **bench.run(quick=quick, tell=tell), "environment": provenance.environment()}
    if folder is not None:
        write_json(folder / "bench.json", found)
        (folder / "targets.md").write_text(targets_table(found))
        _plot(found, folder)
    emit(settings, found, lambda: _for_people(found))


def _training(settings: Settings, *, quick: bool, out: str | None) -> None:
    """Training steps alone."""
    from critattn import bench
    from critattn.cli import trainings

    if out is not None:
        raise click.UsageError("--training: takes no --out; the recorded run is one of everything")
    trainings.need()
    made = [asdict(one) for one in bench.training_steps(quick=quick)]
    if not made:
        raise SpecError("--training: compares with torch, which is not installed")
    emit(settings, {"quick": quick, "targets": made}, lambda: table(("work", *COLUMNS), _rows(made)))


def _rows(targets: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("work", *COLUMNS.values())
    return [tuple(one[key] if key != "met" else MARKS[one["met"]] for key in keys) for one in targets]


def _for_people(found: Mapping[str, Any]) -> Any:
    from rich.console import Group as Lines

    step = [(name, seconds) for name, seconds in found["step"].items()]
    rates = ", ".join(f"{name} {value:.3g}" for name, value in found["rates"].items())
    shown = [
        table(("one attention step, n = 4096, d = 64", "seconds"), step, title=f"Rates of this machine: {rates}"),
        table(("work", *COLUMNS), _rows(found["targets"])),
    ]
    if found["accelerator"]:
        names = ("device", "dtype", "n", "seconds", "product_gflops", "step_gflops", "ratio", "deviation")
        shown.append(table(names, [tuple(one[name] for name in names) for one in found["accelerator"]]))
    return Lines(*shown)


def targets_table(found: Mapping[str, Any]) -> str:
    """The table of targets in Markdown."""
    rows = ["| work | measured | target | | x floor | seconds |", "|---|---|---|---|---|---|"]
    for one in found["targets"]:
        figure = "-" if one["figure"] is None else f"{one['figure']:.3g} {one['unit']}"
        floor = "" if one["floor_ratio"] is None else f"{one['floor_ratio']:.2g}"
        cells = (one["work"], figure, one["target"], MARKS[one["met"]], floor, f"{one['seconds']:.3g}")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _plot(found: Mapping[str, Any], folder: Path) -> None:
    import xarray

    from critattn import plotting

    with plotting.style():
        figure, axes = plotting.canvas(height=2.6)
        slopes = {"exact": 2, "sampled": 1}
        for look, (kind, points) in zip(plotting.categories(2), found["cost_against_n"].items(), strict=True):
            sizes, seconds = zip(*points, strict=True)
            axes[0, 0].loglog(sizes, seconds, look.marker, color=look.color, label=kind)
            line = [seconds[0] * (size / sizes[0]) ** slopes[kind] for size in sizes]
            axes[0, 0].loglog(sizes, line, color=look.color, lw=0.8)
        axes[0, 0].set(xlabel="number of tokens $n$", ylabel="seconds of one measurement")
        axes[0, 0].legend()
    caption = (
        "Wall time of row moments and ratio of means at d = 64, float32, on one machine: exact (16 gammas, all "
        "rows) and sampled (16 rows, keys made block by block). Lines: slopes 2 and 1 through the first point."
    )
    origin = plotting.provenance("critattn bench", xarray.Dataset())
    plotting.save(figure, folder / "cost_against_n", caption=caption, provenance=origin, title="Cost against n")
