"""Maps over two parameters."""

from collections.abc import Callable

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from scipy.interpolate import PchipInterpolator

from critattn.plotting.data import over_draws
from critattn.plotting.style import DOUBLE, GLOW, HALO, LINE, canvas, label
from critattn.theory import simplex

FINE = 161


def phase_map(axes: Axes, field: xarray.DataArray, *, cmap: str = "cividis") -> tuple[xarray.DataArray, AxesImage]:
    """A colour map from 0 to 1 of a field (y, x), with monotone (pchip) interpolation between its points.

    Returns:
        The interpolated field, for contours, and the image, for the colour bar.
    """
    rows, columns = (str(name) for name in field.dims)
    points = tuple(field[name].values for name in (rows, columns))
    fine = [np.linspace(at[0], at[-1], FINE) for at in points]
    smooth = PchipInterpolator(points[0], field.values, axis=0)(fine[0])
    smooth = PchipInterpolator(points[1], smooth, axis=1)(fine[1])
    filled = xarray.DataArray(smooth, dims=(rows, columns), coords={rows: fine[0], columns: fine[1]})
    extent = (points[1][0], points[1][-1], points[0][0], points[0][-1])
    image = axes.imshow(smooth, cmap=cmap, vmin=0, vmax=1, origin="lower", extent=extent, aspect="auto")
    return filled, image


def rho_gamma_maps(
    data: xarray.Dataset, name: str, *, level: Callable[[float], float], level_text: str, cmap: str = "cividis"
) -> Figure:
    """Maps of an observable over (rho, gamma), a panel for each d, with the line gamma = 1/(1-rho).

    Args:
        data: observable over n (one), d, rho, gamma and draws.
        name: the observable, between 0 and 1.
        level: maps d to the level whose contour is drawn as a solid line.
        level_text: the level in words or LaTeX, for the legend.
        cmap: colour map.
    """
    mean = over_draws(data, name)[0].squeeze("n").transpose("d", "gamma", "rho")
    line = np.linspace(mean["rho"].values[0], mean["rho"].values[-1], 400)
    figure, axes = canvas(1, mean.sizes["d"], width=DOUBLE, height=2.6, sharey=True)
    for index, (panel, values) in enumerate(zip(axes[0], mean, strict=True)):
        d = values["d"].item()
        field, image = phase_map(panel, values, cmap=cmap)
        contour(panel, field, level(d))
        panel.plot(line, simplex.critical_gamma(line), **LINE, path_effects=GLOW)
        panel.set(xlabel=label("rho"), ylim=field["gamma"].values[[0, -1]])
        panel.set_title(f"({'abcdefgh'[index % 8]})  $d$ = {d:.0f}", loc="left")
        if not index:
            panel.set_ylabel(label("gamma"))
            figure.colorbar(image, ax=axes[0].tolist(), label=label(name), pad=0.015, aspect=18)
    keys = [
        Line2D([], [], color="white", lw=1.0, path_effects=HALO, label=level_text),
        Line2D([], [], **LINE, label=r"$\gamma = 1/(1-\rho)$"),
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=2)
    return figure


def contour(axes: Axes, field: xarray.DataArray, level: float) -> None:
    """The level of a field (y, x) as a solid white line; nothing where the field does not reach it."""
    if float(field.min()) < level < float(field.max()):
        x, y = field[field.dims[1]].values, field[field.dims[0]].values
        lines = axes.contour(x, y, field.values, levels=[level], colors="white", linewidths=1.0)
        lines.set_path_effects(HALO)
