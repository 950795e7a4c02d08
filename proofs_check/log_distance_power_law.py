"""A bias m log(1+d) makes weights a power of the distance: where they underflow, and what mass is left far away."""

from collections.abc import Iterator

import sympy as sp
from flint import arb

from critattn.biases import LogDistance
from critattn.blindness import blindness_distance, log10_distance
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    enclosed,
    equal,
    grid,
    limit_is,
    positive,
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim

# slope m, distance d or D, threshold -tau > 0, gap e; x = 1/(1+d) in (0, 1]
M, D, DEPTH, U, X = sp.symbols("m d depth u x", positive=True)
GAP = sp.Symbol("gap", real=True)
FAR = sp.symbols("D", positive=True)
POINTS = grid(m=(0.5, 2.0**-0.5, 3.0, 17.0), gap=(0.0, 5.25, -5.25), depth=(9.75, 87.25, 103.9))


def symbolic(claim: Claim) -> Iterator[Step]:
    """The power, the distance of underflow, and the tail as a telescoping sum."""
    yield equal("e^(-m log(1+d)) is the claimed power of 1 + d", sp.exp(-M * sp.log(1 + D)), claim.weight)
    # log(1 + d*) as it follows from d* for these positive symbols
    reach = sp.expand_log(sp.log(1 + claim.distance), force=True)
    yield equal("e - m log(1 + d*) = tau at the distance d*", GAP - M * reach, -DEPTH)
    yield from signs(
        "beyond it weights are smaller", {"d/dd of m log(1+d)": (sp.diff(M * sp.log(1 + D), D), "positive")}
    )
    area = (1 + FAR) ** (1 - M) / (M - 1)
    yield equal("the integral of (1+y)^(-m) from D on: its derivative", -sp.diff(area, FAR), (1 + FAR) ** -M)
    yield limit_is("and (1+D)^(1-m) -> 0 for m = 1 + u > 1", sp.exp(-U * sp.log(1 + FAR)), (FAR, sp.oo), 0)
    yield equal("so the mass of all keys from D on is at least", claim.tail, area)
    yield equal("and, with its first key on top, at most", claim.tail * (1 + claim.excess), area + (1 + FAR) ** -M)
    # m = 1 + u
    ratio = (claim.tail / (FAR ** (1 - M) / (M - 1))).subs(M, 1 + U)
    yield limit_is("which is D^(1-m)/(m-1) to leading order", sp.log(sp.powsimp(ratio)), (FAR, sp.oo), 0)


def certified(claim: Claim) -> Iterator[Step]:
    """The two sides of the integral for each key, the sum itself, and the numerical theory."""
    domain = {"m": claim.slopes}
    yield positive("the mass, a sum of positive numbers, is positive", claim.tail, {"D": (1, 1000), **domain})
    # (1+d)^m times the integral over [d, d+1], against 1 and (1+x)^(-m)
    upper = X * (M - 1) - 1 + (1 + X) ** (1 - M)
    words = "the integral of (1+y)^(-m) over [d, d+1] is below (1+d)^(-m), times (m-1)(1+d)^(m-1)"
    yield positive_from_zero(words, upper, (X, 1.0, domain), order=2)
    lower = (1 + X) ** M - 1 - M * X
    words = "and above (2+d)^(-m), times (m-1)(1+d)^(m-1)(1+x)^m: Bernoulli's inequality"
    yield positive_from_zero(words, lower, (X, 1.0, domain), order=2)
    yield from summed(claim)
    yield from numeric(claim)


def summed(claim: Claim) -> Iterator[Step]:
    """The infinite sum as a Hurwitz zeta function, against the claimed mass and its error."""
    formula, excess = enclosed(claim.tail), enclosed(claim.excess)
    yield agrees(
        "the sum of (1+d)^(-m) from D on, the Hurwitz zeta function of (m, 1+D), is within the excess of the mass",
        lambda m, D: float(formula(m=arb(m), D=arb(D))),
        lambda m, D: m.zeta(1 + D),
        grid(m=(1.25, 2.0, 4.5), D=(3, 40, 5000)),
        tolerance=lambda m, D: float(excess(m=arb(m), D=arb(D))),
    )


