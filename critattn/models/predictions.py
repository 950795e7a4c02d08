"""Critical multipliers predicted from a few score statistics of a row.

A row has a top logit l_1 and k - 1 others of mean m and standard deviation s; G = l_1 - m, L = log(k - 1). The critical
multiplier t_c is where the largest weight is 1/2. The logits enter only through what each prediction names: the
others' sum of exponentials, which defines t_c, is never taken. Equation numbers refer to docs/theory.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr

from critattn.errors import DomainError
from critattn.models.random_rows import median_multipliers

Values = NDArray[np.float64]
LOG_2 = math.log(2)
HALVINGS = 60
# doublings of the first-order root before a row counts as never reaching 1/2
DOUBLINGS = 200
LEAST_KEYS = 8
PREDICTIONS = ("annealed", "random_energy", "tail", "spread")


@dataclass(frozen=True)
class ScoreStatistics:
    """What the predictions know of rows of logits; arrays (...).

    Attributes:
        keys: k, the number of keys seen.
        height: G, the top logit above the mean of the others, in nats.
        spread: s, standard deviation of the others, in nats.
        row_spread: standard deviation of all logits of the row, in nats.
        upper: how many of the others count as the upper tail, about sqrt(k - 1).
        depth: from the top logit down to the threshold of the tail, the next logit below it, in nats.
        excess: mean of the upper logits above that threshold, in nats.
    """

    keys: Values
    height: Values
    spread: Values
    row_spread: Values
    upper: Values
    depth: Values
    excess: Values


def score_statistics(logits: ArrayLike, allowed: ArrayLike | None = None) -> ScoreStatistics:
    """Score statistics of rows.

    Args:
        logits: (..., n), in nats; -inf for a masked key.
        allowed: booleans that broadcast to the logits; None for all.

    Returns:
        Arrays (...), float64; NaN in rows of fewer than 8 keys.

    Raises:
        DomainError: where an allowed logit is NaN or +inf.
    """
    given = np.asarray(logits, np.float64)
    masked = given if allowed is None else np.where(np.asarray(allowed), given, -np.inf)
    if np.isnan(masked).any() or (masked == np.inf).any():
        raise DomainError("logits: have NaN or +inf; allowed: finite numbers, and -inf for a masked key")
    falling = -np.sort(-masked, axis=-1)
    present = np.isfinite(falling)
    keys = present.sum(axis=-1)
    usable = keys >= LEAST_KEYS
    top = np.where(usable, falling[..., 0], 0)
    gaps = np.where(present & usable[..., None], top[..., None] - falling, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = np.where(usable, keys, np.nan)
        height = gaps.sum(axis=-1) / (count - 1)
        centred = np.where(present, gaps - height[..., None], 0)
        spread = np.sqrt((centred[..., 1:] ** 2).sum(axis=-1) / (count - 1))
        mean = gaps.sum(axis=-1) / count
        row_spread = np.sqrt((np.where(present, gaps - mean[..., None], 0) ** 2).sum(axis=-1) / count)
        upper = np.where(usable, np.ceil(np.sqrt(count - 1)), 1)
        # the top key is 0, the tail 1 .. upper, the threshold the next one
        rank = np.arange(gaps.shape[-1])
        depth = np.take_along_axis(gaps, np.minimum(upper.astype(int) + 1, gaps.shape[-1] - 1)[..., None], -1)[..., 0]
        tail = np.where((rank >= 1) & (rank <= upper[..., None]), gaps, 0).sum(axis=-1) / upper
    return ScoreStatistics(count, height, spread, row_spread, upper, np.where(usable, depth, np.nan), depth - tail)


def annealed_multiplier(height: ArrayLike, spread: ArrayLike, keys: ArrayLike) -> Values:
    """Root t of t G - t^2 s^2/2 = log(k - 1): 2 L/(G (1 + sqrt(1 - 2 s^2 L/G^2))).

    The others' exponentials averaged over a Gaussian law. Infinite for G < s sqrt(2 L), where the average, which rests
    on keys higher than any that are there, never falls below the top key.

    Args:
        height: G in nats, above 0.
        spread: s >= 0 in nats.
        keys: k >= 3.

    Returns:
        t_c, a pure number.

    Source: [heuristic, docs/theory.md (16.3)].
    """
    height, spread = np.asarray(height, np.float64), np.asarray(spread, np.float64)
    log_others = np.log(np.asarray(keys, np.float64) - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        radicand = 1 - 2 * log_others * (spread / height) ** 2
        root = 2 * log_others / (height * (1 + np.sqrt(np.maximum(radicand, 0))))
        return np.where(radicand < 0, np.inf, np.where(height > 0, root, np.nan))


def random_energy_multiplier(height: ArrayLike, spread: ArrayLike, keys: ArrayLike) -> Values:
    """Root t of t G - t^2 s^2/2 = L + log Phi(G/s - s t) - log Phi(G/s): Gaussian others that lie below the top key.

    The annealed root where t s is far below G/s, and the frozen branch beyond it, where the sum rests on the keys next
    to the top one and falls only as 1/t.

    Args, Returns: as for `annealed_multiplier`; a row with G <= 0 has NaN.

    Source: [heuristic, docs/theory.md (16.4)].
    """
    height, spread = np.asarray(height, np.float64), np.asarray(spread, np.float64)
    log_others = np.log(np.asarray(keys, np.float64) - 1)

    def log_odds(t: Values) -> Values:
        return log_others + _truncated_gaussian(t, np.zeros_like(height), height, spread)

    return _decreasing_root(log_odds, log_others / np.where(height > 0, height, np.nan))


def tail_multiplier(statistics: ScoreStatistics) -> Values:
    """Root of the odds of a Gaussian bulk and an upper tail of its own law, the flattest with the tail's mean excess.

    The u = ceil(sqrt(k - 1)) upper others have the law on [threshold, top] of greatest entropy with their mean excess,
    an exponential cut at the top key; the k - 1 - u below are the others' Gaussian law cut at the threshold.

    Args:
        statistics: of the rows.

    Returns:
        t_c, (...); NaN for rows of fewer than 8 keys, or whose tail is level with the top key.

    Source: [heuristic, docs/theory.md (16.7)].
    """
    s = statistics
    usable = (s.excess > 0) & (s.excess < s.depth)
    depth = np.where(usable, s.depth, np.nan)
    rate = _tail_rate(s.excess, depth)
    below = np.log(s.keys - 1 - s.upper)

    def log_odds(t: Values) -> Values:
        tail = np.log(s.upper) - t * depth + _log_mean_exp(t - rate, depth) - _log_mean_exp(-rate, depth)
        with np.errstate(invalid="ignore"):
            return np.logaddexp(below + _truncated_gaussian(t, depth, s.height, s.spread), tail)

    return _decreasing_root(log_odds, np.log(s.keys - 1) / np.where(usable, s.height, np.nan))


def spread_multiplier(row_spread: ArrayLike, keys: ArrayLike) -> Values:
    """Median t_c of k independent Gaussian logits of this standard deviation: knows neither the top key nor the tail.

    Args:
        row_spread: of all logits, above 0, in nats.
        keys: k >= 3; NaN gives NaN.

    Returns:
        t_c, a pure number: 5.032/s at k = 1024, 1.6574 sqrt(2 log k)/s in the limit.

    Source: [derived, docs/theory.md (16.5)].
    """
    spread, keys = np.broadcast_arrays(np.asarray(row_spread, np.float64), np.asarray(keys, np.float64))
    found = np.full(spread.shape, np.nan)
    usable = np.isfinite(keys) & (spread > 0)
    if usable.any():
        found[usable] = median_multipliers(keys[usable].astype(int)) / spread[usable]
    return found


def predicted_multipliers(logits: ArrayLike, allowed: ArrayLike | None = None) -> dict[str, Values]:
    """All predictions of t_c for rows of logits: annealed, random_energy, tail and spread.

    Args:
        logits: (..., n), in nats; -inf for a masked key.
        allowed: booleans that broadcast to the logits; None for all.

    Returns:
        (...) float64 by name; infinite where the annealed law never reaches 1/2, NaN where the row has fewer than 8
        keys, or equal ones.

    Raises:
        DomainError: where an allowed logit is NaN or +inf.
    """
    s = score_statistics(logits, allowed)
    return {
        "annealed": annealed_multiplier(s.height, s.spread, s.keys),
        "random_energy": random_energy_multiplier(s.height, s.spread, s.keys),
        "tail": tail_multiplier(s),
        "spread": spread_multiplier(s.row_spread, s.keys),
    }


def _truncated_gaussian(t: Values, depth: Values, height: Values, spread: Values) -> Values:
    """Log E exp(t (l - top)) for l Gaussian with mean top - height, cut at top - depth; spread 0 is a point."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cut = (height - depth) / spread
        z = spread * t - cut
        # log Phi(-z) + t^2 s^2/2 - t G, of which the large parts cancel for z > 0
        beyond = np.log(erfcx(np.maximum(z, 0) / math.sqrt(2))) - LOG_2 - cut**2 / 2 - t * depth
        inside = log_ndtr(-z) + t * (t * spread**2 / 2 - height)
        return np.where(spread > 0, np.where(z > 0, beyond, inside) - log_ndtr(cut), -t * height)


