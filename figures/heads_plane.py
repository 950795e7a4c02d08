"""Every head of a trained model in the plane of length and operating point, beside the critical line."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting
from critattn.models.inspection import head_table

DATA = "inspection"
TITLE = "Trained heads on the phase diagram: operating point against length"
POINT = "operating_point"
TITLES = {"kept": "all keys", "dropped": "without key 0 (the sink)"}
ENDS = (5, 50, 95)
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
ROOM = 1.25
# the lightest of the map are too light for thin lines
SHADES = ListedColormap(plotting.shades(256))


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel with key 0 and one without; a thin line is a head, thick lines are the median and 5 and 95 %."""
    table, counts = head_table(data), data["n"].values
    figure, axes = plotting.canvas(1, len(TITLES), width=plotting.DOUBLE, height=3.1, sharey=True)
    for index, (panel, (sink, title)) in enumerate(zip(axes[0], TITLES.items(), strict=True)):
        heads = np.stack([table.column(POINT, int(n), sink) for n in counts])
        _heads(panel, counts, heads, data["layer"].values)
        ends = np.stack([table.percentiles(POINT, int(n), sink, points=ENDS) for n in counts])
        _percentiles(panel, counts, ends)
        panel.axhline(1, color="black", dashes=(4, 2), lw=1.2, zorder=4, path_effects=plotting.GLOW)
        panel.set_title(f"({'ab'[index]}) {title}", loc="left")
        panel.set_xlabel(plotting.label("n"))
    _scales(axes[0], counts, table.values[table.statistics.index(POINT)])
    axes[0, 0].set_ylabel(r"operating point $1/t_c$")
    if data.sizes["layer"] > 1:
        whole = ScalarMappable(Normalize(data["layer"].values[0], data["layer"].values[-1]), SHADES)
        figure.colorbar(whole, ax=axes[0].tolist(), label=plotting.label("layer"), pad=0.015, aspect=22)
    _legend(figure)
    return figure


def _heads(panel: Axes, counts: np.ndarray, heads: np.ndarray, layers: np.ndarray) -> None:
    """Thin lines of the heads (n, layers, heads), coloured by layer, with a dot at each length."""
    flat = heads.reshape(len(counts), -1)
    colours = np.repeat(layers, heads.shape[2])
    paths = [np.column_stack([counts, head])[np.isfinite(head)] for head in flat.T]
    panel.add_collection(LineCollection(paths, array=colours, cmap=SHADES, lw=0.5, alpha=0.6, rasterized=True))
    everywhere, shades = np.repeat(counts, flat.shape[1]), np.tile(colours, len(counts))
    panel.scatter(everywhere, flat.ravel(), c=shades, cmap=SHADES, s=2.5, lw=0, alpha=0.6, rasterized=True)


def _percentiles(panel: Axes, counts: np.ndarray, ends: np.ndarray) -> None:
    for values, width, marker in zip(ends.T, (0.9, 1.6, 0.9), ("v", "o", "^"), strict=True):
        panel.plot(counts, values, color="black", lw=width, marker=marker, ms=4, zorder=5, path_effects=plotting.GLOW)


def _scales(panels: np.ndarray, counts: np.ndarray, values: np.ndarray) -> None:
    there = values[np.isfinite(values) & (values > 0)]
    low, high = (there.min(), there.max()) if there.size else (0.5, 2.0)
    bottom, top = min(low, 1) / ROOM, max(high, 1) * ROOM
    for panel in panels:
        plotting.log_ticks(panel.xaxis, counts)
        plotting.log_ticks(panel.yaxis, [tick for tick in TICKS if bottom <= tick <= top])
        panel.set(xlim=(counts[0] / ROOM, counts[-1] * ROOM), ylim=(bottom, top))


def _legend(figure: Figure) -> None:
    keys = [
        Line2D([], [], color="0.5", lw=0.5, marker="o", ms=1.6, label="a head"),
        Line2D([], [], color="black", lw=1.6, marker="o", ms=4, label="median of heads"),
        Line2D([], [], color="black", lw=0.9, marker="^", ms=4, label="95 %"),
        Line2D([], [], color="black", lw=0.9, marker="v", ms=4, label="5 %"),
        Line2D([], [], color="black", dashes=(4, 2), lw=1.2, label="critical, $1/t_c = 1$"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=5)


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        f"{plotting.reading_sentence(data)} The critical multiplier t_c of a row is the factor on its logits at which "
        "its largest weight is 1/2, docs/theory.md (16.1). The trained scale is 1: a head above the dashed line has "
        "more than half of a typical row's weight on one key, one below it has less. Thin lines: heads, coloured by "
        "layer, dark is deep. (a) All keys, (b) key 0 left out and the weights renormalised: key 0 is where decoders "
        "put weight that they do not need. Lengths of a window share their query tokens; only the number of keys "
        f"before them differs. {plotting.command_sentence(data)}"
    )
