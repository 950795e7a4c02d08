"""The critical multiplier of trained heads, predicted from a few statistics of their scores, against the measured."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting
from critattn.models.agreement import Agreement, validation
from critattn.models.predictions import PREDICTIONS

DATA = "inspection"
TITLE = "Critical multiplier of trained heads: predicted against measured"
SINKS = ("all keys", "no key 0")
MEASURED = "critical_multiplier"
TOLERANCE = 0.25
TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
# per cent of the measured values that may stand on each edge
OUTSIDE = 0.3
ROOM, INSIDE = 1.3, 1.03
# points of one length that need no room
FEW = 300


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Columns: predictions; rows: with and without key 0; colours: lengths."""
    figure, axes = plotting.canvas(
        len(SINKS), len(PREDICTIONS), width=plotting.DOUBLE, height=4.1, sharex=True, sharey=True
    )
    span = _span(data)
    for sink, row in enumerate(axes):
        for panel, name in zip(row, PREDICTIONS, strict=True):
            _points(panel, data, name, sink, span)
            _diagonal(panel, span)
            words = _verdict(_agreement(data, name, sink))
            panel.text(0.04, 0.96, words, transform=panel.transAxes, va="top", size=6.2)
    _finish(axes, span)
    keys = [
        Line2D([], [], color=look.color, marker=look.marker, ls="none", label=f"$n$ = {n:,.0f}")
        for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True)
    ]
    keys += [
        Line2D([], [], color="black", lw=0.8, label="equal"),
        Line2D([], [], color="black", lw=0.7, ls=(0, (1, 1.2)), label=f"±{TOLERANCE * 100:g} %"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
    return figure


def _read(data: xarray.Dataset, name: str, n: int, sink: int) -> np.ndarray:
    """Medians over rows of every head in every window, (text x window x layer x head,)."""
    return data[name].sel(n=n).isel(sink=sink).values.ravel()


def _span(data: xarray.Dataset) -> tuple[float, float]:
    """Both axes: nearly all of the measured multipliers."""
    values = data[MEASURED].values
    there = values[np.isfinite(values) & (values > 0)]
    if not there.size:
        return 0.5, 2.0
    low, high = np.percentile(there, [OUTSIDE, 100 - OUTSIDE])
    return float(low / ROOM), float(high * ROOM)


def _points(panel: Axes, data: xarray.Dataset, name: str, sink: int, span: tuple[float, float]) -> None:
    """A point a head and window; what is outside of the axes stands on their edge."""
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        x, y = (_read(data, one, n, sink) for one in (MEASURED, f"predicted_{name}"))
        there = np.isfinite(x) & (x > 0) & (y > 0)
        x, y = (np.clip(one[there], span[0] * INSIDE, span[1] / INSIDE) for one in (x, y))
        style = {"color": look.color, "marker": look.marker, "ms": 1.7, "mew": 0, "ls": "none", "alpha": 0.3}
        if there.sum() < FEW:
            style |= {"ms": 3.0, "alpha": 0.7}
        panel.plot(x, y, **style, rasterized=True, clip_on=False)


def _diagonal(panel: Axes, span: tuple[float, float]) -> None:
    ends = np.array(span)
    panel.plot(ends, ends, color="black", lw=0.8)
    for factor in (1 - TOLERANCE, 1 + TOLERANCE):
        panel.plot(ends, ends * factor, color="black", lw=0.7, ls=(0, (1, 1.2)))


def _agreement(data: xarray.Dataset, name: str, sink: int) -> Agreement:
    predicted, measured = (
        np.stack([_read(data, one, n, sink) for n in data["n"].values]) for one in (f"predicted_{name}", MEASURED)
    )
    return validation({name: predicted}, measured, tolerance=TOLERANCE)[name]


def _verdict(found: Agreement) -> str:
    lines = (
        [] if np.isnan(found.median) else [f"median error {found.median * 100:+.0f} %".replace("-", "\N{MINUS SIGN}")]
    )
    lines.append(f"within {TOLERANCE * 100:g} %: {found.within * 100:.0f} %")
    if found.missing > 0:
        lines.append(f"none: {found.missing * 100:.0f} %")
    return "\n".join(lines)


def _finish(axes: np.ndarray, span: tuple[float, float]) -> None:
    ticks = [tick for tick in TICKS if span[0] <= tick <= span[1]]
    for index, panel in enumerate(axes.flat):
        plotting.log_ticks(panel.xaxis, ticks)
        plotting.log_ticks(panel.yaxis, ticks)
        panel.set(xlim=span, ylim=span, box_aspect=1)
        if index < len(PREDICTIONS):
            panel.set_title(f"({'abcd'[index]}) {PREDICTIONS[index].replace('_', ' ')}", loc="left")
    for panel in axes[-1]:
        panel.set_xlabel("measured $t_c$")
    for panel, words in zip(axes[:, 0], SINKS, strict=True):
        panel.set_ylabel(f"predicted $t_c$, {words}")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        f"{plotting.reading_sentence(data, means=False)} Horizontal: the measured t_c, the factor on the logits at "
        "which the largest weight of a row is 1/2, docs/theory.md (16.1). Vertical: the same from a few statistics of "
        "the row's scores alone. (a) Annealed (16.3): the top logit above the mean of the others and their standard "
        "deviation, as if they were Gaussian. (b) Random energies (16.4): the others lie below the top one as well. "
        "(c) Tail (16.7): the upper √n of them have an exponential law of their own. (d) Spread (16.5): the standard "
        "deviation alone, for a row of independent Gaussian scores. A point is a head in one window at one length; "
        "above: all keys, below: key 0 left out. In each panel the median relative error, and the share of points "
        f"whose prediction is within {TOLERANCE * 100:g} % (dotted); those without a finite prediction (none) count "
        "as missed. What is outside of the axes, infinite predictions too, stands on their edge. Where a window opens "
        "with one token several times, these share the sink: the two largest logits are nearly equal and the measured "
        f"t_c is very large, which no prediction knows. {plotting.command_sentence(data)}"
    )
