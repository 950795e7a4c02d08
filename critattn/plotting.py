"""Figure style, labels, and files that carry where they come from and are the same bytes every time.

A figure is made with `canvas` inside a function decorated with `styled`; pyplot and its global state are not used.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import seaborn
import xarray
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from critattn.errors import SpecError, StoreError
from critattn.theory import simplex

P = ParamSpec("P")
T = TypeVar("T")

COLUMN, DOUBLE = 3.4, 7.0
FORMATS = ("png", "svg", "pdf")
PNG_DPI, RASTER_DPI = 300, 400
THEORY = "0.15"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
MATHS = {"n": "n", "d": "d", "rho": r"\rho", "gamma": r"\gamma", "tau": r"\tau", "layer": r"\ell"}
GREEK = {"rho": "ρ", "tau": "τ", "gamma": "γ"}
PARAMETERS = {
    "n": "number of tokens",
    "d": "dimension",
    "rho": "common cosine",
    "gamma": r"coefficient of $\log n$,",
    "tau": "spread of the scores",
    "layer": "layer",
}
RC: dict[str, Any] = {
    "axes.linewidth": 0.6,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.formatter.use_mathtext": True,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.borderaxespad": 0.3,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "critattn",
    "savefig.dpi": PNG_DPI,
    "savefig.facecolor": "white",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    **{f"{axis}tick.{which}.width": 0.6 for axis in "xy" for which in ("major", "minor")},
}


class Look(NamedTuple):
    """How one member of a family of curves looks: told apart by colour, and in grey by marker and dash."""

    color: Any
    marker: str
    dashes: Any


@dataclass(frozen=True)
class Provenance:
    """Where a figure comes from, written into its files.

    Attributes:
        command: the command that makes it again.
        data_sha256: digest of the data it shows (`fingerprint`).
        version: version of the package.
    """

    command: str
    data_sha256: str
    version: str

    def lines(self) -> tuple[str, ...]:
        """One line a fact, for people."""
        return (f"made by: {self.command}", f"data sha256: {self.data_sha256}", f"critattn {self.version}")


def provenance(command: str, data: xarray.Dataset) -> Provenance:
    """The provenance of a figure of this data, made by this command with the installed version."""
    try:
        version = metadata.version("critattn")
    except metadata.PackageNotFoundError:
        version = "0+checkout"
    return Provenance(command, fingerprint(data), version)


def fingerprint(data: xarray.Dataset) -> str:
    """SHA-256 of names, dimensions, types and values of a dataset's variables and coordinates, in sorted order.

    Attributes (wall times, versions, paths) do not enter: equal numbers have equal fingerprints.
    """
    digest = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        variable = data[name]
        values = np.ascontiguousarray(variable.values)
        head = f"{name}{variable.dims}{values.shape}{values.dtype.str}\n"
        digest.update(head.encode())
        digest.update(repr(values.tolist()).encode() if values.dtype == object else values.tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The figure style for a block; the user's own matplotlib settings return after it."""
    settings: Any = {**seaborn.axes_style("ticks"), **RC}
    with mpl.rc_context(settings):
        yield


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function in the figure style."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with style():
            return function(*args, **kwargs)

    return run


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = COLUMN, height: float = 2.4, **how: Any
) -> tuple[Figure, np.ndarray]:
    """A figure without pyplot, and its axes.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        width: inches; `COLUMN` or `DOUBLE`.
        height: inches.
        how: more for `Figure.subplots`, such as `sharey=True`.

    Returns:
        The figure and an array (rows, columns) of axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def sequence(count: int) -> list[Look]:
    """Looks of an ordered family (growing n, d or gamma), from light to dark."""
    shades = mpl.colormaps["viridis_r"](np.linspace(0.25, 1.0, max(count, 1)))
    return [_look(tuple(shade), index) for index, shade in enumerate(shades)]


def categories(count: int) -> list[Look]:
    """Looks of an unordered family, in seaborn's colour-blind safe palette."""
    return [_look(color, index) for index, color in enumerate(seaborn.color_palette("colorblind", count))]


def _look(color: Any, index: int) -> Look:
    return Look(color, MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)])


def label(name: str, *, symbol: str | None = None) -> str:
    r"""Axis label of a parameter or an observable: words, symbol, and the unit where there is one.

    Args:
        name: a parameter (n, d, rho, gamma, tau, layer) or the name of an observable.
        symbol: LaTeX that replaces the symbol, such as `H/\log n`; the unit is then left out.

    Raises:
        SpecError: for an unknown name.
    """
    if name in PARAMETERS:
        return f"{PARAMETERS[name]} ${symbol or MATHS[name]}$"
    from critattn import observables

    known = observables.get(name)
    unit = "" if symbol or known.unit == "1" else f" ({known.unit})"
    return f"{known.title} ${symbol or known.symbol}${unit}"


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


def counts_phrase(data: xarray.Dataset) -> str:
    """The sizes n as `n = 64, 256`."""
    return f"n = {_listed(data['n'].values)}"


def dimensions_phrase(data: xarray.Dataset) -> str:
    """Sizes and dimensions as `n = 512, d = 2, 32, 512`."""
    return f"{counts_phrase(data)}, d = {_listed(data['d'].values)}"


def draws_phrase(data: xarray.Dataset) -> str:
    """How many draws, of which seed, in which precision."""
    spec = json.loads(data.attrs.get("spec", "{}"))
    count = data.sizes.get("replicate", 1)
    facts = ["one draw" if count == 1 else f"{count} independent draws"]
    facts += [f"{name} {spec[name]}" for name in ("seed", "dtype") if name in spec]
    return f"{facts[0]} ({', '.join(facts[1:])})" if facts[1:] else facts[0]


