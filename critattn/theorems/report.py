"""Outcomes for people: one theorem explained step by step, and a report of all as Markdown or HTML."""

import html
from collections.abc import Iterator, Sequence

from critattn.theorems.results import Step, Verdict
from critattn.theorems.theorem import Outcome, Refutation

HEADINGS = ("name", "source", "grade", "holds", "mutants refuted", "seconds")
GRADES = {
    "identity": "an exact equality, shown symbolically",
    "limit": "shown symbolically under each case of its hypotheses",
    "bound": "an inequality on a stated domain, certified by ball arithmetic on all of it",
    "asymptotic": "a rate with explicit constants, certified on a stated range",
    "lemma": "an argument for people; steps that a machine can check are checked, the rest are named",
    "measured": "agreement of a heuristic with simulation, with its error; no proof",
}
MEANING = (
    "A theorem holds where every step of its argument holds and the same steps refute each of its mutants, false "
    "variants of the statement. A certificate that ran out of its budget says *undecided*, which is not *holds*. "
    "Floating-point closed forms are compared with exact values at points: that guards the code, it proves nothing."
)


def row(outcome: Outcome) -> tuple[str, str, str, str, str, str]:
    """The cells of an outcome under `HEADINGS`."""
    refuted = f"{outcome.mutants_refuted}/{len(outcome.refutations)}"
    seconds = f"{outcome.seconds:.1f}"
    return outcome.name, outcome.source, str(outcome.grade), str(outcome.verdict), refuted, seconds


def domains(outcome: Outcome) -> tuple[str, ...]:
    """The domains that the certificates of a theorem cover, each once."""
    return tuple(dict.fromkeys(step.domain for step in outcome.steps if step.domain))


def explained(outcome: Outcome) -> str:
    """The argument of a theorem step by step, as plain text."""
    about = [
        f"{outcome.name}: {outcome.verdict} ({outcome.grade}: {GRADES[outcome.grade]})",
        "",
        outcome.statement.words,
        "",
        f"    {outcome.statement.latex}",
        "",
        *(f"Hypothesis: {sentence}" for sentence in outcome.hypotheses),
        f"Source: {outcome.source}",
    ]
    steps = [line for k, step in enumerate(outcome.steps, 1) for line in _step_lines(f"{k}.", step)]
    mutants = [line for one in outcome.refutations for line in _mutant_lines(one)]
    ending = [f"Because: {outcome.reason}"] if outcome.reason else []
    heading = "Mutants: the same steps, with one part of the statement changed"
    return "\n".join([*about, "", "Argument", *steps, "", heading, *mutants, *ending])


def _step_lines(number: str, step: Step) -> Iterator[str]:
    yield f"{number:>4} [{step.verdict}] {step.claim}"
    yield f"     by {step.how}{f' on {step.domain}' if step.domain else ''}"
    if step.detail:
        yield f"     {step.detail}"


def _mutant_lines(one: Refutation) -> Iterator[str]:
    yield f"   - {one.name} ({one.why}): {'refuted' if one.refuted else f'NOT refuted, {one.verdict}'}"
    if one.step is not None:
        yield f"     at the step: {one.step.claim}"
        yield f"     {one.step.detail}"


def markdown(outcomes: Sequence[Outcome], *, title: str) -> str:
    """A report as Markdown: the table, then each theorem with its steps, domains and mutants.

    Args:
        outcomes: of one run.
        title: the first line, such as the command and the version.
    """
    parts = ["# Theorems, checked by machine", title, MEANING, _table(HEADINGS, [row(one) for one in outcomes])]
    for outcome in outcomes:
        parts += [f"## {outcome.name}", *_paragraphs(outcome)]
    return "\n\n".join(parts) + "\n"


def _paragraphs(outcome: Outcome) -> Iterator[str]:
    yield outcome.statement.words
    yield f"$${outcome.statement.latex}$$"
    yield "\n".join(f"* {sentence}" for sentence in outcome.hypotheses)
    yield f"Source: {outcome.source}. Grade: {outcome.grade}, {GRADES[outcome.grade]}. Verdict: **{outcome.verdict}**."
    if outcome.reason:
        yield f"Because: {_escaped(outcome.reason)}"
    yield _table(("step", "verdict", "by", "domain", "detail"), [_cells(step) for step in outcome.steps])
    rows = [(one.name, one.why, one.refuted, one.step.detail if one.step else "") for one in outcome.refutations]
    yield _table(("mutant", "why it is false", "refuted", "counter-example"), rows)


def _cells(step: Step) -> tuple[str, str, str, str, str]:
    return step.claim, str(step.verdict), step.how, step.domain, step.detail


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *([_escaped(str(value)) for value in one] for one in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .5em;text-align:left;vertical-align:top}"
    "pre{white-space:pre-wrap}.bad{font-weight:bold}"
)


def page(outcomes: Sequence[Outcome], *, title: str) -> str:
    """A report as one HTML page that needs no other file.

    Args:
        outcomes: of one run.
        title: the line below the heading.
    """
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    rows = "".join(_html_row(outcome) for outcome in outcomes)
    parts = "".join(f'<h2 id="{one.name}">{one.name}</h2><pre>{html.escape(explained(one))}</pre>' for one in outcomes)
    about = "".join(f"<p>{html.escape(text)}</p>" for text in (title.replace("`", ""), MEANING.replace("*", "")))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Theorems</title>'
        f"<style>{STYLE}</style></head><body><h1>Theorems, checked by machine</h1>{about}"
        f"<table><tr>{head}</tr>{rows}</table>{parts}</body></html>\n"
    )


def _html_row(outcome: Outcome) -> str:
    name, *rest = (html.escape(value) for value in row(outcome))
    cells = "".join(f"<td>{value}</td>" for value in rest)
    mark = "" if outcome.verdict is Verdict.HOLDS else ' class="bad"'
    return f'<tr{mark}><td><a href="#{name}">{name}</a></td>{cells}</tr>'
