"""The distance from which a key has no weight, for any bias, from logits and the threshold of a format alone."""

import math
from collections.abc import Iterator

import numpy as np

from critattn.biases import DistanceBias
from critattn.errors import DomainError, SpecError

CONVENTIONS = ("min", "rounded", "normalised")
LIMIT = 1 << 22
CHUNK = 1 << 16
LARGEST_ROW = 1 << 26
# an amount this close below the threshold differs from it by rounding alone: slopes made for a distance reach it
ROUNDING = 8 * float(np.finfo(np.float64).eps)


def blindness_distance(
    bias: DistanceBias,
    threshold: float,
    *,
    logit_gap: float = 0.0,
    scale: float = 1.0,
    convention: str = "min",
    length: int | None = None,
    limit: int = LIMIT,
) -> np.ndarray:
    """The least distance d at which a weight is zero, per head: `e - s b(d) <= tau` [docs/theory.md (15.3), (15.4)].

    Conventions: `min` takes the least whole d of the numerators; `rounded` the whole number nearest to the real d,
    which may still be visible; `normalised` the least whole d of the weights, `e - s b(d) - ln Z <= tau`, Z the sum of
    a row of equal logits. A bias without inverse is searched from d = 0 on.

    Args:
        bias: the bias, of one head or of several.
        threshold: tau < 0, in nats, of a format and a rule of underflow.
        logit_gap: e, what the key's logit has above that of the query's own, in nats.
        scale: s, what multiplies the bias after it was made, such as 1/sqrt(d) of Falcon.
        convention: min, rounded or normalised.
        length: keys of the row in Z; None for an endless row, where that has a closed form.
        limit: distance at which a search ends.

    Returns:
        (heads,) float64, whole numbers; infinity where there is no such distance (or none below the limit of a search).

    Raises:
        DomainError: for a threshold, gap, scale or length out of range.
        SpecError: for an unknown convention.
    """
    if convention not in CONVENTIONS:
        raise SpecError(f"convention {convention!r} is unknown; known: {', '.join(CONVENTIONS)}")
    row = length if convention == "normalised" else 0
    found = []
    for one, needed in _needed(bias, threshold, logit_gap=logit_gap, scale=scale, length=row):
        exact = one.inverse(needed)
        if exact is None:
            found.append(first_reached(one, needed, limit))
        elif not math.isfinite(exact):
            found.append(exact)
        elif convention == "rounded":
            found.append(float(np.rint(exact)))
        else:
            found.append(_least_whole(one, needed, exact))
    return np.asarray(found, dtype=np.float64)


def log10_distance(bias: DistanceBias, threshold: float, *, logit_gap: float = 0.0, scale: float = 1.0) -> np.ndarray:
    """Decimal logarithm of the real distance of the numerators, where the distance itself may overflow.

    Args:
        bias: the bias, with an inverse.
        threshold: tau < 0, in nats.
        logit_gap: as in `blindness_distance`.
        scale: as in `blindness_distance`.

    Returns:
        (heads,) float64; NaN for a bias without inverse, infinity where there is no such distance.
    """
    pairs = _needed(bias, threshold, logit_gap=logit_gap, scale=scale, length=0)
    logs = [one.log_inverse(needed) for one, needed in pairs]
    return np.asarray([math.nan if log is None else log / math.log(10) for log in logs])


def _needed(
    bias: DistanceBias, threshold: float, *, logit_gap: float, scale: float, length: int | None
) -> Iterator[tuple[DistanceBias, float]]:
    """Each head with the amount that its bias has to reach; a length of 0 stands for numerators."""
    _check(threshold, logit_gap, scale)
    for one in bias.heads():
        log_z = 0.0 if length == 0 else log_partition(one, scale=scale, length=length)
        left = logit_gap - threshold - log_z
        # at N equal keys with ln N = |tau| the difference is rounding alone
        yield one, left / scale if left > -threshold * ROUNDING else 0.0


