"""The critical exponent of ReLU^p re-weighting against log n: simulation and four predictors."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.interpolate import PchipInterpolator

from critattn import plotting
from critattn.plotting import Look
from critattn.theory import relu_power

DATA = "study:relu_power"
TITLE = "Critical exponent of ReLU^p re-weighting: it grows with log n, and less in more dimensions"
NAME = "half_weight_p"
REACH = 2.0
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20)
PUBLISHED = (3, 15)
PREDICTORS = {
    "annealed, exact averages": "-",
    "bounded scores": (0, (6, 2)),
    "Gaussian scores": (0, (1, 1.2)),
    "Lambert": (0, (5, 1.2, 1, 1.2)),
}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each rho; colours are d, dashes are predictors."""
    figure, axes = plotting.canvas(1, data.sizes["rho"], width=plotting.DOUBLE, height=3.2, sharey=True)
    looks = plotting.sequence(data.sizes["d"])
    for index, (panel, rho) in enumerate(zip(axes[0], data["rho"].values, strict=True)):
        for look, d in zip(looks, data["d"].values, strict=True):
            _predictors(panel, data["n"].values, rho=rho, d=float(d), look=look)
            plotting.draw_means(panel, data.sel(rho=rho, d=d), NAME, over="n", look=look)
        _finish(panel, data)
        panel.set_title(f"({'abcdefgh'[index % 8]})  $\\rho = {rho:g}$", loc="left")
    axes[0, 0].set_ylabel("critical exponent $p_c$")
    _legend(figure, data["d"].values, looks)
    return figure


def _span(counts: np.ndarray) -> tuple[float, float]:
    return counts.min() / REACH, counts.max() * REACH


def _predictors(panel: Axes, counts: np.ndarray, *, rho: float, d: float, look: Look) -> None:
    low, high = np.log(_span(counts))
    coarse, log_n = np.linspace(low, high, 5), np.linspace(low, high, 100)
    exact = relu_power.critical_p(rho, coarse, d)
    curves = [
        PchipInterpolator(coarse, exact)(log_n),
        relu_power.critical_p_beta(rho, log_n, d),
        relu_power.critical_p_gaussian(rho, log_n, d),
        relu_power.critical_p_lambert(rho, log_n, d),
    ]
    for curve, dashes in zip(curves, PREDICTORS.values(), strict=True):
        panel.plot(np.exp(log_n), curve, color=look.color, ls=dashes, lw=0.9)


def _finish(panel: Axes, data: xarray.Dataset) -> None:
    mean = plotting.over_draws(data, NAME)[0]
    bottom, top = float(mean.min()) * 0.7, float(max(mean.max() * 1.6, 1.1 * max(PUBLISHED)))
    for p in PUBLISHED:
        panel.axhline(p, color="0.6", lw=0.6, zorder=0)
    counts = data["n"].values
    panel.set(xscale="log", yscale="log", xlim=_span(counts), ylim=(bottom, top), xlabel=plotting.label("n"))
    plotting.log_ticks(panel.xaxis, counts)
    plotting.log_ticks(panel.yaxis, [tick for tick in TICKS if bottom <= tick <= top])


def _legend(figure: Figure, dims: np.ndarray, looks: list[Look]) -> None:
    points = [
        Line2D([], [], color=look.color, marker=look.marker, ls="none", label=f"$d$ = {d:,.0f}, simulation")
        for look, d in zip(looks, dims, strict=True)
    ]
    lines = [Line2D([], [], color=plotting.THEORY, ls=dashes, label=name) for name, dashes in PREDICTORS.items()]
    figure.legend(handles=points + lines, loc="outside lower center", ncols=4)


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        "The exponent p at which the mean self weight over rows is 1/2, for softplus attention with ReLU^p "
        f"re-weighting at γ = log d on {plotting.tokens_phrase(data)}, {plotting.dimensions_phrase(data)}; colours are "
        "the dimension. Points: roots of each draw's own curve, mean over draws with one "
        "standard error (mostly smaller than the symbols). Lines, docs/theory.md: solid, the annealed self weight "
        "averaged over rows with exact geometry (12.9), the predictor that the verdicts use; long dashes, bounded "
        "scores (12.8); dots, Gaussian scores (12.6), which have no root where d is small; dash and dot, their "
        "asymptotic Lambert form (12.7). All but the first treat every row alike, and lie above it, far above "
        "where d is small. "
        "Above its line a token attends to itself, below it to its neighbours. Grey: the published exponents 3 and 15 "
        "[arXiv 2501.13428]. Both axes are logarithmic; these tokens are drawn at random, trained heads have scores of "
        "another law."
    )
