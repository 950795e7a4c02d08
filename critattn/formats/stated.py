"""The formats in use and the logits at which each of them changes what it does, from its definition alone."""

import difflib
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from critattn.errors import SpecError

LN2 = math.log(2)
KINDS = ("zero", "subnormal", "normal")


@dataclass(frozen=True)
class Thresholds:
    """Logits, in nats, at which exp(x) meets a limit of a format [derived, docs/theory.md (14.1)-(14.5)].

    Attributes:
        normal: e ln 2; below it exp(x) is subnormal, and zero where subnormals are flushed.
        subnormal: (e - p + 1) ln 2, the logarithm of the smallest subnormal.
        zero: (e - p) ln 2; exp(x) rounds to zero at and below it (the tie goes to the even neighbour, zero).
        overflow: ln X, the logarithm of the largest finite number X.
        overflow_rounded: ln(X + ulp(X)/2), from which rounding to nearest gives infinity; None for a format without
            infinity.
        absorption: -p ln 2; 1 + exp(x) rounds to 1 at and below it.
    """

    normal: float
    subnormal: float
    zero: float
    overflow: float
    overflow_rounded: float | None
    absorption: float

    def of(self, kind: str) -> float:
        """The threshold of underflow of that kind: zero, subnormal or normal.

        Raises:
            SpecError: for any other kind.
        """
        if kind not in KINDS:
            raise SpecError(f"threshold {kind!r} is unknown; known: {', '.join(KINDS)}")
        return float(getattr(self, kind))


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: the name used on the command line.
        significand_bits: p, the hidden bit included.
        least_exponent: e, of the smallest normal number 2^e.
        largest: X, the largest finite number.
        has_infinity: overflow gives infinity; else NaN, or the largest number, as the cast chooses.
        scalar: the name of the numpy or ml_dtypes scalar type.
    """

    name: str
    significand_bits: int
    least_exponent: int
    largest: float
    has_infinity: bool
    scalar: str

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype, from ml_dtypes where numpy has none."""
        return np.dtype(getattr(ml_dtypes, self.scalar, self.scalar))

    @property
    def smallest(self) -> float:
        """The smallest subnormal, 2^(e - p + 1)."""
        return math.ldexp(1.0, self.least_exponent - self.significand_bits + 1)

    def thresholds(self) -> Thresholds:
        """The logits at which exp(x) meets a limit of the format, in nats."""
        p, e = self.significand_bits, self.least_exponent
        half_step = math.ldexp(1.0, math.frexp(self.largest)[1] - 1 - p)
        return Thresholds(
            normal=e * LN2,
            subnormal=(e - p + 1) * LN2,
            zero=(e - p) * LN2,
            overflow=math.log(self.largest),
            overflow_rounded=math.log(self.largest + half_step) if self.has_infinity else None,
            absorption=-p * LN2,
        )


FORMATS = {
    one.name: one
    for one in (
        Format("fp32", 24, -126, math.ldexp(2 - 2.0**-23, 127), True, "float32"),
        Format("bf16", 8, -126, math.ldexp(2 - 2.0**-7, 127), True, "bfloat16"),
        Format("fp16", 11, -14, 65504.0, True, "float16"),
        Format("e4m3fn", 4, -6, 448.0, False, "float8_e4m3fn"),
        Format("e4m3", 4, -6, 240.0, True, "float8_e4m3"),
        Format("e5m2", 3, -14, 57344.0, True, "float8_e5m2"),
        Format("e4m3fnuz", 4, -7, 240.0, False, "float8_e4m3fnuz"),
        Format("e5m2fnuz", 3, -15, 57344.0, False, "float8_e5m2fnuz"),
    )
}
ALIASES = {
    "float32": "fp32",
    "single": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    **{one.scalar: one.name for one in FORMATS.values() if one.scalar.startswith("float8")},
}


def names() -> tuple[str, ...]:
    """Names of the formats, widest first."""
    return tuple(FORMATS)


def get(name: str) -> Format:
    """The format of that name; float32, bfloat16, float16, half and float8_... are understood too.

    Raises:
        SpecError: for an unknown name, with the closest one.
    """
    given = name.strip().lower()
    known = ALIASES.get(given, given)
    if known not in FORMATS:
        close = difflib.get_close_matches(given, [*FORMATS, *ALIASES], n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"format {name[:40]!r} is unknown; {hint}known: {', '.join(FORMATS)}")
    return FORMATS[known]
