"""What figures read out of a study's dataset: means over draws, and the facts of their captions."""

import json
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes

from critattn.errors import SpecError
from critattn.plotting.style import Look
from critattn.theory import simplex

GREEK = {"rho": "ρ", "tau": "τ", "gamma": "γ"}


def over_draws(data: xarray.Dataset, name: str) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean of an observable over independent token draws and the standard error of that mean (NaN for one draw).

    Raises:
        SpecError: where the data hold no such observable.
    """
    if name not in data:
        raise SpecError(f"observable {name!r}: the data hold {', '.join(map(str, data.data_vars)) or 'nothing'}")
    values = data[name]
    if "replicate" not in values.dims:
        return values, values * np.nan
    count = values.sizes["replicate"]
    spread = values.std("replicate", ddof=1) if count > 1 else values.isel(replicate=0) * np.nan
    return values.mean("replicate"), spread / np.sqrt(count)


def draw_means(panel: Axes, data: xarray.Dataset, name: str, *, over: str, look: Look) -> None:
    """Means over draws against one coordinate, with one standard error where there are several draws.

    Args:
        panel: where.
        data: a dataset with `over` and perhaps `replicate` as its only axes.
        name: the observable.
        over: the coordinate of the horizontal axis.
        look: colour and marker.

    Raises:
        SpecError: where the data hold no such observable.
    """
    mean, error = over_draws(data, name)
    panel.errorbar(
        data[over].values,
        mean.values,
        yerr=np.nan_to_num(error.values),
        fmt=look.marker,
        color=look.color,
        mec="white",
        mew=0.4,
        ms=4.2,
        elinewidth=0.8,
        capsize=1.5,
        zorder=3,
    )


def counts_phrase(data: xarray.Dataset) -> str:
    """The sizes n as `n = 64, 256`."""
    return f"n = {_listed(data['n'].values)}"


def dimensions_phrase(data: xarray.Dataset) -> str:
    """Sizes and dimensions as `n = 512, d = 2, 32, 512`."""
    return f"{counts_phrase(data)}, d = {_listed(data['d'].values)}"


def draws_phrase(data: xarray.Dataset) -> str:
    """How many draws, of which seed, in which precision."""
    spec, count = _spec(data), data.sizes.get("replicate", 1)
    facts = ", ".join(f"{name} {spec[name]}" for name in ("seed", "dtype") if name in spec)
    draws = "one draw" if count == 1 else f"{count} independent draws"
    return f"{draws} for each point ({facts})" if facts else f"{draws} for each point"


def tokens_phrase(data: xarray.Dataset) -> str:
    """What the tokens of a near-simplex study are, and how many were drawn."""
    options = _spec(data).get("tokens", {})
    common = " with the common vector z₀ rescaled to norm 1" if options.get("fix_common") else ""
    unit = ", divided by their norms" if options.get("unit_norm", True) else ""
    return f"Gaussian near-simplex tokens √ρ z₀ + √(1-ρ) zᵢ{common}{unit}, {draws_phrase(data)}"


def _spec(data: xarray.Dataset) -> dict[str, Any]:
    return json.loads(data.attrs.get("spec", "{}"))


def grid_sentence(data: xarray.Dataset) -> str:
    """A sentence for captions of maps: the grid behind the interpolated colours."""
    axes = [name for name in ("rho", "tau", "gamma") if data.sizes.get(name, 1) > 1]
    sizes = " × ".join(f"{data.sizes[name]} values of {GREEK[name]}" for name in axes)
    return f"Colours and contours are interpolated between {sizes}."


def _listed(values: np.ndarray) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


def width_sentence(rho: float, n: float) -> str:
    """A sentence for captions on the width of the transition at n tokens [derived, docs/theory.md (1.12)]."""
    width = simplex.transition_width(rho, np.log(n))
    return (
        "At finite n the transition is a crossover, not a sharp line: the self weight rises from 10 % to 90 % over "
        f"4.394/((1-ρ) log n) in γ, which is {width:.2f} at n = {n:,.0f}, ρ = {rho:g}."
    )
