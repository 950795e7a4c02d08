"""Weights of ReLU^p re-weighting near the simplex against the exponent p."""

from collections.abc import Callable

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.interpolate import PchipInterpolator
from scipy.special import expit, logit

from critattn import plotting

DATA = "table:relu_power_weights"
TITLE = "ReLU^p re-weighting: the transition is one in p, and moves with log n"
TICKS = (0.5, 1, 2, 3, 5, 8, 15)
PUBLISHED = (3, 15)


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Top: self weight. Bottom: all the other weights together, which vanish in the hard limit."""
    figure, axes = plotting.canvas(2, 1, height=4.4, sharex=True)
    _curves(axes[0, 0], data, expit)
    _curves(axes[1, 0], data, lambda odds: expit(-odds))
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        critical = data["critical_p"].sel(n=n).item()
        axes[0, 0].plot(critical, 0.5, look.marker, color=look.color, mec="black", mew=0.6, ms=5, zorder=4)
    axes[0, 0].axhline(data["hard_limit"].item(), color=plotting.THEORY, lw=0.8, ls=":")
    axes[0, 0].set(ylabel=r"self weight $A_{ii}$", ylim=(-0.04, 1.08))
    axes[1, 0].legend(loc="lower left")
    axes[1, 0].set(yscale="log", ylabel=r"the rest $1 - A_{ii}$", ylim=(1e-4, 1.5))
    axes[1, 0].set_xlabel("exponent $p$")
    plotting.log_ticks(axes[1, 0].xaxis, TICKS)
    what = rf"$d = {data['d'].item():g}$, $\rho = {data['rho'].item():g}$"
    axes[0, 0].set_title(f"(a) {what}", loc="left")
    axes[1, 0].set_title("(b) weight on all other tokens", loc="left")
    return figure


def _curves(panel: Axes, data: xarray.Dataset, shown: Callable[[np.ndarray], np.ndarray]) -> None:
    p = data["p"].values
    fine = np.geomspace(p[0], p[-1], 200)
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        panel.plot(fine, shown(log_odds(data, n)(fine)), color=look.color, ls=look.dashes, label=f"$n$ = {n:,.0f}")
    for published in PUBLISHED:
        panel.axvline(published, color=plotting.THEORY, lw=0.6, zorder=0)
    panel.set_xlim(p[0], p[-1])


def log_odds(data: xarray.Dataset, n: float) -> PchipInterpolator:
    """Log odds of the self weight at n tokens, monotone between the points of the table."""
    weights = data["self_weight"].sel(n=n).values
    return PchipInterpolator(data["p"].values, logit(np.minimum(weights, 1 - 1e-12)))


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    rho, d = data["rho"].item(), data["d"].item()
    found = ", ".join(f"{p:.2f} at n = {n:,.0f}" for n, p in data["critical_p"].to_series().items())
    low, high = (", ".join(f"{expit(log_odds(data, n)(p)):.3f}" for n in data["n"].values) for p in PUBLISHED)
    return (
        f"Softplus-L1 attention re-weighted by ReLU^p, on L2-normalised near-simplex tokens √ρ z₀ + √(1-ρ) zᵢ with "
        "|z₀|² "
        f"at its mean, ρ = {rho:g}, d = {d:g}, {plotting.counts_phrase(data)}, steepness log d log n, all rows seeing "
        "all "
        "keys. (a) Mean self weight; (b) the weight on all other tokens together. Lines: theory, docs/theory.md "
        "(12.9), "
        "annealed within a row and averaged over rows: a heuristic, whose critical p is within 2 % of simulation for "
        "d of 16 and more and n of 256 and more; beyond p = 2 log n its mean over rare events overestimates (b). "
        f"Nothing is simulated here. Symbols: self weight 1/2, p = {found}. Thin vertical lines: the published p = 3 "
        "and "
        f"15, where the self weights are {low} and {high}. Dotted: the hard limit p → ∞, weight 1 on the token's own "
        "score, which is the only maximum. The transition is a crossover in p at every n."
    )
