"""Gradients in training against gamma: do queries and keys stop learning below the threshold?"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critattn.errors import SpecError
from critattn.training.results import interval

Values = NDArray[np.float64]
# a gradient that is a tenth of another has collapsed; a convention
COLLAPSED = 0.1
FIRST, LAST = 0.1, 0.25


@dataclass(frozen=True)
class GradientRow:
    """Gradients at one gamma, geometric means over seeds with Student's 95 % interval; ends None at one seed.

    Attributes:
        gamma: coefficient of log n on cosines.
        seeds: how many.
        share: norm of the gradients of the matrices of queries and keys over that of all, in the last quarter.
        share_low: lower end.
        share_high: upper end.
        norm: norm of the gradients of queries and keys there.
        first_share: the share in the first tenth of the steps.
        loss: mean loss of the last quarter, nats a byte.
    """

    gamma: float
    seeds: int
    share: float
    share_low: float | None
    share_high: float | None
    norm: float
    first_share: float
    loss: float


@dataclass(frozen=True)
class Collapse:
    """Gradients at a small gamma over those at a large one.

    Attributes:
        rows: one a gamma, ascending.
        below: gamma of the numerator; the two are the farthest apart of those with the most common seeds.
        above: gamma of the denominator.
        ratio: of the share of queries and keys in the gradient, last quarter, geometric mean over common seeds.
        low: lower end of Student's 95 % interval over seeds; None at one seed.
        high: upper end.
        proportional: below over above: what the ratio would be if the gradient grew with the factor of the logits and
            nothing else changed.
        first_ratio: the ratio in the first tenth of the steps.
        norm_ratio: of the norm of the gradients of queries and keys itself, last quarter.
        seeds: common seeds.
        collapsed: the ratio is below a tenth with its interval (True) or above (False); None where the interval holds a
            tenth, or where there is none.
    """

    rows: tuple[GradientRow, ...]
    below: float
    above: float
    ratio: float
    low: float | None
    high: float | None
    proportional: float
    first_ratio: float
    norm_ratio: float
    seeds: int
    collapsed: bool | None


def gradient_collapse(records: Iterable[Mapping[str, Any]]) -> Collapse:
    """Whether the gradients of queries and keys vanish in training at a small gamma.

    The theory says of the layer's Jacobian that it vanishes below 1/(1-rho) and is 1 - 1/d above. Training shows the
    gradients of the matrices that make queries and keys, whose share in the gradient of all weights is compared.

    Args:
        records: of runs; those of softmax on cosines with log n are taken, and a gamma and seed once.

    Raises:
        SpecError: where there are not two gammas with a common seed.
    """
    runs: dict[tuple[float, int], Mapping[str, Any]] = {}
    for record in records:
        gamma = gamma_of(record["config"]["variant"])
        if gamma is not None:
            runs.setdefault((gamma, int(record["config"]["seed"])), record["curves"])
    gammas = sorted({gamma for gamma, _ in runs})
    below, above, common = _ends(runs.keys())
    if len(gammas) < 2 or not common:
        found = ", ".join(f"{gamma:.3g}" for gamma in gammas) or "none"
        raise SpecError(f"records: have gamma {found}; allowed: two gammas of log n on cosines with a common seed")
    pairs = [(_means(runs[below, seed]), _means(runs[above, seed])) for seed in common]
    logs = np.log([[low[name] / high[name] for name in ("share", "first_share", "norm")] for low, high in pairs])
    ratio, low, high = _interval(logs[:, 0].tolist())
    rows = tuple(_row(gamma, [curves for (one, _), curves in runs.items() if one == gamma]) for gamma in gammas)
    first, norm = np.exp(logs[:, 1:].mean(axis=0))
    ends = (below, above, ratio, low, high, below / above)
    return Collapse(rows, *ends, float(first), float(norm), len(common), _verdict(low, high))


def _ends(runs: Iterable[tuple[float, int]]) -> tuple[float, float, list[int]]:
    """The two gammas farthest apart among those with the most common seeds, and these seeds."""
    seeds: dict[float, set[int]] = {}
    for gamma, seed in runs:
        seeds.setdefault(gamma, set()).add(seed)
    pairs = [(len(seeds[one] & seeds[other]), other - one, one, other) for one, other in combinations(sorted(seeds), 2)]
    if not pairs:
        return math.nan, math.nan, []
    *_, below, above = max(pairs)
    return below, above, sorted(seeds[below] & seeds[above])


def gamma_of(variant: Mapping[str, Any]) -> float | None:
    """The gamma of softmax on cosines with log n, from the variant of a record; None for any other."""
    if variant["law"] != "log-n" or not variant["cosines"] or variant["normaliser"] != "softmax":
        return None
    gamma = variant["law_parameters"].get("gamma")
    return None if gamma is None else float(gamma)


def attention_norm(curves: Mapping[str, Any]) -> Values:
    """Norm of the gradients of all matrices of queries and keys, (steps,)."""
    squares = [np.asarray(curves[f"{name}_gradient_norm"], np.float64) ** 2 for name in ("query", "key")]
    return np.sqrt(np.sum(squares, axis=(0, 2)))


def _means(curves: Mapping[str, Any]) -> dict[str, float]:
    """Geometric means of the share in the first tenth and the last quarter, and of the norm there."""
    norm = attention_norm(curves)
    share = norm / np.asarray(curves["gradient_norm"], np.float64)
    count = len(share)
    first, last = slice(0, max(1, round(FIRST * count))), slice(count - max(1, round(LAST * count)), None)
    tiny = np.finfo(np.float64).tiny
    parts = {"share": share[last], "first_share": share[first], "norm": norm[last]}
    found = {name: math.exp(float(np.mean(np.log(np.maximum(part, tiny))))) for name, part in parts.items()}
    return {**found, "loss": float(np.mean(np.asarray(curves["loss"], np.float64)[last]))}


def _row(gamma: float, runs: list[Mapping[str, Any]]) -> GradientRow:
    made = [_means(curves) for curves in runs]
    share, low, high = _interval([math.log(one["share"]) for one in made])
    norm, first = (math.exp(np.mean([math.log(one[name]) for one in made])) for name in ("norm", "first_share"))
    loss = float(np.mean([one["loss"] for one in made]))
    return GradientRow(gamma, len(made), share, low, high, norm, first, loss)


def _interval(logs: list[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean and the 95 % interval of it, of logarithms."""
    mean, low, high = interval(logs)
    return math.exp(mean), None if low is None else math.exp(low), None if high is None else math.exp(high)


def _verdict(low: float | None, high: float | None) -> bool | None:
    if low is None or high is None or low <= COLLAPSED <= high:
        return None
    return high < COLLAPSED


def as_json(found: Collapse) -> dict[str, Any]:
    """A JSON-ready record."""
    return dataclasses.asdict(found)
