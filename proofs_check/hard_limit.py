"""ReLU^p re-weighting tends to the hard maximum as p grows: 1/m on each of m equal largest weights."""

from collections.abc import Iterator

import numpy as np
import sympy as sp

from critattn.symbolic_family import P
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    continuous_at,
    equal,
    grid,
    limit_is,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import relu_power_exact

# m = 1 + k largest excesses x, j others at r x, q = r^p
M, K, J, Q, X, R, RATE = sp.symbols("m k j q x r s", positive=True)
REST = sp.Symbol("T", nonnegative=True)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The weight of a largest key, its limit, and the mass of the others."""
    ratios = sp.symbols("r1:4", positive=True)
    powers = [(ratio * X) ** P for ratio in ratios]
    form = 1 / (M + sum(ratio**P for ratio in ratios))
    yield equal(
        "weight of a largest key = 1/(m + sum r_j^p), here with three others", X**P / (M * X**P + sum(powers)), form
    )
    yield limit_is("r^p = e^(-s p) -> 0 as p -> oo for r < 1", sp.exp(-RATE * P), (P, sp.oo), 0)
    yield continuous_at(f"so the weight tends to {claim.limit}", 1 / (M + REST), {REST: 0}, claim.limit)
    mass = REST / (M + REST)
    yield equal("the others hold T/(m+T), T = sum r_j^p", 1 - M / (M + REST), mass)
    room = (REST - mass).subs(M, 1 + K)
    yield from signs("T/(m+T) <= T", {"for m >= 1": (room, "nonnegative")})


def certified(claim: Claim) -> Iterator[Step]:
    """The rate in the worst row, where all others are second, and the numerical theory."""
    n = 1 + K + J
    room = claim.rate(n, R) - J / (1 + K + J * Q)
    words = "(mass of the others)/r^p < rate in a row of m largest and j second largest"
    # over a common denominator, so that nothing cancels where r^p is small
    top = sp.expand(sp.numer(sp.together(room)))
    for first, last in ((0, 0), (1, 1000)):
        domain = {"j": (1, 10**6), "k": (first, last), "q": ("1/1000000000000", 1), "r": ("1/100", "99/100")}
        used = {symbol.name for symbol in top.free_symbols}
        box = {name: ends for name, ends in domain.items() if name in used}
        yield positive(f"{words}, m = {1 + first} to {1 + last}", top, box)
    yield agrees(
        "theory.relu_power_exact.hard_limit",
        lambda m, j: relu_power_exact.hard_limit([0.75] * m + [0.5] * j)[0],
        claim.limit,
        grid(m=(1, 2, 3, 7), j=(0, 1, 5)),
    )
    yield agrees(
        "the re-weighted row at p = 400",
        lambda m, j: re_weighted([3.0] * m + [2.0] * j, 400.0),
        claim.limit,
        grid(m=(1, 2, 3, 7), j=(1, 5, 50)),
        tolerance=1e-12,
    )
    log_n, p, ratio = sp.symbols("log_n p ratio", positive=True)
    yield agrees(
        "theory.relu_power_exact.hard_limit_distance = (n-1) r^p",
        relu_power_exact.hard_limit_distance,
        (sp.exp(log_n) - 1) * ratio**p,
        grid(p=(50.0, 100.0), ratio=(0.25, 0.5), log_n=(0.75, 20.0)),
        tolerance=1e-13,
    )


def re_weighted(scores: list[float], p: float) -> float:
    """Weight of the first key of a row by the definition ReLU(n a - 1)^p."""
    weights = np.array(scores) / np.sum(scores)
    excess = np.maximum(len(scores) * weights - 1, 0.0)
    powers = (excess / excess.max()) ** p
    return float(powers[0] / powers.sum())


THEOREM = Theorem(
    name="hard_limit",
    statement=Statement(
        "As p goes to infinity the re-weighted row tends to 1/m on each of its m equal largest weights; with the "
        "second largest excess r times the largest, the mass elsewhere is below (n-1) r^p.",
        r"A_j\to\frac1m\ (j\text{ largest}),\quad \sum_{j\text{ not largest}}A_j\le(n-1)\,r^p",
    ),
    hypotheses=(
        "some weight is above the mean",
        "m keys share the largest weight; the published limit, one-hot, needs m = 1",
        "r < 1 is the ratio of the second largest excess to the largest",
    ),
    source="[Gao 2025 for m = 1; derived, docs/theory.md (12.3)]",
    grade=Grade.BOUND,
    claim={"limit": 1 / M, "rate": lambda n, r: n - 1},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("one-hot despite ties", {"limit": sp.Integer(1)}, "the published limit, without its hypothesis m = 1"),
        Mutant("rate r^p", {"rate": lambda n, r: sp.Integer(1)}, "up to n - 1 keys may be second"),
        Mutant("rate (n-1) r^(p+1)", {"rate": lambda n, r: (n - 1) * r}, "one power of r too many"),
    ),
)
