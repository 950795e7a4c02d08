"""Self weight on the simplex of every normaliser against its own control parameter."""

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from critattn import plotting

DATA = "table:family"
TITLE = "The family of normalisers: which has a transition, and in which variable"
COLUMNS = 3
SYMBOLS = {
    "gamma": r"$\gamma$",
    "beta": r"$\beta$",
    "p": "$p$",
    "p/log n": r"$p/\log n$",
    "none": r"any $\beta > 0$",
}
WORDS = {
    "softmax": "softmax",
    "softplus-l1": "softplus over its sum",
    "relu-power": r"ReLU$^p$ re-weighting",
    "sigmoid": "sigmoid over its sum",
    "sigmoid-log-n": r"sigmoid, bias $-\log n$",
    "sigmoid-2-log-n": r"sigmoid, bias $-2\log n$",
    "relu": "ReLU over its sum",
    "power": r"power $s^p$",
    "entmax": "1.5-entmax",
    "sparsemax": "sparsemax",
    "hardmax": "hard maximum",
}
FIRST = ("softmax", "sigmoid-2-log-n", "power", "entmax", "sparsemax", "relu-power", "hardmax")


def ordered(data: xarray.Dataset) -> list[str]:
    """Members that localise first, then those that stay diffuse."""
    members = [str(name) for name in data["member"].values]
    return [name for name in FIRST if name in members] + [name for name in members if name not in FIRST]


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each normaliser; the last holds the legend."""
    members = ordered(data)
    rows = len(members) // COLUMNS + 1
    figure, axes = plotting.canvas(rows, COLUMNS, width=plotting.DOUBLE, height=1.45 * rows, sharey=True)
    panels = axes.ravel()
    for index, (panel, name) in enumerate(zip(panels, members, strict=False)):
        _draw_panel(panel, data.sel(member=name))
        panel.set_title(f"({'abcdefghijklmnop'[index]}) {WORDS.get(name, name)}", loc="left")
        if index % COLUMNS == 0:
            panel.set_ylabel(r"self weight $A_{ii}$")
    for panel in panels[len(members) :]:
        panel.axis("off")
    _draw_legend(panels[len(members)], data)
    return figure


def _draw_panel(panel: Axes, data: xarray.Dataset) -> None:
    control = data["control"].values
    for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True):
        weights = data["self_weight"].sel(n=n).values
        panel.plot(control, weights, color=look.color, ls=look.dashes, marker=look.marker, markevery=(10, 40))
    panel.plot(control, data["limit"].values, color=plotting.THEORY, lw=0.8, ls=":", zorder=3)
    panel.set(xlim=(0, control[-1]), ylim=(-0.04, 1.06), xlabel=SYMBOLS[data["control_name"].item()])
    if data["control_name"].item() == "none":
        panel.set_xticks([])


def _draw_legend(panel: Axes, data: xarray.Dataset) -> None:
    handles = [
        Line2D([], [], color=look.color, ls=look.dashes, marker=look.marker, label=f"$n$ = {n:,.0f}")
        for look, n in zip(plotting.sequence(data.sizes["n"]), data["n"].values, strict=True)
    ]
    handles.append(Line2D([], [], color=plotting.THEORY, lw=0.8, ls=":", label=r"limit $n \to \infty$"))
    panel.legend(handles=handles, loc="center", title=rf"closed forms, $\rho = {data['rho'].item():g}$")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    rho = data["rho"].item()
    return (
        f"Self weight on an exact simplex of n tokens of common cosine ρ = {rho:g}, for every normaliser against its "
        "own "
        f"control parameter, {plotting.counts_phrase(data)}; closed forms of docs/theory.md (1.1), (11.1), (12.1), "
        "(13.1)-(13.6), exact, nothing is simulated. β multiplies the scores, γ = β/log n, p is an exponent. Dotted: "
        "the limit n → ∞ in the variable of the panel. Softmax changes at γ = 1/(1-ρ), powers of scores at p = "
        "log n/log(1/ρ); entmax changes at a β that does not grow with n and is exactly the identity from "
        "1/((α-1)(1-ρ)) on. A sigmoid over its sum localises in a window 1/(1-ρ) < γ < (B-1)/ρ where its bias "
        "-B log n has B > 1/(1-ρ). ReLU^p re-weighting is the identity at every p > 0 on the exact simplex; tokens "
        "near "
        "a simplex have a transition in p (figure relu_power_weights). Softplus, sigmoid and ReLU over their sums stay "
        "diffuse at every control parameter: n A_ii is bounded, or A_ii falls as a power of n for the sigmoid with "
        "bias "
        "-log n. At finite n the changes are crossovers, not steps."
    )
