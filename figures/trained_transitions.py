"""Heads that were trained here against their own transitions, and what theory foretold of these."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from critattn import plotting
from critattn.plotting import Look
from critattn.training import alike, captions

DATA = "training-heads:length_extrapolation"
TITLE = "Trained heads against their transitions"
NAMES = {
    "limit": r"$1/(1-\rho)$",
    "finite_dimension": r"$n$, $d$ finite",
    "gap": "largest cosine",
    "tail": "tail of scores",
    "simplex": "equal cosines",
    "needle": r"needle, $p$",
    "tokens": r"equal cosines, $p$",
}
TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
TOLERANCE = 0.25
PERCENTILES = (16, 50, 84)
LEAST = 0.3
ROOM = 1.25
# of a row, between which its dots are spread
BAND = 0.3


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """(a) Own over critical control parameter, a row a variant; (b) foretold over critical one, a row a prediction."""
    ratios, guesses = own(data), foretold(data)
    rows = max(len(ratios), len(guesses))
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=1.25 + 0.19 * rows)
    looks = plotting.sequence(int(data["layer"].max()) + 1)
    first, second = axes[0]
    _rows(first, ratios, looks)
    _rows(second, {NAMES.get(name, name): one for name, one in guesses.items()}, looks)
    second.axvspan(1 - TOLERANCE, 1 + TOLERANCE, color="0.88", lw=0, zorder=0)
    first.set_xlabel(r"own over critical $\gamma/\gamma_c$ or $p/p_c$")
    second.set_xlabel(r"predicted over critical $\gamma_c^{\mathrm{th}}/\gamma_c$ or $p_c^{\mathrm{th}}/p_c$")
    for panel, letter in zip((first, second), "ab", strict=True):
        panel.axvline(1, color="0.3", lw=0.8, ls="--", zorder=1)
        panel.set_title(f"({letter})", loc="left")
    _legend(figure, looks)
    return figure


def own(data: xarray.Dataset) -> dict[str, xarray.DataArray]:
    """Own over critical control parameter of the heads (row) of each variant.

    0 where no value localises a head, infinite where every value does; a negative gain makes both negative.
    """
    measured = data["measured"]
    ratio = xarray.where(measured != 0, data["value"] / measured.where(measured != 0), np.inf)
    order = [str(name) for name in data["variant"].values if name in ratio["of"].values]
    return {name: ratio.isel(row=np.flatnonzero(ratio["of"].values == name)) for name in order}


def foretold(data: xarray.Dataset) -> dict[str, xarray.DataArray]:
    """Predicted over critical control parameter of the heads (row) of each prediction, where both are finite.

    Of variants that are alike in training the first one.
    """
    known = set(data["of"].values.tolist())
    lost = [name for group in alike.of_dataset(data) for name in [one for one in group if one in known][1:]]
    kept = np.flatnonzero(~data["of"].isin(lost).values)
    measured, predicted = (data[name].isel(row=kept) for name in ("measured", "predicted"))
    sound = np.isfinite(predicted) & (predicted > 0) & np.isfinite(measured) & (measured > 0)
    ratio = predicted.where(sound) / measured.where(measured > 0)
    each = {str(name): ratio.sel(prediction=name) for name in data["prediction"].values}
    return {
        name: one.isel(row=np.flatnonzero(one.notnull().values)) for name, one in each.items() if one.notnull().any()
    }


def _rows(panel: Axes, groups: dict[str, xarray.DataArray], looks: Sequence[Look]) -> None:
    """A row of dots for each group, with its median and percentiles; at the edges the heads at 0 and at infinity."""
    there = np.concatenate([one.values for one in groups.values()] or [np.ones(1)])
    inside = there[np.isfinite(there) & (there > 0)]
    span = min(inside.min(initial=1), LEAST) / ROOM, max(inside.max(initial=1), 1 / LEAST) * ROOM
    for place, one in enumerate(groups.values()):
        _dots(panel, one, place, looks, span)
    plotting.log_ticks(panel.xaxis, [tick for tick in TICKS if span[0] <= tick <= span[1]])
    panel.set(xlim=span, ylim=(len(groups) - 0.5, -0.5))
    panel.set_yticks(range(len(groups)), list(groups))
    panel.tick_params(axis="y", length=0)


def _dots(panel: Axes, ratios: xarray.DataArray, place: int, looks: Sequence[Look], span: tuple[float, float]) -> None:
    values, layers = ratios.values, ratios["layer"].values
    # heads of one layer and seed side by side, in the order of the rows: no chance in a figure
    spread = place + np.linspace(-BAND, BAND, max(len(values), 2))[: len(values)]
    low, high = span[0] * 1.06, span[1] / 1.06
    kinds = {"<": values == 0, ">": np.isposinf(values), "o": np.isfinite(values) & (values > 0)}
    for layer, look in enumerate(looks):
        for marker, chosen in kinds.items():
            here = chosen & (layers == layer)
            at = np.clip(values[here], low, high) if marker != "o" else values[here]
            size = 5 if marker == "o" else 9
            panel.scatter(at, spread[here], s=size, marker=marker, color=look.color, lw=0, alpha=0.75, zorder=2)
    first, middle, last = np.percentile(np.clip(values, *span), PERCENTILES)
    panel.plot([first, last], [place, place], color="black", lw=1, zorder=3, path_effects=plotting.GLOW)
    mark = {"ls": "", "marker": "|", "ms": 9, "mew": 1.8, "color": "black", "zorder": 4}
    panel.plot(np.clip(middle, low, high), place, path_effects=plotting.GLOW, **mark)


def _legend(figure: Figure, looks: Sequence[Look]) -> None:
    keys: list[Line2D | Patch] = [
        Line2D([], [], ls="", marker="o", ms=2.6, color=look.color, label=f"layer {layer}")
        for layer, look in enumerate(looks)
    ]
    keys += [
        Line2D([], [], ls="", marker="<", ms=3.2, color="0.4", label="at no value"),
        Line2D([], [], ls="", marker=">", ms=3.2, color="0.4", label="at every value"),
        Line2D([], [], color="black", lw=1, marker="|", ms=9, mew=1.8, label="median, 16 to 84 %"),
        Patch(color="0.88", label=f"±{TOLERANCE * 100:g} %"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    variants, seeds = (np.unique(data[name].values) for name in ("of", "of_seed"))
    listed = (
        f"{len(variants)} {_word('variant', len(variants))}, {_word('seed', len(seeds))} {', '.join(map(str, seeds))}"
    )
    n = int(data["length"].values.max())
    return (
        f"{captions.trained_sentence(data)} {data.sizes['row']:,} heads of {listed}, read on "
        f"the last rows of held-out windows of n = {n} bytes. Critical is the least γ, or p where weights are "
        "powers, at which the mean of the largest weight is 1/2; cosines, bias and cap of the head stay as they "
        "are. (a) The head's own value over it: right of the dashed line it is above its transition; triangles at "
        "the edges are heads that are local at no value, or at every one. (b) What theory predicts (th) over it, "
        "docs/theory.md (4.5), (11.3), (12.9), (12.12), (13.4), (16.7), of variants that have the prediction, one "
        "of those that are alike in training; heads for which either is 0 or infinite are left out. "
        f"{captions.command_sentence(data)}"
    )


def _word(name: str, count: int) -> str:
    return name if count == 1 else f"{name}s"
