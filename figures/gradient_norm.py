"""Normalised gradient norm over (rho, gamma) for three dimensions [Chen 2025, Figure 2]."""

import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "study:gradient_norm"
TITLE = "Gradient norm of one attention layer over the common cosine and gamma"


def critical_level(d: float) -> float:
    """Gradient norm (1 - 1/d)/4 of the critical simplex [Chen 2025, Thm 2.4]."""
    return (1 - 1 / d) / 4


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """One map a dimension; the solid line is where the measured norm has its critical value."""
    text = r"$\eta = (1-1/d)/4$"
    return plotting.rho_gamma_maps(data, "gradient_norm", level=critical_level, level_text=text, cmap="viridis")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        "Gradient norm η = ||∇X'||²/(n d), the sum of squares of the layer's whole Jacobian over n d, exact (no random "
        f"probes), for {plotting.tokens_phrase(data)}; {plotting.dimensions_phrase(data)}. No residual; unit-norm "
        "inputs. On a simplex η tends to 0, (1-1/d)/4 and 1-1/d below, at and above the critical line. "
        "Dashed: γ = 1/(1-ρ) of [Chen 2025, Thm 2.4]. Solid: the measured level η = (1-1/d)/4. At d = 2 the norm does "
        "not vanish below the line: tokens average over near neighbours only, docs/theory.md (4.12). "
        f"{plotting.grid_sentence(data)} {plotting.width_sentence(0.5, data['n'].values.max())}"
    )
