"""Scaling laws in use against the critical line, over the number of keys."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "table:scaling_laws"
TITLE = "Scaling laws in use against the critical line"
GAP = 1.04


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A line for each law; thin black: gamma_c = 1/(1-rho) at each rho of the table."""
    figure, axes = plotting.canvas(height=3.5)
    panel, n = axes[0, 0], data["n"].values
    looks = plotting.categories(data.sizes["law"])
    for look, law in zip(looks, data["law"].values, strict=True):
        values = data["gamma"].sel(law=law).values
        panel.plot(n, values, color=look.color, ls=look.dashes, marker=look.marker, markevery=(40, 200), label=str(law))
    for rho in data["rho"].values:
        line = data["critical_gamma"].sel(rho=rho).item()
        panel.axhline(line, color="black", lw=0.7, zorder=0)
        # where no curve runs: below the lowest line at the left, above the others at the right
        place = (
            (n[0], line / GAP, "left", "top") if rho == data["rho"].min() else (n[-1], line * GAP, "right", "bottom")
        )
        x, y, ha, va = place
        panel.text(x, y, rf" $\gamma_c,\ \rho = {rho:g}$ ", ha=ha, va=va, fontsize=7)
    panel.set(xscale="log", xlim=(n[0], n[-1]), xlabel=r"keys that the row sees $n$")
    plotting.log_ticks(panel.yaxis, [tick for tick in (0.5, 1, 2, 4, 8) if np.nanmin(data["gamma"]) <= tick])
    panel.set_ylabel(r"coefficient of $\log n$, $\gamma(n) = \beta\,|q|\,|k|/\log n$")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    n, d = data["n"].values, data["d"].item()
    partly = [str(law) for law, mark in zip(data["law"].values, data["mark"].values, strict=True) if "unver" in mark]
    doubt = f" Unverified in part: {', '.join(partly)}." if partly else ""
    lines = ", ".join(f"{line:g} at ρ = {rho:g}" for rho, line in data["critical_gamma"].to_series().items())
    return (
        f"Coefficient γ(n) = β |q||k|/log n of scaling laws of the catalogue, last row of a causal layer of n keys, "
        f"n = {n[0]:,.0f} to {n[-1]:,.0f}, head dimension d = {d:g}; closed forms, nothing is simulated. Scores are "
        "taken "
        "as |q||k| times a cosine, with |q||k| = d, as for queries and keys of root mean square 1, and 1 for lssa, "
        "which divides them by their norms; trained heads have other norms, which shift a curve up or down. Parameters "
        "have the defaults of the catalogue, which `critattn scaling` lists with sources. Thin black: the critical "
        f"line of softmax, γ_c = 1/(1-ρ) [Chen 2025, Thm 2.1], {lines}; it is the limit d far above log n. Below the "
        "line a row of softmax spreads over its keys, above it a token attends to itself. The line says nothing about "
        "lssa, whose softplus has no transition at ρ > 0 (figure softplus_entropy). A constant scale falls as 1/log n "
        "and crosses every line; a law that grows as log n keeps its side. Both axes are logarithmic."
        f"{doubt}"
    )
