"""The share of heads that are blind at each entry of a causal attention matrix, by number format."""

import xarray
from matplotlib.figure import Figure

from critattn import plotting

DATA = "table:blind_matrix"
TITLE = "The blind part of a causal attention matrix, by number format"


@plotting.styled
def draw(data: xarray.Dataset) -> Figure:
    """A square for each format."""
    figure, axes = plotting.canvas(
        1, data.sizes["format"], width=plotting.DOUBLE, height=2.1, sharey=True, subplot_kw={"aspect": "equal"}
    )
    key, query = data["key"].values, data["query"].values
    mesh = None
    for index, (panel, name) in enumerate(zip(axes[0], data["format"].values, strict=True)):
        shares = data["blind_share"].sel(format=name).values
        mesh = panel.pcolormesh(key, query, shares, cmap="cividis", vmin=0, vmax=1, rasterized=True)
        panel.set(xlabel="key $j$", xticks=[0, 1024, 2048], yticks=[0, 1024, 2048], xlim=(0, 2048), ylim=(2048, 0))
        panel.set_title(f"({'abcdefgh'[index]}) {name}", loc="left")
    axes[0, 0].set_ylabel("query $i$")
    if mesh is not None:
        figure.colorbar(mesh, ax=axes, label="share $f$ of heads that are blind", shrink=0.75, pad=0.01)
    return figure


def caption(data: xarray.Dataset) -> str:
    """The caption."""
    last = {str(name): data["blind_share"].sel(format=name).values[-1] for name in data["format"].values}
    corners = ", ".join(f"{row[0]:.0%} in {name}" for name, row in last.items())
    return (
        f"ALiBi with the slopes of {data.attrs['model']}: the share of its heads whose weight at query i and key j is "
        f"zero, n = {data['n'].values[0]:,} tokens, causal; closed forms, nothing is simulated: equal scores, the "
        "numerator exp(-m(i-j)) rounded to nearest, subnormals kept, docs/theory.md (14.3), (15.3). White: masked. At "
        f"the largest distance shown the share is {corners}. Heads with the shallowest slopes see everything in all "
        "formats of 16 bits or more but fp16; 8-bit weights lose most of the matrix."
    )
