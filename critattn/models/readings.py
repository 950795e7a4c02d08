"""What is read of a layer and of a text: the statistics of query rows, measured and predicted, by head."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critattn.errors import DomainError
from critattn.models.predictions import PREDICTIONS, predicted_multipliers
from critattn.models.probes import FORMATS, row_statistics, statistic_names

Values = NDArray[np.float64]
# nats below the top of a row
CUT_OFF = 1e6


def reading_names(formats: tuple[str, ...] = FORMATS, *, predictions: bool = True) -> tuple[str, ...]:
    """Names of what `read_layer` returns: the statistics of a row, then `predicted_NAME` of t_c."""
    return statistic_names(formats) + tuple(f"predicted_{name}" for name in PREDICTIONS if predictions)


def read_layer(view: Any, rows: np.ndarray, *, formats: tuple[str, ...] = FORMATS, predictions: bool = True) -> Values:
    """All statistics of one layer at some query rows, key 0 kept and dropped.

    Under a normaliser other than softmax they are those of the logarithms of its weights, so that weights, entropies
    and t_c are the head's own, and t_c multiplies these logarithms: it is p_c/p of a power p [docs/theory.md (16.10)].
    `spread` and `freezing_ratio` stay those of the logits. A key that is cut off lies far below every other one.

    Args:
        view: a layer with `logits(rows) -> (heads, rows, n)` in nats and `allowed(rows) -> (rows, n)`; where `softmax`
            is False, with `log_weights(rows)` as well.
        rows: (m,) positions of queries; rows of several lengths in one call compile once.
        formats: names of number formats.
        predictions: predict t_c from score statistics as well.

    Returns:
        (statistics, heads, 2, m) float64 in the order of `reading_names`; [:, :, 1] is without key 0.

    Raises:
        DomainError, SpecError: as `probes.row_statistics`.
    """
    logits, allowed = view.logits(rows), view.allowed(rows)
    own = logits if getattr(view, "softmax", True) else view.log_weights(rows)
    low = _lowered(own, allowed)
    both = []
    for drop in (False, True):
        found: dict[str, Any] = dict(row_statistics(low, allowed, drop_first=drop, formats=formats))
        if own is not logits:
            # compiled already
            plain = row_statistics(logits, allowed, drop_first=drop, formats=formats)
            found |= {name: plain[name] for name in ("spread", "freezing_ratio")}
        if predictions:
            seen = np.array(allowed)
            seen[:, 0] &= not drop
            made = predicted_multipliers(np.asarray(own), seen)
            found |= {f"predicted_{name}": values for name, values in made.items()}
        both.append([np.asarray(found[name], np.float64) for name in reading_names(formats, predictions=predictions)])
    return np.stack(both, axis=2)


def _lowered(own: Any, allowed: Any) -> Any:
    """Keys that are cut off put far below the others: in no sum, while a row of one survivor has a t_c next to 0."""
    own, allowed = np.asarray(own), np.asarray(allowed)
    cut = np.isneginf(own) & allowed
    if not cut.any():
        return own
    top = np.max(np.where(allowed, own, -np.inf), axis=-1, keepdims=True)
    return np.where(cut, top - own.dtype.type(CUT_OFF), own)


@dataclass(frozen=True)
class TextReading:
    """What was read of one text.

    Attributes:
        text: its name.
        statistics: names, S.
        lengths: N of them.
        values: (S, N, layers, heads, 2, rows), key 0 kept and dropped; NaN where a row or a length is missing.
    """

    text: str
    statistics: tuple[str, ...]
    lengths: tuple[int, ...]
    values: Values

    def __post_init__(self) -> None:
        expected = (len(self.statistics), len(self.lengths))
        if self.values.ndim != 6 or self.values.shape[:2] != expected or self.values.shape[4] != 2:
            raise DomainError(
                f"values: have shape {self.values.shape}; allowed: {expected} followed by (layers, heads, 2, rows)"
            )


def median(values: np.ndarray) -> Values:
    """Median over the last axis of what is not NaN; NaN where nothing is."""
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    count = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, -1)[..., 0]
    high = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[-1] - 1), -1)[..., 0]
    return np.where(low == high, low, low / 2 + high / 2)
