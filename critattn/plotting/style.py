"""Figure style, looks of curves, axis labels, and figures that leave pyplot and its global state alone."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import seaborn
from matplotlib.axis import Axis, XAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

P = ParamSpec("P")
T = TypeVar("T")

COLUMN, DOUBLE = 3.4, 7.0
PNG_DPI = 300
THEORY = "0.15"
LINE: dict[str, Any] = {"color": "black", "dashes": (4, 2), "lw": 1.2}
HALO = [Stroke(linewidth=2.2, foreground=(0, 0, 0, 0.55)), Normal()]
GLOW = [Stroke(linewidth=2.4, foreground=(1, 1, 1, 0.8)), Normal()]
# colours of the palette "colorblind"
SAFE = 10
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
MATHS = {"n": "n", "d": "d", "rho": r"\rho", "gamma": r"\gamma", "tau": r"\tau", "layer": r"\ell"}
PARAMETERS = {
    "n": "number of tokens",
    "d": "dimension",
    "rho": "common cosine",
    "gamma": r"coefficient of $\log n$,",
    "tau": "spread of the scores",
    "layer": "layer",
}
RC: dict[str, Any] = {
    "axes.linewidth": 0.6,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.formatter.use_mathtext": True,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.borderaxespad": 0.3,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "critattn",
    "savefig.dpi": PNG_DPI,
    "savefig.facecolor": "white",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    **{f"{axis}tick.{which}.width": 0.6 for axis in "xy" for which in ("major", "minor")},
}


class Look(NamedTuple):
    """How one member of a family of curves looks: told apart by colour, and in grey by marker and dash."""

    color: Any
    marker: str
    dashes: Any


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The figure style for a block; the user's own matplotlib settings return after it."""
    settings: Any = {**seaborn.axes_style("ticks"), **RC}
    with mpl.rc_context(settings):
        yield


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function in the figure style."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with style():
            return function(*args, **kwargs)

    return run


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = COLUMN, height: float = 2.4, **how: Any
) -> tuple[Figure, np.ndarray]:
    """A figure without pyplot, and its axes.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        width: inches; `COLUMN` or `DOUBLE`.
        height: inches.
        how: more for `Figure.subplots`, such as `sharey=True`.

    Returns:
        The figure and an array (rows, columns) of axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def sequence(count: int) -> list[Look]:
    """Looks of an ordered family (growing n, d or gamma), from light to dark."""
    return [_look(tuple(shade), index) for index, shade in enumerate(shades(max(count, 1)))]


def shades(count: int) -> np.ndarray:
    """Colours (count, 4) of an ordered family, from light to dark; the lightest is still dark enough for thin lines."""
    return mpl.colormaps["viridis_r"](np.linspace(0.25, 1.0, count))


def categories(count: int) -> list[Look]:
    """Looks of an unordered family, in seaborn's colour-blind safe palette; beyond its ten colours in dark ones."""
    safe = seaborn.color_palette("colorblind", min(count, SAFE))
    dark = seaborn.color_palette("dark", max(count - SAFE, 0))
    return [_look(color, index) for index, color in enumerate([*safe, *dark])]


def _look(color: Any, index: int) -> Look:
    return Look(color, MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)])


def label(name: str, *, symbol: str | None = None) -> str:
    r"""Axis label of a parameter or an observable: words, symbol, and the unit where there is one.

    Args:
        name: a parameter (n, d, rho, gamma, tau, layer) or the name of an observable.
        symbol: LaTeX that replaces the symbol, such as `H/\log n`; the unit is then left out.

    Raises:
        SpecError: for an unknown name.
    """
    if name in PARAMETERS:
        return f"{PARAMETERS[name]} ${symbol or MATHS[name]}$"
    from critattn import observables

    known = observables.get(name)
    unit = "" if symbol or known.unit == "1" else f" ({known.unit})"
    return f"{known.title} ${symbol or known.symbol}${unit}"


def log_ticks(axis: Axis, values: Sequence[float] | np.ndarray) -> None:
    """A logarithmic axis with ticks at these values only, labelled as plain numbers.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`.
        values: where the ticks are.
    """
    set_scale = axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale
    set_scale("log")
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)
