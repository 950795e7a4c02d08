"""What is lost where weights become zeros: flushed mass, redistribution, leak, total blindness, absorption."""

import math
from dataclasses import dataclass

import numpy as np

from critattn.formats.emulation import cast, emulate, exponentials, zero_limit, zeros
from critattn.formats.stated import get

# relative error of a float32 exponential: its argument, up to 128, is rounded by 2^-18, the rest is smaller
FP32_ERROR = 2.0**-17


@dataclass(frozen=True)
class Loss:
    """A row whose small weights became zeros, against the exact softmax.

    Attributes:
        flushed: how many weights came out as zeros, (...).
        flushed_mass: F, their exact mass, (...).
        mass_bound: the bound of F, (...) [derived, docs/theory.md (14.11)].
        total_variation: half the L1 distance of the weights that came out to the exact ones, (...).
        row_sum: sum of the weights that came out, (...).
    """

    flushed: np.ndarray
    flushed_mass: np.ndarray
    mass_bound: np.ndarray
    total_variation: np.ndarray
    row_sum: np.ndarray


def exact_weights(logits: np.ndarray) -> np.ndarray:
    """The softmax in float64, (..., keys); 0 everywhere in a row without any finite logit.

    Raises:
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    exponentials(logits)
    given = np.asarray(logits, np.float64)
    top = given.max(axis=-1, keepdims=True)
    masses = np.exp(given - np.where(np.isfinite(top), top, 0.0))
    total = masses.sum(axis=-1, keepdims=True)
    return masses / np.where(total > 0, total, 1.0)


def redistributed(exact: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Weights of a pipeline that loses numerators before the sum: p/(1 - F) on the others, (..., keys).

    Their total variation distance to `exact` is F itself [derived, docs/theory.md (14.9)].
    """
    kept = np.where(zero, 0.0, exact)
    total = kept.sum(axis=-1, keepdims=True)
    return kept / np.where(total > 0, total, 1.0)


def leaked(exact: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Weights of a pipeline that casts after the division: p on the others, so that a row sums to 1 - F, (..., keys).

    Half the L1 distance to `exact` is F/2 [derived, docs/theory.md (14.10)].
    """
    return np.where(zero, 0.0, exact)


def leaking(logits: np.ndarray, format: str, *, flush: bool = False) -> Loss:
    """The loss of a softmax in float32 whose weights are cast afterwards, by real casts.

    Args:
        logits: (..., keys), in nats.
        format: of the weights.
        flush: every subnormal result becomes 0.

    Raises:
        SpecError: for an unknown format.
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    form = get(format)
    weights = cast(emulate(logits, "fp32", flush=flush).weights, form, flush=flush)
    stated = form.thresholds()
    return _loss(logits, weights, np.asarray(math.exp(stated.normal if flush else stated.zero)))


def redistributing(logits: np.ndarray, format: str, *, flush: bool = False) -> Loss:
    """The loss of the pipeline that casts numerators before the sum and weights after it, by real casts.

    Args:
        logits: (..., keys), in nats.
        format: of numerators and weights.
        flush: every subnormal result becomes 0.

    Raises:
        SpecError: for an unknown format.
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    form, made = get(format), emulate(logits, format, flush=flush)
    limit, _ = zero_limit(form, flush=flush)
    # a numerator M Z at most, before it was rounded; a flushed one is a normal number short
    own = math.ldexp(1.0, form.least_exponent) if flush else form.smallest / 2
    largest = limit * made.totals.astype(np.float64) * (1 + math.ldexp(1.0, -form.significand_bits)) + own
    return _loss(logits, made.weights, largest / _exact_totals(logits))


def lost_mass(logits: np.ndarray, format: str, *, flush: bool = False) -> np.ndarray:
    """F, the exact mass of the weights that come out as zeros, predicted without casts, (...).

    Raises:
        SpecError: for an unknown format.
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    zero = zeros(logits, format, flush=flush).zero
    return np.where(zero, exact_weights(logits), 0.0).sum(axis=-1)


def _exact_totals(logits: np.ndarray) -> np.ndarray:
    return 1 / np.maximum(exact_weights(logits).max(axis=-1), np.finfo(float).tiny)


def _loss(logits: np.ndarray, weights: np.ndarray, largest: np.ndarray) -> Loss:
    exact, made = exact_weights(logits), weights.astype(np.float64)
    zero = (made == 0) & (exact > 0)
    return Loss(
        zero.sum(axis=-1),
        np.where(zero, exact, 0.0).sum(axis=-1),
        zero.sum(axis=-1) * largest * (1 + FP32_ERROR),
        np.abs(made - exact).sum(axis=-1) / 2,
        made.sum(axis=-1),
    )


def blind_count(format: str, *, flush: bool = False) -> int:
    """The smallest number N of equal logits whose weights 1/N, rounded once, are 0 [derived, docs/theory.md (14.13)].

    2^(p-e); where subnormals are flushed, the smallest N with 1/N < 2^e - 2^(e-p).

    Raises:
        SpecError: for an unknown format.
    """
    form = get(format)
    power = 1 << (form.significand_bits - form.least_exponent)
    return power // ((1 << form.significand_bits) - 1) + 1 if flush else power


def absorbed(gaps: np.ndarray, accumulator: str) -> np.ndarray:
    """Whether one key that lies `gaps` nats below the maximum changes an accumulator of size 1 not at all, (...).

    It is absorbed iff gap >= p ln 2; the tie goes to the even neighbour, 1 [derived, docs/theory.md (14.5)].

    Raises:
        SpecError: for an unknown format.
    """
    return np.asarray(gaps) >= -get(accumulator).thresholds().absorption
