"""Angle ratio over (rho, gamma) for three dimensions [Chen 2025, Figure 1]."""

import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "study:angle_ratio"
TITLE = "Angle ratio of one attention layer over the common cosine and gamma"


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """One map a dimension; the solid line is where the measured ratio is 1/2."""
    return plotting.rho_gamma_maps(data, "angle_ratio", level=lambda d: 0.5, level_text=r"$\lambda = 1/2$")


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    return (
        "Angle ratio λ, the mean over pairs of tokens of (1-cos after)/(1-cos before) one attention layer, for "
        f"{plotting.tokens_phrase(data)}; {plotting.dimensions_phrase(data)}. No residual; unit-norm inputs. "
        "Dark: the layer pulls tokens together; light: it leaves their angles as they are. "
        "Dashed: the limit γ = 1/(1-ρ) of [Chen 2025, Thm 2.1], which d = 2 does not follow: it holds for d far above "
        "log n only. Solid: the measured level λ = 1/2, at small ρ well below the dashed line, because the angle "
        f"transition of a simplex sits at γ = 1/2 for ρ = 0. {plotting.grid_sentence(data)} "
        f"{plotting.width_sentence(0.5, data['n'].values.max())}"
    )
