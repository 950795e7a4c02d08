"""Rank collapse in depth: cosine against layer, and the lifetime of distinct tokens against n."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.plotting import Look
from critattn.theory import depth

DATA = "study:depth"
TITLE = "Depth: collapse in one layer, or a lifetime that grows as a power of n"
LONG_LIVED = (3.0, 4.0, 5.0)
COUNTS = np.geomspace(1e2, 1e6, 13)
MAX_LAYERS = 20_000


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Left: simulation (points) and recursion (lines). Right: recursion (points) and its asymptote (lines)."""
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=2.7)
    rho = data["rho"].item()
    _cosines(axes[0, 0], data, rho=rho)
    for look, gamma in zip(plotting.categories(len(LONG_LIVED)), LONG_LIVED, strict=True):
        _lifetimes(axes[0, 1], gamma, rho=rho, look=look)
    axes[0, 1].set(xscale="log", yscale="log", xlabel=plotting.label("n"), ylim=(1, 2 * MAX_LAYERS))
    axes[0, 1].set_ylabel(r"lifetime $L_*$ (layers)")
    axes[0, 1].legend(loc="upper left")
    _simulated_lifetimes(axes[0, 1], data, rho=rho)
    axes[0, 0].set_title(f"(a) $n$ = {data['n'].item():,.0f}", loc="left")
    axes[0, 1].set_title(r"(b) layers until $1-\cos$ halves", loc="left")
    return figure


def _cosines(panel: Axes, data: xarray.Dataset, *, rho: float) -> None:
    cosine = plotting.over_draws(data, "cosine")[0].squeeze()
    layer = data["layer"].values
    theory = depth.layers(data["gamma"].values, rho, np.log(data["n"].item()), int(layer[-1])).cosines
    stride = max(1, layer.size // 16)
    for index, look in enumerate(plotting.sequence(data.sizes["gamma"])):
        gamma = data["gamma"].values[index]
        panel.plot(np.arange(len(theory)), theory[:, index], color=look.color, ls=look.dashes, lw=0.9)
        points = cosine.isel(gamma=index).values[::stride]
        text = rf"$\gamma = {gamma:g}$"
        panel.plot(layer[::stride], points, look.marker, color=look.color, mew=0, label=text)
    panel.set(xlabel=plotting.label("layer"), ylabel=r"mean cosine of two tokens", ylim=(rho - 0.03, 1.02))
    panel.legend(loc="center right")


def _lifetimes(panel: Axes, gamma: float, *, rho: float, look: Look) -> None:
    log_n = np.log(COUNTS)
    exact = depth.lifetime(gamma, rho, log_n, max_layers=MAX_LAYERS)
    panel.plot(COUNTS, exact, look.marker, color=look.color, mew=0, label=rf"$\gamma = {gamma:g}$")
    panel.plot(COUNTS, depth.lifetime_asymptotic(gamma, rho, log_n), color=look.color, ls=look.dashes, lw=0.9)


def _simulated_lifetimes(panel: Axes, data: xarray.Dataset, *, rho: float) -> None:
    cosine = plotting.over_draws(data, "cosine")[0].squeeze()
    for gamma in LONG_LIVED:
        match = np.flatnonzero(np.isclose(data["gamma"].values, gamma))
        merged = np.flatnonzero(1 - cosine.isel(gamma=match[0]).values <= (1 - rho) / 2) if match.size else match
        if merged.size:
            panel.plot(data["n"].values, merged[:1], "o", mfc="none", mec=plotting.THEORY, mew=0.8, ms=7)


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    n, rho, layers = data["n"].item(), data["rho"].item(), int(data["layer"].values[-1])
    return (
        f"(a) Mean cosine of two tokens through {layers} identical layers without residual, from an exact simplex of "
        f"n = {n:,.0f} tokens, ρ = {rho:g}. Points: the full simulation (deterministic). Lines: the scalar recursion "
        "(8.1) of docs/theory.md. Below γ = 1/(1-ρ) tokens merge in a few layers; above it they are metastable and "
        "fall once contraction has brought 1-cos under 1/γ. (b) Number of layers until 1-cos has halved, "
        f"against n. Points: the recursion, exact, up to {MAX_LAYERS:,} layers; circled: simulation of (a). Lines: the "
        f"asymptotic law n^(γ(1-ρ)-1)/(2ρ(1-ρ)γ log n), (8.2), a heuristic. {plotting.width_sentence(rho, n)}"
    )
