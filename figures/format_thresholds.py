"""Where exp, softmax and attention of each library give zero, measured, beside the thresholds of the formats."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "table:format_thresholds"
TITLE = "The first weight that is zero belongs to a kernel and a format, not to the format"
LINES = {"zero": "-", "subnormal": (0, (4, 2)), "normal": (0, (1, 1.2))}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each format: measured points, stated lines."""
    operations = [str(name) for name in data["operation"].values]
    places = np.arange(len(operations))[::-1]
    height = 1.1 + 0.17 * len(operations)
    figure, axes = plotting.canvas(1, data.sizes["format"], width=plotting.DOUBLE, height=height, sharey=True)
    look = plotting.categories(1)[0]
    for index, (panel, name) in enumerate(zip(axes[0], data["format"].values, strict=True)):
        one = data.sel(format=name)
        panel.plot(-one["first_zero"].values, places, ls="none", marker=look.marker, color=look.color, ms=4.5)
        for kind, dashes in LINES.items():
            panel.axvline(-one[kind].item(), color=plotting.THEORY, lw=0.8, ls=dashes, zorder=0, label=kind)
        panel.set(yticks=places, yticklabels=operations, xlabel="gap to the maximum $-x$ (nats)")
        panel.set_title(f"({'abc'[index]}) {name}", loc="left")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, [f"threshold: {label}" for label in labels], loc="outside lower center", ncols=3)
    return figure


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    own = [
        f"{operation} in {name}"
        for operation in data["operation"].values
        for name in data["format"].values
        if data["kind"].sel(operation=operation, format=name).item() == "own"
    ]
    kernels = f" A threshold of its own: {', '.join(own)}." if own else ""
    return (
        "Points: the smallest gap to the maximum of a row at which exp, softmax or attention gives exactly zero, found "
        f"here by trying every number of a 16-bit format and by bisection on the bits of fp32 ({data.attrs['versions']}"
        "). Lines, docs/theory.md (14.1)-(14.3): solid, rounding to nearest gives zero; dashed, the least subnormal; "
        "dotted, the smallest normal number, where a library that flushes subnormals gives zero. A 16-bit input has a "
        f"grid of its own, (14.6), so that a point may lie up to one step beyond its line.{kernels} No point: the "
        "operation does not take the format. `critattn formats` prints the numbers."
    )
