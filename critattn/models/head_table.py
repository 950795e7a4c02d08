"""Statistics of every head at every length: means over texts of the medians over query rows, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from critattn.errors import DomainError, SpecError
from critattn.models.agreement import Agreement, validation
from critattn.models.predictions import PREDICTIONS
from critattn.models.readings import TextReading, median

Values = NDArray[np.float64]
PERCENTILES = (5, 25, 50, 75, 95)
SINKS = ("kept", "dropped")
# row blocks that stand in for texts where there is one
BLOCKS = 4


@dataclass(frozen=True)
class HeadTable:
    """Statistics per length, layer and head.

    Attributes:
        statistics: names, S.
        lengths: N of them.
        texts: names of the T texts.
        by_text: (T, S, N, layers, heads, 2) medians over the rows of each text; the last axis is key 0 kept, dropped.
        values: (S, N, layers, heads, 2) their mean over texts; of t_c the harmonic mean.
        errors: its standard error, over texts or over row blocks; NaN where fewer than two have a value.
        low: lower end of the 95 % interval of Student.
        high: its upper end.
        found: share of the rows with a finite value.
        between: what the errors hold: "texts", or "row blocks" of one text, which depend on each other, so that
            intervals are too short, and say nothing about other texts.
        layers: numbers of the layers; 0, 1, ... where empty.
    """

    statistics: tuple[str, ...]
    lengths: tuple[int, ...]
    texts: tuple[str, ...]
    by_text: Values
    values: Values
    errors: Values
    low: Values
    high: Values
    found: Values
    between: str
    layers: tuple[int, ...] = ()

    def at(self, statistic: str, length: int, sink: str = "kept") -> tuple[int, int, Any, Any, int]:
        """Index of the (layers, heads) table of a statistic.

        Raises:
            SpecError: for an unknown statistic, length or treatment of key 0.
        """
        for name, wanted, known in (
            ("statistic", statistic, self.statistics),
            ("length", length, self.lengths),
            ("sink", sink, SINKS),
        ):
            if wanted not in known:
                raise SpecError(f"{name} {wanted!r} is not in the table; known: {', '.join(map(str, known))}")
        return self.statistics.index(statistic), self.lengths.index(length), slice(None), slice(None), SINKS.index(sink)

    def column(self, statistic: str, length: int, sink: str = "kept") -> Values:
        """(layers, heads) means over texts.

        Raises:
            SpecError: as `at`.
        """
        return self.values[self.at(statistic, length, sink)]

    def percentiles(
        self, statistic: str, length: int, sink: str = "kept", *, points: Sequence[float] = PERCENTILES
    ) -> Values:
        """Percentiles over all heads with a finite value, (points,); NaN without any.

        Raises:
            SpecError: as `at`.
        """
        values = self.column(statistic, length, sink)
        there = values[np.isfinite(values)]
        return np.percentile(there, points) if there.size else np.full(len(points), np.nan)

    def layer_medians(self, statistic: str, length: int, sink: str = "kept") -> Values:
        """Median over the heads of each layer, (layers,).

        Raises:
            SpecError: as `at`.
        """
        return median(self.column(statistic, length, sink))

    def bootstrap(
        self, statistic: str, length: int, sink: str = "kept", *, resamples: int = 2000, seed: int = 0
    ) -> tuple[Values, Values]:
        """95 % percentile interval of the mean over texts, (layers, heads) each; NaN with one text, or one not finite.

        Texts are drawn with replacement. With three texts there are ten different draws, the outermost of which has
        probability 1/27: the interval then spans nearly all of them, and Student's is the safer one.

        Raises:
            SpecError: as `at`.
            DomainError: for fewer than 100 resamples.
        """
        if resamples < 100:
            raise DomainError.of("resamples", resamples, "at least 100")
        values = self.by_text[(slice(None), *self.at(statistic, length, sink))]
        count = len(self.texts)
        if count < 2:
            return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
        weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples) / count
        with np.errstate(invalid="ignore"):
            low, high = np.percentile(np.tensordot(weights, values, 1), [2.5, 97.5], axis=0)
        return low, high

    def agreement(self, length: int, sink: str = "kept", *, tolerance: float = 0.25) -> Mapping[str, Agreement]:
        """Predicted against measured t_c of every head, by prediction.

        Raises:
            SpecError: as `at`; where the readings hold no predictions.
        """
        made = {name: self.column(f"predicted_{name}", length, sink) for name in PREDICTIONS}
        return validation(made, self.column("critical_multiplier", length, sink), tolerance=tolerance)

    def records(self) -> list[dict[str, Any]]:
        """One JSON-ready row for each statistic, length, layer, head and treatment of key 0; None where not finite."""
        rows = []
        for index in np.ndindex(self.values.shape):
            numbers = {name: getattr(self, name)[index] for name in ("values", "errors", "low", "high", "found")}
            value, error, low, high, found = (float(x) if np.isfinite(x) else None for x in numbers.values())
            rows.append(
                {
                    "statistic": self.statistics[index[0]],
                    "length": self.lengths[index[1]],
                    "layer": self.layers[index[2]] if self.layers else index[2],
                    "head": index[3],
                    "sink": SINKS[index[4]],
                    "value": value,
                    "standard_error": error,
                    "low": low,
                    "high": high,
                    "found": found,
                    "between": self.between,
                }
            )
        return rows


def summarise(readings: Sequence[TextReading]) -> HeadTable:
    """Medians over the rows of each text, their mean over texts, and Student's 95 % interval.

    Multipliers t_c, measured and predicted, are averaged as operating points 1/t_c: a row whose two largest logits
    nearly tie has a t_c without bound, and a single window of such rows would decide an arithmetic mean. A prediction
    without a root in some text has none. Ends and errors follow from those of 1/t_c.

    With one text the interval is over four consecutive blocks of its rows, and `between` says so.

    Args:
        readings: of one text or more, of the same statistics, lengths, layers and heads.

    Raises:
        DomainError: without a reading, or where they differ.
    """
    if not readings:
        raise DomainError("readings: are empty; allowed: one text or more")
    first = readings[0]
    for one in readings[1:]:
        same = (one.statistics, one.lengths) == (first.statistics, first.lengths)
        if not same or one.values.shape[2:5] != first.values.shape[2:5]:
            raise DomainError(f"reading of {one.text!r}: differs from that of {first.text!r} in its axes")
    turned = np.array([is_multiplier(name) for name in first.statistics])
    rows = [_turned(one.values, turned) for one in readings]
    by_text = np.stack([median(one) for one in rows])
    single = len(readings) == 1
    parts = by_text
    if single:
        blocks = np.array_split(rows[0], min(BLOCKS, rows[0].shape[-1]), axis=-1)
        parts = np.stack([median(block) for block in blocks])
    values = _mean(by_text)[0]
    _, errors, freedom = _mean(parts)
    half = np.where(freedom > 0, stdtrit(np.maximum(freedom, 1), 0.975), np.nan) * errors
    low, high = values - half, values + half
    rootless = turned & np.char.startswith(np.array(first.statistics), "predicted_")
    values[rootless] = np.where((by_text[:, rootless] == 0).any(axis=0), 0.0, values[rootless])
    with np.errstate(divide="ignore", invalid="ignore"):
        errors[turned] = errors[turned] / values[turned] ** 2
        low[turned], high[turned] = 1 / high[turned], np.where(low[turned] > 0, 1 / low[turned], np.inf)
    unknown = np.isnan(errors)
    total = sum(one.values.shape[-1] for one in readings)
    found = sum(np.isfinite(one.values).sum(axis=-1) for one in readings) / total
    return HeadTable(
        first.statistics,
        first.lengths,
        tuple(one.text for one in readings),
        np.stack([_turned(one, turned) for one in by_text]),
        _turned(values, turned),
        errors,
        np.where(unknown, np.nan, low),
        np.where(unknown, np.nan, high),
        np.asarray(found),
        "row blocks" if single else "texts",
    )


def is_multiplier(statistic: str) -> bool:
    """The statistic is a factor t_c, measured or predicted, and is averaged as 1/t_c."""
    return statistic == "critical_multiplier" or statistic.startswith("predicted_")


def _turned(values: Values, which: NDArray[np.bool_]) -> Values:
    """Reciprocals of the statistics (S, ...) that `which` (S,) names; 0 and infinity change places."""
    made = np.array(values, np.float64)
    with np.errstate(divide="ignore"):
        made[which] = 1 / made[which]
    return made


def _mean(parts: Values) -> tuple[Values, Values, Values]:
    """Mean over the first axis of what is not NaN, its standard error and its degrees of freedom."""
    there = ~np.isnan(parts)
    count = there.sum(axis=0)
    mean = np.where(count > 0, np.where(there, parts, 0).sum(axis=0) / np.maximum(count, 1), np.nan)
    with np.errstate(invalid="ignore"):
        squares = np.where(there, (parts - mean) ** 2, 0).sum(axis=0)
    freedom = count - 1
    error = np.sqrt(squares / np.maximum(freedom, 1) / np.maximum(count, 1))
    return mean, np.where(freedom > 0, error, np.nan), freedom
