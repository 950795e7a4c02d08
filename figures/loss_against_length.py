"""Validation loss of trained decoders in windows of their training length and beyond it."""

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.plotting import Look
from critattn.training import captions, collected

DATA = "training:length_extrapolation"
TITLE = "Loss beyond the training length"
PANELS = {
    "loss": r"loss of whole windows, $-\log p$ (nats a byte)",
    "last_loss": r"loss of the last $T$ bytes, $-\log p$ (nats a byte)",
}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """(a) Windows that tile the text, (b) the last bytes of each block, with ever more context; a colour a variant."""
    names = collected.there(data, "loss")
    height = 3.0 + 0.16 * -(-len(names) // 4)
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=height, sharey=True)
    for letter, panel, name in zip("ab", axes[0], PANELS, strict=True):
        for look, variant in zip(plotting.categories(len(names)), names, strict=True):
            _curve(panel, data, (name, variant), look)
        _finish(panel, data)
        panel.set_ylabel(PANELS[name])
        panel.set_title(f"({letter})", loc="left")
    # the panels share their ticks, but not what they show
    axes[0, 1].tick_params(labelleft=True)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _curve(panel: Axes, data: xarray.Dataset, which: tuple[str, str], look: Look) -> None:
    """Mean over seeds of (quantity, variant), and each seed as a thin line."""
    name, variant = which
    n = data["multiple"].values * captions.length_of(data)
    # an interval of three seeds is up to four times as wide as they are apart, and would hide the others
    for each in data[name].sel(variant=variant).values if data.sizes["seed"] > 1 else ():
        panel.plot(n, each, color=look.color, lw=0.4, alpha=0.6, zorder=1)
    values = [one.value for one in collected.curve(data[name], variant)]
    panel.plot(n, values, color=look.color, ls=look.dashes, marker=look.marker, mew=0, label=variant)


def _finish(panel: Axes, data: xarray.Dataset) -> None:
    n = data["multiple"].values * captions.length_of(data)
    panel.axvline(captions.length_of(data), color="0.6", lw=0.6, zorder=0)
    plotting.log_ticks(panel.xaxis, n)
    panel.set_xlabel("length of the window $n$ (bytes)")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    each = " Thin lines: single seeds; the command prints Student's 95 % intervals." if data.sizes["seed"] > 1 else ""
    return (
        f"{captions.trained_sentence(data)} Loss on held-out text; every length scores the same bytes. (a) Mean over "
        "windows of that length that tile the text: the usual validation loss. (b) Only the last T bytes of blocks of "
        "the longest length, with a context of up to n bytes: where more context helps, it falls. Vertical line: the "
        f"training length T. {captions.seeds_sentence(data)}{each} {captions.command_sentence(data)}"
    )
