"""Where the mass of the invisible keys goes, and when a key is absorbed."""

import math

import numpy as np

from critattn.biases import DistanceBias
from critattn.blindness.distances import blindness_distance
from critattn.errors import DomainError, SpecError
from critattn.formats import Format

PIPELINES = ("redistributing", "leaking")


def flushed_mass(slope: float, distance: float, length: float = math.inf) -> float:
    """Exact mass of the keys at `distance` or more under ALiBi with equal logits [docs/theory.md (15.19)].

    `F = (r^D - r^N)/(1 - r^N)`, r = e^(-m).

    Args:
        slope: m > 0, nats a position.
        distance: D, at least 0.
        length: N, keys of the row; infinity for an endless row.

    Returns:
        The mass, in [0, 1]; 0 for D >= N.

    Raises:
        DomainError: for a slope, distance or length out of range.
    """
    if not (math.isfinite(slope) and slope > 0):
        raise DomainError.of("slope", slope, "finite and above 0")
    if not distance >= 0:
        raise DomainError.of("distance", distance, "at least 0")
    if not length >= 1:
        raise DomainError.of("length", length, "at least 1")
    if distance >= length:
        return 0.0
    whole = -math.expm1(-slope * length)
    return math.exp(-slope * distance) * -math.expm1(-slope * (length - distance)) / whole


def flushed_bound(threshold: float, count: float) -> float:
    """Mass of `count` keys below a threshold of normalised weights is at most `count e^tau` [docs/theory.md (15.18)].

    Args:
        threshold: tau, in nats, against the logarithm of the row's sum.
        count: number of keys, at least 0.

    Raises:
        DomainError: for a negative or undefined number of keys.
    """
    if not count >= 0:
        raise DomainError.of("count", count, "at least 0")
    return count * math.exp(threshold)


def flushed_row(logits: np.ndarray, threshold: float, *, pipeline: str = "redistributing") -> np.ndarray:
    """Weights of a row whose underflow is decided by a threshold, computed in float64 [docs/theory.md (15.18)].

    `redistributing`: numerators at or below tau against the row maximum are zero before the sum. `leaking`: weights at
    or below tau are zero after it, and the row sums to less than 1.

    Args:
        logits: (..., keys), in nats.
        threshold: tau < 0, in nats.
        pipeline: redistributing or leaking.

    Returns:
        Weights of the shape of the logits, float64.

    Raises:
        SpecError: for another pipeline.
    """
    if pipeline not in PIPELINES:
        raise SpecError(f"pipeline {pipeline!r} is unknown; known: {', '.join(PIPELINES)}")
    logits = np.asarray(logits, dtype=np.float64)
    gaps = logits - logits.max(axis=-1, keepdims=True)
    if pipeline == "redistributing":
        kept = np.where(gaps > threshold, np.exp(gaps), 0.0)
        return kept / kept.sum(axis=-1, keepdims=True)
    logs = gaps - np.log(np.exp(gaps).sum(axis=-1, keepdims=True))
    return np.where(logs > threshold, np.exp(logs), 0.0)


def absorption_distance(bias: DistanceBias, stated: Format, *, scale: float = 1.0) -> np.ndarray:
    """Distance from which a single key cannot change a sum of size 1 kept in the format [docs/theory.md (15.13)].

    `1 + e^(-b)` rounds to 1 from b = p ln 2 on, long before any underflow.

    Args:
        bias: the bias, of one head or of several.
        stated: the format of the accumulator.
        scale: what multiplies the bias.

    Returns:
        (heads,) whole numbers, infinity where there is none.
    """
    return blindness_distance(bias, stated.thresholds().absorption, scale=scale)
