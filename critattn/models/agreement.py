"""Predicted critical multipliers against measured ones: relative errors, and whether they speak for a prediction."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from critattn.errors import DomainError

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """One prediction against measured critical multipliers.

    Attributes:
        name: which prediction.
        errors: relative errors predicted/measured - 1, (...); NaN where either is missing.
        median: median of the errors.
        spread: half the distance of their 16 % and 84 % points, one standard deviation of a Gaussian law.
        within: share of the measured values that the prediction meets within the tolerance; a missing one misses.
        missing: share of the measured values without a prediction.
        correlation: rank correlation with the measured values (Spearman).
        favourable: the median error is within the tolerance, and so are at least half of the values.
    """

    name: str
    errors: Values
    median: float
    spread: float
    within: float
    missing: float
    correlation: float
    favourable: bool


def validation(
    predicted: Mapping[str, ArrayLike], measured: ArrayLike, *, tolerance: float = 0.25
) -> dict[str, Agreement]:
    """Relative errors of predictions, and whether they speak for them.

    Args:
        predicted: t_c by name, arrays like `measured`: of rows, or medians of heads.
        measured: t_c.
        tolerance: relative error that counts as met, above 0.

    Returns:
        An `Agreement` by name; NaN statistics where nothing can be compared.

    Raises:
        DomainError: where shapes disagree, or for a tolerance <= 0.
    """
    if not tolerance > 0:
        raise DomainError.of("tolerance", tolerance, "positive")
    truth = np.asarray(measured, np.float64)
    return {
        name: _agreement(name, np.asarray(values, np.float64), truth, tolerance) for name, values in predicted.items()
    }


def _agreement(name: str, values: Values, measured: Values, tolerance: float) -> Agreement:
    if values.shape != measured.shape:
        raise DomainError(f"predicted {name}: has shape {values.shape}; allowed: that of the measured {measured.shape}")
    there = np.isfinite(measured) & (measured > 0)
    errors = np.where(there & np.isfinite(values), values, np.nan) / np.where(there, measured, np.nan) - 1
    met = errors[np.isfinite(errors)]
    if not met.size:
        return Agreement(name, errors, math.nan, math.nan, 0.0, float(there.any()), math.nan, False)
    low, middle, high = np.percentile(met, [16, 50, 84])
    within = float(np.sum(np.abs(met) <= tolerance) / there.sum())
    both = np.isfinite(errors)
    favourable = abs(middle) <= tolerance and within >= 0.5
    return Agreement(
        name,
        errors,
        float(middle),
        float((high - low) / 2),
        within,
        float(1 - met.size / there.sum()),
        _rank_correlation(values[both], measured[both]),
        bool(favourable),
    )


def _rank_correlation(one: Values, other: Values) -> float:
    if one.size < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])
