"""The inverse temperature at which alpha-entmax has a given self weight on a simplex."""

from collections.abc import Iterator

import sympy as sp

from critattn.symbolic import RHO, THETA, N
from critattn.symbolic_family import ALPHA, WEIGHT, entmax_beta
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    equal,
    grid,
    limit_is,
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import entmax

# e = alpha - 1, y = weight of each other token
E, Y, V = sp.symbols("e y v", positive=True)
OTHER = (1 - WEIGHT) / (N - 1)
LOG_N = sp.Symbol("log_n", positive=True)
AT = {
    ALPHA: (sp.Rational(3, 2), 2, sp.Rational(5, 4), 3),
    WEIGHT: (sp.Rational(2, 3), sp.Rational(4, 5), sp.Rational(1, 2), sp.Rational(1, 3)),
}


def symbolic(claim: Claim) -> Iterator[Step]:
    """From the definition: choose tau so that the self weight is x, and read off the others."""
    tau = (ALPHA - 1) * claim.beta - WEIGHT ** (ALPHA - 1)
    words = (
        "tau = (alpha-1) beta - x^(alpha-1) gives each other key [(alpha-1) beta rho - tau] = ((1-x)/(n-1))^(alpha-1)"
    )
    yield equal(words, (ALPHA - 1) * claim.beta * RHO - tau, OTHER ** (ALPHA - 1), at=AT)
    yield equal("x + (n-1) y = 1", WEIGHT + (N - 1) * OTHER, 1)
    gap = (WEIGHT**E - Y**E) / E
    # V = n - 1, and y = (1-x)/(n-1) moves by -1/(n-1)
    slope = WEIGHT ** (E - 1) + Y ** (E - 1) / V
    words = "beta increases in x, so that beta determines the self weight"
    yield equal("d/dx of (x^e - y^e)/e, e = alpha - 1", sp.diff(gap, WEIGHT) - sp.diff(gap, Y) / V, slope)
    yield from signs(words, {"x^(e-1) + y^(e-1)/(n-1) > 0": (slope, "positive")})
    softmax = sp.log(WEIGHT) - sp.log(Y)
    yield limit_is("alpha -> 1: beta (1-rho) -> log(x/y), the log odds of softmax", gap, (E, 0), softmax)
    yield equal(
        "at x = 1 beta is the identity point",
        claim.beta.subs(WEIGHT, 1).subs(ALPHA, 1 + E),
        claim.identity.subs(ALPHA, 1 + E),
    )
    yield limit_is("n -> oo: y -> 0 leaves beta (1-rho) = x^e/e", gap, (Y, 0), WEIGHT**E / E)
    root = (E * V) ** (1 / E)
    yield equal("that is x = ((alpha-1) beta (1-rho))^(1/(alpha-1))", root**E / E, V)


def certified(claim: Claim) -> Iterator[Step]:
    """How far from softmax it is, and the numerical theory."""
    words = (
        "u - e u^2/2 < (1 - exp(-e u))/e < u with v = e u: beta (1-rho) is within (alpha-1) log(y)^2/2 of the log odds"
    )
    yield positive_from_zero(f"{words}: upper", V - 1 + sp.exp(-V), (V, 40, {}), order=2)
    yield positive_from_zero(f"{words}: lower", V**2 / 2 - V + 1 - sp.exp(-V), (V, 40, {}), order=3)
    at_log = {N: sp.exp(LOG_N), WEIGHT: sp.Symbol("weight", positive=True)}
    points = grid(weight=(0.5, 0.75, 1.0), rho=(-0.25, 0.0, 0.75), log_n=(1.5, 7.0, 600.0), alpha=(1.25, 1.5, 2.0, 3.0))
    inside = [point for point in points if point["weight"] < 1]
    yield agrees(
        "theory.entmax.beta_of_self_weight",
        entmax.beta_of_self_weight,
        claim.beta.subs(at_log),
        inside,
        tolerance=1e-13,
    )
    half = claim.beta.subs(at_log).subs(sp.Symbol("weight", positive=True), sp.Rational(1, 2))
    halves = grid(rho=(-0.25, 0.0, 0.75), log_n=(1.5, 7.0, 600.0), alpha=(1.25, 1.5, 2.0, 3.0))
    yield agrees("theory.entmax.half_weight_beta", entmax.half_weight_beta, half, halves, tolerance=1e-13)
    ends = grid(rho=(-0.25, 0.0, 0.75), alpha=(1.25, 1.5, 2.0, 3.0))
    yield agrees("theory.entmax.identity_beta", entmax.identity_beta, claim.identity, ends)

    def inverse(weight: float, rho: float, log_n: float, alpha: float) -> float:
        beta = entmax.beta_of_self_weight(weight, rho, log_n, alpha=alpha)
        return entmax.self_weight(beta, rho, log_n, alpha=alpha)

    yield agrees(
        "theory.entmax.self_weight inverts it", inverse, sp.Symbol("weight", positive=True), inside, tolerance=1e-12
    )


THEOREM = Theorem(
    name="entmax_beta",
    statement=Statement(
        "alpha-entmax on a simplex has self weight x at a beta of order 1 that does not grow with log n, is exactly "
        "the identity from 1/((alpha-1)(1-rho)) on, and goes over into softmax as alpha -> 1.",
        r"\beta(x)=\frac{x^{\alpha-1}-\bigl(\frac{1-x}{n-1}\bigr)^{\alpha-1}}{(\alpha-1)(1-\rho)},\quad"
        r"\beta\to\frac{\log\frac{x(n-1)}{1-x}}{1-\rho}\ (\alpha\to1)",
    ),
    hypotheses=("alpha > 1", "1/n < x <= 1", "rho < 1, n >= 2"),
    source="[derived, docs/theory.md (13.3); entmax: Peters, Niculae, Martins, arXiv:1905.05702]",
    grade=Grade.IDENTITY,
    claim={"beta": entmax_beta(), "identity": 1 / ((ALPHA - 1) * THETA)},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("without 1/(alpha-1)", {"beta": entmax_beta() * (ALPHA - 1)}, "true at alpha = 2 only"),
        Mutant("n competitors", {"beta": entmax_beta().subs(N, N + 1)}, "n - 1 share the rest"),
        Mutant("identity from 1/(1-rho)", {"identity": 1 / THETA}, "the sparsemax value at every alpha"),
    ),
)
