"""Is the order of the attentions here the published one? Spearman's correlation with an interval for few points."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
import xarray
from scipy import stats

from critattn.errors import DomainError
from critattn.training import alike, prompts
from critattn.training.collected import area, over_seeds, there
from critattn.training.published import PUBLISHED, Published

LEAST = 3
DRAWS = 4000
TAIL = 0.025
# rank correlations of one sample differ by more, or are equal
EQUAL = 1e-9
# of the bracket in which a correlation lies at the end
WIDTH = 1e-4
METHOD = (
    "95 % interval of Spearman's correlation: the populations with Gaussian copula under which the observed value is "
    f"in neither tail of 2.5 %, from {DRAWS} simulated samples of as many variants with the same ties; it covers the "
    "choice of variants, not the noise of training"
)


class Correlation(NamedTuple):
    """A rank correlation.

    Attributes:
        value: Spearman's, with mean ranks for ties; None where it is not defined.
        low: lower end of the 95 % interval (`METHOD`).
        high: upper end.
        reason: why there is none.
    """

    value: float | None
    low: float | None
    high: float | None
    reason: str = ""


def spearman(one: Sequence[float], other: Sequence[float]) -> Correlation:
    """Spearman's rank correlation of two lists and its 95 % interval.

    The interval is of the population's correlation before the rounding that makes ties. Ties bring the value closer to
    0, so that in long lists with many of them it may lie outside.

    Raises:
        DomainError: for lists of different lengths, or numbers that are not finite.
    """
    if len(one) != len(other) or not np.all(np.isfinite([*one, *other])):
        raise DomainError(f"lists of {len(one)} and {len(other)} numbers: must be as long and finite")
    if len(one) < LEAST:
        return Correlation(None, None, None, f"fewer than {LEAST} variants have both numbers")
    if len(set(one)) == 1 or len(set(other)) == 1:
        return Correlation(None, None, None, "all variants have the same number")
    value = float(np.corrcoef(stats.rankdata(one), stats.rankdata(other))[0, 1])
    ties, others = _ties(one), _ties(other)
    return Correlation(value, lower(round(value, 12), ties, others), -lower(round(-value, 12), ties, others[::-1]))


def _ties(values: Sequence[float]) -> tuple[int, ...]:
    """How often each number occurs, from the smallest on."""
    return tuple(np.unique(np.asarray(values, float), return_counts=True)[1].tolist())


@functools.cache
def lower(observed: float, ties: tuple[int, ...], others: tuple[int, ...]) -> float:
    """The lower end of the 95 % interval of a population's rank correlation, by inverting a test.

    With a Gaussian copula of correlation r, `rho_S = (6/pi) arcsin(r/2)`; the lower end is the r under which a sample
    of that many points reaches the observed value with a probability of 2.5 %. The upper end is that of the reversed
    order, with the other sign. Unlike Fisher's interval it is no point at +-1. Ties come from the rounding of a
    continuous value: in every sample the smallest points share the mean rank of the first block, and so on.

    Args:
        observed: Spearman's correlation of the sample, of mean ranks.
        ties: how many points of the sample share the smallest value of the one list, the next, and so on.
        others: the same of the other list; the two may be exchanged.
    """
    ties, others = sorted((ties, others))
    x, noise = np.random.default_rng(0).standard_normal((2, DRAWS, sum(ties)))
    order = np.argsort(x, axis=1)
    x, noise = (np.take_along_axis(drawn, order, axis=1) for drawn in (x, noise))
    levels, other_levels = _levels(ties), _levels(others)

    def reached(r: float) -> bool:
        moved = np.argsort(r * x + math.sqrt(1 - r * r) * noise, axis=1)
        return float(np.mean(levels[moved] @ other_levels >= observed - EQUAL)) >= TAIL

    low, high = -1.0, 1.0
    if reached(low):
        return low
    while high - low > WIDTH:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return 6 / math.pi * math.asin(high / 2)


def _levels(ties: tuple[int, ...]) -> np.ndarray:
    """Mean ranks of sorted points of which that many are equal, with mean 0 and norm 1, (points,)."""
    ranks = stats.rankdata(np.repeat(np.arange(len(ties)), ties))
    centred = ranks - ranks.mean()
    return centred / np.linalg.norm(centred)


@dataclass(frozen=True)
class Ranking:
    """One published column beside what was found here.

    Attributes:
        published: the column.
        here: by variant, means over seeds of the same quantity at the same multiples of the training length; one of
            those that are alike in training (`alike.alike`).
        correlation: of the two over the variants that have both.
        same: pairs of variants in the published order.
        pairs: pairs whose values differ in both.
        left_out: variants that are alike in training with one that is ranked, with the name of that one.
    """

    published: Published
    here: Mapping[str, float]
    correlation: Correlation
    same: int
    pairs: int
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def theirs(self) -> dict[str, float]:
        """The published values of the same variants, in the same order."""
        return {name: self.published.values[name] for name in self.here}


def rankings(data: xarray.Dataset, *, measures: Sequence[str] | None = None) -> list[Ranking]:
    """Every published column with two or more variants of a study, beside what was found here.

    Variants that are alike in training are replicates of one attention: the first that was measured is ranked. Ranges
    of distances that begin at 0 end beyond the training: the farthest key of a prompt there is nearer than T
    (`farthest`).

    Args:
        data: of `collected.dataset`.
        measures: of "loss", "passkey" and "needle"; by default those that the study is about.
    """
    spec = json.loads(data.attrs["spec"])
    chosen = spec["measures"] if measures is None else measures
    columns = [one for one in PUBLISHED if one.quantity in chosen]
    length, groups = spec["preset"]["shape"]["length"], alike.of_dataset(data)
    made = [_ranking(data, column, length, groups) for column in columns]
    return [one for one in made if len(one.here) > 1]


def left_out(found: Sequence[Ranking]) -> dict[str, str]:
    """What any of the rankings leaves out, with the variant that is ranked in its place."""
    return {name: kept for one in found for name, kept in one.left_out.items()}


def farthest(kind: prompts.Kind, length: int) -> int:
    """The largest distance from the stated key to the answer in prompts of the training, bytes.

    Args:
        kind: of prompt.
        length: T, the training length; a prompt of the training has T + 1 bytes.
    """
    rng = np.random.default_rng(0)
    # the wording of a needle names a city at random
    return max(prompts.wording(kind, rng).farthest(length + 1) for _ in range(8 * len(prompts.CITIES)))


def _ranking(data: xarray.Dataset, column: Published, length: int, groups: Sequence[tuple[str, ...]]) -> Ranking:
    names = [name for name in there(data, column.quantity) if name in column.values]
    found = {name: _value(data, column, name, length) for name in names}
    measured = [name for name, value in found.items() if math.isfinite(value)]
    group_of = {name: group for group in groups for name in group}
    kept = {name: next(one for one in measured if one in group_of[name]) for name in measured}
    here = {name: found[name] for name in measured if kept[name] == name}
    theirs = [column.values[name] for name in here]
    same, pairs = _pairs(list(here.values()), theirs)
    lost = {name: kept[name] for name in measured if kept[name] != name}
    return Ranking(column, here, spearman(list(here.values()), theirs), same, pairs, lost)


def _value(data: xarray.Dataset, column: Published, name: str, length: int) -> float:
    """The quantity of a column for one variant, NaN where it was not measured there."""
    values = data[column.quantity].sel(variant=name)
    if column.quantity == "loss":
        at = column.high if column.high in values["multiple"].values else None
        return math.nan if at is None else over_seeds(values.sel(multiple=at).values).value
    means = np.array([over_seeds(one).value for one in values.transpose("distance", "seed").values])
    distances, measured = values["distance"].values[np.isfinite(means)], means[np.isfinite(means)]
    return area(distances, measured, low=column.low * length, high=column.high * length)


def _pairs(one: Sequence[float], other: Sequence[float]) -> tuple[int, int]:
    signs = [
        (one[i] - one[j]) * (other[i] - other[j])
        for i, j in combinations(range(len(one)), 2)
        if one[i] != one[j] and other[i] != other[j]
    ]
    return sum(sign > 0 for sign in signs), len(signs)
