"""The tables of `critattn extrapolate`: losses, retrieval, and the order of variants beside the published one."""

import math
from collections.abc import Iterator
from typing import Any

from critattn.cli.common import table

QUANTITIES = {"passkey": "whole pass keys right", "needle": "whole needles right"}


def ranking_record(one: Any) -> dict[str, Any]:
    """One published column beside what was found here, JSON-ready."""
    column, correlation = one.published, one.correlation
    return {
        "key": column.key,
        "source": column.source,
        "published_on": column.words,
        "quantity": column.quantity,
        "place": column.place,
        "variants": list(one.here),
        "here": list(one.here.values()),
        "published": list(one.theirs.values()),
        "lower_bounds": [name for name in column.bounds if name in one.here],
        "spearman": correlation.value,
        "low": correlation.low,
        "high": correlation.high,
        "reason": correlation.reason or None,
        "pairs_alike": one.same,
        "pairs": one.pairs,
        "left_out": dict(one.left_out),
    }


def gradients(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Gradients of queries and keys against gamma, JSON-ready; None without two gammas of a common seed."""
    from critattn.errors import SpecError
    from critattn.training import collapse

    try:
        return collapse.as_json(collapse.gradient_collapse(found))
    except SpecError:
        return None


def for_people(found: dict[str, Any]) -> Iterator[Any]:
    """Tables of what the study is about, the ranking, and what is missing."""
    count = len(found["seeds"])
    seeds = f"{count} seeds, means with Student's 95 % intervals" if count > 1 else f"seed {found['seeds'][0]}"
    head = f"{found['study']}, preset {found['preset']}, T = {found['length']} bytes, {seeds}"
    yield _losses(found, head)
    for quantity, words in QUANTITIES.items():
        if quantity in found["measures"] and any(row["quantity"] == quantity for row in found["table"]):
            yield _grid(found, quantity, f"{words} (share) against the distance in bytes", "{}")
    if found["ranking"]:
        yield _ranking(found)
        yield f"{found['ranking_interval']}."
        yield from _left_out(found["ranking"])
    if found["gradients"]:
        yield from _gradients(found["gradients"])
    if found["heads"]:
        yield from _heads(found["heads"])
    if len(found["corpora"]) > 1:
        yield f"the runs were trained on {len(found['corpora'])} different texts: losses are not of the same bytes"
    for key in ("missing", "diverged"):
        if found[key]:
            yield f"{key}: {len(found[key])} of {found['runs']} runs: {_listed(found[key])}"


def _losses(found: dict[str, Any], head: str) -> Any:
    return _grid(found, "loss", f"{head}; loss in nats a byte against the length of the window", "{}T")


def _grid(found: dict[str, Any], quantity: str, title: str, heading: str) -> Any:
    rows = [row for row in found["table"] if row["quantity"] == quantity]
    places = sorted({row["at"] for row in rows})
    known = {(row["variant"], row["at"]): row for row in rows}
    names = [name for name in found["variants"] if any((name, at) in known for at in places)]
    shown = ([name, *(_mean(known.get((name, at))) for at in places)] for name in names)
    return table(("variant", *(heading.format(at) for at in places)), shown, title=title)


def _mean(row: dict[str, Any] | None) -> str | None:
    """A mean with half of its interval; that of a share with its ends, cut to [0, 1]."""
    if row is None:
        return None
    if row["quantity"] in QUANTITIES and row["high"] is not None:
        return f"{row['mean']:.2f} [{max(0, row['low']):.2f}, {min(1, row['high']):.2f}]"
    half = "" if row["high"] is None else f" ± {row['high'] - row['mean']:.2f}"
    return f"{row['mean']:.3f}{half}"


def _ranking(found: dict[str, Any]) -> Any:
    headings = ("published column", "of", "variants", "Spearman", "low", "high", "pairs in that order")
    rows = [
        (
            f"{one['source']}: {one['place']}",
            one["published_on"],
            len(one["variants"]),
            one["reason"] if one["spearman"] is None else f"{one['spearman']:.2f}",
            *("-" if one[end] is None else f"{one[end]:.2f}" for end in ("low", "high")),
            f"{one['pairs_alike']} of {one['pairs']}",
        )
        for one in found["ranking"]
    ]
    return table(headings, rows, title="the order of the variants here, against the published one")


def _left_out(rankings: list[dict[str, Any]]) -> Iterator[str]:
    """What is not ranked because it is a replicate, with what stands for it."""
    lost = {name: kept for one in rankings for name, kept in one["left_out"].items()}
    if lost:
        listed = ", ".join(f"{name} ({kept})" for name, kept in lost.items())
        yield f"not ranked, because within T the layers are those of another variant: {listed}."


def _gradients(found: dict[str, Any]) -> Iterator[Any]:
    """Share of queries and keys in the gradient, by gamma, and whether it collapses."""
    headings = ("gamma", "seeds", "share", "low", "high", "share, first tenth", "training loss")
    keys = ("gamma", "seeds", "share", "share_low", "share_high", "first_share", "loss")
    rows = [[one[key] for key in keys] for one in found["rows"]]
    yield table(headings, rows, title="share of queries and keys in the gradient, last quarter of the training")
    ends = "" if found["low"] is None else f" [{found['low']:.3g}, {found['high']:.3g}]"
    verdict = {True: "collapsed", False: "no collapse", None: "undecided"}[found["collapsed"]]
    yield (
        f"gamma {found['below']:.3g} over gamma {found['above']:.3g}: {found['ratio']:.3g}{ends}, in the first tenth "
        f"{found['first_ratio']:.3g}; in proportion to gamma it would be {found['proportional']:.3g}: {verdict} "
        f"(below a tenth)"
    )


def _heads(records: list[dict[str, Any]]) -> Iterator[Any]:
    """Where the heads stand, and how far predictions are off: over all heads and seeds of a variant."""
    columns = ("variant", "", "own", "critical", "heads", "local", "always", "never")
    keys = ("variant", "control", "value", "measured", "heads", "local", "always", "never")
    each = {one["variant"]: one for one in records}.values()
    title = (
        "heads at the training length: gamma or p as it is and where the mean of the largest weight is 1/2 (medians); "
        "share of heads above that, and heads that are local at every value or at none"
    )
    yield table(columns, ([_short(one[key]) for key in keys] for one in each), title=title)
    keys = ("variant", "prediction", "compared", "median", "met", "sides")
    rows = [[_short(one[key]) for key in keys] for one in records if one["prediction"]]
    title = (
        "predictions of that value: heads that have both, median relative error, share of heads met within 25 % or "
        "never local as foretold, share on the side foretold"
    )
    if rows:
        yield table(("variant", "prediction", "heads", "error", "met", "side"), rows, title=title)


def _short(value: Any) -> Any:
    """A number to three digits; infinite is said."""
    return f"{value:.3g}" if isinstance(value, float) and not math.isnan(value) else value


def _listed(runs: list[dict[str, Any]]) -> str:
    """Variants with their seeds: `lssa (0, 1)`."""
    seeds: dict[str, list[str]] = {}
    for one in runs:
        seeds.setdefault(one["variant"], []).append(str(one["seed"]))
    return ", ".join(f"{name} ({', '.join(which)})" for name, which in seeds.items())
