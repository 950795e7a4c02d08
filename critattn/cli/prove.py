"""`critattn prove`: check the theorems, each together with false variants that its check must refute."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from critattn.cli.common import Command, Settings, emit, installed_version, lines, progress, table

if TYPE_CHECKING:
    from critattn.theorems import Outcome

SUFFIXES = (".md", ".html")


@click.command(cls=Command)
@click.argument("names", metavar="[NAME ...]", nargs=-1)
@click.option("--quick", is_flag=True, help="Only the identities.")
@click.option("--explain", metavar="NAME", help="Print the argument of one theorem step by step.")
@click.option("--report", metavar="FILE", help="Write a report, FILE.md or FILE.html.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.pass_obj
def command(
    settings: Settings, *, names: tuple[str, ...], quick: bool, explain: str | None, report: str | None, workers: int
) -> None:
    """Check the theorems; all of them without a NAME.

    A theorem holds where each step of its argument does, and where the same steps refute each of its mutants. Exit 1
    where a check fails or stays undecided.

    Example: critattn prove --quick

    Example: critattn prove --explain simplex_weights
    """
    target = None if report is None else _report_file(report)
    from critattn import theorems

    wanted = theorems.chosen((*names, explain) if explain else names, quick=quick)
    if explain and not names:
        wanted = (explain,)
    settings.begin("the same command checks them again")
    with progress(settings, len(wanted), "checking") as advance:
        outcomes = theorems.run(wanted, workers=workers, progress=lambda outcome: advance())
    if target is not None:
        _write(target, outcomes, _command_line(names, quick=quick))
    payload = {"theorems": [facts(one, steps=one.name == explain) for one in outcomes], "report": report}
    emit(settings, payload, lambda: _for_people(outcomes, explain, target))
    if not all(outcome.holds for outcome in outcomes):
        click.get_current_context().exit(1)


def facts(outcome: "Outcome", *, steps: bool = False) -> dict[str, Any]:
    """An outcome, JSON-ready: the stable keys, and the steps and mutants where asked for."""
    from critattn.theorems.report import domains

    found: dict[str, Any] = {
        "name": outcome.name,
        "source": outcome.source,
        "grade": str(outcome.grade),
        "holds": outcome.holds,
        "mutants_refuted": outcome.mutants_refuted,
        "mutants_total": len(outcome.refutations),
        "seconds": outcome.seconds,
        "verdict": str(outcome.verdict),
        "reason": outcome.reason,
        "statement": outcome.statement.words,
        "latex": outcome.statement.latex,
        "hypotheses": list(outcome.hypotheses),
        "domains": list(domains(outcome)),
    }
    return {**found, **_argument(outcome)} if steps else found


def _argument(outcome: "Outcome") -> Mapping[str, Any]:
    from dataclasses import asdict

    mutants = [
        {"name": one.name, "why": one.why, "refuted": one.refuted, "step": asdict(one.step) if one.step else None}
        for one in outcome.refutations
    ]
    return {"steps": [asdict(step) for step in outcome.steps], "mutants": mutants}


def _report_file(name: str) -> Path:
    path = Path(name)
    if path.suffix not in SUFFIXES:
        raise click.BadParameter(f"{name!r}: must end in {' or '.join(SUFFIXES)}", param_hint="'--report'")
    if path.is_dir() or not path.parent.is_dir():
        raise click.BadParameter(f"{name!r}: must be a file in a folder that exists", param_hint="'--report'")
    return path


def _command_line(names: Sequence[str], *, quick: bool) -> str:
    words = ["critattn prove", *names, *(["--quick"] if quick else [])]
    return f"`{' '.join(words)}`, critattn {installed_version()}"


def _write(path: Path, outcomes: Sequence["Outcome"], title: str) -> None:
    from critattn.errors import StoreError
    from critattn.theorems import report

    text = report.markdown(outcomes, title=title) if path.suffix == ".md" else report.page(outcomes, title=title)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"--report {str(path)!r}: cannot be written ({error.strerror or error})") from error


def _for_people(outcomes: Sequence["Outcome"], explain: str | None, target: Path | None) -> Any:
    from critattn.theorems import report

    texts = [report.explained(one) for one in outcomes if one.name == explain]
    texts += [f"{one.name}: {one.verdict}: {one.reason}" for one in outcomes if not one.holds]
    held = sum(one.holds for one in outcomes)
    shown = table(report.HEADINGS, [report.row(one) for one in outcomes])
    ending = f"{held} of {len(outcomes)} hold" + (f"; report in {target}" if target else "")
    return lines(*texts, shown, ending)
