"""The logits at which an exponential meets the limits of a number format, ties and subnormals included."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import sympy as sp

from critattn import formats
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, decided, equal, signs
from critattn.theorems.theorem import Claim

# p significand bits, least normal exponent e, as in the format; u > 0 is any relative distance from a threshold
P, E = sp.symbols("p e", integer=True)
U, Q = sp.symbols("u q", positive=True)
LARGEST = sp.Symbol("largest", positive=True)
LN2 = sp.log(2)
SIZES = {P: (24, 8, 11, 4), E: (-126, -14, -6, -15)}
POINTS = [
    {"p": one.significand_bits, "e": one.least_exponent, "largest": one.largest} for one in formats.FORMATS.values()
]
NEAR = Fraction(1, 2**200)


def nearest(y: Fraction, p: int, e: int) -> Fraction:
    """A number y > 0 rounded to nearest, ties to even, exactly: p bits, steps of 2^(e-p+1) at least, no largest."""
    exponent = y.numerator.bit_length() - y.denominator.bit_length()
    exponent -= y < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, e) - p + 1)
    return round(y / step) * step


def power(exponent: Any, p: int, e: int) -> Fraction:
    """2^exponent, an exponent in p and e that is whole: e^tau for tau = exponent ln 2."""
    return Fraction(2) ** int(sp.sympify(exponent).subs({P: p, E: e}))


def roundings(claim: Claim) -> Iterator[Step]:
    """Rounding itself, on both sides of each threshold and at it, in all formats."""
    zero, one, normal, infinite = {}, {}, {}, {}
    for form in formats.FORMATS.values():
        p, e = form.significand_bits, form.least_exponent
        tau = power(claim.zero, p, e)
        at = tau * (1 if claim.tie_is_zero else 1 - NEAR)
        zero[f"{form.name}: 2^({claim.zero}) rounds to 0"] = nearest(at, p, e) == 0
        zero[f"{form.name}: anything above it rounds to more than 0"] = nearest(tau * (1 + NEAR), p, e) > 0
        if not claim.tie_is_zero:
            zero[f"{form.name}: 2^({claim.zero}) itself rounds to more than 0"] = nearest(tau, p, e) > 0
        gap = power(claim.absorption, p, e)
        one[f"{form.name}: 1 + 2^({claim.absorption}) rounds to 1"] = nearest(1 + gap, p, e) == 1
        one[f"{form.name}: 1 + anything above it does not"] = nearest(1 + gap * (1 + NEAR), p, e) > 1
        least, border = Fraction(2) ** e, power(E, p, e) - claim.gaps * power(E - P, p, e)
        words = f"{form.name}: 2^e - {claim.gaps} 2^(e-p)"
        normal[f"{words} rounds to the smallest normal number"] = nearest(border, p, e) == least
        normal[f"anything below {words} rounds to a subnormal"] = nearest(border * (1 - NEAR), p, e) < least
        if form.has_infinity:
            largest = Fraction(form.largest)
            ulp = Fraction(2) ** (largest.numerator.bit_length() - p)
            start = largest + Fraction(str(claim.overflow)) * ulp
            infinite[f"{form.name}: X has an odd significand"] = (largest / ulp) % 2 == 1
            infinite[f"{form.name}: X + {claim.overflow} ulp rounds beyond X"] = nearest(start, p, e) > largest
            infinite[f"{form.name}: anything below does not"] = nearest(start * (1 - NEAR), p, e) <= largest
    yield decided("exp(x) rounds to 0 iff x <= tau_zero, in each format", zero)
    yield decided("1 + exp(x) rounds to 1 iff x <= tau_absorption", one)
    yield decided("exp(x), rounded, is subnormal or 0 iff exp(x) < 2^e - 2^(e-p)", normal)
    yield decided("exp(x) rounds to infinity iff exp(x) >= X + ulp(X)/2, where there is infinity", infinite)


def symbolic(claim: Claim) -> Iterator[Step]:
    """Distances to the two neighbours of a number, for every p and every e."""
    yield from roundings(claim)
    half = 2**claim.zero
    yield equal("e^tau_zero is half of the smallest subnormal q = 2^(e-p+1)", half, 2 ** (E - P + 1) / 2, at=SIZES)
    # y = (q/2)/(1+u) below the middle, (q/2)(1+u) above; every other number of the format is at least q
    below, above = Q / 2 / (1 + U), Q / 2 * (1 + U)
    yield from signs(
        "y = e^x between 0 and q",
        {
            "below q/2 it is nearer to 0 than to q": ((Q - below) - below, "positive"),
            "above q/2 it is nearer to q": (above - (Q - above), "positive"),
        },
    )
    unit = 2 ** (1 - P)
    middle = "1 + e^tau_absorption is midway to 1 + 2^(1-p), and 1 = 2^(p-1) 2^(1-p) is an even multiple for p >= 2"
    yield equal(middle, 2**claim.absorption, unit / 2, at=SIZES)
    step = 2 ** (E - P + 1)
    odd = (2**E - step) / step
    yield equal("the number below 2^e is 2^(p-1) - 1 subnormals, odd: the tie goes up", odd, 2 ** (P - 1) - 1, at=SIZES)
    # the middle of 2^e - q and 2^e
    yield equal("their middle is 2^e - 2^(e-p)", 2**E - claim.gaps * 2 ** (E - P), 2**E - step / 2, at=SIZES)


def certified(claim: Claim) -> Iterator[Step]:
    """The numbers of the code, and the limits of the dtypes."""
    zero, absorption = claim.zero * LN2, claim.absorption * LN2
    exact = {"zero": zero, "normal": E * LN2, "subnormal": (E - P + 1) * LN2, "absorption": absorption}
    exact |= {"overflow": sp.log(LARGEST)}
    for name, formula in exact.items():
        words = f"formats: tau_{name}"
        yield agrees(words, lambda p, e, largest, name=name: getattr(stated(p, e, largest), name), formula, POINTS)
    infinite = [point for point, one in zip(POINTS, formats.FORMATS.values(), strict=True) if one.has_infinity]
    # X = (2^p - 1) ulp in these
    reached = sp.log(LARGEST * (1 + claim.overflow / (2**P - 1)))
    yield agrees("formats: tau_overflow, rounded", lambda **point: stated(**point).overflow_rounded, reached, infinite)
    limits = {}
    for form in formats.FORMATS.values():
        info, p, e = ml_dtypes.finfo(form.dtype), form.significand_bits, form.least_exponent
        limits[f"{form.name}: smallest subnormal"] = Fraction(float(info.smallest_subnormal)) == power(E - P + 1, p, e)
        limits[f"{form.name}: smallest normal"] = Fraction(float(info.smallest_normal)) == power(E, p, e)
        limits[f"{form.name}: largest"] = float(info.max) == form.largest
        limits[f"{form.name}: step above 1"] = Fraction(float(info.eps)) == power(1 - P, p, e)
    yield decided("p, e and X are those of numpy and ml_dtypes", limits)
    yield decided("N equal weights 1/N are all 0 from formats.blind_count(format) on, and not before", counts())


def stated(p: int, e: int, largest: float) -> formats.Thresholds:
    """The thresholds of the code for any format."""
    return formats.Format("any", p, e, largest, True, "float64").thresholds()


def counts() -> dict[str, bool]:
    """1/N at the count and before it, rounded once; with flushing where it is below the smallest normal number."""
    found = {}
    for form in formats.FORMATS.values():
        p, e = form.significand_bits, form.least_exponent
        for flush, least in ((False, Fraction(2) ** (e - p)), (True, Fraction(2) ** e)):
            count = formats.blind_count(form.name, flush=flush)
            inside, before = (nearest(Fraction(1, n), p, e) for n in (count, count - 1))
            found[f"{form.name}, flush {flush}: 1/{count}"] = inside < least <= before
    return found


THEOREM = Theorem(
    name="format_thresholds",
    statement=Statement(
        "In a format of p significant bits with least normal exponent e, exp(x) rounds to 0 iff x <= (e-p) ln 2 and "
        "1 + exp(x) rounds to 1 iff x <= -p ln 2; it is subnormal or 0 after rounding iff exp(x) < 2^e - 2^(e-p), and "
        "infinite iff exp(x) >= X + ulp(X)/2. At (e-p+1) ln 2 it is the smallest subnormal, not 0.",
        r"\mathrm{fl}(e^x)=0\iff x\le(e-p)\ln2,\quad\mathrm{fl}(1+e^x)=1\iff x\le-p\ln2,\quad"
        r"\mathrm{fl}(e^x)<2^e\iff e^x<2^e-2^{e-p}",
    ),
    hypotheses=(
        "rounding to nearest, ties to even, once, of the exact exponential",
        "p >= 2, so that 1 has an even significand; subnormals are kept",
        "for the overflow: the format has infinity, and an odd significand of X",
    ),
    source="[classical; docs/theory.md (14.1), (14.2), (14.3), (14.4), (14.5), (14.13)]",
    grade=Grade.IDENTITY,
    claim={
        "zero": E - P,
        "tie_is_zero": True,
        "absorption": -P,
        "overflow": sp.Rational(1, 2),
        "gaps": 1,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "exp(tau_subnormal) = 0",
            {"zero": E - P + 1},
            "published: it is the smallest subnormal itself; zero begins ln 2 below",
        ),
        Mutant("the tie rounds up", {"tie_is_zero": False}, "the even neighbour of q/2 is 0"),
        Mutant("absorption at the machine epsilon", {"absorption": 1 - P}, "half of it is absorbed, not all"),
        Mutant(
            "infinity from X on", {"overflow": sp.Integer(0)}, "X is a number; rounding to nearest reaches half a step"
        ),
        Mutant(
            "subnormal as soon as below 2^e",
            {"gaps": 0},
            "true of exp(x) itself; its rounded value is 2^e down to 2^e - 2^(e-p)",
        ),
    ),
)
