"""The distance at which ALiBi makes a key invisible, under each convention, and the published table of nine heads."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import sympy as sp
from flint import arb, ctx

from critattn.biases import Alibi, alibi_slopes
from critattn.blindness import blindness_distance, log_partition
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    decided,
    enclosed,
    equal,
    grid,
    limit_is,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim

# slope m, scale s of the bias, gap e of the logits, threshold -tau > 0; u > 0 is a number of positions
M, S, DEPTH, U = sp.symbols("m s depth u", positive=True)
GAP = sp.Symbol("gap", real=True)
KEYS, RATIO = sp.symbols("N r", positive=True)
LOG_Z = -sp.log(1 - sp.exp(-S * M))

TABLE = (124, 175, 349, 699, 1397, 2795, 5590, 11179, 22358)
# eight heads at 2^-1 to 2^-8, the ninth at 2^(-1/2)
SLOPES = tuple(sp.Integer(2) ** -k for k in (sp.Rational(1, 2), *range(1, 9)))
POINTS = grid(m=(2.0**-0.5, 0.25, 2.0**-8), s=(1.0, 0.125), gap=(0.0, 5.25, -5.25), depth=(87.25, 103.9, 9.75))


def symbolic(claim: Claim) -> Iterator[Step]:
    """The real distance, from what a numerator and a weight are."""
    real = claim.real
    yield equal("e - s m r = tau at the real distance r", GAP - S * M * real, -DEPTH)
    yield from signs(
        "a numerator is zero iff e - s m d <= tau, so iff d >= r: e - s m d - tau",
        {
            "is negative u beyond r": (sp.expand(GAP - S * M * (real + U) + DEPTH), "negative"),
            "is positive u before it": (sp.expand(GAP - S * M * (real - U) + DEPTH), "positive"),
        },
    )
    yield equal("a nat of the gap moves it by 1/(s m)", sp.diff(real, GAP), 1 / (S * M))
    partial = (1 - RATIO**KEYS) / (1 - RATIO)
    yield equal(
        "1 + r + ... + r^(N-1) = (1-r^N)/(1-r): N + 1 keys", partial.subs(KEYS, KEYS + 1) - partial, RATIO**KEYS
    )
    yield equal("and one key", partial.subs(KEYS, 1), 1)
    yield limit_is("r^N -> 0 with r = e^(-s m) < 1", sp.exp(-U * KEYS), (KEYS, sp.oo), 0)
    weight = GAP - S * M * (real + claim.shift) - LOG_Z
    yield equal("a weight is e - s m d - log Z, Z = 1/(1-e^(-sm)): it meets tau at r - log Z/(s m)", weight, -DEPTH)


def certified(claim: Claim) -> Iterator[Step]:
    """Whole distances, the size of log Z, and the numerical theory."""
    yield from whole(claim)
    yield from table(claim)
    box = {"s": ("1/10", 1), "m": ("1/1000", 8)}
    yield positive("log Z > 0: division never hides fewer keys", -claim.shift * S * M, box)
    yield from numeric(claim)


def least(m: Fraction, gap: Fraction, depth: Fraction) -> int:
    """min{d : e - m d <= tau} by looking at d = 0, 1, 2, ..."""
    return next(d for d in range(10_000) if gap - m * d <= -depth)


def whole(claim: Claim) -> Iterator[Step]:
    """The least whole distance of the definition, by search, against the rounding of the real one."""
    cases = {}
    for m in (Fraction(1, 4), Fraction(3, 16), Fraction(7, 10)):
        for depth in (Fraction(86), Fraction(349, 4), Fraction(8734, 100)):
            for gap in (Fraction(0), Fraction(-5), Fraction(7, 3)):
                given = claim.rounding((gap + depth) / m)
                words = f"d = {given} at m = {m}, e = {gap}, tau = -{depth}, where the search finds"
                cases[f"{words} {least(m, gap, depth)}"] = given == least(m, gap, depth)
    yield decided("min{d : e - m d <= tau} is the real distance rounded up, ties included", cases)
    # r = d + f with whole d >= 0: ceil is d for f = 0 and d + 1 for 0 < f < 1
    f = 1 / (1 + U)
    yield from signs(
        "with r = k + f, 0 < f < 1",
        {"k is before r": (f, "positive"), "k + 1 is beyond r": (sp.factor(1 - f), "positive")},
    )


def table(claim: Claim) -> Iterator[Step]:
    """The printed distances of nine heads, from balls that exclude every other whole number."""
    cases = {}
    with ctx.workprec(200):
        for slope, printed in zip(SLOPES, TABLE, strict=True):
            ball = enclosed(claim.table_bits * sp.log(2) / slope)()
            made = claim.table_rounding(ball)
            cases[f"slope {slope}: {made} computed, {printed} printed"] = made == printed
    yield decided("the published table is -tau_normal/m, tau_normal = -126 ln 2, rounded to nearest", cases)


def nearest(ball: arb) -> int:
    """The whole number nearest to what a ball holds."""
    return only((ball + arb(1) / 2).floor())


def above(ball: arb) -> int:
    """The least whole number at or above what a ball holds."""
    return only(ball.ceil())


def only(ball: arb) -> int:
    """The one whole number of a ball."""
    found = ball.unique_fmpz()
    if found is None:
        raise ArithmeticError(f"{ball} holds several whole numbers or none")
    return int(found)


def code(convention: str) -> Callable[..., float]:
    """The distance in the code at a point."""

    def distance(m: float, s: float, gap: float, depth: float) -> float:
        return float(blindness_distance(Alibi(m), -depth, logit_gap=gap, scale=s, convention=convention)[0])

    return distance


def numeric(claim: Claim) -> Iterator[Step]:
    """The code's distances, whole numbers that must be hit exactly, and its log Z and slopes."""
    real, moved = enclosed(claim.real), enclosed(claim.real + claim.shift)
    conventions: dict[str, Callable[..., Any]] = {
        "min": lambda **point: arb(above(real(**point))),
        "normalised": lambda **point: arb(max(0, above(moved(**point)))),
        "rounded": lambda **point: arb(nearest(real(**point))),
    }
    for name, exact in conventions.items():
        yield agrees(f"blindness.blindness_distance, {name}", code(name), exact, POINTS, tolerance=0.0)
    yield agrees(
        "blindness.log_partition",
        lambda m, s: log_partition(Alibi(m), scale=s),
        -claim.shift * S * M,
        grid(m=(2.0**-0.5, 0.25, 2.0**-8), s=(1.0, 0.125)),
    )
    slopes = sorted(alibi_slopes(9).tolist(), reverse=True)
    yield agrees(
        "biases.alibi_slopes: 2^(-1/2) and 2^-1 to 2^-8 for nine heads",
        lambda k: slopes[int(k)],
        lambda k: enclosed(SLOPES[int(float(k))])(),
        grid(k=range(9)),
    )


