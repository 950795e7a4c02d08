"""What was found for each attention here against what is published for it."""

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from critattn import plotting
from critattn.errors import SpecError
from critattn.plotting import Look
from critattn.training import captions, prompts
from critattn.training.ranking import LEAST, METHOD, Ranking, farthest, left_out, rankings

DATA = "training:length_extrapolation"
TITLE = "Order of the attentions here and as published"
COLUMNS = 3
UNITS = {"loss": ("nats a token", "nats a byte"), "passkey": ("share", "share"), "needle": ("share", "share")}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each published column: published value against the value here; a marker a variant.

    Raises:
        SpecError: where no published column has two of the variants.
    """
    found = shown(data)
    if not found:
        raise SpecError(f"study {data.attrs['name']!r}: no published column has two of its variants")
    names = list(dict.fromkeys(name for one in found for name in one.here))
    looks = dict(zip(names, plotting.categories(len(names)), strict=True))
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, axes = plotting.canvas(
        rows, columns, width=plotting.DOUBLE, height=0.4 + 2.1 * rows + 0.16 * -(-len(names) // 4)
    )
    for index, panel in enumerate(axes.flat):
        if index < len(found):
            _panel(panel, found[index], looks)
            panel.set_title(f"({chr(ord('a') + index)})  {_correlation(found[index])}", loc="left")
        else:
            panel.set_axis_off()
    keys = [Line2D([], [], color=look.color, marker=look.marker, ls="", label=name) for name, look in looks.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=4)
    return figure


def shown(data: xarray.Dataset) -> list[Ranking]:
    """Published columns with three variants or more; those with two where there are no others."""
    found = rankings(data)
    return [one for one in found if len(one.here) >= LEAST] or found


def _panel(panel: Axes, one: Ranking, looks: dict[str, Look]) -> None:
    theirs = one.theirs
    for name, value in one.here.items():
        look = looks[name]
        panel.plot(theirs[name], value, ls="", marker=look.marker, color=look.color, ms=5, mec="white", mew=0.3)
    published, here = UNITS[one.published.quantity]
    panel.set_xlabel(f"published $x$, {one.published.place}\n({published})")
    panel.set_ylabel(f"here $y$ ({here})")
    panel.margins(0.12)
    panel.xaxis.set_major_locator(MaxNLocator(4))


def _correlation(one: Ranking) -> str:
    found = one.correlation
    if found.value is None:
        return f"{one.same} of {one.pairs} pairs alike" if one.pairs else "no order"
    return rf"$\rho_S$ = {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    found = shown(data)
    panels = "; ".join(
        f"({chr(ord('a') + index)}) {one.published.source}, {one.published.place}, {one.published.words}"
        for index, one in enumerate(found)
    )
    bounds = sorted({name for one in found for name in one.published.bounds if name in one.here})
    beyond = f" The published values of {', '.join(bounds)} are lower bounds." if bounds else ""
    lost = "; ".join(f"{name} ({kept})" for name, kept in left_out(found).items())
    replicas = f" Left out, because within T their layers are those of another variant: {lost}." if lost else ""
    return (
        f"{captions.trained_sentence(data)} Published values against those found here at the same multiples of the "
        f"training length; only the order is compared, not the size: tokens there, bytes here. {panels}. Ranges of "
        "distances: the mean accuracy over them, from the nearest one that was measured, linear between those that "
        f"were.{_trained_distances(found, captions.length_of(data))} Titles: Spearman's rank correlation with its "
        f"interval. {METHOD}.{beyond}{replicas} "
        f"{captions.seeds_sentence(data)} {captions.command_sentence(data)}"
    )


def _trained_distances(found: list[Ranking], length: int) -> str:
    """Where the training ends within the ranges of distances; nothing without such ranges."""
    names: dict[prompts.Kind, str] = {"passkey": "pass keys", "needle": "needles"}
    kinds: list[prompts.Kind] = [kind for kind in prompts.KINDS if any(one.published.quantity == kind for one in found)]
    if not kinds:
        return ""
    ends = " and ".join(f"{farthest(kind, length)} bytes for {names[kind]}" for kind in kinds)
    windows = any(one.published.windows for one in found)
    compared = (
        " Windows of x T: keys anywhere in them there, the mean over distances up to x T here." if windows else ""
    )
    return f"{compared} Keys in training were nearer than T = {length}, up to {ends}: the end of 0 to T is beyond that."
