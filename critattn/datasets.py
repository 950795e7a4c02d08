"""The shape of a result: axes, observables, and the `xarray.Dataset` of an array of estimates."""

import csv
import importlib.util
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from critattn.errors import SpecError, StoreError

Unit = tuple[int, ...]
STATISTICS = ("value", "standard_error")
AXES = ("unit_axes", "block_axes", "followers")


@dataclass(frozen=True)
class Axis:
    """One axis of a result, or a coordinate that follows an axis.

    Attributes:
        name: `normaliser`, `law`, `n`, `d`, `rho`, `tau`, `replicate`, `gamma`, `p`, `layer`.
        values: its points; codes 0, 1, ... of an axis of names.
        long_name: what it is, for labels.
        along: for a coordinate that is no axis: the axis it follows, as d follows n where d = n; empty for a
            constant of the whole result.
        names: the table of an axis of names; empty for one of numbers.
    """

    name: str
    values: tuple[float, ...]
    long_name: str = ""
    along: str = ""
    names: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[float | str, ...]:
        """Its points for people: names where it has them."""
        return tuple(self.names[int(code)] for code in self.values) if self.names else self.values

    def followed(self) -> tuple[list[str], np.ndarray]:
        """Dimensions and numbers of a coordinate that is no axis."""
        return ([self.along], np.array(self.values)) if self.along else ([], np.array(self.values[0]))


@dataclass(frozen=True)
class Column:
    """One observable of a result.

    Attributes:
        name: its name in the registry.
        unit: its unit; empty for a pure number.
        long_name: what it is, for labels.
    """

    name: str
    unit: str = ""
    long_name: str = ""


@dataclass(frozen=True)
class Layout:
    """Axes and observables of an array (*unit axes, *block axes, observable, statistic).

    Attributes:
        unit_axes: one chunk, one unit of work a point.
        block_axes: whole within a chunk.
        observables: the columns.
        followers: coordinates that follow an axis.
        statistics: what is kept of each observable: `value`, `standard_error`, and where curves may be continued
            `interpolation_error`.
    """

    unit_axes: tuple[Axis, ...]
    block_axes: tuple[Axis, ...]
    observables: tuple[Column, ...]
    followers: tuple[Axis, ...] = ()
    statistics: tuple[str, ...] = STATISTICS

    @property
    def unit_shape(self) -> Unit:
        """Number of points along each unit axis."""
        return tuple(len(axis.values) for axis in self.unit_axes)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Shape of one unit's block: (*block axes, observables, statistics)."""
        return (*(len(axis.values) for axis in self.block_axes), len(self.observables), len(self.statistics))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (*self.unit_shape, *self.block_shape)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of one chunk."""
        return (*(1 for _ in self.unit_axes), *self.block_shape)

    @property
    def dims(self) -> list[str]:
        """Names of the dimensions."""
        return [*(axis.name for axis in (*self.unit_axes, *self.block_axes)), "observable", "statistic"]

    def units(self) -> Iterator[Unit]:
        """All units of work, in the order of the array."""
        return np.ndindex(self.unit_shape)

    def point(self, unit: Unit) -> dict[str, float]:
        """The values of the unit axes and of their followers at a unit."""
        at = {axis.name: index for axis, index in zip(self.unit_axes, unit, strict=True)}
        found = {axis.name: axis.values[at[axis.name]] for axis in self.unit_axes}
        return found | {axis.name: axis.values[at.get(axis.along, 0)] for axis in self.followers}

    def numeric_coordinates(self) -> dict[str, tuple[list[str], np.ndarray]]:
        """Coordinates as (dims, numbers); names, observables and statistics are codes into the tables of the layout."""
        axes = {axis.name: ([axis.name], np.array(axis.values)) for axis in (*self.unit_axes, *self.block_axes)}
        axes |= {axis.name: axis.followed() for axis in self.followers}
        axes["observable"] = (["observable"], np.arange(len(self.observables)))
        axes["statistic"] = (["statistic"], np.arange(len(self.statistics)))
        return axes

    def all_axes(self) -> tuple[Axis, ...]:
        """Axes and followers."""
        return (*self.unit_axes, *self.block_axes, *self.followers)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready table; axes of numbers have no key `names` in it."""
        tables = {name: [_table(axis) for axis in getattr(self, name)] for name in AXES}
        return {**asdict(self), **tables, "statistics": list(self.statistics)}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Layout":
        """The layout of such a table."""
        return cls(
            tuple(_axis(item) for item in table["unit_axes"]),
            tuple(_axis(item) for item in table["block_axes"]),
            tuple(Column(**item) for item in table["observables"]),
            tuple(_axis(item) for item in table["followers"]),
            tuple(table.get("statistics", STATISTICS)),
        )