THEOREM = Theorem(
    name="alibi_distance",
    statement=Statement(
        "Under ALiBi of slope m, scaled by s, the numerator of a key at distance d is 0 iff d >= ceil((e-tau)/(s m)), "
        "and with equal logits in an endless row the weight iff d >= ceil((e-tau-log Z)/(s m)), Z = 1/(1-e^(-sm)). "
        "The published table of nine heads has -tau_normal/m rounded to nearest instead.",
        r"\delta=\min\{d:e-smd\le\tau\}=\Bigl\lceil\frac{e-\tau}{sm}\Bigr\rceil,\qquad"
        r"\delta_{\rm norm}=\Bigl\lceil\frac{e-\tau+\log(1-e^{-sm})}{sm}\Bigr\rceil",
    ),
    hypotheses=(
        "the query's own key has the largest biased logit, e is what another has above its; where the numerator of the "
        "ceiling is negative, the distance is 0",
        "one rounding, zero at and below tau; m > 0 and s > 0",
        "for the weights: Z is that of equal logits, whatever the gap of the one key",
    ),
    source="[Press et al., arXiv:2108.12409, for the bias; derived, docs/theory.md (15.2), (15.3), (15.4)]",
    grade=Grade.IDENTITY,
    claim={
        "real": (GAP + DEPTH) / (S * M),
        "shift": sp.log(1 - sp.exp(-S * M)) / (S * M),
        "rounding": math.ceil,
        "table_bits": 126,
        "table_rounding": nearest,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("the scale left out", {"real": (GAP + DEPTH) / M}, "a factor of scores and bias together is one of m"),
        Mutant("gap of the wrong sign", {"real": (DEPTH - GAP) / (S * M)}, "a larger logit is seen farther"),
        Mutant(
            "rounded to nearest as the least d",
            {"rounding": round},
            "the key at the printed distance 349 is still visible",
        ),
        Mutant("log Z on the other side", {"shift": LOG_Z / (S * M)}, "division by Z > 1 hides keys earlier"),
        Mutant("the table as it is defined", {"table_rounding": above}, "printed are 349, 1397, 11179 and 22358"),
        Mutant("the table from the smallest subnormal", {"table_bits": 133}, "the stated threshold of bfloat16"),
    ),
)
