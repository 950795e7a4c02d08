"""The records of a training study as one dataset, and means over its seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray
from numpy.typing import ArrayLike

from critattn.errors import StoreError
from critattn.storage import canonical_json, differences
from critattn.training.collapse import attention_norm, gamma_of
from critattn.training.experiments import Experiment
from critattn.training.results import Run, interval, read
from critattn.training.variants import Variant

LOSSES = {"loss": "window", "last_loss": "last"}
GRADIENTS = ("gradient_norm", "attention_gradient_norm")
# the text of a record that does not say
STANDARD = "the standard library of Python"


def records(experiment: Experiment, folder: Path) -> list[dict[str, Any]]:
    """What is recorded of a study below a folder, in the order of its runs.

    Raises:
        StoreError: where a record cannot be read, or is of another configuration, with what differs; the text that
            it was trained on may be another one.
    """
    found = [(run, read(run.file(".json"))) for run in experiment.runs(folder)]
    return [_checked(run, record) for run, record in found if record is not None]


def _checked(run: Run, record: dict[str, Any]) -> dict[str, Any]:
    made = {"variant": run.variant.to_json(), "preset": run.preset.to_json(), "seed": run.seed}
    kept = {key: record["config"].get(key) for key in made}
    changed = differences(kept, made)
    if changed:
        listed = "; ".join(f"{key} was {old!r}, is {new!r}" for key, old, new in changed[:6])
        raise StoreError(f"record {str(run.file('.json'))!r}: is of another configuration: {listed}")
    return record


def dataset(experiment: Experiment, found: Sequence[Mapping[str, Any]]) -> xarray.Dataset:
    """Losses and accuracies over variants and seeds; NaN where a run is not recorded.

    Args:
        experiment: the study.
        found: its records.

    Returns:
        `loss` and `last_loss` (variant, seed, multiple) in nats a byte, `passkey` and `needle`
        (variant, seed, distance) the shares of whole keys that are right, distances in bytes; of the training, means
        over ten steps each: `gradient_norm` and `attention_gradient_norm` (variant, seed, step), of all weights and of
        the matrices of queries and keys. Coordinate `gamma` (variant): coefficient of log n on cosines under softmax,
        NaN for others. Attributes: `name`, `spec` (JSON; `corpora` and `sources` are the texts), `units` and
        `units_missing` (runs). Records without curves leave NaN there.
    """
    at = {
        "variant": [one.name for one in experiment.variants],
        "seed": list(experiment.seeds),
        "multiple": sorted({one["multiple"] for record in found for one in record["losses"]}),
        "distance": sorted({one["distance"] for record in found for one in record["retrieval"]}),
        "step": sorted({step for record in found for step in record["curves"]["step"]}),
    }
    dims = {**dict.fromkeys(LOSSES, ("variant", "seed", "multiple"))}
    dims |= dict.fromkeys(("passkey", "needle"), ("variant", "seed", "distance"))
    dims |= dict.fromkeys(GRADIENTS, ("variant", "seed", "step"))
    data = xarray.Dataset(
        {name: (axes, np.full([len(at[axis]) for axis in axes], np.nan)) for name, axes in dims.items()}, coords=at
    )
    for record in found:
        _fill(data, record)
    data = data.assign_coords(gamma=("variant", [_gamma(one) for one in experiment.variants]))
    corpora = sorted({record["config"]["corpus"] for record in found})
    sources = sorted({str(record.get("corpus", {}).get("source", STANDARD)) for record in found})
    spec = {
        "kind": "training",
        "study": experiment.name,
        "measures": list(experiment.measures),
        "preset": experiment.preset.to_json(),
        "corpora": corpora,
        "sources": sources,
    }
    total = len(experiment.variants) * len(experiment.seeds)
    return data.assign_attrs(
        name=experiment.name, spec=canonical_json(spec), units=total, units_missing=total - len(found)
    )


def _fill(data: xarray.Dataset, record: Mapping[str, Any]) -> None:
    where = {"variant": record["config"]["variant"]["name"], "seed": record["config"]["seed"]}
    for one in record["losses"]:
        for name, key in LOSSES.items():
            data[name].loc[{**where, "multiple": one["multiple"]}] = one[key]
    for one in record["retrieval"]:
        data[one["kind"]].loc[{**where, "distance": one["distance"]}] = one["accuracy"]
    curves = record["curves"]
    for name, values in zip(GRADIENTS, (curves["gradient_norm"], attention_norm(curves)), strict=True):
        data[name].loc[{**where, "step": curves["step"]}] = values


def _gamma(variant: Variant) -> float:
    found = gamma_of(variant.to_json())
    return math.nan if found is None else found


class Mean(NamedTuple):
    """A mean over seeds.

    Attributes:
        value: the mean; NaN without any.
        low: lower end of Student's 95 % interval; NaN for less than two seeds.
        high: upper end.
        seeds: how many.
    """

    value: float
    low: float
    high: float
    seeds: int


def over_seeds(values: Sequence[float] | np.ndarray) -> Mean:
    """Mean and Student's 95 % interval of the values of several seeds; those that are not there are passed over."""
    there = [float(one) for one in np.ravel(values) if np.isfinite(one)]
    if not there:
        return Mean(np.nan, np.nan, np.nan, 0)
    value, low, high = interval(there)
    return Mean(value, np.nan if low is None else low, np.nan if high is None else high, len(there))


def curve(values: xarray.DataArray, variant: str) -> list[Mean]:
    """Means over seeds of one variant along the last axis of an array (variant, seed, axis)."""
    return [over_seeds(column) for column in values.sel(variant=variant).transpose(..., "seed").values]


def there(data: xarray.Dataset, name: str) -> list[str]:
    """The variants with at least one number of this name."""
    found = np.isfinite(data[name].values).any(axis=(1, 2))
    return [str(one) for one in data["variant"].values[found]]


def area(distances: ArrayLike, accuracies: ArrayLike, *, low: float, high: float) -> float:
    """Mean over distances from low to high of the accuracy, linear between the measured distances.

    Args:
        distances: measured, ascending, bytes.
        accuracies: at them.
        low: where the mean begins; the first measured distance where that is larger.
        high: where it ends; NaN where the measurements end before.
    """
    at, measured = np.asarray(distances, float), np.asarray(accuracies, float)
    if not at.size or not max(low, at[0]) < high <= at[-1]:
        return float("nan")
    begin = max(low, at[0])
    places = np.array([begin, *at[(at > begin) & (at < high)], high])
    return float(np.trapezoid(np.interp(places, at, measured), places) / (high - begin))
