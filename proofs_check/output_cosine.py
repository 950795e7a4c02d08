"""The cosine of two output tokens on a simplex, and its three regimes as n goes to infinity."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from critattn import symbolic as sym
from critattn.symbolic import ATTENTION_WEIGHT, GAMMA, IDENTITY_WEIGHT, NORM, RHO, THETA, N
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    changes_at_most,
    continuous_at,
    equal,
    grid,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

EPS, T, X, Y = sp.symbols("eps t x y", nonnegative=True)
# rho = 1/(1+u) with u > 0 runs through (0, 1) and lets SymPy see the signs
U = sp.Symbol("u", positive=True)
OPEN: dict[Any, Any] = {RHO: 1 / (1 + U)}
KEPT = IDENTITY_WEIGHT * NORM
REGIMES = ("below", "at", "above")
# the contrast (1-t)/(1 + (n-1) t) in variables that go to 0: eps = 1/n, t, y = 1/(n t) or x = n t
CONTRASTS = {
    "below": ((1 - T) * Y / (Y + 1 - EPS), {EPS: 0, T: 0, Y: 0}),
    "at": ((1 - T) / (2 - EPS), {EPS: 0, T: 0}),
    "above": ((1 - T) / (1 + X - T), {T: 0, X: 0, EPS: 0}),
}
LOG_N = sp.Symbol("log_n", positive=True)
LAYER = {"identity_weight": 0.75, "attention_weight": 1.25, "norm": 1.5}
EXACT_LAYER: dict[Any, Any] = {IDENTITY_WEIGHT: "3/4", ATTENTION_WEIGHT: "5/4", NORM: "3/2"}
INSIDE = grid(gamma=(0.0, 0.5, 1.5, 3.0), rho=(0.125, 0.25, 0.75), log_n=(0.75, 5.0, 40.0, 690.0))


def cosine(e: sp.Expr, kappa: sp.Expr, mu: sp.Expr) -> sp.Expr:
    """1 - (1-rho) e^2/(mu kappa^2 + (1-mu) e^2)."""
    return 1 - THETA * e**2 / (mu * kappa**2 + (1 - mu) * e**2)


def symbolic(claim: Claim) -> Iterator[Step]:
    """Exact at every n, then the limits in variables in which the cosine is continuous."""
    yield from _from_the_gram_matrix(claim)
    yield equal("n t = n^(1 - gamma (1-rho)) is 1 at the threshold", 1 - claim.threshold * THETA, 0)
    slope = sp.diff((1 - GAMMA * THETA).subs(OPEN), GAMMA)
    words = "its exponent decreases in gamma, so that n t goes to infinity below the threshold and to 0 above it"
    yield from signs("n t", {words: (slope, "negative")})
    for regime in REGIMES:
        yield from _regime(claim, regime)


def _from_the_gram_matrix(claim: Claim) -> Iterator[Step]:
    s, w = sp.symbols("s w", positive=True)
    own, other = KEPT + ATTENTION_WEIGHT * s, ATTENTION_WEIGHT * w
    total = (own + (N - 1) * other) ** 2
    squares, products = own**2 + (N - 1) * other**2, 2 * own * other + (N - 2) * other**2
    square = squares + RHO * (total - squares)
    inner = products + RHO * (total - products)
    e, kappa = KEPT + ATTENTION_WEIGHT * (s - w), KEPT + ATTENTION_WEIGHT
    # a row sums to one
    ratio, closed = inner / square, claim.cosine(e, kappa, RHO + THETA / N)
    row: dict[Any, Any] = {w: (1 - s) / (N - 1)}
    yield equal(
        "cos' = <x_i', x_j'>/|x_i'|^2 from A and the Gram matrix = the closed form", ratio.subs(row), closed.subs(row)
    )


def _regime(claim: Claim, regime: str) -> Iterator[Step]:
    delta, point = CONTRASTS[regime]
    forms = {EPS: 1 / N, X: N * T, Y: 1 / (N * T)}
    known = {T: 1 / N} if regime == "at" else {}
    contrast = (1 - T) / (1 + (N - 1) * T)
    yield equal(f"{regime} the threshold delta = {delta}", delta.subs(forms).subs(known), contrast.subs(known))
    mu = RHO + THETA * EPS
    plain = claim.cosine(delta, sp.Integer(1), mu).subs(OPEN)
    limit = sp.sympify(claim.limits[regime])
    yield continuous_at(f"{regime} the threshold cos' -> {limit}", plain, point, limit.subs(OPEN))
    residual = claim.cosine(KEPT + ATTENTION_WEIGHT * delta, KEPT + ATTENTION_WEIGHT, mu).subs(OPEN)
    kept = claim.kept[regime]
    value = cosine(kept, KEPT + ATTENTION_WEIGHT, RHO).subs(OPEN)
    yield continuous_at(f"with residual, {regime} the threshold, the limit has e = {kept}", residual, point, value)


def certified(claim: Claim) -> Iterator[Step]:
    """The rate at the threshold, and the numerical theory with and without residual."""
    x = sp.Symbol("x", nonnegative=True)
    critical = claim.cosine((1 - x) / (2 - x), sp.Integer(1), RHO + THETA * x)
    words = "at the threshold |cos' - lim cos'| <= 4/n for every n >= 2"
    yield changes_at_most(words, critical, (x, 0.5, {"rho": (0, 1)}), 4)
    for residual in (False, True):
        layer = LAYER if residual else {}
        e = sym.contrast() if not residual else KEPT + ATTENTION_WEIGHT * sym.contrast()
        kappa = sp.Integer(1) if not residual else KEPT + ATTENTION_WEIGHT
        exact = claim.cosine(e, kappa, sym.mean_square()).subs(EXACT_LAYER).subs(N, sp.exp(LOG_N))
        words = "with" if residual else "without"

        def numeric(layer: dict[str, float] = layer, **point: float) -> float:
            return simplex.output_cosine(**point, **layer)

        yield agrees(f"theory.simplex.output_cosine {words} residual", numeric, exact, INSIDE, tolerance=_rounding)
    yield from _numeric_limits(claim)


def _numeric_limits(claim: Claim) -> Iterator[Step]:
    for regime, gamma in zip(REGIMES, (1.0, 2.0, 3.0), strict=True):
        kept = claim.kept[regime]
        for words, layer, value in (
            ("without", {}, sp.sympify(claim.limits[regime])),
            ("with", LAYER, cosine(kept, KEPT + ATTENTION_WEIGHT, RHO).subs(EXACT_LAYER)),
        ):

            def numeric(rho: float, layer: dict[str, float] = layer, gamma: float = gamma) -> float:
                return simplex.output_cosine_limit(gamma, rho, **layer)

            words = f"theory.simplex.output_cosine_limit {words} residual, {regime} the threshold"
            yield agrees(words, numeric, value, grid(rho=(0.5,)), relative_to=sp.Integer(1))


def _rounding(gamma: float, rho: float, log_n: float) -> float:
    return 2.0**-52 * (32 + 8 * (1 + gamma) * log_n)


THEOREM = Theorem(
    name="output_cosine",
    statement=Statement(
        "Without residual the output cosine tends to 1, 4 rho/(1+3 rho) and rho below, at and above gamma = 1/(1-rho); "
        "with residual to 1 - (1-rho) e^2/(rho kappa^2 + (1-rho) e^2), e = a r + b (0, 1/2, 1), kappa = a r + b, which "
        "is below 1 in every regime.",
        r"\cos'=1-\frac{(1-\rho)e^2}{\mu\kappa^2+(1-\mu)e^2}\to 1,\ \frac{4\rho}{1+3\rho},\ \rho\quad(a=0),\qquad"
        r"e=ar+b\delta,\ \kappa=ar+b",
    ),
    hypotheses=(
        "a simplex of tokens of norm r with fixed 0 < rho < 1 (at rho = 0: angle_threshold_rho0)",
        "a >= 0 and b > 0",
        "gamma > 0 is fixed as n goes to infinity",
    ),
    source="[Chen 2025, Thm 2.1; derived, docs/theory.md (1.3)-(1.6), (1.9)-(1.11)]",
    grade=Grade.LIMIT,
    claim={
        "threshold": 1 / THETA,
        "cosine": cosine,
        "limits": {"below": 1, "at": 4 * RHO / (1 + 3 * RHO), "above": RHO},
        "kept": {"below": KEPT, "at": KEPT + ATTENTION_WEIGHT / 2, "above": KEPT + ATTENTION_WEIGHT},
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("threshold 1/(1+rho)", {"threshold": 1 / (1 + RHO)}, "wrong sign of rho"),
        Mutant(
            "critical value 2 rho/(1+rho)",
            {"limits": {"below": 1, "at": 2 * RHO / (1 + RHO), "above": RHO}},
            "half of the weight is not half of the square",
        ),
        Mutant(
            "collapse to a point despite the residual",
            {"kept": {"below": sp.Integer(0), "at": KEPT + ATTENTION_WEIGHT / 2, "above": KEPT + ATTENTION_WEIGHT}},
            "Theorem 2.1 says 1 below the threshold; that needs a = 0",
        ),
        Mutant(
            "mean token of length sqrt(rho) at finite n",
            {"cosine": lambda e, kappa, mu: cosine(e, kappa, RHO)},
            "mu = rho + (1-rho)/n: the form is exact only in the limit",
        ),
    ),
)
