"""Keys that trained decoders retrieve, against the distance from where they are stated."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.errors import SpecError
from critattn.plotting import Look
from critattn.training import captions, collected

DATA = "training:passkey"
TITLE = "Retrieval against distance"
PANELS = {"passkey": "pass key", "needle": "needle in a haystack"}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each kind of prompt, a colour a variant; the vertical line is the training length.

    Raises:
        SpecError: where the preset trains without prompts.
    """
    names = list(dict.fromkeys(name for kind in PANELS for name in collected.there(data, kind)))
    if not names:
        raise SpecError(f"study {data.attrs['name']!r}: no retrieval was measured; its preset has no prompts")
    height = 2.6 + 0.16 * -(-len(names) // 4)
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=height, sharey=True)
    for index, (panel, kind) in enumerate(zip(axes[0], PANELS, strict=True)):
        for look, variant in zip(plotting.categories(len(names)), names, strict=True):
            _curve(panel, data, (kind, variant), look)
        _finish(panel, data)
        panel.set_title(f"({'ab'[index]})  {PANELS[kind]}", loc="left")
    axes[0, 0].set(ylim=(-0.04, 1.04), ylabel="share of whole keys right $A$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _curve(panel: Axes, data: xarray.Dataset, which: tuple[str, str], look: Look) -> None:
    """Mean over seeds of (kind of prompt, variant), and each seed as a thin line."""
    kind, variant = which
    distances = data["distance"].values
    # a seed learns to retrieve or does not: an interval of the mean of three would cover everything
    for each in data[kind].sel(variant=variant).values if data.sizes["seed"] > 1 else ():
        panel.plot(distances, each, color=look.color, lw=0.4, alpha=0.5, zorder=1)
    values = [one.value for one in collected.curve(data[kind], variant)]
    panel.plot(distances, values, color=look.color, ls=look.dashes, marker=look.marker, mew=0, label=variant)


def _finish(panel: Axes, data: xarray.Dataset) -> None:
    length = captions.length_of(data)
    panel.axvline(length, color="black", dashes=(4, 2), lw=1.0, zorder=1)
    distances = data["distance"].values
    powers = length * 2.0 ** np.arange(-3, 6)
    plotting.log_ticks(panel.xaxis, [one for one in powers if distances[0] / 1.5 <= one <= distances[-1] * 1.5])
    panel.set_xlim(distances[0] / 1.15, distances[-1] * 1.15)
    panel.set_xlabel("distance to the stated key $r$ (bytes)")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    prompts = captions.setting_of(data)["preset"]["eval_prompts"]
    each = " Thin lines: single seeds, some of which do not learn to retrieve." if data.sizes["seed"] > 1 else ""
    return (
        f"{captions.trained_sentence(data)} A key of four digits is stated once and asked for at the end; a key counts "
        "where each of its digits is the most likely byte after the true ones before it. (a) In repeated filler, (b) a "
        f"city's number in held-out text. {prompts} fresh prompts for each distance, from the first digit of the "
        "stated key to the first of the answer. Dashed: the training length T; prompts in training were no longer. "
        f"{captions.seeds_sentence(data)}{each} {captions.command_sentence(data)}"
    )