def _log_mean_exp(a: Values, depth: Values) -> Values:
    """Log of (1/D) int_0^D exp(a x) dx = log((exp(a D) - 1)/(a D))."""
    x = np.abs(a * depth)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(x > 1e-5, -np.expm1(-x) / np.where(x > 0, x, 1), 1 - x / 2)
        return np.log(ratio) + np.maximum(a * depth, 0)


def _tail_rate(excess: Values, depth: Values) -> Values:
    """The rate r of the law ~ exp(-r x) on [0, D] with mean `excess`, by bisection in r D."""
    share = np.asarray(excess / depth)

    def mean(x: Values) -> Values:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            exact = 1 / np.where(x == 0, 1, x) - 1 / np.expm1(np.where(x == 0, 1, x))
        return np.where(np.abs(x) < 1e-3, 0.5 - x / 12, exact)

    low, high = np.full(share.shape, -1e6), np.full(share.shape, 1e6)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = mean(middle) > share
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2 / depth


def _decreasing_root(log_odds: Callable[[Values], Values], first: Values) -> Values:
    """Root of falling log odds from a lower bound of it, by doubling and bisection; NaN where there is none."""
    low = np.asarray(first, np.float64)
    high = low
    for _ in range(DOUBLINGS):
        short = log_odds(high) > 0
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    missing = ~(log_odds(high) <= 0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = log_odds(middle) > 0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(missing, np.nan, (low + high) / 2)