def numeric(claim: Claim) -> Iterator[Step]:
    """The distances of the code, and the published one."""
    # the amount of bias that is reached, and its rounding times the size of the exponent
    yield agrees(
        "biases.LogDistance.inverse",
        lambda m, gap, depth: LogDistance(m).inverse(gap + depth),
        claim.distance,
        POINTS,
        tolerance=lambda m, gap, depth: 2.0**-52 * (16 + 4 * (depth + abs(gap)) / m),
    )
    yield agrees(
        "blindness.log10_distance",
        lambda m, gap, depth: float(log10_distance(LogDistance(m), -depth, logit_gap=gap)[0]),
        sp.log(claim.distance) / sp.log(10),
        POINTS,
    )
    yield agrees(
        "blindness.blindness_distance: the least whole d",
        lambda m, gap, depth: float(blindness_distance(LogDistance(m), -depth, logit_gap=gap)[0]),
        lambda **point: arb(enclosed(claim.distance)(**point).ceil()),
        [point for point in POINTS if (point["depth"] + point["gap"]) / point["m"] < 30],
        tolerance=0.0,
    )
    first = claim.distance.subs({GAP: 0, DEPTH: 126 * sp.log(2), M: 1 / sp.sqrt(2)})
    printed = 437 * sp.Integer(10) ** 51
    off = (sp.Integer(10) ** 51 / 2) ** 2 - (first - printed) ** 2
    yield positive("the published 4.37e53: m = 2^(-1/2), tau = -126 ln 2, to its last digit", off, {})
    yield agrees(
        "biases.LogDistance.amount",
        lambda m, d: float(LogDistance(m).amount(d)),
        -sp.log(claim.weight),
        grid(m=(0.5, 3.0), d=(1, 10**6)),
    )


THEOREM = Theorem(
    name="log_distance_power_law",
    statement=Statement(
        "Under a bias m log(1+d) a weight is the power (1+d)^(-m) of the distance and underflows from "
        "e^((e-tau)/m) - 1 on. For m > 1 the numerators of all keys from D on sum to (1+D)^(1-m)/(m-1), with a "
        "relative excess between 0 and (m-1)/(1+D): no underflow does not mean that far keys count.",
        r"e^{-m\log(1+d)}=(1+d)^{-m},\quad d^*=e^{(e-\tau)/m}-1,\quad"
        r"0\le\frac{\sum_{d\ge D}(1+d)^{-m}}{(1+D)^{1-m}/(m-1)}-1\le\frac{m-1}{1+D}",
    ),
    hypotheses=(
        "m > 0 for the weight and the distance, m > 1 for the sum, which is infinite otherwise; certified up to m = 20",
        "the query's own key has the largest biased logit; equal logits for the sum",
        "an endless row",
    ),
    source="[derived, docs/theory.md (15.5)]",
    grade=Grade.ASYMPTOTIC,
    claim={
        "weight": (1 + D) ** -M,
        "distance": sp.exp((GAP + DEPTH) / M) - 1,
        "tail": (1 + FAR) ** (1 - M) / (M - 1),
        "excess": (M - 1) / (1 + FAR),
        "slopes": ("21/20", 20),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("an exponential of the distance", {"weight": sp.exp(-M * D)}, "that is ALiBi"),
        Mutant("without the 1", {"distance": sp.exp((GAP + DEPTH) / M)}, "log(1+d), not log d"),
        Mutant(
            "times the slope", {"distance": sp.exp((GAP + DEPTH) * M) - 1}, "steeper biases reach the threshold earlier"
        ),
        Mutant("mass of one key", {"tail": (1 + FAR) ** -M / (M - 1)}, "all keys beyond D count"),
        Mutant("m > 1 left out", {"slopes": ("1/2", 20)}, "the sum is infinite: the formula is negative there"),
        Mutant("a smaller excess", {"excess": (M - 1) / (1 + FAR) ** 2}, "the first key counts in full"),
    ),
)
