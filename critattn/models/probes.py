"""What a row of attention logits says about its head: gaps, critical multiplier, spread of weights, formats.

A row has k allowed keys with logits l_j, the largest of them l_1; d_j = l_1 - l_j >= 0 is the gap of a key, and
f(t) = log sum_{j != 1} exp(-t d_j) the log odds against the top key when the logits are multiplied by t.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critattn import formats as number_formats
from critattn.attention import CACHE_BYTES
from critattn.errors import DomainError
from critattn.protocols import Array

FORMATS = ("fp32", "bf16", "fp16")
# Newton's method climbs to both roots; no row tried needs more than 40 steps
STEPS = 100
ROWS = 16
GAPS = ("spread", "freezing_ratio", "top_gap", "gap", "gap_ratio", "critical_multiplier", "operating_point")
WEIGHTS = ("entropy", "relative_entropy", "participation_ratio", "largest_weight", "sink_mass", "jacobian_norm")
LOSSES = ("underflow", "subnormal", "weight_underflow", "absorption")


def statistic_names(formats: tuple[str, ...] = FORMATS) -> tuple[str, ...]:
    """Names of the statistics of a row, in the order of `row_statistics`."""
    return (*GAPS, *WEIGHTS, *(f"{loss}_{name}" for name in formats for loss in LOSSES))


def row_statistics(
    logits: Array, allowed: Array, *, drop_first: bool = False, formats: tuple[str, ...] = FORMATS
) -> dict[str, Array]:
    """Statistics of rows of attention logits.

    `spread` is the standard deviation of the logits, `freezing_ratio` that over sqrt(2 log k); `top_gap` the gap of
    the second key; `gap` is Delta = l_1 - log mean_{j != 1} exp l_j and `gap_ratio` Delta/log(k - 1), above 1 iff the
    largest weight is above 1/2; `critical_multiplier` t_c the factor t of the logits at which the largest weight is
    1/2, `operating_point` 1/t_c; `participation_ratio` 1/sum p^2; `sink_mass` the weight of key 0 in the whole row,
    also where it is dropped; `jacobian_norm` the largest eigenvalue of diag(p) - p p^T. By number format, as shares of
    the k keys: `underflow_` numerators exp(-d) that round to 0, `subnormal_` those below the normal range (0 where
    flushed), `weight_underflow_` weights that round to 0, `absorption_` keys that do not change an accumulator of
    size 1, the top key's numerator.

    Args:
        logits: (heads, rows, n), in nats, float32 or float64; -inf for a masked key. Kept from `allowed` keys only.
        allowed: (rows, n) booleans.
        drop_first: leave out key 0; weights are renormalised over the rest.
        formats: names of number formats.

    Returns:
        (heads, rows) arrays by name, in the dtype of the logits; gaps and entropies in nats. NaN where a row has too
        few keys (one; for gap_ratio two), and t_c and 1/t_c also where the largest logit is tied. t_c is 0 and 1/t_c
        infinite with two keys.

    Raises:
        DomainError: where shapes disagree.
        SpecError: for an unknown format.

    Source: [derived, docs/theory.md (16.1), (16.2), (14.1)-(14.5)].
    """
    logits, allowed = jnp.asarray(logits), jnp.asarray(allowed)
    if logits.ndim != 3 or allowed.shape != logits.shape[1:]:
        shapes = f"{logits.shape} and {allowed.shape}"
        raise DomainError(f"logits, allowed: have shapes {shapes}; allowed: (heads, rows, n) and (rows, n)")
    limits = tuple(_limits(name) for name in formats)
    found = _blocked(logits, allowed, jnp.asarray(drop_first), names=tuple(formats), limits=limits)
    return {name: found[name] for name in statistic_names(formats)}


def _limits(name: str) -> tuple[float, float, float]:
    stated = number_formats.get(name).thresholds()
    return stated.zero, stated.normal, stated.absorption


@partial(jax.jit, static_argnames=("names", "limits"))
def _blocked(logits: Array, allowed: Array, drop_first: Array, *, names: Any, limits: Any) -> dict[str, Array]:
    """Rows in blocks that stay in the cache of a core; each block ends its own iterations."""
    heads, rows, n = logits.shape
    where = jnp.broadcast_to(allowed, logits.shape) & ~jnp.isneginf(logits)
    size = min(max(CACHE_BYTES // (logits.dtype.itemsize * n), 1), heads * rows)
    count = -(-heads * rows // size)

    def cut(array: Array) -> Array:
        flat = array.reshape(heads * rows, n)
        return jnp.pad(flat, ((0, count * size - heads * rows), (0, 0))).reshape(count, size, n)

    one = partial(_statistics, drop_first, names=names, limits=limits)
    found = jax.lax.map(lambda pair: one(*pair), (cut(logits), cut(where)))
    return {name: array.reshape(-1)[: heads * rows].reshape(heads, rows) for name, array in found.items()}


def _statistics(drop_first: Array, logits: Array, where: Array, *, names: Any, limits: Any) -> dict[str, Array]:
    """All statistics of a block (rows, n)."""
    sink = _sink_mass(logits, where)
    where = where.at[:, 0].set(where[:, 0] & ~drop_first)
    keys = jnp.sum(where, axis=1).astype(logits.dtype)
    top = jnp.max(logits, axis=1, where=where, initial=-jnp.inf)
    first = jnp.arange(logits.shape[1]) == jnp.argmax(jnp.where(where, logits, -jnp.inf), axis=1)[:, None]
    # masked keys lie infinitely far below: exp(-t gap) is 0 for every t > 0
    gaps = jnp.where(where, jnp.where(keys > 0, top, 0)[:, None] - logits, jnp.inf)
    others = jnp.where(first, jnp.inf, gaps)
    found = _gap_statistics(logits, where, others, keys)
    found |= _weight_statistics(gaps, others, keys) | {"sink_mass": sink}
    log_sum = jnp.log1p(jnp.sum(jnp.exp(-others), axis=1))
    found |= _losses(gaps, log_sum, keys, zip(names, limits, strict=True))
    return {name: jnp.where(keys > 0, found[name], jnp.nan) for name in statistic_names(names)}


def _sink_mass(logits: Array, where: Array) -> Array:
    top = jnp.max(logits, axis=1, where=where, initial=-jnp.inf)
    masses = jnp.where(where, jnp.exp(logits - top[:, None]), 0)
    return masses[:, 0] / jnp.sum(masses, axis=1)


def _gap_statistics(logits: Array, where: Array, others: Array, keys: Array) -> dict[str, Array]:
    mean = jnp.sum(jnp.where(where, logits, 0), axis=1) / keys
    variance = jnp.sum(jnp.where(where, (logits - mean[:, None]) ** 2, 0), axis=1) / keys
    least = jnp.min(others, axis=1)
    second = jnp.arange(others.shape[1]) == jnp.argmin(others, axis=1)[:, None]
    third = jnp.where(second, jnp.inf, others)
    log_others = jnp.log(jnp.maximum(keys - 1, 1))
    # the second key taken out, as all others may lie below exp's range
    rest = jnp.sum(jnp.where(jnp.isinf(third), 0, jnp.exp(least[:, None] - third)), axis=1)
    gap = jnp.where(keys > 1, log_others + least - jnp.log1p(rest), jnp.nan)
    critical = _critical_multiplier(third, least, keys)
    spread = jnp.sqrt(variance)
    return {
        "spread": spread,
        "freezing_ratio": jnp.where(keys > 1, spread / jnp.sqrt(2 * jnp.log(jnp.maximum(keys, 2))), jnp.nan),
        "top_gap": jnp.where(keys > 1, least, jnp.nan),
        "gap": gap,
        "gap_ratio": jnp.where(keys > 2, gap / jnp.where(keys > 2, log_others, 1), jnp.nan),
        "critical_multiplier": critical,
        "operating_point": 1 / critical,
    }


def _climb(step: Any, start: Array) -> Array:
    """Repeat a Newton step that climbs to its root until no row moves by more than rounding."""
    tolerance = 4 * jnp.finfo(start.dtype).eps

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return state[2] & (state[1] < STEPS)

    def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        new = jnp.maximum(step(state[0]), state[0])
        return new, state[1] + 1, jnp.any(new - state[0] > tolerance * new)

    return jax.lax.while_loop(unfinished, advance, (start, jnp.asarray(0), jnp.asarray(True)))[0]


def _critical_multiplier(third: Array, least: Array, keys: Array) -> Array:
    """The root t > 0 of f(t) = 0 by Newton's method from 0: f is convex and falls, so that no step overshoots.

    In units of 1/least, in which f(t) = -t + log(1 + sum exp(-t (d/least - 1))), the sum over all but the two top keys,
    and the root is at most log(k - 1) [derived, docs/theory.md (16.1)].
    """
    usable = (keys > 1) & (least > 0)
    finite = jnp.isfinite(third) & usable[:, None]
    unit = jnp.where(usable, least, 1)
    excess = jnp.where(finite, (third - unit[:, None]) / unit[:, None], 0)

    def step(t: Array) -> Array:
        masses = jnp.where(finite, jnp.exp(-t[:, None] * excess), 0)
        total = jnp.sum(masses, axis=1)
        slope = 1 + jnp.sum(masses * excess, axis=1) / (1 + total)
        return t + (jnp.log1p(total) - t) / slope

    root = _climb(step, jnp.zeros_like(least))
    return jnp.where(usable, root / unit, jnp.nan)


def _weight_statistics(gaps: Array, others: Array, keys: Array) -> dict[str, Array]:
    masses = jnp.exp(-gaps)
    # 1 + what the others weigh: exact where they weigh next to nothing
    total = 1 + jnp.sum(jnp.exp(-others), axis=1)
    moment = jnp.sum(jnp.where(masses > 0, masses * gaps, 0), axis=1) / total
    entropy = jnp.log1p(jnp.sum(jnp.exp(-others), axis=1)) + moment
    return {
        "entropy": entropy,
        "relative_entropy": jnp.where(keys > 1, entropy / jnp.log(jnp.maximum(keys, 2)), jnp.nan),
        "participation_ratio": total**2 / jnp.sum(masses**2, axis=1),
        "largest_weight": 1 / total,
        "jacobian_norm": _largest_eigenvalue(jnp.exp(-others)) / total,
    }


def _largest_eigenvalue(masses: Array) -> Array:
    """Largest eigenvalue nu, times the sum of the masses, of diag(p) - p p^T for masses 1 and `masses`, (rows,).

    The root in [w_2, 1] of 1/(1 - nu) = sum_j w_j/(nu - w_j), as 1 - nu = 1/sum: the right side is a harmonic mean of
    lines, concave, so that Newton's method climbs to the root [derived, docs/theory.md (16.2)].
    """
    second = jnp.max(masses, axis=1)
    tied, empty = second >= 1, second <= 0
    plain = tied | empty
    weights = jnp.where(plain[:, None], 0, masses)

    def step(nu: Array) -> Array:
        distance = jnp.maximum(nu[:, None] - weights, jnp.finfo(nu.dtype).tiny)
        shares = weights / distance
        total = jnp.where(plain, 1, jnp.sum(shares, axis=1))
        slope = jnp.where(plain, 1, jnp.sum(shares / distance, axis=1) / total**2)
        return nu - jnp.where(plain, 0, (1 / total - (1 - nu)) / (slope + 1))

    # the tangent at w_2 meets 1 - nu here, exactly right for two keys
    start = 2 * second / (1 + second)
    return jnp.where(tied, 1, jnp.where(empty, 0, _climb(step, jnp.where(plain, 0.5, start))))


def _losses(gaps: Array, log_sum: Array, keys: Array, stated: Any) -> dict[str, Array]:
    def share(lost: Array) -> Array:
        return jnp.sum(lost & jnp.isfinite(gaps), axis=1) / keys

    found = {}
    for name, (zero, normal, absorption) in stated:
        found[f"underflow_{name}"] = share(gaps >= -zero)
        found[f"subnormal_{name}"] = share(gaps > -normal)
        found[f"weight_underflow_{name}"] = share(gaps + log_sum[:, None] >= -zero)
        found[f"absorption_{name}"] = share(gaps >= -absorption)
    return found


def query_rows(n: int, count: int = ROWS, *, causal: bool = True) -> np.ndarray:
    """Positions of the query rows probed at length n: the last `count`, or spread evenly where every row sees all keys.

    Args:
        n: length, at least 1.
        count: rows wanted, at least 1; all n where there are fewer.
        causal: row i sees i + 1 keys, so that only the last ones are rows of length about n.

    Returns:
        Positions, increasing, (min(count, n),) int64.

    Raises:
        DomainError: below these ranges.
    """
    if n < 1 or count < 1:
        raise DomainError(f"n, count = {n}, {count}: must be at least 1")
    count = min(count, n)
    if causal:
        return np.arange(n - count, n)
    return (2 * np.arange(count) + 1) * n // (2 * count)
