"""What the heads of a trained model do, layer by layer: operating point, entropy, sink, geometry, gradient."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from critattn import plotting
from critattn.models.head_table import HeadTable
from critattn.models.inspection import head_table
from critattn.plotting import Look

DATA = "inspection"
TITLE = "Profile of a trained model over its layers"
PANELS = {
    "operating_point": (r"operating point $1/t_c$", "log"),
    "relative_entropy": (r"entropy $H/\log n$", "linear"),
    "sink_mass": ("weight of key 0, $p_0$", "linear"),
    "rho_input": (r"effective $\rho$, input", "linear"),
    "rho_keys": (r"effective $\rho$, keys", "linear"),
    "gradient_norm": (r"gradient $\|J\|_F^2/(nd)$", "log"),
}
CENTRED = "_centred"
CRITICAL = "operating_point"
QUARTILES = (25, 50, 75)
TICKS = tuple(digit * 10.0**power for power in range(-6, 4) for digit in (1, 2, 5))
MOST = 6


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Small multiples against the layer: medians over heads, bands to the quartiles, a colour a length."""
    table, layers = head_table(data), data["layer"].values
    names = [name for name in PANELS if name in table.statistics]
    figure, axes = plotting.canvas(2, 3, width=plotting.DOUBLE, height=3.9, sharex=True)
    looks = plotting.sequence(data.sizes["n"])
    for index, panel in enumerate(axes.flat):
        if index >= len(names):
            panel.set_axis_off()
            continue
        for look, n in zip(looks, table.lengths, strict=True):
            _profile(panel, layers, table, (names[index], n), look)
            if f"{names[index]}{CENTRED}" in table.statistics:
                _profile(panel, layers, table, (f"{names[index]}{CENTRED}", n), look._replace(marker=""))
        words, scale = PANELS[names[index]]
        _finish(panel, scale, critical=names[index] == CRITICAL)
        panel.set_ylabel(words)
        panel.set_title(f"({'abcdef'[index]})", loc="left")
    for panel in axes[-1]:
        panel.set_xlabel(plotting.label("layer"))
    axes[0, 0].xaxis.set_major_locator(
        MaxNLocator(5, integer=True) if len(layers) > 1 else FixedLocator(layers.tolist())
    )
    keys = [
        Line2D([], [], color=look.color, marker=look.marker, ls=look.dashes, label=f"$n$ = {n:,}")
        for look, n in zip(looks, table.lengths, strict=True)
    ]
    keys += [
        Line2D([], [], color="0.3", marker="o", lw=0.9, label=r"$\rho$ raw"),
        Line2D([], [], color="0.3", lw=0.9, label=r"$\rho$ centred"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
    return figure


def _profile(panel: Axes, layers: np.ndarray, table: HeadTable, which: tuple[str, int], look: Look) -> None:
    """Medians over heads and their quartiles of (statistic, length)."""
    values = table.column(*which)
    finite = [row[np.isfinite(row)] for row in values]
    ends = np.array([np.percentile(row, QUARTILES) if row.size else [np.nan] * len(QUARTILES) for row in finite])
    panel.fill_between(layers, ends[:, 0], ends[:, 2], color=look.color, alpha=0.13, lw=0)
    panel.plot(layers, ends[:, 1], color=look.color, ls=look.dashes, marker=look.marker, ms=2.6, lw=0.9, mew=0)


def _finish(panel: Axes, scale: str, *, critical: bool) -> None:
    if critical:
        panel.axhline(1, color="black", dashes=(4, 2), lw=1.0, zorder=1)
    if scale == "log":
        panel.set_yscale("log")
        bottom, top = panel.get_ylim()
        ticks = [tick for tick in TICKS if bottom <= tick <= top]
        plotting.log_ticks(
            panel.yaxis, ticks if len(ticks) <= MOST else [tick for tick in ticks if f"{tick:e}"[0] == "1"]
        )
        panel.set_ylim(bottom, top)


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    gradient = (
        ", (f) squared Frobenius norm of the Jacobian of the head's output by the normalised input of its block, over "
        "n times the width d, by Hutchinson's estimator (16.9)"
        if "gradient_norm" in data
        else ""
    )
    return (
        f"{plotting.reading_sentence(data)} Lines: median over the heads of a layer; bands: their quartiles, not "
        "errors. (a) Operating point 1/t_c with the critical line, docs/theory.md (16.1), (b) entropy of a row over "
        "the logarithm of the number of keys it sees, (c) weight of key 0; all keys kept. Effective ρ, the mean cosine "
        "of two tokens, (16.8), raw with markers, and without markers after their mean is taken away, about -1/(n-1) "
        "for independent tokens: (d) of the normalised input of attention, the same for all heads of a layer, (e) of "
        f"the keys, whose mean a softmax does not see{gradient}. {plotting.command_sentence(data)}"
    )
