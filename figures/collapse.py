"""Data collapse in log n: the self weight against (gamma - gamma_c) log n."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from critattn import plotting
from critattn.theory import simplex

DATA = "study:order_parameters"
TITLE = "Collapse of the self weight: finite-size scaling runs in log n"
REACH = 14.0


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Left: curves of several n. Right: the same points in the scaled variable, on the sigmoid."""
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=2.5, sharey=True)
    rho = data["rho"].item()
    critical = simplex.critical_gamma(rho)
    weight = plotting.over_draws(data, "self_weight")[0].squeeze("rho")
    gamma = data["gamma"].values
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        points = weight.sel(n=n).values
        axes[0, 0].plot(gamma, points, color=look.color, ls=look.dashes, marker=look.marker, mew=0, markevery=2)
        scaled = (gamma - critical) * np.log(n)
        axes[0, 1].plot(scaled, points, look.marker, color=look.color, mew=0, label=f"$n$ = {n:,.0f}")
    _finish(axes[0, 0], axes[0, 1], critical=critical, rho=rho)
    return figure


def _finish(raw: Axes, scaled: Axes, *, critical: float, rho: float) -> None:
    c = np.linspace(-REACH, REACH, 301)
    scaled.plot(c, expit(c * (1 - rho)), color=plotting.THEORY, zorder=0, label=r"$1/(1 + e^{-c(1-\rho)})$")
    raw.axvline(critical, color=plotting.THEORY, lw=0.6, ls=":")
    raw.set(xlabel=plotting.label("gamma"), ylabel=plotting.label("self_weight"))
    scaled.set(xlabel=r"scaled distance $c = (\gamma - \gamma_c)\,\log n$", xlim=(-REACH, REACH))
    scaled.legend(loc="lower right")
    for panel, text in ((raw, "(a) as measured"), (scaled, "(b) scaled")):
        panel.set_title(text, loc="left")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    rho = data["rho"].item()
    return (
        f"(a) Mean self weight of one attention layer on an exact simplex, ρ = {rho:g}, d = n, for "
        f"{plotting.counts_phrase(data)}; simulation, deterministic, lines join the points. (b) The same points "
        "against c = (γ - γ_c) log n with γ_c = 1/(1-ρ). They fall on the sigmoid of c (1-ρ), docs/theory.md (1.12), "
        "up to 1/n: size enters through log n. "
        f"{plotting.width_sentence(rho, data['n'].values.max())}"
    )
