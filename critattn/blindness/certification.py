"""What a mitigation can promise: every key visible, some key blind whatever the logits, or neither."""

import math
from dataclasses import dataclass

import numpy as np

from critattn.biases import Clamp, DistanceBias
from critattn.blindness.distances import ROUNDING, log_partition, reached
from critattn.errors import DomainError

LONGEST = 1 << 22
VISIBLE, BLIND, UNDECIDED = "visible everywhere", "blind somewhere", "undecided"


@dataclass(frozen=True)
class Certificate:
    """What holds for all logits of a row that lie within `spread` of each other [docs/theory.md (15.21), (15.24)].

    Attributes:
        verdict: visible everywhere: no weight is zero; blind somewhere: some weight of some head is zero, for all such
            logits; undecided: it depends on the logits.
        visible_below: per head, the largest D such that all distances below D are visible, at most N.
        blind_from: per head, the first distance that is blind in a row of N keys for all such logits; infinity where
            there is none.
        slack: nats between the weakest weight and the threshold, of the worst head; negative where it may underflow.
        spread: G, the largest difference of two logits of a row without the bias, in nats.
        log_sum: ln Z of a row of equal logits, the largest of the heads; 0 for numerators.
        safe_clamp: c from which `Clamp` makes everything visible, `tau + G + ln N` (without ln N for numerators); None
            where no clamp does, since the logits alone underflow.
    """

    verdict: str
    visible_below: np.ndarray
    blind_from: np.ndarray
    slack: float
    spread: float
    log_sum: float
    safe_clamp: float | None


def certify(
    bias: DistanceBias,
    threshold: float,
    length: int,
    *,
    spread: float | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
    normalised: bool = True,
) -> Certificate:
    """Certify the causal rows of up to N keys against underflow, over all logits of a given spread.

    A weight is at least `e^(-s b(d) - G)/Z` and at most `e^(-s b(d) + G)/Z`, Z being the sum at equal logits; without
    the division both hold at Z = 1. Rounding at the threshold itself is not resolved beyond 1e-15.

    Args:
        bias: the bias, with its clamp where it has one.
        threshold: tau < 0, in nats.
        length: N, the longest row; distances up to N - 1.
        spread: G >= 0, in nats; by default 2z under a soft cap, else 0.
        softcap: z of a soft cap of the logits before the bias, which bounds the spread by 2z.
        scale: s, what multiplies the bias.
        normalised: weights after division; else numerators.

    Returns:
        The certificate.

    Raises:
        DomainError: for a threshold, length, spread, cap or scale out of range.
    """
    spread = _spread(spread, softcap)
    if not (math.isfinite(threshold) and threshold < 0):
        raise DomainError.of("threshold", threshold, "a finite number below 0")
    if not (math.isfinite(scale) and scale > 0):
        raise DomainError.of("scale", scale, "finite and above 0")
    if not 1 <= length <= LONGEST:
        raise DomainError.of("length", length, f"from 1 to {LONGEST}")
    distances = np.arange(length, dtype=np.float64)
    below, blind, slack, largest, least = [], [], math.inf, 0.0, 0.0
    for one in bias.heads():
        log_z = log_partition(one, scale=scale, length=length) if normalised else 0.0
        with np.errstate(over="ignore"):
            amounts = scale * np.broadcast_to(np.asarray(one.amount(distances), dtype=np.float64), distances.shape)
        least = min(least, float(amounts.min()))
        # numerators are relative to the largest of the row, which need not be the query's own key
        amounts = amounts if normalised else amounts - amounts.min()
        unsafe = amounts + spread + log_z >= -threshold * (1 - ROUNDING)
        certain = reached(amounts - spread + log_z, -threshold)
        below.append(float(np.argmax(unsafe)) if unsafe.any() else float(length))
        blind.append(float(np.argmax(certain)) if certain.any() else math.inf)
        slack, largest = min(slack, float(-threshold - log_z - spread - amounts.max())), max(largest, log_z)
    # a bias that raises logits by -least makes the sum of N keys up to N e^-least
    clamp = threshold + spread - least + (math.log(length) if normalised else 0.0)
    verdict = VISIBLE if min(below) >= length else BLIND if min(blind) < math.inf else UNDECIDED
    safe = clamp / scale if clamp < 0 else None
    return Certificate(verdict, np.asarray(below), np.asarray(blind), slack, spread, largest, safe)


def _spread(spread: float | None, softcap: float | None) -> float:
    if spread is not None and not (math.isfinite(spread) and spread >= 0):
        raise DomainError.of("spread", spread, "finite and at least 0")
    if softcap is None:
        return spread or 0.0
    if not (math.isfinite(softcap) and softcap > 0):
        raise DomainError.of("softcap", softcap, "finite and above 0")
    return 2 * softcap if spread is None else min(spread, 2 * softcap)


def safe_bias(bias: DistanceBias, certificate: Certificate) -> DistanceBias | None:
    """The bias with the clamp that the certificate suggests; None where it has none."""
    return None if certificate.safe_clamp is None else Clamp(bias, certificate.safe_clamp)


def amplitude_is_safe(amplitude: float, threshold: float, *, spread: float = 0.0, log_sum: float = 0.0) -> bool:
    """Whether a bias known only by its range, as of FIRE or T5, leaves every key visible [docs/theory.md (15.8)].

    FIRE is an MLP of `ln(1 + c d)/ln(1 + c max(L, i))`, which stays in [0, 1]: no distance limits it, its range does.
    Safe iff `range + G + ln Z < |tau|`.

    Args:
        amplitude: largest minus smallest value of the bias, in nats, at least 0.
        threshold: tau < 0, in nats.
        spread: G, the largest difference of two logits, in nats.
        log_sum: ln Z, for weights after division; ln N always suffices.

    Raises:
        DomainError: for a negative amplitude.
    """
    if not amplitude >= 0:
        raise DomainError.of("amplitude", amplitude, "at least 0")
    return amplitude + _spread(spread, None) + log_sum < -threshold
