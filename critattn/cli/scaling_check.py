"""`critattn scaling --check FILE`: reading positions and factors, and saying which law they follow."""

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Settings, emit, lines, table
from critattn.cli.scaling import changed, named
from critattn.errors import SpecError

LARGEST_FILE = 64_000_000
ALIASES = {
    "position": "positions",
    "p": "positions",
    "slot": "positions",
    "factors": "factor",
    "m": "factor",
    "score": "scores",
    "logit": "logits",
    "document_position": "document_positions",
}
COLUMNS = ("positions", "n", "factor", "scores", "logits", "document_positions", "keys_seen", "total_keys")
SHIFTED = 1e-6


def check(settings: Settings, options: dict[str, Any]) -> None:
    """Read the file, name the law and end with exit code 1 where it is no law of the catalogue, or not the one claimed.

    Raises:
        SpecError: for a file that cannot be understood.
        click.UsageError: for options that do not go with --check.
    """
    for name in ("n", "log_n", "positions", "rho", "total", "qk_norm"):
        if options[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for --check; the file has the positions")
    if len(options["laws"]) > 1:
        raise click.UsageError("--check takes one --law, the one that is claimed")
    content = _read(Path(options["file"]))
    claim = named(options["laws"][0]).name if options["laws"] else content.get("law")
    answer = _identified(content, claim, options)
    answer["claim"] = claim
    answer["claim_holds"] = None if claim is None else answer["holds"] and claim in answer["names"]
    emit(settings, answer, lambda: _for_people(answer))
    if not answer["holds"] or answer["claim_holds"] is False:
        click.get_current_context().exit(1)


def _identified(content: Mapping[str, Any], claim: str | None, options: dict[str, Any]) -> dict[str, Any]:
    from critattn.scaling import identify

    dim = float(content.get("d") or options["d"])
    columns, additive = _factors(content, options["file"])
    lengths = _lengths(columns, dim)
    parameters = {**content.get("parameters", {}), **changed(options)}
    if additive is not None and additive["pure"]:
        found = identify(lengths, lengths.keys_seen ** -additive["slope"], tolerance=SHIFTED)
    else:
        found = identify(lengths, columns["factor"], tolerance=options["tolerance"], claim=claim, parameters=parameters)
    answer = dataclasses.asdict(found)
    names = list(dict.fromkeys(one.law for one in found.matches if one.law))
    shift = None if additive is None else additive["text"]
    return {**answer, "names": names, "rows": int(lengths.slots.size), "shift": shift, "file": options["file"]}


def _read(path: Path) -> dict[str, Any]:
    """The columns and facts of a file, under the names of `COLUMNS`."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"--check {path}: is larger than {LARGEST_FILE // 1_000_000} MB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"--check {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"--check {path}: is no text; allowed: JSON or CSV") from None
    if path.suffix.lower() == ".csv":
        return _named(_csv(text, path), path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"--check {path}: is no JSON ({error}); a file that ends in .csv is read as CSV") from None
    if isinstance(content, list) and content and all(isinstance(one, dict) for one in content):
        names = list(content[0])
        content = {name: [one.get(name) for one in content] for name in names}
    if not isinstance(content, dict):
        raise SpecError(f"--check {path}: allowed: an object with positions and factor, or a list of such rows")
    return _named(content, path)


def _csv(text: str, path: Path) -> dict[str, Any]:
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    if not rows:
        raise SpecError(f"--check {path}: is empty")
    head = [cell.strip().lower() for cell in rows[0]]
    if _is_number(head[0]):
        if len(head) != 2:
            raise SpecError(f"--check {path}: without a line of names it has two columns, position and factor")
        head, rows = ["positions", "factor"], [[], *rows]
    if any(len(row) != len(head) for row in rows[1:]):
        raise SpecError(f"--check {path}: has lines of different lengths")
    return {name: [row[index].strip() for row in rows[1:]] for index, name in enumerate(head)}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _named(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Columns as lists of floats (None where empty) and the facts law, parameters and d; other facts are left out."""
    from critattn.scaling import catalogue

    found: dict[str, Any] = {}
    for name, value in content.items():
        name = ALIASES.get(str(name).lower(), str(name).lower())
        if name in COLUMNS:
            listed = value if isinstance(value, list) else [value]
            found[name] = [_number(one, name, path) for one in listed]
    sizes = {name: len(value) for name, value in found.items()}
    if len(set(sizes.values())) > 1:
        raise SpecError(f"--check {path}: columns have different lengths: {sizes}")
    law, parameters, dim = (content.get(name) for name in ("law", "parameters", "d"))
    if law is not None and law in [one.name for one in catalogue()]:
        found["law"] = law
    if isinstance(parameters, Mapping):
        found["parameters"] = {name: value for name, value in parameters.items() if _is_real(value)}
    if dim is not None and _is_real(dim) and dim >= 1:
        found["d"] = dim
    return found


def _number(value: Any, name: str, path: Path) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SpecError(f"--check {path}: {name} has {str(value)[:40]!r}, which is no number") from None


def _factors(content: Mapping[str, Any], file: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Complete rows as arrays; where the file has scores and logits, the slopes, and what the shifts are."""
    import numpy as np

    content = {name: value for name, value in content.items() if name in COLUMNS}
    if "positions" not in content and "n" not in content:
        raise SpecError(f"--check {file}: has no positions; allowed: a column positions (from 0) or n (from 1)")
    if "factor" not in content and not {"scores", "logits"} <= content.keys():
        raise SpecError(f"--check {file}: has no factor; allowed: a column factor, or scores and logits")
    kept = [row for row in zip(*content.values(), strict=True) if None not in row]
    if not kept:
        raise SpecError(f"--check {file}: has no complete row")
    columns = dict(zip(content, np.asarray(kept, dtype=np.float64).T, strict=True))
    if not all(np.all(np.isfinite(one)) for one in columns.values()):
        raise SpecError(f"--check {file}: has numbers that are not finite")
    if "positions" not in columns:
        columns["positions"] = columns["n"] - 1
    if np.any(columns["positions"] < 0):
        raise SpecError(f"--check {file}: has positions below 0; positions count from 0, n from 1")
    return (columns, None) if "factor" in columns else _regressed(columns, file)


def _regressed(columns: dict[str, Any], file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row a position: slope and intercept of its logits over its scores."""
    import numpy as np

    first, inverse = np.unique(columns["positions"], return_index=True, return_inverse=True)[1:]
    rows = {name: value[first] for name, value in columns.items()}
    slopes, intercepts = np.empty(first.size), np.empty(first.size)
    for index in range(first.size):
        x, y = (columns[name][inverse == index] for name in ("scores", "logits"))
        if np.unique(x).size < 2:
            raise SpecError(f"--check {file}: needs two different scores or more at each position")
        slopes[index], intercepts[index] = np.polyfit(x, y, 1)
    rows["factor"] = slopes
    size = max(float(np.abs(columns["logits"]).max()), 1.0)
    shifted = bool(np.any(np.abs(intercepts) > SHIFTED * size))
    log_n = np.log(rows["positions"] + 1)
    slope = -float(log_n @ intercepts / max(float(log_n @ log_n), 1e-300))
    pure = shifted and slope > 0 and np.unique(log_n).size >= 3 and bool(np.all(np.abs(slopes - 1) < SHIFTED))
    pure = pure and bool(np.all(np.abs(intercepts + slope * log_n) <= SHIFTED * size))
    text = "each row is shifted as well, which softmax ignores" if shifted else None
    return rows, {"pure": pure, "slope": slope, "text": text}


def _lengths(columns: Mapping[str, Any], dim: float) -> Any:
    from critattn.scaling import Lengths

    given = {name: columns.get(name) for name in ("keys_seen", "total_keys")}
    if given["keys_seen"] is None:
        given["keys_seen"] = columns.get("n")
    return Lengths.plain(columns["positions"], dim, positions=columns.get("document_positions"), **given)


def _for_people(answer: Mapping[str, Any]) -> Any:
    shown: Sequence[Mapping[str, Any]] = answer["matches"] or answer["closest"]
    rows = [(one["law"] or "-", one["verdict"], one["residual"], _given(one["parameters"])) for one in shown]
    head = [f"{answer['file']}, {answer['rows']} rows: {answer['sentence']}"]
    if len(answer["names"]) > 1:
        head.append("laws that these rows do not tell apart: " + ", ".join(answer["names"]))
    for one in answer["also"]:
        head.append(f"the same factors are those of {one['law']} one row off; a position counted from 0 or from 1?")
    if answer["claim"] is not None:
        head.append(f"claimed: {answer['claim']}: {'holds' if answer['claim_holds'] else 'does not hold'}")
    if answer["shift"]:
        head.append(answer["shift"])
    title = "what fits" if answer["matches"] else "nothing fits; the closest"
    return lines(*head, table(("law", "as", "largest difference", "parameters"), rows, title=title))


def _given(parameters: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in parameters.items()
        if value is not None
    )
