"""The page of `critattn inspect --html`: one file with the map of heads as a picture, and tables."""

import base64
import html
import io
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from critattn.cli.common import cell, installed_version
from critattn.errors import StoreError

STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1em 0;font-size:13px}
th,td{padding:.15em .6em;text-align:right;border-bottom:1px solid #ddd}
th{position:sticky;top:0;background:#fff;border-bottom:1px solid #444}
img{max-width:100%} figcaption{font-size:13px;color:#444} .wide{overflow-x:auto}
"""
HEAD_KEYS = (
    "layer",
    "head",
    "n",
    "phase",
    "critical_multiplier",
    "critical_multiplier_se",
    "operating_point",
    "gap",
    "spread",
    "relative_entropy",
    "largest_weight",
    "sink_mass",
    "jacobian_norm",
    "gradient_norm",
    "rho_keys",
)
LAYER_KEYS = (
    "layer",
    "critical_multiplier",
    "operating_point",
    "relative_entropy",
    "sink_mass",
    "rho_hidden",
    "rho_hidden_centred",
    "gradient_norm",
)
WORDS = {
    "critical_multiplier": "t_c",
    "critical_multiplier_se": "s.e. of t_c",
    "operating_point": "1/t_c",
    "gap": "Delta (nats)",
    "spread": "spread (nats)",
    "relative_entropy": "entropy / log n",
    "largest_weight": "largest weight",
    "sink_mass": "weight of key 0",
    "jacobian_norm": "weight Jacobian",
    "gradient_norm": "gradient norm",
    "rho_keys": "rho of keys",
    "rho_hidden": "rho",
    "rho_hidden_centred": "rho, centred",
}


def write(path: Path, found: dict[str, Any], data: Any) -> None:
    """Write the page, whole or not at all.

    Raises:
        StoreError: where the file cannot be written.
    """
    text = page(found, data)
    try:
        with tempfile.TemporaryDirectory(prefix=".page-", dir=path.absolute().parent) as scratch:
            part = Path(scratch) / path.name
            part.write_text(text, encoding="utf-8")
            part.replace(path)
    except OSError as error:
        raise StoreError(f"--html {str(path)!r}: {error.strerror or error}") from error


def page(found: dict[str, Any], data: Any) -> str:
    """The page as one HTML text that needs nothing else: no scripts, no links.

    Args:
        found: the payload of `critattn inspect`.
        data: its dataset.
    """
    longest = max(found["length"])
    kept, dropped = (one for one in found["summary"] if one["n"] == longest)
    heads = [one for one in found["head_table"] if one["n"] == longest]
    title = f"{found['model']}: attention heads on the phase diagram"
    parts = [
        f"<h1>{_text(title)}</h1>",
        _paragraph(found["fidelity"]["text"]),
        _paragraph(_what(found, longest)),
        _picture(data),
        "<h2>All heads together</h2>",
        *(_paragraph(_phases(one, words)) for one, words in ((kept, "with"), (dropped, "without"))),
        *(_paragraph(one["sentence"]) for one in found["growth"]),
        *(_paragraph(reason) for reason in (found["advice"] or {"reasons": ()})["reasons"]),
        *_scale(found["scale"]),
        "<h2>Layers</h2>",
        _table(LAYER_KEYS, kept["layer_medians"]),
        "<h2>Heads</h2>",
        _table(HEAD_KEYS, heads),
        _paragraph(f"critattn {installed_version()}; texts: {_texts(found)}"),
    ]
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _what(found: dict[str, Any], longest: int) -> str:
    return (
        f"{found['layers']} layers of {found['heads']} heads, n = {longest}. t_c is the factor on the logits at which "
        "the typical query row has half of its weight on one key; below 1 it has more than that as the model stands "
        "(supercritical), above 1 less (subcritical). Each number is the median over "
        f"{found['rows']} query rows, the mean over {found['windows']} windows of each text; standard errors are over "
        f"{found['intervals_over']}."
    )


def _phases(one: dict[str, Any], words: str) -> str:
    middle = one["percentiles"]["critical_multiplier"]
    phases = ", ".join(f"{count} {name}" for name, count in one["phases"].items() if count)
    ends = f"{cell(middle['5'])} to {cell(middle['95'])}"
    return f"{words} key 0: median t_c {cell(middle['50'])} (5 to 95 %: {ends}); heads: {phases}"


def _texts(found: dict[str, Any]) -> str:
    return "; ".join(f"{text['name']} (sha256 {text['sha256'][:12]})" for text in found["texts"])


def _picture(data: Any) -> str:
    from critattn import plotting, rooms

    figure = rooms.load("figures", "head_map")
    stream = io.BytesIO()
    with plotting.style():
        figure.draw(data).savefig(stream, format="png", dpi=200)
    code = base64.b64encode(stream.getvalue()).decode()
    caption = figure.caption(data)
    picture = f'<img alt="{_text(figure.TITLE)}" src="data:image/png;base64,{code}">'
    return f"<figure>{picture}<figcaption>{_text(caption)}</figcaption></figure>"


def _scale(scale: dict[str, Any] | None) -> list[str]:
    if scale is None:
        return []
    rows = [
        {
            "n": one["n"],
            "t": one["factor"],
            "perplexity": one["perplexity"]["value"],
            "loss - loss(1)": one["difference"]["value"],
            "heads with t > t_c": one["beyond"],
        }
        for one in scale["points"]
    ]
    return ["<h2>Logits multiplied by t</h2>", _table(tuple(rows[0]), rows)]


def _table(keys: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    heading = "".join(f"<th>{_text(WORDS.get(key, key))}</th>" for key in keys)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell(row.get(key)))}</td>' for key in keys)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _paragraph(text: str) -> str:
    return f"<p>{_text(text)}</p>"


def _text(value: str) -> str:
    return html.escape(value)
