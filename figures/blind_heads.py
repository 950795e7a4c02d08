"""Biases of ALiBi heads against distance, and what share of a causal matrix each head cannot see, by format."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting

DATA = "table:blind_heads"
TITLE = "Blind heads: where an ALiBi bias takes a weight to zero"
SHOWN = 4
LOWEST = -130.0


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """(a) biases of some heads with the thresholds of the formats; (b) blind share of every head."""
    figure, axes = plotting.canvas(2, 1, height=5.0)
    _biases(axes[0, 0], data)
    _shares(axes[1, 0], data)
    return figure


def _biases(panel: Axes, data: xarray.Dataset) -> None:
    heads = np.linspace(0, data.sizes["head"] - 1, SHOWN).round().astype(int)
    distance = data["distance"].values
    for look, head in zip(plotting.sequence(SHOWN), heads, strict=True):
        slope = np.log2(data["slope"].values[head])
        curve = data["bias"].isel(head=head).values
        panel.plot(distance, curve, color=look.color, ls=look.dashes, label=f"$m = 2^{{{slope:g}}}$")
    # bf16 and fp32 differ by 11 nats: names stand above and below their lines by turns, right of all curves
    for name, threshold in zip(data["format"].values, data["threshold"].values, strict=True):
        above = name in ("bf16", "e4m3")
        panel.axhline(threshold, color=plotting.THEORY, lw=0.6, zorder=0)
        shift, va = (1, "bottom") if above else (-1, "top")
        panel.text(0.9 * distance[-1], threshold + shift, str(name), va=va, ha="right", fontsize=7)
    panel.set(xscale="log", xlim=(distance[0], distance[-1]), ylim=(LOWEST, 8))
    panel.set(xlabel="distance $i-j$ (tokens)", ylabel="bias $-m(i-j)$ (nats)")
    panel.set_title("(a) biases, and where weights are zero", loc="left")
    panel.legend(loc="lower left", bbox_to_anchor=(0.0, 0.3), handlelength=1.6)


def _shares(panel: Axes, data: xarray.Dataset) -> None:
    head, looks = data["head"].values + 1, plotting.categories(data.sizes["format"])
    handles = []
    for look, name in zip(looks, data["format"].values, strict=True):
        share = data["blind_fraction"].sel(format=name).values
        panel.plot(head, share, color=look.color, ls=look.dashes, marker=look.marker)
        handles.append(Line2D([], [], color=look.color, ls=look.dashes, marker=look.marker, label=str(name)))
    panel.set(xlabel="head $h$, steepest first", ylabel="blind share $f_h$ of the matrix", ylim=(-0.04, 1.04))
    panel.set_title(f"(b) $N$ = {data['n'].values[0]:,} tokens", loc="left")
    panel.legend(handles=handles, loc="upper right")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    thresholds = ", ".join(f"{value:.2f} ({name})" for name, value in data["threshold"].to_series().items())
    bf16 = data["blindness_distance"].sel(format="bf16").values
    return (
        f"ALiBi with the slopes of {data.attrs['model']}, {data.sizes['head']} heads; closed forms, nothing is "
        "simulated. (a) The bias -m(i-j) against the distance, with the logits at and below which exp rounds to zero, "
        f"docs/theory.md (14.3): {thresholds} nats. A backend that flushes subnormals loses weights earlier, at "
        "-87.34 nats in fp32 and bf16 (`critattn formats` measures it). (b) The share of the causal attention matrix, "
        f"diagonal included, n = {data['n'].values[0]:,} tokens, at or beyond the blindness distance of each head, "
        "docs/theory.md (15.3), (15.10), for equal scores: a key is blind where its numerator is zero. In bf16 the "
        f"distances run from {bf16.min():,.0f} to {bf16.max():,.0f} tokens. `critattn blindness --model "
        f"{data.attrs['model']}` prints them."
    )
