"""The weights on a simplex, and the gamma at which half of the weight is a token's own."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from critattn import symbolic as sym
from critattn.symbolic import GAMMA, RHO, THETA, N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, positive_from_zero, signs
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

LOG_N = sp.Symbol("log_n", positive=True)
POINTS = grid(gamma=(0.0, 0.5, 1.0, 1.9, 2.5), rho=(0.0, 0.25, 0.7), log_n=(0.7, 5.0, 40.0, 690.0))


def rounding(gamma: float, rho: float, log_n: float) -> float:
    """A few roundings of the exponent beta (1-rho) - log(n-1), which the weights multiply by up to its size."""
    return 2.0**-52 * (16 + 4 * (1 + gamma) * log_n)


def symbolic(claim: Claim) -> Iterator[Step]:
    """From the definition: one key at score 1, n - 1 keys at score rho."""
    own, other = N**GAMMA, N ** (GAMMA * RHO)
    total = own + (N - 1) * other
    yield equal("A_ii = n^gamma/(n^gamma + (n-1) n^(gamma rho)) = 1/(1 + (n-1) t)", own / total, claim.self_weight)
    yield equal("A_ij = n^(gamma rho)/(n^gamma + (n-1) n^(gamma rho)) = t A_ii", other / total, claim.cross_weight)
    yield equal("A_ii + (n-1) A_ij = 1", claim.self_weight + (N - 1) * claim.cross_weight, 1)
    contrast = (1 - N ** (-GAMMA * THETA)) / (1 + (N - 1) * N ** (-GAMMA * THETA))
    yield equal("delta = A_ii - A_ij = (1-t)/(1 + (n-1) t)", claim.self_weight - claim.cross_weight, contrast)
    rate = sp.diff(-GAMMA * THETA * sp.log(N) + sp.log(N - 1), GAMMA)
    log_odds = sp.log(own / ((N - 1) * other))
    yield equal("the log odds of A_ii are linear in gamma with slope (1-rho) log n", sp.diff(log_odds, GAMMA), -rate)
    theta, size = sp.symbols("theta size", positive=True)
    yield from signs(
        "so there is one half-weight point", {"the slope (1-rho) log n is positive": (theta * size, "positive")}
    )
    root = claim.half_weight_gamma
    exponent, wanted = (1 - root * THETA) * sp.log(N), sp.log(N) - sp.log(N - 1)
    at = {N: (3, 17, 1009, 10**40)}
    yield equal("at the half-weight gamma, (1 - gamma (1-rho)) log n = log(n/(n-1))", exponent, wanted, at=at)
    halved = sym.self_weight().subs(N ** (1 - GAMMA * THETA), N / (N - 1))
    yield equal("and n^(1 - gamma (1-rho)) = n/(n-1) means A_ii = 1/2", halved, sp.Rational(1, 2))


def certified(claim: Claim) -> Iterator[Step]:
    """How far the half-weight point lies below 1/(1-rho), and what the numerical theory gives."""
    x = sp.Symbol("x", nonnegative=True)
    shift = -sp.log(1 - x)
    below = "gamma_c - gamma_1/2 = -log(1 - 1/n)/((1-rho) log n)"
    yield positive_from_zero(f"{below} > (1/n)/((1-rho) log n)", shift - x, (x, 0.5, {}), order=2)
    yield positive_from_zero(f"{below} < (1/n + 1/n^2)/((1-rho) log n)", x + x**2 - shift, (x, 0.5, {}), order=2)
    at_log: dict[Any, Any] = {N: sp.exp(LOG_N)}
    for name, exact in (("self_weight", claim.self_weight), ("cross_weight", claim.cross_weight)):
        function = getattr(simplex, name)
        yield agrees(f"theory.simplex.{name}", function, exact.subs(at_log), POINTS, tolerance=rounding)
    powers = (sym.participation_ratio(), sym.contrast(), sym.entropy())
    names = ("participation_ratio", "contrast", "entropy")
    inside = [point for point in POINTS if point["log_n"] < 100]
    for name, exact in zip(names, powers, strict=True):
        function = getattr(simplex, name)
        yield agrees(f"theory.simplex.{name}", function, exact.subs(at_log), inside, tolerance=rounding)
    yield agrees(
        "theory.simplex.half_weight_gamma = log(n-1)/((1-rho) log n)",
        simplex.half_weight_gamma,
        claim.half_weight_gamma.subs(at_log),
        grid(rho=(-0.01, 0.0, 0.25, 0.7), log_n=(1.2, 2.0, 4.0, 40.0, 690.0))[5:],
        tolerance=64 * 2.0**-52,
    )


THEOREM = Theorem(
    name="simplex_weights",
    statement=Statement(
        "On a simplex a row has two weights, and the self weight is exactly 1/2 at one gamma, just below 1/(1-rho).",
        r"A_{ii}=\frac1{1+(n-1)t},\ A_{ij}=tA_{ii},\ t=n^{-\gamma(1-\rho)};\qquad"
        r"\gamma_{1/2}=\frac{\log(n-1)}{(1-\rho)\log n}",
    ),
    hypotheses=("unit tokens with common cosine rho < 1", "n >= 2", "K = Q = V = I and beta = gamma log n"),
    source="[Chen 2025, proof of Thm 2.1; derived, docs/theory.md (1.1), (1.2), (1.7)]",
    grade=Grade.IDENTITY,
    claim={
        "self_weight": sym.self_weight(),
        "cross_weight": sym.cross_weight(),
        "half_weight_gamma": sym.half_weight_gamma(),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("half weight at 1/(1-rho)", {"half_weight_gamma": 1 / THETA}, "the limit, not the value in n tokens"),
        Mutant(
            "half weight with 1 + rho", {"half_weight_gamma": sp.log(N - 1) / ((1 + RHO) * sp.log(N))}, "wrong sign"
        ),
        Mutant(
            "n competitors",
            {"self_weight": 1 / (1 + N ** (1 - GAMMA * THETA))},
            "the token itself is no competitor: n - 1 are",
        ),
        Mutant("rest shared by n", {"cross_weight": (1 - sym.self_weight()) / N}, "the rest is shared by n - 1 tokens"),
    ),
)
