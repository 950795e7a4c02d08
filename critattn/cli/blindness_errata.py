"""`critattn blindness --errata`: published figures and the conventions behind them."""

import dataclasses
from typing import Any

from critattn.cli.common import Settings, cell, emit, lines, table

COLUMNS = ("reading", "gives", "command")
FORMATS = (("bf16", "normal"), ("bf16", "zero"), ("fp32", "zero"), ("fp16", "zero"), ("e4m3", "zero"), ("e5m2", "zero"))


def show(settings: Settings) -> None:
    """Print every figure with its readings."""
    from critattn.blindness.errata import PAPER, errata

    found = errata()
    payload = {
        "source": PAPER,
        "errata": [{**dataclasses.asdict(one), "reproduced": one.reproduced} for one in found],
    }
    emit(settings, payload, lambda: lines(f"Figures of {PAPER}, all numbers computed here.", *map(_one, found)))


def _one(erratum: Any) -> Any:
    match = "gives the printed numbers" if erratum.reproduced else "does not give the printed numbers"
    title = f"{erratum.figure}: printed {numbers(erratum.published)} {erratum.unit}"
    readings = [erratum.convention, *erratum.others]
    rows = [(one.words, numbers(one.values), one.command) for one in readings]
    return lines(table(COLUMNS, rows, title=title), f"The first {match}. {erratum.remark}", "")


def numbers(values: Any) -> str:
    """All values of a reading, in six digits; whole numbers in full."""
    return ", ".join(f"{int(one)}" if one == int(one) and abs(one) < 1e9 else cell(one) for one in values)


def errata_markdown() -> str:
    """The figures and their readings as tables of docs/blindness.md."""
    from critattn.blindness.errata import errata

    return "\n".join(map(_section, errata()))


def _section(erratum: Any) -> str:
    rows = [
        f"| {one.words} | {numbers(one.values)} | {f'`{one.command}`' if one.command else ''} |"
        for one in (erratum.convention, *erratum.others)
    ]
    title = f"### {erratum.name}\n\n{erratum.figure}: printed {numbers(erratum.published)} {erratum.unit}."
    head = "| reading | gives | command |\n|---|---|---|"
    return "\n".join([title, "", head, *rows, "", erratum.remark, ""])


def models_markdown() -> str:
    """Least and largest distance of every named model in every format, as a table of docs/blindness.md."""
    from critattn import biases, blindness, families, formats

    rows = [f"| model | heads | slope at work | {' | '.join(_titles())} |", f"|{'---|' * (3 + len(FORMATS))}"]
    for name in families.names():
        one = families.get(name)
        bias = biases.Alibi(biases.alibi_slopes(one.heads, one.bias_max, rule=one.rule))
        cells = []
        for form, kind in FORMATS:
            found = blindness.blindness_distance(bias, formats.get(form).thresholds().of(kind), scale=one.scale)
            cells.append(f"{found.min():.0f}; {found.max():.0f}")
        slope = f"m/{1 / one.scale:g}" if one.scaled_bias else "m"
        rows.append(f"| `{name}` | {one.heads} | {slope} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _titles() -> list[str]:
    return ["flushed bf16, fp32" if kind == "normal" else form for form, kind in FORMATS]
