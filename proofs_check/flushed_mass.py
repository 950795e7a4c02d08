"""Where the mass of keys that became zeros goes: to the others before the sum, out of the row after it."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import sympy as sp
from flint import arb

from critattn import blindness, formats
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    continuous_at,
    decided,
    equal,
    grid,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim

# a kept numerator, the other kept ones together, the flushed ones; r = e^(-m), of a blind distance D and N keys
KEPT, OTHERS, LOST = sp.symbols("x y f", positive=True)
M, R, D, N = sp.symbols("m r D N", positive=True)
POWERS = sp.symbols("P Q", positive=True)
MASS = LOST / (KEPT + OTHERS + LOST)
SLOPE = 2.0**-0.5
AT_SLOPE = {R: sp.exp(-M)}
POINTS = grid(m=(SLOPE, 0.0625, 2.0**-8), D=(1, 25, 124), N=(125, 2048, 10**6))


def symbolic(claim: Claim) -> Iterator[Step]:
    """A row of one kept key, all other kept ones and all flushed ones: only their sums count."""
    total = KEPT + OTHERS + LOST
    exact, before, after = KEPT / total, KEPT / (KEPT + OTHERS), KEPT / total
    yield equal("zeros before the sum: the others are p/(1-F)", before, exact * claim.gain.subs("F", MASS))
    yield from signs("so that", {"a kept weight grows": (sp.factor(before - exact), "positive")})
    kept_gain = (KEPT + OTHERS) * (before - exact) / KEPT
    yield equal(
        "and their total variation, half of gains and losses, is", (kept_gain + MASS) / 2, claim.variation * MASS
    )
    yield equal("zeros after it: the row sums to 1 - F", (KEPT + OTHERS) / total, 1 - claim.leak * MASS)
    yield equal("and half the L1 distance is", (abs(after - exact) + MASS) / 2, claim.deficit * MASS)
    yield from geometric(claim)


def geometric(claim: Claim) -> Iterator[Step]:
    """The mass beyond D of ALiBi with equal logits, as a quotient of geometric sums."""
    partial = (1 - R**N) / (1 - R)
    yield equal("1 + r + ... + r^(N-1) = (1-r^N)/(1-r): one key more", partial.subs(N, N + 1) - partial, R**N)
    yield equal("and one key", partial.subs(N, 1), 1)
    share = (partial - partial.subs(N, D)) / partial
    yield equal("F = (r^D + ... + r^(N-1))/(1 + ... + r^(N-1))", share, claim.mass)
    # r^D and r^N as symbols of their own
    near, far = POWERS
    form = claim.mass.subs({R**D: near, R**N: far})
    yield continuous_at("in an endless row F -> r^D", form, {far: 0}, near)


def certified(claim: Claim) -> Iterator[Step]:
    """Single and double roundings of exact rows, the printed masses, and the code."""
    yield roundings(claim)
    printed = claim.mass.subs({R: sp.exp(-1 / sp.sqrt(2)), N: 2048})
    for words, distance, low, high in (
        ("8.3e-39 for flushed subnormals", 124, "825e-41", "835e-41"),
        ("2.1e-8 in fp16", 25, "205e-10", "215e-10"),
        ("8.5e-4 in e4m3", 10, "845e-6", "855e-6"),
    ):
        mass = printed.subs(D, distance)
        inside = (mass - sp.Rational(low)) * (sp.Rational(high) - mass)
        yield positive(f"stated mass at m = 2^(-1/2), N = 2048, D = {distance}: {words}", inside, {})
    yield agrees(
        "blindness.flushed_mass",
        lambda m, D, N: blindness.flushed_mass(m, D, N),
        claim.mass.subs(AT_SLOPE),
        POINTS,
        tolerance=lambda m, D, N: 2.0**-52 * (16 + 2 * m * D),
        precision=2000,
    )
    yield agrees(
        "blindness.flushed_bound = n0 e^tau",
        blindness.flushed_bound,
        bound,
        grid(threshold=(-9.75, -87.25), count=(1, 4096)),
    )
    yield from rows(claim)


def bound(threshold: arb, count: arb) -> arb:
    """That many weights at the threshold."""
    return count * threshold.exp()


def rows(claim: Claim) -> Iterator[Step]:
    """Weights of the code for a row of ALiBi in both pipelines, and its distances to the exact row."""
    length = 64

    def distance(m: float, D: float, pipeline: str) -> np.ndarray:
        logits = -m * np.arange(length)
        exact = formats.exact_weights(logits)
        # half a position before D; against the row's sum where zeros come after it
        tau = -m * (D - 0.5) + (np.log(exact[0]) if pipeline == "leaking" else 0.0)
        return blindness.flushed_row(logits, tau, pipeline=pipeline) - exact

    places = grid(m=(SLOPE, 0.0625), D=(3, 10, 40))
    mass = claim.mass.subs(AT_SLOPE).subs(N, length)
    for pipeline, factor in (("redistributing", claim.variation), ("leaking", claim.deficit)):
        yield agrees(
            f"blindness.flushed_row, {pipeline}: half the L1 distance",
            lambda m, D, pipeline=pipeline: float(np.abs(distance(m, D, pipeline)).sum() / 2),
            factor * mass,
            places,
            # each of 64 weights is rounded a few times
            tolerance=length * 4 * 2.0**-52,
            relative_to=sp.Integer(1),
        )


def roundings(claim: Claim) -> Step:
    """Rows of few keys in exact numbers: a lost weight against half of the smallest subnormal."""
    cases = {}
    for form in formats.FORMATS.values():
        q = Fraction(2) ** (form.least_exponent - form.significand_bits + 1)
        for maxima in (1, 2, 3):
            for part in (Fraction(2, 5), Fraction(1, 2), Fraction(7, 5), Fraction(8, 5)):
                # two roundings: the numerator to a whole number of q, then its quotient
                numerator = (round(part) if claim.roundings == 2 else part) * q
                weight = part * q / (maxima + part * q)
                lost = round(numerator / (maxima + numerator) / q) == 0
                words = f"{form.name}, {maxima} equal maxima, a key at {float(part)} q"
                cases[f"{words}: its weight {float(weight / q):.3f} q is kept or at most q/2"] = (
                    not lost or weight <= q / 2
                )
    return decided(
        f"a weight lost by {claim.roundings} rounding(s) is at most e^tau = q/2, so that F <= n0 e^tau", cases
    )


THEOREM = Theorem(
    name="flushed_mass",
    statement=Statement(
        "Let F be the exact mass of the keys whose weights become 0. Lost before the sum it goes to the others, "
        "p/(1-F), at a total variation of exactly F; lost after it the row sums to 1 - F and half the L1 distance is "
        "F/2. A single rounding loses at most n0 e^tau. For ALiBi with equal logits, F = (r^D - r^N)/(1 - r^N).",
        r"\hat p=\frac p{1-F},\ \mathrm{TV}(p,\hat p)=F;\qquad\sum\hat p=1-F,\ \tfrac12\|p-\hat p\|_1=\tfrac F2;\qquad"
        r"F=\frac{r^D-r^N}{1-r^N},\ r=e^{-m}",
    ),
    hypotheses=(
        "the kept entries are exact: real casts round them as well, by 2^-p each",
        "F < 1: at least one key is kept",
        "for the bound: weights rounded once, at a threshold against the sum of the row",
        "for ALiBi: all keys from D on are blind, m > 0",
    ),
    source="[derived, docs/theory.md (14.9), (14.10), (14.11), (15.18), (15.19)]",
    grade=Grade.IDENTITY,
    claim={
        "gain": 1 / (1 - sp.Symbol("F")),
        "variation": sp.Integer(1),
        "leak": sp.Integer(1),
        "deficit": sp.Rational(1, 2),
        "mass": (R**D - R**N) / (1 - R**N),
        "roundings": 1,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("kept weights as they were", {"gain": sp.Integer(1)}, "true of the leak: a row must sum to 1"),
        Mutant("1 + F", {"gain": 1 + sp.Symbol("F")}, "to first order only"),
        Mutant("a variation of F/2", {"variation": sp.Rational(1, 2)}, "what is lost is gained elsewhere: F twice"),
        Mutant("a leak of distance F", {"deficit": sp.Integer(1)}, "nothing is gained: the difference counts once"),
        Mutant("a row that sums to 1", {"leak": sp.Integer(0)}, "nothing is divided again"),
        Mutant("the endless row", {"mass": R**D}, "a row of N keys has no mass beyond N"),
        Mutant("blind from D + 1 on", {"mass": (R ** (D + 1) - R**N) / (1 - R**N)}, "key D is blind too"),
        Mutant("two roundings", {"roundings": 2}, "a numerator of 1.4 q is rounded to q, and q/2 to 0"),
    ),
)
