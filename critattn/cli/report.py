"""The report of `critattn reproduce` as files: Markdown for people, JSON for programs."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from critattn.cli.common import SCHEMA_VERSION, cell, installed_version, plain
from critattn.cli.threshold import SCALING, SCALING_HEADINGS, place, quantity
from critattn.errors import StoreError

HEADINGS = ("tokens", "threshold", "measured", "standard error", "predicted", "predictor", "verdict")
VERDICTS = (
    "Verdicts: *agrees*, the difference is within 4 standard errors (or round-off, where nothing is random); *within "
    "theory error*, within those plus the stated error of the predictor; *disagrees*, neither."
)


def writable(folder: Path) -> Path:
    """The folder of --out, after a check that it can be written.

    Raises:
        StoreError: for a file in its place, or a folder that cannot be written.
    """
    from critattn.storage import check_writable

    if folder.exists() and not folder.is_dir():
        raise StoreError(f"--out {str(folder)!r}: is a file; allowed: a folder that can be written")
    try:
        check_writable(folder)
    except StoreError as error:
        raise StoreError(str(error).replace("store", "--out", 1)) from None
    return folder


def write_report(folder: Path, report: Mapping[str, Any], text: str) -> None:
    """Write report.json and report.md, each whole or not at all.

    Raises:
        StoreError: where the folder cannot be written.
    """
    write_json(folder / "report.json", report)
    _replace(folder / "report.md", text)


def write_json(path: Path, payload: Mapping[str, Any]) -> None:
    """Write a JSON object with its schema version, whole or not at all.

    Raises:
        StoreError: where the folder cannot be written.
    """
    versioned = {"schema_version": SCHEMA_VERSION, **plain(payload)}
    _replace(path, json.dumps(versioned, indent=1, allow_nan=False) + "\n")


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".report-", dir=path.parent) as scratch:
            part = Path(scratch) / path.name
            part.write_text(text, encoding="utf-8")
            part.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error})") from error


def markdown(report: Mapping[str, Any]) -> str:
    """The report for people: thresholds, finite-size scaling, real tokens, figures with captions."""
    parts = [
        "# Attention phase transitions: theory and simulation",
        f"`critattn reproduce --{report['mode']}`, seed {report['seed']}, critattn {installed_version()}, "
        f"{report['seconds']:.0f} s.",
        "## Thresholds, predicted and measured",
        _table(HEADINGS, [_row(record) for record in report["thresholds"]]),
        VERDICTS,
        *_scaling(report["finite_size_scaling"]),
        *_real(report["real_tokens"]),
        *report["notes"],
        "## Figures",
        *(_figure(figure) for figure in report["figures"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(record: Mapping[str, Any]) -> list[Any]:
    numbers = [record[key] for key in ("critical", "standard_error", "predicted", "predictor")]
    return [place(record["coordinates"]), quantity(record), *numbers, record["verdict"] or record["reason"]]


def _scaling(scaling: Sequence[Mapping[str, Any]]) -> list[str]:
    if not scaling:
        return []
    rows = [[one[key] for key in ("quantity", "rho", *SCALING)] for one in scaling]
    return ["## Finite-size scaling of the simplex, linear in 1/log n", _table(SCALING_HEADINGS, rows)]


def _real(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    measured, surrogate = found["measured"]["critical"], found["surrogate"]["critical"]
    rows = [
        ("half-weight gamma", measured, found["predicted"]),
        ("the same, Gaussian tokens of the same mean and covariance", surrogate, found["predicted"]),
        ("s.d. of cosines within a row", found["in_row_deviation"], found["in_row_predicted"]),
        ("s.d. over rows of gamma_i", found["row_disorder"], found["row_disorder_predicted"]),
        ("effective dimension of the covariance", found["effective_dimension"], found["record"]["coordinates"]["d"]),
        ("largest cosine of two rows", found["largest_cosine"], None),
    ]
    heading = "## Real tokens: 1,024 word embeddings of a trained encoder"
    return [heading, _table(("quantity", "measured", "predicted"), rows), _reading(found)]


def _reading(found: Mapping[str, Any]) -> str:
    if found["share"] is None:
        return f"The predictor's assumptions cannot be told apart: {found['measured']['reason'] or 'no surrogate'}."
    measured, predicted = found["measured"]["critical"], found["predicted"]
    return (
        "The predictor takes rows for exchangeable isotropic Gaussians. Measured and predicted gamma differ by "
        f"{measured - predicted:+.4f} ({(measured / predicted - 1) * 100:+.1f} %). Anisotropy, which the Gaussian "
        f"surrogate keeps, makes {found['share'] * 100:.0f} % of that; what no Gaussian has (heavy tails, clusters of "
        "near-equal rows) the rest."
    )


def _figure(figure: Mapping[str, Any]) -> str:
    image = next(file for file in figure["files"] if file.endswith(".png"))
    return f"### {figure['title']}\n\n![{figure['title']}]({image})\n\n{figure['caption']}"