def tokens_phrase(data: xarray.Dataset) -> str:
    """What the tokens of a near-simplex study are, and how many were drawn."""
    return (
        f"Gaussian near-simplex tokens √ρ z₀ + √(1-ρ) zᵢ, divided by their norms, {draws_phrase(data)} for each point"
    )


def grid_sentence(data: xarray.Dataset) -> str:
    """A sentence for captions of maps: the grid behind the interpolated colours."""
    axes = [name for name in ("rho", "tau", "gamma") if data.sizes.get(name, 1) > 1]
    sizes = " x ".join(f"{data.sizes[name]} values of {GREEK[name]}" for name in axes)
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


def phase_map(axes: Axes, x: np.ndarray, y: np.ndarray, z: np.ndarray, **how: Any) -> ScalarMappable:
    """A colour map of z (y, x), rasterised inside vector files, in cividis from 0 to 1 unless told otherwise."""
    options = {"cmap": "cividis", "vmin": 0.0, "vmax": 1.0, "shading": "gouraud", "rasterized": True, **how}
    return axes.pcolormesh(x, y, z, **options)


def rho_gamma_maps(
    data: xarray.Dataset, name: str, *, level: Callable[[float], float], cmap: str = "cividis"
) -> Figure:
    """Maps of an observable over (rho, gamma), a panel for each d, with the line gamma = 1/(1-rho).

    Args:
        data: observable over n (one), d, rho, gamma and draws.
        name: the observable, between 0 and 1.
        level: maps d to the level whose contour is drawn as a solid line.
        cmap: colour map.
    """
    mean = over_draws(data, name)[0].squeeze("n").transpose("d", "gamma", "rho")
    rho, gamma = mean["rho"].values, mean["gamma"].values
    figure, axes = canvas(1, mean.sizes["d"], width=DOUBLE, height=2.4, sharey=True)
    line = np.linspace(rho[0], rho[-1], 400)
    for index, (panel, values) in enumerate(zip(axes[0], mean, strict=True)):
        d = values["d"].item()
        image = phase_map(panel, rho, gamma, values.values, cmap=cmap)
        panel.contour(rho, gamma, values.values, levels=[level(d)], colors="white", linewidths=0.9)
        panel.plot(line, simplex.critical_gamma(line), color="white", dashes=(4, 2), lw=1.3)
        panel.set(xlabel=label("rho"), xlim=(rho[0], rho[-1]), ylim=(gamma[0], gamma[-1]))
        panel.set_title(f"({'abcdefgh'[index % 8]})  $d = {d:.0f}$", loc="left")
        if not index:
            panel.set_ylabel(label("gamma"))
            figure.colorbar(image, ax=axes[0].tolist(), label=label(name), pad=0.015, aspect=18)
    return figure


def letter(axes: Axes, text: str, *, inside: bool = False, color: str = THEORY) -> None:
    """A panel letter such as (a), above the upper left corner or inside it."""
    where = (0.03, 0.97, "top") if inside else (0.0, 1.02, "bottom")
    axes.text(*where[:2], text, transform=axes.transAxes, va=where[2], ha="left", color=color, weight="bold")


def parse_formats(text: str | Sequence[str]) -> tuple[str, ...]:
    """Formats of a comma-separated text or a sequence, without repetitions.

    Raises:
        SpecError: for an unknown format, or none.
    """
    given = text.split(",") if isinstance(text, str) else text
    formats = tuple(dict.fromkeys(item.strip().lower() for item in given))
    for item in formats:
        if item not in FORMATS:
            raise SpecError(f"format {item!r}: allowed: {', '.join(FORMATS)}")
    if not formats:
        raise SpecError(f"format: none given; allowed: {', '.join(FORMATS)}")
    return formats


def save(
    figure: Figure,
    base: str | os.PathLike[str],
    *,
    caption: str,
    provenance: Provenance,
    formats: Sequence[str] = FORMATS,
    title: str = "",
) -> tuple[Path, ...]:
    """Write `base.png`, `base.svg`, `base.pdf` and the caption `base.md`.

    Every file is rendered before the first is written, and each appears whole or not at all. Files carry the
    provenance and no time: the same figure gives the same bytes.

    Args:
        figure: what to write.
        base: path without suffix; its folder is made.
        caption: complete sentences for the figure's caption.
        provenance: command, data digest and version.
        formats: of png, svg, pdf.
        title: a few words.

    Returns:
        The files written, the caption last.

    Raises:
        SpecError: for an unknown format.
        StoreError: where the folder cannot be written.
    """
    base = Path(base)
    with style():
        files = {kind: _render(figure, kind, title, provenance) for kind in parse_formats(formats)}
    text = "\n".join([f"# {title or base.name}", "", caption, "", *(f"- {line}" for line in provenance.lines())])
    files["md"] = f"{text}\n".encode()
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        return tuple(_write(base.with_name(f"{base.name}.{kind}"), content) for kind, content in files.items())
    except OSError as error:
        raise StoreError(f"{base.parent}: cannot be written ({error.strerror or error})") from error


def _render(figure: Figure, kind: str, title: str, provenance: Provenance) -> bytes:
    buffer = io.BytesIO()
    dpi = PNG_DPI if kind == "png" else RASTER_DPI
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=_metadata(kind, title, provenance))
    return buffer.getvalue()


def _metadata(kind: str, title: str, provenance: Provenance) -> dict[str, Any]:
    facts = "; ".join(provenance.lines())
    creator = f"critattn {provenance.version}"
    return {
        "png": {"Title": title, "Description": facts, "Software": creator},
        "svg": {"Title": title, "Description": facts, "Creator": creator, "Date": None},
        "pdf": {"Title": title, "Subject": facts, "Creator": creator, "CreationDate": None},
    }[kind]


def _write(path: Path, content: bytes) -> Path:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
