"""Perplexity of a trained model whose logits are multiplied by a factor, beside the share of heads beyond critical."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting
from critattn.models.intervention import BestScale, ScaleSweep
from critattn.models.scale_runs import scale_sweep
from critattn.plotting import Look

DATA = "intervention"
TITLE = "Perplexity against the scale of the logits, beside the phase boundary"
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10)
PERPLEXITIES = tuple(digit * 10.0**power for power in range(7) for digit in (1, 1.5, 2, 3, 5, 7))
MOST = 7
ROOM = 1.06
# of the boundary's arrow, in shares of the lower panel
HALF = 0.5


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Above: perplexity against t, colours are lengths. Below: the share of heads beyond their critical point."""
    swept = scale_sweep(data)
    figure, axes = plotting.canvas(
        2, 1, width=plotting.COLUMN, height=4.3, sharex=True, gridspec_kw={"height_ratios": (1.5, 1)}
    )
    upper, lower = axes[:, 0]
    looks = plotting.sequence(len(swept.best))
    for look, best in zip(looks, swept.best, strict=True):
        _curve(upper, swept, best, look)
        _heads(lower, swept, best, look)
        _boundary((upper, lower), swept, best, look)
    _finish(upper, lower, swept)
    keys = [
        Line2D([], [], color=look.color, marker=look.marker, ls=look.dashes, label=f"$n$ = {best.length:,}")
        for look, best in zip(looks, swept.best, strict=True)
    ]
    keys += [
        Line2D([], [], color="0.3", marker="|", ms=6, mew=1.2, lw=1.6, label="least, 95 %"),
        Line2D([], [], color="0.3", ls=(0, (1, 1.2)), lw=0.9, label="half of heads cross"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def _curve(panel: Axes, swept: ScaleSweep, best: BestScale, look: Look) -> None:
    """Perplexity with the interval of its change from t = 1, and the best factor with its own interval."""
    points = [one for one in swept.points if one.length == best.length]
    t = np.array([one.factor for one in points])
    middle = np.array([one.perplexity.value for one in points])
    ends = [(one.difference.low, one.difference.high) for one in points]
    if all(low is not None for low, _ in ends):
        anchor = swept.at(1.0, best.length).loss.value
        low, high = np.exp(anchor + np.array(ends, float)).T
        panel.fill_between(t, low, high, color=look.color, alpha=0.11, lw=0)
    panel.plot(t, middle, color=look.color, ls=look.dashes, marker=look.marker, mew=0)
    if best.factor is not None:
        least = middle.min() / ROOM
        span = [best.low, best.high] if best.low is not None and best.high is not None else [best.factor] * 2
        panel.plot(span, [least, least], color=look.color, lw=1.6, zorder=4)
        panel.plot(best.factor, least, "|", color=look.color, ms=6, mew=1.2, zorder=4)


def _heads(panel: Axes, swept: ScaleSweep, best: BestScale, look: Look) -> None:
    """Share of heads beyond critical in the changed model."""
    points = [one for one in swept.points if one.length == best.length]
    shares = [np.nan if one.beyond is None else one.beyond for one in points]
    t = [one.factor for one in points]
    panel.plot(t, shares, color=look.color, ls=look.dashes, marker=look.marker, mew=0)


def _boundary(panels: tuple[Axes, Axes], swept: ScaleSweep, best: BestScale, look: Look) -> None:
    """Where half of the heads of the model as it is would cross."""
    t = [one.factor for one in swept.points]
    if best.half is not None and min(t) <= best.half <= max(t):
        for panel in panels:
            panel.axvline(best.half, color=look.color, ls=(0, (1, 1.2)), lw=0.9, zorder=1)


def _finish(upper: Axes, lower: Axes, swept: ScaleSweep) -> None:
    t = sorted({one.factor for one in swept.points})
    for panel in (upper, lower):
        panel.axvline(1, color="0.6", lw=0.6, zorder=0)
        panel.set_xlim(t[0] / ROOM, t[-1] * ROOM)
    upper.set_yscale("log")
    values = np.array([one.perplexity.value for one in swept.points])
    bottom, top = values.min() / ROOM**2, values.max() * ROOM
    ticks = [tick for tick in PERPLEXITIES if bottom <= tick <= top] or [float(f"{values.min():.3g}")]
    while len(ticks) > MOST:
        ticks = ticks[::2]
    plotting.log_ticks(upper.yaxis, ticks)
    plotting.log_ticks(lower.xaxis, [tick for tick in TICKS if t[0] / ROOM <= tick <= t[-1] * ROOM])
    upper.set_ylim(bottom, top)
    lower.axhline(HALF, color="black", dashes=(4, 2), lw=1.0, zorder=1)
    lower.set(ylim=(-0.03, 1.03), xlabel="factor $t$ on the logits", ylabel="heads beyond $t_c$\n(share)")
    upper.set_ylabel("perplexity $e^{\\mathrm{loss}}$")
    upper.set_title("(a)", loc="left")
    lower.set_title("(b)", loc="left")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    spec = plotting.spec_of(data)
    law = f" times the factor of {spec['law']}" if spec.get("law") else ""
    return (
        f"{plotting.model_phrase(data)} with the logits of every head multiplied by t{law}; "
        f"{plotting.texts_phrase(data)}, all lengths of a window begin with the same tokens. (a) Perplexity, the "
        "exponential of the mean loss over tokens, windows and texts. Bands: 95 % interval of Student over texts of "
        "the change from t = 1, which leaves out what texts differ in; the level has no interval here. Bars below the "
        "curves: the factor of least loss, from a parabola in log t, with its jackknife interval over texts; without a "
        "bar the least loss is at an end, without a width there is no interval. (b) Share of heads with more than half "
        f"of the typical row's weight on one key, over the last {spec.get('rows', 'few')} rows of a length, in the "
        "model so changed. Dotted: the factor at which half of the heads of the model as it is would cross, their "
        f"median critical multiplier t_c, docs/theory.md (16.1). {plotting.command_sentence(data)}"
    )
