"""The three phases of attention between a common geometry and independent random scores."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.theory import mixed

DATA = "study:random_scores"
TITLE = "Three phases: uniform, attending to itself, frozen on a random key"
TITLES = ("self weight", "largest weight of a row")
PHASES = {"uniform": (0.5, 0.55), "self": (0.5, 2.1), "frozen": (1.6, 2.1)}


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Self weight and largest weight over (disorder, gamma) with the predicted boundaries."""
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=2.7, sharey=True)
    rho, log_n = data["rho"].item(), float(np.log(data["n"].item()))
    y, gamma = mixed.reduced_disorder(data["tau"].values, rho, log_n), data["gamma"].values
    for index, (panel, name) in enumerate(zip(axes[0], ("self_weight", "largest_weight"), strict=True)):
        mean = plotting.over_draws(data, name)[0].squeeze(["n", "rho"]).transpose("gamma", "tau")
        _, image = plotting.phase_map(panel, mean.assign_coords(tau=y))
        figure.colorbar(image, ax=panel, label=plotting.label(name), pad=0.02, aspect=18)
        panel.set(xlabel=r"disorder $y = \tau\sqrt{2 \log n}/(1-\rho)$", xlim=(y[0], y[-1]))
        panel.set(ylim=(gamma[0], gamma[-1]))
        _boundaries(panel, rho=rho, log_n=log_n, furthest=y[-1])
        panel.set_title(f"({'ab'[index]}) {TITLES[index]}", loc="left")
    axes[0, 0].set_ylabel(plotting.label("gamma"))
    return figure


def _boundaries(panel: Axes, *, rho: float, log_n: float, furthest: float) -> None:
    theta, scale = 1 - rho, (1 - rho) / np.sqrt(2 * log_n)
    halo = {"color": "white", "path_effects": plotting.HALO}
    inside, outside = np.linspace(0, min(1, furthest), 200), np.linspace(1, max(1, furthest), 200)
    panel.plot(inside, mixed.critical_gamma(inside * scale, rho, log_n), lw=1.3, **halo)
    panel.plot(outside, _freezing_gamma(outside * scale, log_n), dashes=(4, 2), lw=1.3, **halo)
    limit = mixed.median_boundary(rho, log_n)
    panel.vlines(limit / scale, _freezing_gamma(limit, log_n), panel.get_ylim()[1], lw=1.0, ls=":", **halo)
    triple = mixed.triple_point(rho, log_n)
    panel.plot(triple.tau / scale, triple.gamma, "o", color="white", mec="black", mew=0.7, ms=5, zorder=4)
    for name, (y, reduced) in PHASES.items():
        where = {"ha": "center", "va": "center", "size": 9}
        panel.text(y, reduced / theta, name, **where, **halo)


def _freezing_gamma(tau: np.ndarray | float, log_n: float) -> np.ndarray | float:
    return mixed.freezing_beta(tau, log_n) / log_n


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
