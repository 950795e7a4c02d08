"""What rounding of positions in the bias does to weights: total variation against the length."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "table:position_rounding"
TITLE = "Rounded positions: ALiBi added as +m j in bf16 loses the nearest keys"


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A panel for each way to form the bias; a curve for each head."""
    panels = data.sizes["recipe"]
    figure, axes = plotting.canvas(1, panels, width=plotting.DOUBLE, height=2.7, sharey=True)
    n, looks = data["n"].values, plotting.sequence(data.sizes["head"])
    for index, (panel, recipe) in enumerate(zip(axes[0], data["recipe"].values, strict=True)):
        for look, head in zip(looks, data["head"].values, strict=True):
            values = data["total_variation"].sel(recipe=recipe, head=head)
            exponent = f"{np.log2(data['slope'].sel(head=head).item()):g}"
            panel.plot(
                n,
                values.where(values > 0).values,
                color=look.color,
                ls=look.dashes,
                marker=look.marker,
                label=f"$m = 2^{{{exponent}}}$",
            )
        panel.set(xscale="log", yscale="log", xlabel="length $N$ (tokens)", ylim=(1e-4, 1.4))
        panel.set_title(f"({'abc'[index]}) {_in_maths(str(recipe))}", loc="left")
    axes[0, 0].set_ylabel(r"$\mathrm{TV}$ of the last row")
    axes[0, -1].legend(loc="upper left", title="slope")
    return figure


def _in_maths(recipe: str) -> str:
    form, _, name = recipe.partition(", ")
    return f"${form}$, {name}"


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    n = data["n"].values
    worst = data["total_variation"].sel(recipe="+m j, bf16", n=2048)
    small = data["total_variation"].sel(recipe="-m(i-j), bf16", n=2048)
    onset = int(data["onset"].values[0])
    return (
        "Total variation (half the l1 distance) between the weights of the last row with biases rounded to a format "
        f"and the exact ones, equal scores, slopes of {data.attrs['model']}, n = {n[0]:,.0f} to {n[-1]:,.0f}; computed "
        "from the rounding of each bias, docs/theory.md (15.14), (15.15), nothing is simulated. (a), (b) the form +m "
        "j, whose rounding grows with the absolute position; (c) the form -m(i-j), rounded where the weight is small. "
        f"The two are equal in exact arithmetic. At n = 2,048 the steepest head is off by {float(worst.max()):.2f} in "
        f"(a) and {float(small.sel(head=data['head'][0])):.4f} in (c). From position {onset:,} on the steepest head "
        "knows the content of a logit only to one nat in (a). No point: the rounded weights are exact. Both axes are "
        "logarithmic."
    )
