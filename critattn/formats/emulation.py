"""A row of attention in a number format: the real casts, and the zeros they make without casting anything."""

import math
from dataclasses import dataclass

import numpy as np

from critattn.errors import DomainError
from critattn.formats.stated import Format, get

FP32_LEAST = -126
FP32_BITS = 24
FP32_LEAST_NORMAL = 2.0**FP32_LEAST


@dataclass(frozen=True)
class Emulated:
    """Rows of the emulated pipeline, every step rounded as its format rounds [derived, docs/theory.md (14.7)].

    Attributes:
        numerators: exp(logit - row maximum) in the format, (..., keys), float32.
        totals: their sums, exact and then rounded to float32, (...).
        weights: numerators / totals in the format, (..., keys), float32.
    """

    numerators: np.ndarray
    totals: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Zeros:
    """Which weights come out as zeros, without the casts that make them [derived, docs/theory.md (14.8)].

    Attributes:
        numerators: the numerators, (..., keys), float64.
        totals: their sums, rounded to float32, (...), float64.
        zero: the weight is exactly 0, (..., keys).
        numerator_zero: its numerator already is, (..., keys).
        order_matters: the sum taken in float32, in some order, may decide otherwise, (..., keys).
    """

    numerators: np.ndarray
    totals: np.ndarray
    zero: np.ndarray
    numerator_zero: np.ndarray
    order_matters: np.ndarray


def emulate(logits: np.ndarray, format: str, *, flush: bool = False) -> Emulated:
    """The exponential in float32 of logits minus the row maximum, a cast, the sum in float32, a division, a cast.

    Args:
        logits: (..., keys), in nats; -inf for a masked key.
        format: its name.
        flush: every subnormal result, of float32 or of the format, becomes 0.

    Returns:
        Arrays in float32. A row without any finite logit has weights 0.

    Raises:
        SpecError: for an unknown format.
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    form = get(format)
    numerators = cast(_flushed(exponentials(logits), FP32_LEAST, flush), form, flush=flush)
    totals = _totals(numerators)
    quotients = _flushed(numerators / np.where(totals > 0, totals, 1)[..., None], FP32_LEAST, flush)
    return Emulated(numerators, totals, cast(quotients, form, flush=flush))


def zeros(logits: np.ndarray, format: str, *, flush: bool = False) -> Zeros:
    """The zeros of `emulate`, from float32 exponentials by float64 arithmetic that is exact, without any cast.

    Numerators are k q, q the smallest subnormal of the format; a weight is 0 iff k/Z <= 1/2 where the quotient is a
    normal float32, as in fp16 and 8 bits, and in fp32; in bf16 iff k/Z <= 1/2 + 2^-17, since the quotient is rounded
    to the float32 subnormals first [derived, docs/theory.md (14.8)].

    Args:
        logits: (..., keys), in nats; -inf for a masked key.
        format: its name.
        flush: every subnormal result, of float32 or of the format, becomes 0.

    Raises:
        SpecError: for an unknown format.
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    form = get(format)
    given = exponentials(logits).astype(np.float64)
    numerators = rounded(np.where(given < FP32_LEAST_NORMAL, 0.0, given) if flush else given, form)
    if flush:
        numerators = np.where(numerators < _least(form), 0.0, numerators)
    totals = np.asarray(_totals(numerators), np.float64)
    zero = lost(numerators, totals[..., None], form, flush=flush)
    bound = zero_limit(form, flush=flush)[0] * totals[..., None]
    error = numerators.shape[-1] * 2.0**-FP32_BITS
    near = np.abs(numerators - bound) <= bound * error / (1 - error) if error < 1 else np.ones_like(zero)
    close = near & (numerators > 0)
    return Zeros(numerators, totals, zero, numerators == 0, close)


def exponentials(logits: np.ndarray) -> np.ndarray:
    """exp(logit - row maximum), in float32, of the difference taken in float64 and rounded to float32.

    Raises:
        DomainError: where a logit is NaN or +inf, or a row has no key.
    """
    given = np.asarray(logits, np.float64)
    if given.ndim == 0 or given.shape[-1] == 0:
        raise DomainError(f"logits: have shape {given.shape}; allowed: rows of at least one key")
    if np.isnan(given).any() or (given == np.inf).any():
        raise DomainError("logits: have NaN or +inf; allowed: finite numbers, and -inf for a masked key")
    top = given.max(axis=-1, keepdims=True)
    with np.errstate(under="ignore"):
        return np.exp((given - np.where(np.isfinite(top), top, 0.0)).astype(np.float32))


def rounded(values: np.ndarray, format: Format) -> np.ndarray:
    """Numbers in [0, 1] rounded to nearest, ties to even, in the format, by float64 arithmetic alone.

    Exact for values with at most 24 significant bits >= 2^-149, which all float32 are.
    """
    _, exponent = np.frexp(values)
    step = np.maximum(exponent - 1, format.least_exponent) - format.significand_bits + 1
    return np.ldexp(np.rint(np.ldexp(values, -step)), step)


def lost(numerators: np.ndarray, totals: np.ndarray, format: Format, *, flush: bool = False) -> np.ndarray:
    """Whether numerator/Z comes out 0, divided in float32 and cast, without either [derived, docs/theory.md (14.8)].

    Args:
        numerators: numbers of the format, in float64.
        totals: Z, numbers of float32 in float64, that broadcast with the numerators.
        format: the format.
        flush: every subnormal result, of float32 or of the format, becomes 0.
    """
    limit, inclusive = zero_limit(format, flush=flush)
    bound = limit * totals
    return (numerators == 0) | ((numerators <= bound) if inclusive else (numerators < bound))


def zero_limit(format: Format, *, flush: bool = False) -> tuple[float, bool]:
    """The M with which a weight numerator/Z comes out 0 iff numerator <= M Z, and whether equality counts.

    M is halfway between T and the next float32, T the largest float32 quotient that the format makes 0
    [derived, docs/theory.md (14.8)]. It has 25 bits at most, so that M Z is exact in float64.
    """
    last = _largest_lost(format, flush)
    above = np.nextafter(last, np.float32(1))
    return (float(last) + float(above)) / 2, not int(last.view(np.uint32)) & 1


def _largest_lost(form: Format, flush: bool) -> np.float32:
    normal = np.float32(_least(form))
    if not flush:
        # float32 itself loses only what was rounded to 0 before
        return np.float32(0 if form.significand_bits == FP32_BITS else form.smallest / 2)
    if form.least_exponent == FP32_LEAST:
        return np.nextafter(normal, np.float32(0))
    # from half a step below 2^e on, a quotient rounds to 2^e, whose significand is even
    return np.nextafter(normal - np.float32(form.smallest / 2), np.float32(0))


def _least(form: Format) -> float:
    return math.ldexp(1.0, form.least_exponent)


def _totals(numerators: np.ndarray) -> np.ndarray:
    flat = numerators.reshape(-1, numerators.shape[-1])
    sums = [math.fsum(row) for row in flat.tolist()]
    return np.array(sums).astype(np.float32).reshape(numerators.shape[:-1])


def _flushed(values: np.ndarray, least_exponent: int, flush: bool) -> np.ndarray:
    return np.where(values < math.ldexp(1.0, least_exponent), np.float32(0), values) if flush else values


def cast(values: np.ndarray, format: Format, *, flush: bool = False) -> np.ndarray:
    """The real cast of float32 numbers to the format, in float32 again; with `flush` subnormals become 0."""
    with np.errstate(under="ignore"):
        return _flushed(values.astype(format.dtype).astype(np.float32), format.least_exponent, flush)
