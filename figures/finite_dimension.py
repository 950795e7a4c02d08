"""The half-weight point against the dimension: simulation and four predictors."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.interpolate import PchipInterpolator

from critattn import plotting
from critattn.plotting import Look
from critattn.theory import finite_dimension, simplex

DATA = "study:finite_dimension"
TITLE = "Half-weight point against dimension: the transition moves, and is lost at d below log n"
NAME = "half_weight"
TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 200)
PREDICTORS = {
    "annealed, exact averages": "-",
    "Gaussian scores": (0, (1, 1.2)),
    r"large deviations ($\rho = 0$)": (0, (5, 1.2, 1, 1.2)),
    "simplex": (0, (6, 2)),
}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each rho; colours are n, dashes are predictors."""
    panels = data.sizes["rho"]
    figure, axes = plotting.canvas(1, panels, width=plotting.DOUBLE, height=2.9)
    looks = plotting.sequence(data.sizes["n"])
    for index, (panel, rho) in enumerate(zip(axes[0], data["rho"].values, strict=True)):
        for look, n in zip(looks, data["n"].values, strict=True):
            plotting.draw_means(panel, data.sel(rho=rho, n=n), NAME, over="d", look=look)
            _predictors(panel, data["d"].values, rho=rho, log_n=float(np.log(n)), look=look)
        _finish(panel, data, rho=rho, index=index)
    _legends(axes[0], data["n"].values, looks)
    return figure


def _predictors(panel: Axes, dims: np.ndarray, *, rho: float, log_n: float, look: Look) -> None:
    coarse, d = (np.geomspace(dims.min(), dims.max(), count) for count in (2 * dims.size - 1, 120))
    exact = finite_dimension.half_weight_gamma(rho, log_n, coarse)
    curves = [
        np.exp(PchipInterpolator(np.log(coarse), np.log(exact))(np.log(d))),
        finite_dimension.gaussian_gamma(rho, log_n, d),
        finite_dimension.large_deviation_gamma(log_n, d) if rho == 0 else np.full(d.size, np.nan),
        np.full(d.size, simplex.half_weight_gamma(rho, log_n)),
    ]
    for curve, dashes in zip(curves, PREDICTORS.values(), strict=True):
        panel.plot(d, curve, color=look.color, ls=dashes, lw=0.9)


def _finish(panel: Axes, data: xarray.Dataset, *, rho: float, index: int) -> None:
    top = float(plotting.over_draws(data, NAME)[0].sel(rho=rho).max()) * 1.3
    bottom = 0.93 / (1 - rho)
    plotting.log_ticks(panel.xaxis, data["d"].values)
    plotting.log_ticks(panel.yaxis, [tick for tick in TICKS if bottom <= tick <= top])
    panel.set(xlabel=plotting.label("d"), ylabel=r"half-weight point $\gamma_{1/2}$", ylim=(bottom, top))
    panel.set_title(f"({'abcdefgh'[index % 8]})  $\\rho = {rho:g}$", loc="left")


def _legends(axes: np.ndarray, counts: np.ndarray, looks: list[Look]) -> None:
    points = [
        Line2D([], [], color=look.color, marker=look.marker, ls="none", label=f"$n$ = {n:,.0f}")
        for look, n in zip(looks, counts, strict=True)
    ]
    lines = [Line2D([], [], color=plotting.THEORY, ls=dashes, label=name) for name, dashes in PREDICTORS.items()]
    axes[0].legend(handles=points, loc="upper right", title="simulation")
    axes[-1].legend(handles=lines, loc="upper right", title="predictor")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    largest = data["n"].values.max()
    return (
        "The γ at which the mean self weight over rows is 1/2, against the dimension d, for "
        f"{plotting.tokens_phrase(data)}, "
        f"{plotting.counts_phrase(data)}. Points: roots of each draw's own curve, mean over draws with one standard "
        "error (mostly smaller than the symbols). Lines: the annealed self weight averaged over rows, docs/theory.md "
        "(4.5) for ρ = 0 and (4.7) for ρ > 0; Gaussian scores (4.4), a heuristic with no root for d < 2 v log n; large "
        "deviations (4.6), n → ∞ at fixed d/log n; and the simplex (1.7), which is d → ∞. Both axes are logarithmic. "
        "At fixed d the half-weight point grows without bound as n does: no transition is left at γ of order one. "
        f"{plotting.width_sentence(data['rho'].values.max(), largest)}"
    )
