"""Softplus weights on scores above 0 stay diffuse: n A_ii never reaches 1/rho, at any inverse temperature."""

from collections.abc import Iterator

import sympy as sp
from sympy.codegen.cfunctions import log1p

from critattn.symbolic import RHO, N
from critattn.symbolic_family import BETA
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
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import softplus

Z, V, EXCESS, EPS, R = sp.symbols("z v x eps R", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
SIZES = {N: (50, 170, 1009, 10**12)}


def symbolic(claim: Claim) -> Iterator[Step]:
    """softplus(z)/z decreases; the limit of n A_ii and of the entropy follow."""
    logistic = sp.exp(Z) / (1 + sp.exp(Z))
    gap = sp.log(1 + sp.exp(Z)) - Z * logistic
    derivative = sp.diff(sp.log(1 + sp.exp(Z)) / Z, Z)
    yield equal("(sp(z)/z)' = -(sp(z) - z sp'(z))/z^2", derivative, -gap / Z**2)
    # v = e^(-z)
    form = sp.log(1 + V) + Z * V / (1 + V)
    yield equal("sp(z) - z sp'(z) = log(1+v) + z v/(1+v) with v = e^(-z)", gap, form.subs(V, sp.exp(-Z)), how="algebra")
    yield from signs("sp(z)/z decreases", {"log(1+v) + z v/(1+v) > 0": (form, "positive")})
    excess = 1 + V
    yield equal(
        "R - n A_ii = R (R-1)/(R + n - 1) with R = sp(beta)/sp(beta rho)",
        R - N * R / (R + N - 1),
        R * (R - 1) / (R + N - 1),
    )
    yield from signs("n A_ii <= R", {"R >= 1": (excess * (excess - 1) / (excess + V), "positive")})
    own = R / (1 + (R - 1) * EPS)
    yield equal("n A_ii = R/(1 + (R-1)/n)", own.subs(EPS, 1 / N), N * R / (R + N - 1))
    yield limit_is("R >= (1/rho)/(1 + e^(-z)/z) with z = beta rho, and e^(-z)/z -> 0", sp.exp(-Z) / Z, (Z, sp.oo), 0)
    point = {RHO: 1 / (1 + V)}
    yield continuous_at("so n A_ii -> 1/rho", own.subs(R, 1 / RHO).subs(point), {EPS: 0}, claim.limit.subs(point))
    yield from _entropy(claim)


def _entropy(claim: Claim) -> Iterator[Step]:
    own = (1 + EXCESS) / N
    other = (1 - EXCESS / (N - 1)) / N
    entropy = -own * sp.log(own) - (N - 1) * other * sp.log(other)
    missing = sp.log(1 - EXCESS / (N - 1))
    deficit = (1 + EXCESS) * sp.log(1 + EXCESS) + (N - 1 - EXCESS) * missing
    size, logs = sp.log(N), {sp.log(own): sp.log(1 + EXCESS) - sp.log(N), sp.log(other): missing - sp.log(N)}
    words = "n (log n - H) = (1+x) log(1+x) + (n-1-x) log(1 - x/(n-1)) with x = n A_ii - 1"
    yield equal(words, N * (size - entropy.subs(logs)), deficit, at=SIZES)
    limit = (1 + EXCESS) * sp.log(1 + EXCESS) - EXCESS
    yield limit_is("which tends to (1+x) log(1+x) - x", deficit, (N, sp.oo), limit)
    point = {EXCESS: V, RHO: 1 / (1 + V)}
    yield equal("at x = 1/rho - 1", limit.subs(point), claim.deficit.subs(point))


def certified(claim: Claim) -> Iterator[Step]:
    """The bounds of the argument on their whole domains, and the numerical theory."""
    flat = log1p(sp.exp(-BETA * RHO))
    room = (claim.limit * RHO - 1) * BETA + claim.limit * flat - log1p(sp.exp(-BETA))
    domain = {"beta": (0, 80), "rho": claim.scores}
    yield positive("sp(beta) < limit sp(beta rho), times e^(beta rho)", sp.exp(BETA * RHO) * room, domain)
    yield positive_from_zero("log(1+v) < v, so that sp(z) < z + e^(-z)", V - sp.log(1 + V), (V, 1, {}), order=2)
    lost = (1 - V) * sp.log(1 - V) + V
    words = "0 < (1-y) log(1-y) + y < y^2 with y = x/(n-1), so that the deficit is within x^2/(n-1) of its limit form"
    yield positive_from_zero(f"{words}: lower", lost, (V, 0.9, {}), order=2)
    yield positive_from_zero(f"{words}: upper", V**2 - lost, (V, 0.9, {}), order=2)
    yield from _numeric(claim)


def _numeric(claim: Claim) -> Iterator[Step]:
    gamma = sp.Symbol("gamma", positive=True)
    own, other = sp.log(1 + sp.exp(gamma * LOG_N)), sp.log(1 + sp.exp(gamma * LOG_N * RHO))
    weight = own / (own + (sp.exp(LOG_N) - 1) * other)
    points = grid(gamma=(0.25, 1.0, 3.0), rho=(0.125, 0.5, 0.875), log_n=(0.75, 7.0, 60.0, 600.0))
    yield agrees(
        "theory.softplus.self_weight",
        softplus.self_weight,
        weight,
        points,
        tolerance=lambda gamma, rho, log_n: 2.0**-52 * (32 + 4 * log_n),
        precision=4000,
    )
    far = grid(gamma=(1.0, 4.0), rho=(0.25, 0.5), log_n=(200.0, 600.0))
    yield agrees(
        "theory.softplus.self_weight: n A_ii is 1/rho where n^(gamma rho) > 10^20",
        lambda gamma, rho, log_n: softplus.row_excess(gamma, rho, log_n, 1.0, 0.0) + 1,
        claim.limit,
        far,
        tolerance=1e-13,
    )
    rho = grid(rho=(0.125, 0.3, 0.875))
    yield agrees("theory.softplus.scaled_self_weight_limit", softplus.scaled_self_weight_limit, claim.limit, rho)
    yield agrees(
        "theory.softplus.entropy_deficit_limit", softplus.entropy_deficit_limit, claim.deficit, rho, tolerance=1e-13
    )
    yield agrees(
        "theory.softplus.scaled_entropy_deficit", softplus.scaled_entropy_deficit, claim.deficit, far, tolerance=1e-12
    )


THEOREM = Theorem(
    name="softplus_never_localises",
    statement=Statement(
        "Softplus weights without bias on a simplex of positive cosine rho have n A_ii < 1/rho at every inverse "
        "temperature; at every gamma > 0, n A_ii tends to 1/rho and n (log n - H) to (1/rho) log(1/rho) - (1/rho - 1).",
        r"nA_{ii}<\tfrac1\rho,\quad nA_{ii}\to\tfrac1\rho,\quad "
        r"n(\log n-H)\to\tfrac1\rho\log\tfrac1\rho-\bigl(\tfrac1\rho-1\bigr)",
    ),
    hypotheses=(
        "0 < rho < 1 (at rho <= 0 the row localises: docs/theory.md (11.4), (11.5))",
        "no bias; beta = gamma log n with gamma > 0 fixed for the limits",
        "n >= 2",
    ),
    source="[Gao 2025 for the layer; derived, docs/theory.md (11.3), (11.7)]",
    grade=Grade.BOUND,
    claim={
        "limit": 1 / RHO,
        "deficit": sp.log(1 / RHO) / RHO - (1 / RHO - 1),
        "scores": ("1/20", "19/20"),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("limit 1", {"limit": sp.Integer(1)}, "a diffuse row is not a uniform one"),
        Mutant("limit 1/rho^2", {"limit": 1 / RHO**2}, "true as a bound, false as a limit"),
        Mutant("deficit without its linear part", {"deficit": sp.log(1 / RHO) / RHO}, "the other keys lose weight too"),
        Mutant(
            "negative scores too",
            {"scores": ("-1/2", "19/20")},
            "below 0 the softplus is an exponential: rows localise",
        ),
    ),
)
