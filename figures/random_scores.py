"""The three phases of attention between a common geometry and independent random scores."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.theory import mixed

DATA = "study:random_scores"
TITLE = "Three phases: uniform, attending to itself, frozen on a random key"
PHASES = {"uniform": (0.5, 0.55), "self": (0.5, 2.1), "frozen": (1.6, 2.1)}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Self weight and largest weight over (disorder, gamma) with the predicted boundaries."""
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=2.7, sharey=True)
    rho, log_n = data["rho"].item(), float(np.log(data["n"].item()))
    y, gamma = mixed.reduced_disorder(data["tau"].values, rho, log_n), data["gamma"].values
    for index, (panel, name) in enumerate(zip(axes[0], ("self_weight", "largest_weight"), strict=True)):
        mean = plotting.over_draws(data, name)[0].squeeze(["n", "rho"]).transpose("gamma", "tau")
        image = plotting.phase_map(panel, y, gamma, mean.values)
        figure.colorbar(image, ax=panel, label=plotting.label(name), pad=0.02, aspect=18)
        _boundaries(panel, rho=rho, log_n=log_n, furthest=y[-1])
        panel.set(xlabel=r"disorder $y = \tau\sqrt{2 \log n}/(1-\rho)$", xlim=(y[0], y[-1]))
        panel.set(ylim=(gamma[0], gamma[-1]))
        panel.set_title(f"({'ab'[index]})", loc="left", weight="bold")
    axes[0, 0].set_ylabel(plotting.label("gamma"))
    return figure


def _boundaries(panel: Axes, *, rho: float, log_n: float, furthest: float) -> None:
    theta, scale = 1 - rho, (1 - rho) / np.sqrt(2 * log_n)
    inside, outside = np.linspace(0, 1, 200), np.linspace(1, furthest, 200)
    panel.plot(inside, mixed.critical_gamma(inside * scale, rho, log_n), color="white", lw=1.3)
    freezing = mixed.freezing_beta(outside * scale, log_n) / log_n
    panel.plot(outside, freezing, color="white", dashes=(4, 2), lw=1.3)
    triple = mixed.triple_point(rho, log_n)
    finite = mixed.median_boundary(rho, log_n) / scale
    panel.axvline(finite, ymin=0, color="white", lw=0.9, ls=":")
    panel.plot(triple.tau / scale, triple.gamma, "o", color="white", mec="black", mew=0.7, ms=5, zorder=4)
    for name, (y, reduced) in PHASES.items():
        panel.text(y, reduced / theta, name, color="white", ha="center", va="center", weight="bold")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    n, rho = data["n"].item(), data["rho"].item()
    return (
        f"Scores s_ii = 1, s_ij = ρ + τ g_ij with independent standard normal g_ij, n = {n:,.0f}, ρ = {rho:g}, "
        f"β = γ log n; {plotting.draws_phrase(data)}. (a) Mean self weight, (b) mean of the largest weight of a row. "
        "Solid: self weight 1/2, docs/theory.md (9.1), annealed (heuristic). Dashed: freezing on a random key, (9.2). "
        "Dotted: disorder beyond which, at this n, half of the rows have a larger score than their own. Dot: the "
        "triple point at y = 1, γ = 2/(1-ρ). In the uniform phase both weights vanish as n grows, in the self phase "
        "both tend to 1, in the frozen phase only the largest stays finite, slowly (1/log n). "
        f"{plotting.grid_sentence(data)} {plotting.width_sentence(rho, n)}"
    )
