"""Entropy of a row for softplus over its sum and for softmax, against the number of tokens."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting

DATA = "table:softplus_entropy"
TITLE = "Entropy: softplus over its sum is uniform at every length, softmax has a transition"


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """Top: entropy over log n. Bottom: what softplus lacks to the uniform row, times n."""
    figure, axes = plotting.canvas(2, 1, height=4.6, sharex=True)
    _fractions(axes[0, 0], data)
    _deficits(axes[1, 0], data)
    n = data["n"].values
    for panel in axes[:, 0]:
        panel.set(xscale="log", xlim=(n[0], n[-1]))
    axes[1, 0].set_xlabel(plotting.label("n"))
    return figure


def _fractions(panel: Axes, data: xarray.Dataset) -> None:
    n, looks = data["n"].values, plotting.categories(data.sizes["gamma"] + 1)
    evenly = (20, 60)
    softplus = data["softplus"].values
    text = rf"softplus, $\gamma = {np.log(data['d'].item()):.2f}$"
    panel.plot(n, softplus, color=looks[0].color, marker=looks[0].marker, markevery=evenly, label=text)
    for look, gamma in zip(looks[1:], data["gamma"].values, strict=True):
        curve = data["softmax"].sel(gamma=gamma)
        text = rf"softmax, $\gamma = {gamma:.2f}$"
        panel.plot(n, curve.values, color=look.color, ls=look.dashes, marker=look.marker, markevery=evenly, label=text)
    for limit in np.unique(data["softmax_limit"].values):
        panel.axhline(limit, color=plotting.THEORY, lw=0.6, ls=":", zorder=0)
    panel.set(ylabel=r"entropy of a row $H/\log n$", ylim=(-0.04, 1.08))
    panel.set_title(rf"(a) $\rho = {data['rho'].item():g}$; dotted: limits", loc="left")
    panel.legend(loc="center right", bbox_to_anchor=(1.0, 0.24))


def _deficits(panel: Axes, data: xarray.Dataset) -> None:
    n, looks = data["n"].values, plotting.sequence(data.sizes["rho_softplus"])
    for look, rho in zip(looks, data["rho_softplus"].values, strict=True):
        one = data.sel(rho_softplus=rho)
        text = rf"$\rho = {rho:g}$"
        values = one["deficit"].values
        panel.plot(n, values, color=look.color, ls=look.dashes, marker=look.marker, markevery=(20, 60), label=text)
        panel.axhline(one["deficit_limit"].item(), color=look.color, lw=0.8, ls=":")
    panel.set_yscale("log")
    panel.set_ylabel(r"deficit $n\,(\log n - H)$ (nats)")
    panel.set_title("(b) softplus; dotted: limits", loc="left")
    panel.legend(loc="lower right", ncols=3, bbox_to_anchor=(1.0, 0.13))


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    n, rho, d = data["n"].values, data["rho"].item(), data["d"].item()
    limits = data["deficit_limit"].to_series().items()
    listed = ", ".join(f"{limit:.3g} at ρ = {at:g}" for at, limit in limits)
    return (
        f"Entropy H of a row on an exact simplex, n = {n[0]:,.0f} to {n[-1]:,.0f} tokens; closed forms of "
        "docs/theory.md "
        f"(1.5) and (11.7), exact, nothing is simulated. (a) H/log n at ρ = {rho:g}. Softplus over its sum at the "
        f"published steepness log d log n, d = {d:g}: rows are uniform, whatever n. Softmax with log n scaling, "
        "below, at "
        "and above γ = 1/(1-ρ), tends to 1, 1/2 and 0 (dotted), as slowly as 1/log n at the critical point. That the "
        "entropy of softplus keeps pace with log n is therefore not a good property: it attends to everything. (b) The "
        f"deficit n (log n - H) of softplus at the same steepness tends to (1/ρ) log(1/ρ) - (1/ρ-1) (dotted): "
        f"{listed}. "
        "The limit needs n^(γρ) well above 1, and is late at small ρ."
    )
