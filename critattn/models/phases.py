"""Where heads stand on the phase diagram: a head table as records, phases, and a summary of a model."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from critattn.models.head_table import PERCENTILES, SINKS, HeadTable
from critattn.models.predictions import PREDICTIONS

# supercritical: the typical row has more than half of its weight on one key
PHASES = ("subcritical", "near critical", "supercritical", "none")
MULTIPLIER = "critical_multiplier"
OPERATING = "operating_point"
SHOWN = (
    MULTIPLIER,
    OPERATING,
    "gap",
    "gap_ratio",
    "spread",
    "top_gap",
    "freezing_ratio",
    "entropy",
    "relative_entropy",
    "participation_ratio",
    "largest_weight",
    "sink_mass",
    "jacobian_norm",
)


def phase(value: float, low: float, high: float) -> str:
    """The phase of a head by its critical multiplier t_c and the 95 % interval of it over texts.

    `supercritical` where t_c < 1 with the whole interval: with the logits as they are the typical row has more than
    half of its weight on one key; `subcritical` where t_c > 1 with the whole interval; `near critical` where 1 lies
    inside; `none` without a t_c, as where the largest logits are tied. Without an interval the value decides.
    """
    if not np.isfinite(value):
        return "none"
    ends = (value, value) if not (np.isfinite(low) and np.isfinite(high)) else (low, high)
    if ends[1] < 1:
        return "supercritical"
    return "subcritical" if ends[0] > 1 else "near critical"


def head_records(table: HeadTable, length: int, layers: tuple[int, ...]) -> list[dict[str, Any]]:
    """One record a layer and head at a length: statistics, `<name>_se`, phase; `without_sink` likewise.

    Args:
        table: means over texts.
        length: one of its lengths.
        layers: numbers of the layers that were read, in order.

    Raises:
        SpecError: for a length that the table does not have.
    """
    where = table.at(table.statistics[0], length)[1]
    records = []
    for place, head in np.ndindex(table.values.shape[2:4]):
        both = [_record(table, where, place, head, sink) for sink in range(len(SINKS))]
        records.append({"layer": layers[place], "head": head, "n": length, **both[0], "without_sink": both[1]})
    return records


def _record(table: HeadTable, length: int, place: int, head: int, sink: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, name in enumerate(table.statistics):
        at = (index, length, place, head, sink)
        found[name], found[f"{name}_se"] = float(table.values[at]), float(table.errors[at])
        if name == MULTIPLIER:
            ends = float(table.low[at]), float(table.high[at])
            found |= {"phase": phase(found[name], *ends), f"{name}_interval": ends}
    return found


def summary(table: HeadTable, layers: tuple[int, ...]) -> list[dict[str, Any]]:
    """One record a length and treatment of key 0: percentiles over heads, phases, layer medians, predictions.

    Args:
        table: means over texts.
        layers: numbers of the layers that were read, in order.
    """
    return [_summary(table, length, sink, layers) for length in table.lengths for sink in SINKS]


def _summary(table: HeadTable, length: int, sink: str, layers: tuple[int, ...]) -> dict[str, Any]:
    percentiles = {
        name: dict(zip(map(str, PERCENTILES), map(float, table.percentiles(name, length, sink)), strict=True))
        for name in table.statistics
        if not name.startswith("predicted_")
    }
    at = table.at(MULTIPLIER, length, sink)
    numbers = zip(*(getattr(table, name)[at].ravel() for name in ("values", "low", "high")), strict=True)
    counted = Counter(phase(*map(float, one)) for one in numbers)
    return {
        "n": length,
        "sink": sink,
        "percentiles": percentiles,
        "phases": {name: counted[name] for name in PHASES},
        "beyond": float(np.mean(table.column(MULTIPLIER, length, sink) < 1)),
        "layer_medians": _layers(table, length, sink, layers),
        "predictions": _predictions(table, length, sink),
    }


def _layers(table: HeadTable, length: int, sink: str, layers: tuple[int, ...]) -> list[dict[str, Any]]:
    columns = {name: table.layer_medians(name, length, sink) for name in table.statistics if name in SHOWN}
    columns |= {name: table.layer_medians(name, length, sink) for name in table.statistics if name.startswith("rho_")}
    if "gradient_norm" in table.statistics:
        columns["gradient_norm"] = table.layer_medians("gradient_norm", length, sink)
    return [
        {"layer": layer, **{name: float(column[place]) for name, column in columns.items()}}
        for place, layer in enumerate(layers)
    ]


def _predictions(table: HeadTable, length: int, sink: str) -> Mapping[str, dict[str, Any]]:
    """Predicted against measured t_c over heads: median relative error, spread, share within 25 %, verdict."""
    if not all(f"predicted_{name}" in table.statistics for name in PREDICTIONS):
        return {}
    keys = ("median", "spread", "within", "missing", "correlation", "favourable")
    found = table.agreement(length, sink)
    return {name: {key: getattr(one, key) for key in keys} for name, one in found.items()}
