"""Gradients of queries and keys while decoders train, below and above the critical gamma."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from critattn import plotting
from critattn.errors import SpecError
from critattn.plotting import Look
from critattn.training import captions, collected
from critattn.training.collapse import LAST

DATA = "training:scaling_laws"
TITLE = "Gradients of queries and keys in training"


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """(a) Share of queries and keys in the gradient against the step, a colour a gamma; (b) at the end, against gamma.

    Raises:
        SpecError: where no variant of the study has a gamma.
    """
    share = shares(data)
    figure, axes = plotting.canvas(1, 2, width=plotting.DOUBLE, height=2.9)
    looks = plotting.sequence(share.sizes["variant"])
    for look, one in zip(looks, share.transpose("variant", ...), strict=True):
        _curve(axes[0, 0], one, look)
        _end(axes[0, 1], one, look)
    label = r"share in the gradient $\|\nabla_{Q,K}\|/\|\nabla\|$"
    axes[0, 0].set(xlabel="optimiser step $t$", ylabel=label, yscale="log")
    axes[0, 0].set_title("(a)", loc="left")
    axes[0, 0].legend(ncols=2, title=r"$\gamma$")
    axes[0, 1].set(xlabel=r"coefficient of $\log n$ on cosines $\gamma$", ylabel=f"{label}, last quarter")
    axes[0, 1].set(xlim=(0, None), ylim=(0, None))
    axes[0, 1].axvline(1, color="0.4", lw=0.8, ls="--", zorder=0)
    axes[0, 1].set_title("(b)", loc="left")
    return figure


def shares(data: xarray.Dataset) -> xarray.DataArray:
    """Share of queries and keys in the gradient, (variant, seed, step), by gamma; only variants that have one.

    Raises:
        SpecError: where none has.
    """
    share = data["attention_gradient_norm"] / data["gradient_norm"]
    measured = share.notnull().any(("seed", "step")).values
    known = measured & np.isfinite(data["gamma"].values)
    if not known.any():
        raise SpecError(f"study {data.attrs['name']!r}: no variant has log n on cosines under softmax")
    return share.sel(variant=known).sortby("gamma")


def last_quarter(share: xarray.DataArray) -> np.ndarray:
    """Geometric mean over the last quarter of the steps, for each seed."""
    count = max(1, round(LAST * share.sizes["step"]))
    return np.exp(np.log(share.isel(step=slice(-count, None)).transpose("seed", "step").values).mean(axis=-1))


def _curve(panel: Axes, share: xarray.DataArray, look: Look) -> None:
    """The geometric mean over seeds of one gamma."""
    each = share.where(share.notnull().any("step"), drop=True).transpose("seed", "step").values
    panel.plot(
        share["step"].values,
        np.exp(np.log(each).mean(axis=0)),
        color=look.color,
        lw=0.9,
        label=f"{float(share['gamma']):.3g}",
    )


def _end(panel: Axes, share: xarray.DataArray, look: Look) -> None:
    """The last quarter of one gamma, with Student's interval over seeds on the logarithm."""
    mean = collected.over_seeds(np.log(last_quarter(share)))
    at, value = float(share["gamma"]), np.exp(mean.value)
    if np.isfinite(mean.low):
        panel.plot([at, at], np.exp([mean.low, mean.high]), color=look.color, lw=1)
    panel.plot(at, value, ls="", marker=look.marker, color=look.color, ms=5, mec="white", mew=0.3)


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        f"{captions.trained_sentence(data)} Softmax on cosines of queries and keys, logits γ log i times the cosine: "
        "norm of the gradients of the matrices that make queries and keys, over the norm of the gradient of all "
        "weights, before it is clipped. (a) Means over ten steps. (b) Geometric mean over the last quarter of the "
        "steps; below the dashed line γ = 1 rows are flat for every common cosine ρ ≥ 0, γ_c = 1/(1-ρ). The gradient "
        "of a logit by its query grows with γ by itself. "
        f"{captions.seeds_sentence(data, bands='Bars')} {captions.command_sentence(data)}"
    )
