"""ReLU^p re-weighting of softplus weights is the identity on a simplex, for every p > 0."""

from collections.abc import Iterator

import sympy as sp
from sympy.codegen.cfunctions import expm1, log1p

from critattn.symbolic import RHO
from critattn.symbolic_family import P
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, positive, signs
from critattn.theorems.theorem import Claim
from critattn.theory import relu_power_exact

# f = (1+g) h with the softplus values f of the self score and h of the others, n = 1 + m
G, M, C = sp.symbols("g m c", positive=True)
LOG_N, GAMMA = sp.symbols("log_n gamma", positive=True)


def excesses(claim: Claim) -> tuple[sp.Expr, sp.Expr]:
    """The excess n a - offset of the self weight and of another weight."""
    total, n = 1 + G + M, 1 + M
    return n * (1 + G) / total - claim.offset, n / total - claim.offset


def symbolic(claim: Claim) -> Iterator[Step]:
    """Only the self weight is above the mean weight 1/n, so that only it survives."""
    own, other = excesses(claim)
    yield equal("n a_ii - 1 = (n-1) g/(n + g) with f = (1+g) h", own, M * G / (1 + G + M))
    yield equal("n a_ij - 1 = -(n a_ii - 1)/(n-1)", other, -own / M)
    yield from signs(
        "for f > h",
        {"the self weight is above the mean": (own, "positive"), "each other is below": (other, "negative")},
    )
    kept = sp.Symbol("x", positive=True)
    weight = kept**claim.p / (kept**claim.p + M * sp.Integer(0) ** claim.p)
    yield equal("A_ii = x^p/(x^p + (n-1) 0^p) = 1", weight, 1)
    yield from signs("f > h as the softplus increases", {"sp' > 0": (sp.diff(sp.log(1 + sp.exp(C)), C), "positive")})


def certified(claim: Claim) -> Iterator[Step]:
    """The sign of f - h on the domain, other excesses below 0, and the numerical theory."""
    own = log1p(sp.exp(C * RHO) * expm1(C * (1 - RHO)) / (1 + sp.exp(C * RHO)))
    words = "f - h = log(1 + e^(c rho) (e^(c (1-rho)) - 1)/(1 + e^(c rho))) > 0"
    yield positive(words, own, {"c": claim.steepness, "rho": claim.scores})
    # in factors, so that nothing cancels
    below = sp.factor(-excesses(claim)[1])
    yield positive("each other key is below the mean", below, {"g": ("1/1000", 100), "m": (1, 10**6)})
    point = {C: GAMMA * LOG_N}
    f, h = sp.log(1 + sp.exp(C)), sp.log(1 + sp.exp(C * RHO))
    n = sp.exp(LOG_N)
    yield agrees(
        "theory.relu_power_exact.diagonal_excess = (n-1)(f-h)/(f + (n-1) h)",
        relu_power_exact.diagonal_excess,
        ((n - 1) * (f - h) / (f + (n - 1) * h)).subs(point),
        grid(gamma=(0.25, 1.0, 3.0), rho=(-0.5, 0.125, 0.875), log_n=(0.75, 7.0, 60.0)),
        tolerance=lambda gamma, rho, log_n: 2.0**-52 * (64 + 8 * (1 + gamma) * log_n),
        precision=4000,
    )
    yield agrees(
        "theory.relu_power_exact.simplex_self_weight = 1",
        relu_power_exact.simplex_self_weight,
        sp.Integer(1),
        grid(p=(0.01, 1.0, 15.0), rho=(-0.5, 0.0, 0.99), log_n=(0.75, 690.0)),
    )


THEOREM = Theorem(
    name="re_weighting_identity",
    statement=Statement(
        "On a simplex of cosine rho < 1, ReLU^p re-weighting of softplus weights gives exactly the identity for every "
        "p > 0, every c > 0 and every n >= 2: only the self weight exceeds the mean 1/n.",
        r"A_{ij}=\frac{(na_{ij}-1)_+^p}{\sum_k(na_{ik}-1)_+^p}=\delta_{ij},\qquad na_{ij}-1=-\frac{na_{ii}-1}{n-1}<0",
    ),
    hypotheses=(
        "rho < 1: equal scores leave 0/0, which counts as uniform",
        "c = gamma log n > 0 and p > 0",
        "n >= 2, and n counts the keys of the row",
    ),
    source="[Gao 2025 for the layer; derived, docs/theory.md (12.1), (12.2)]",
    grade=Grade.IDENTITY,
    claim={"offset": sp.Integer(1), "p": P, "scores": (-1, "99/100"), "steepness": ("1/100", 50)},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("offset 1/2", {"offset": sp.Rational(1, 2)}, "keys above half of the mean survive too"),
        Mutant("p = 0", {"p": sp.Integer(0)}, "0^0 = 1: every key survives"),
        Mutant("rho = 1 too", {"scores": (-1, 1)}, "the limits rho -> 1 and rho = 1 do not commute"),
        Mutant("c = 0 too", {"steepness": (0, 50)}, "without slope all scores are equal"),
    ),
)