def _axis(table: Mapping[str, Any]) -> Axis:
    return Axis(**{**table, "values": tuple(table["values"]), "names": tuple(table.get("names", ()))})


def _table(axis: Axis) -> dict[str, Any]:
    return {key: value for key, value in asdict(axis).items() if key != "names" or value}


def to_dataset(layout: Layout, values: np.ndarray, attributes: Mapping[str, Any]) -> Any:
    """The `xarray.Dataset` of an array of estimates.

    Args:
        layout: axes and observables.
        values: (*unit axes, *block axes, observables, statistics), float64.
        attributes: numbers and strings.

    Returns:
        A dataset with one variable an observable, `<name>_se`, its standard error (NaN where exact), and where the
        layout has it `<name>_interpolation_error` (NaN where a point was computed, not interpolated).
    """
    import xarray as xr

    dims = layout.dims[:-2]
    made: dict[str, Any] = {}
    for index, column in enumerate(layout.observables):
        label = column.long_name or column.name
        kept = {"units": column.unit or "1"}
        made[column.name] = (dims, values[..., index, 0], {**kept, "long_name": label})
        made[f"{column.name}_se"] = (
            dims,
            values[..., index, 1],
            {**kept, "long_name": f"standard error of {label}"},
        )
        for place, statistic in enumerate(layout.statistics[2:], 2):
            described = {**kept, "long_name": f"{statistic.replace('_', ' ')} of {label}"}
            made[f"{column.name}_{statistic}"] = (dims, values[..., index, place], described)
    labels = {axis.name: axis.long_name or axis.name for axis in layout.all_axes()}
    placed = layout.numeric_coordinates()
    placed |= {axis.name: ([axis.name], np.array(axis.labels)) for axis in layout.unit_axes if axis.names}
    coordinates = {name: (*placed[name], {"long_name": label}) for name, label in labels.items()}
    return xr.Dataset(made, coords=coordinates, attrs=dict(attributes))


def export(dataset: Any, target: str | os.PathLike[str]) -> Path:
    """Write a dataset as NetCDF (`.nc`, through h5netcdf) or as CSV in long form (`.csv`); whole or not at all.

    Raises:
        SpecError: for another suffix, or without the optional h5netcdf.
        StoreError: where the file cannot be written.
    """
    file = Path(target)
    writer = {".nc": _write_netcdf, ".csv": _write_csv}.get(file.suffix.lower())
    if writer is None:
        raise SpecError(f"export to {file.name!r}: allowed: a file that ends in .nc or .csv")
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=file.parent) as scratch:
            part = Path(scratch) / file.name
            writer(dataset, part)
            part.replace(file)
    except OSError as error:
        raise StoreError(f"export to {str(file)!r}: {error.strerror or error}") from error
    return file


def _write_netcdf(dataset: Any, file: Path) -> None:
    absent = [name for name in ("h5netcdf", "h5py") if importlib.util.find_spec(name) is None]
    if absent:
        missing = " and ".join(absent)
        raise SpecError(f"export to NetCDF needs {missing}: pip install 'critattn[export]', or export to .csv")
    dataset.to_netcdf(file, engine="h5netcdf")


def _write_csv(dataset: Any, file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*_coordinate_names(dataset), "observable", "value", "standard_error"])
        writer.writerows(_long_form(dataset))


def _coordinate_names(dataset: Any) -> list[str]:
    return [str(name) for name in (*dataset.dims, *(c for c in dataset.coords if c not in dataset.dims))]


def _long_form(dataset: Any) -> Iterable[list[Any]]:
    import xarray as xr

    columns = [xr.broadcast(dataset[name], dataset)[0] for name in _coordinate_names(dataset)]
    names = [name for name in dataset.data_vars if f"{name}_se" in dataset]
    flat = [column.transpose(*dataset.dims).values.ravel() for column in columns]
    for name in names:
        value, error = (dataset[key].transpose(*dataset.dims).values.ravel() for key in (name, f"{name}_se"))
        for row in zip(*flat, value, error, strict=True):
            yield [*row[:-2], name, *("" if np.isnan(number) else number for number in row[-2:])]
