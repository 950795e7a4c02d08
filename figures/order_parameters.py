"""Five order parameters of the simplex along gamma: simulation as points, closed forms as lines."""

from collections.abc import Callable

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting
from critattn.theory import simplex

DATA = "study:order_parameters"
TITLE = "Order parameters of attention on a simplex, by simulation and in closed form"

Curve = Callable[[np.ndarray, float, float], np.ndarray]
CLOSED_FORMS: dict[str, Curve] = {
    "self_weight": simplex.self_weight,
    "entropy": simplex.entropy,
    "participation_ratio": simplex.participation_ratio,
    "angle_ratio": simplex.angle_ratio,
    "gradient_norm": lambda gamma, rho, log_n: simplex.gradient_norm(gamma, rho, log_n, log_d=log_n),
}
SCALES: dict[str, Callable[[float], float]] = {"entropy": np.log, "participation_ratio": float}
NAMES = {
    "self_weight": ("self weight", r"$A_{ii}$"),
    "entropy": ("entropy of a row over log $n$", r"$H/\log n$"),
    "participation_ratio": ("share of tokens attended to", r"$(n\,\Sigma_j A_{ij}^2)^{-1}$"),
    "angle_ratio": ("angle ratio", r"$\lambda$"),
    "gradient_norm": ("gradient norm", r"$\eta$"),
}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each order parameter; the sixth holds the legend."""
    figure, axes = plotting.canvas(2, 3, width=plotting.DOUBLE, height=3.9, sharex=True)
    panels = axes.ravel()
    for index, (panel, name) in enumerate(zip(panels, CLOSED_FORMS, strict=False)):
        _draw_panel(panel, data, name)
        panel.set_title(f"({'abcde'[index]}) {NAMES[name][0]}", loc="left")
    for panel in panels[2:5]:
        panel.set_xlabel(plotting.label("gamma"))
        panel.tick_params(labelbottom=True)
    _draw_legend(panels[5], data["n"].values)
    return figure


def _draw_panel(panel: Axes, data: xarray.Dataset, name: str) -> None:
    rho, gamma = data["rho"].item(), data["gamma"].values
    values = plotting.over_draws(data, name)[0].squeeze("rho")
    fine = np.linspace(gamma[0], gamma[-1], 301)
    stride = max(1, gamma.size // 20)
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        scale = SCALES.get(name, lambda n: 1.0)(n)
        panel.plot(fine, CLOSED_FORMS[name](fine, rho, np.log(n)) / scale, color=look.color, ls=look.dashes)
        points = values.sel(n=n).values / scale
        panel.plot(gamma[::stride], points[::stride], look.marker, color=look.color, mew=0)
    panel.axvline(simplex.critical_gamma(rho), color=plotting.THEORY, lw=0.6, ls=":")
    panel.set(ylabel=NAMES[name][1], xlim=(gamma[0], gamma[-1]))
    if name == "participation_ratio":
        panel.set_yscale("log")


def _draw_legend(panel: Axes, counts: np.ndarray) -> None:
    panel.axis("off")
    looks = plotting.sequence(counts.size)
    handles = [
        Line2D([], [], color=look.color, ls=look.dashes, marker=look.marker, mew=0, label=f"$n$ = {n:,.0f}")
        for look, n in zip(looks, counts, strict=True)
    ]
    handles.append(Line2D([], [], color=plotting.THEORY, lw=0.6, ls=":", label=r"$\gamma = 1/(1-\rho)$"))
    panel.legend(handles=handles, loc="center", title="points: simulation\nlines: closed form")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    rho = data["rho"].item()
    return (
        f"Order parameters of one attention layer on an exact simplex of n tokens in d = n dimensions, ρ = {rho:g}, "
        f"along γ, for {plotting.counts_phrase(data)}: (a) self weight, (b) entropy of a row over log n, (c) share "
        "of tokens that a row attends to, (d) angle ratio, (e) gradient norm. No residual. Points: simulation of "
        "the whole layer, deterministic (a simplex has nothing to sample), hence without error bars. Lines: the "
        "closed forms (1.1), (1.5), (1.13), (2.1) of docs/theory.md, exact at every n. Dotted: γ = 1/(1-ρ). "
        f"{plotting.width_sentence(rho, data['n'].values.max())}"
    )