def _check(threshold: float, logit_gap: float, scale: float) -> None:
    if not (math.isfinite(threshold) and threshold < 0):
        raise DomainError.of("threshold", threshold, "a finite number below 0")
    if not math.isfinite(logit_gap):
        raise DomainError.of("logit_gap", logit_gap, "finite")
    if not (math.isfinite(scale) and scale > 0):
        raise DomainError.of("scale", scale, "finite and above 0")


def reached(amounts: np.ndarray, needed: float) -> np.ndarray:
    """Where a bias has reached an amount, up to rounding."""
    return amounts >= needed * (1 - ROUNDING)


def _least_whole(bias: DistanceBias, needed: float, exact: float) -> float:
    distance = float(math.ceil(exact)) if exact < 2**53 else exact
    before = max(0.0, distance - 1)
    return before if reached(bias.amount(np.asarray(before)), needed) else distance


def first_reached(bias: DistanceBias, needed: float, limit: int = LIMIT) -> float:
    """The first whole distance below `limit` at which the bias of one head reaches an amount, by search; else infinity.

    Args:
        bias: of one head; it need not be monotone.
        needed: the amount, in nats.
        limit: where the search ends.
    """
    if bias.amplitude() < needed * (1 - ROUNDING):
        return math.inf
    for start in range(0, limit, CHUNK):
        there = reached(bias.amount(np.arange(start, min(start + CHUNK, limit), dtype=np.float64)), needed)
        if there.any():
            return float(start + int(np.argmax(there)))
    return math.inf


def log_partition(bias: DistanceBias, *, scale: float = 1.0, length: int | None = None) -> float:
    """`ln Z`, Z the sum of e^(-s b(d)) over the distances of a causal row of equal logits [docs/theory.md (15.4)].

    Args:
        bias: of one head.
        scale: s.
        length: number of keys; None for an endless row.

    Returns:
        Ln Z in nats, at least 0 for a bias that never raises a logit.

    Raises:
        DomainError: for a length out of range, or without one where the endless sum has no closed form.
    """
    closed = bias.log_sum(scale, length) if length is None or length >= 1 else None
    if closed is not None:
        return closed
    if length is None:
        raise DomainError(f"length = None: {type(bias).__name__} needs the number of keys of the row")
    if not 1 <= length <= LARGEST_ROW:
        raise DomainError.of("length", length, f"from 1 to {LARGEST_ROW}")
    chunks = (np.arange(start, min(start + CHUNK, length), dtype=np.float64) for start in range(0, length, CHUNK))
    # an amount beyond the largest number is infinite, and its term 0
    with np.errstate(over="ignore"):
        sums = [np.logaddexp.reduce(-scale * np.asarray(bias.amount(chunk), dtype=np.float64)) for chunk in chunks]
    return float(np.logaddexp.reduce(sums))


def visible_window(distances: np.ndarray | float) -> np.ndarray:
    """Keys that a query of a two-sided encoder sees, `2 delta - 1`: blindness on both sides [docs/theory.md (15.12)].

    Args:
        distances: delta, blindness distances of the heads.
    """
    return np.maximum(2 * np.asarray(distances, dtype=np.float64) - 1, 0)


def blind_length(logit_gap: float, threshold: float, *, gamma: float = 1.0) -> float:
    """Length from which a key `g` below the largest score is invisible under `beta = gamma log n`, without a bias.

    `n = e^(|tau|/(gamma g))` [docs/theory.md (15.23)].

    Args:
        logit_gap: g > 0, in units of the score.
        threshold: tau < 0, in nats.
        gamma: the coefficient of log n, above 0.

    Returns:
        The length, a real number; infinity beyond 1.8e308.

    Raises:
        DomainError: for a gap, threshold or gamma out of range.
    """
    _check(threshold, logit_gap, gamma)
    if logit_gap <= 0:
        raise DomainError.of("logit_gap", logit_gap, "above 0")
    exponent = -threshold / (gamma * logit_gap)
    return math.exp(exponent) if exponent < 709 else math.inf
