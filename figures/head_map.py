"""Every head of a trained model by layer: its operating point at the longest length, key 0 kept and dropped."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from critattn import plotting

DATA = "inspection"
TITLE = "Operating points of the heads of a trained model"
REACH = 2.0
TICKS = (-2, -1, 0, 1, 2)
PANELS = {"kept": "all keys", "dropped": "without key 0"}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Two panels, layer against head; colour is log2 of 1/t_c, white at the critical line."""
    rows, columns = data.sizes["layer"], data.sizes["head"]
    height = float(np.clip(0.9 + 0.13 * rows, 2.2, 6.0))
    figure, axes = plotting.canvas(1, 2, width=plotting.COLUMN, height=height, sharey=True)
    mesh = None
    for index, (panel, sink) in enumerate(zip(axes[0], PANELS, strict=True)):
        shown = operating_points(data, sink)
        mesh = panel.imshow(
            np.log2(shown),
            cmap="PuOr_r",
            norm=TwoSlopeNorm(0.0, -REACH, REACH),
            aspect="auto",
            interpolation="nearest",
            origin="lower",
        )
        _finish(panel, data, rows, columns)
        panel.set_title(f"({'ab'[index]})  {PANELS[sink]}", loc="left")
    axes[0, 0].set_ylabel(plotting.label("layer"))
    if mesh is not None:
        bar = figure.colorbar(mesh, ax=axes, extend="both", pad=0.02, shrink=0.85)
        bar.set_label("operating point $1/t_c$")
        bar.set_ticks(TICKS, labels=[f"{2.0**tick:g}" for tick in TICKS])
        bar.ax.minorticks_off()
    return figure


def operating_points(data: xarray.Dataset, sink: str) -> np.ndarray:
    """1/t_c at the longest length, (layers, heads): the mean over windows and texts; NaN without one."""
    shown = data["operating_point"].isel(n=-1, sink=list(PANELS).index(sink))
    return shown.mean(["text", "window"]).transpose("layer", "head").values


def _finish(panel: Axes, data: xarray.Dataset, rows: int, columns: int) -> None:
    for axis, count, name in ((panel.xaxis, columns, "head"), (panel.yaxis, rows, "layer")):
        step = max(1, -(-count // 6))
        places = np.arange(0, count, step)
        axis.set_ticks(places, [f"{data[name].values[place]:.0f}" for place in places])
    panel.set_xlabel("head $h$")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    shares = {sink: float(np.mean(operating_points(data, sink) > 1)) for sink in PANELS}
    return (
        f"{plotting.reading_sentence(data)} Shown: the operating point 1/t_c at n = {data['n'].values[-1]:.0f} keys, "
        "where t_c is the factor on all logits of a row at which half of its weight is on one key (docs/theory.md "
        "(16.1)). (a) With all keys, (b) with key 0, where many heads park their weight, left out. White: critical. "
        "Orange, above 1: the typical row has more than half of its weight on one key "
        f"({shares['kept']:.0%} of the heads in (a), {shares['dropped']:.0%} in (b)); violet, below 1: its weight is "
        "spread. Colours end at a factor of 4; heads without a t_c are left blank. "
        f"{plotting.command_sentence(data)}"
    )
