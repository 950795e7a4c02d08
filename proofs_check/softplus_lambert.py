"""Softplus weights on scores below 0 localise; the half-weight point by the Lambert function, with its error."""

from collections.abc import Iterator

import sympy as sp
from sympy.codegen.cfunctions import log1p

from critattn.symbolic import N
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    equal,
    grid,
    positive,
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import softplus

# kappa = -rho, w = W(n kappa) = kappa beta_L, so that n = (w/kappa) e^w
KAPPA, OMEGA, V, Y = sp.symbols("kappa w v y", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
SIZE = OMEGA / KAPPA * sp.exp(OMEGA)


def log_odds(beta: sp.Expr) -> sp.Expr:
    """The log odds log f - log h - log(n-1), f = log(1 + e^beta), h = log(1 + e^(-kappa beta)), n in terms of w."""
    own, other = beta + log1p(sp.exp(-beta)), log1p(sp.exp(-KAPPA * beta))
    return sp.log(own) - sp.log(other) - sp.log(SIZE - 1)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The Lambert equation, and that its root is on the high side of the one half-weight point."""
    yield equal("W(z) e^W(z) = z makes beta e^(kappa beta) = n for beta = W(n kappa)/kappa", claim.argument / KAPPA, N)
    own, other = sp.log(1 + sp.exp(Y)), sp.log(1 + sp.exp(-KAPPA * Y))
    cases = {
        "f' > 0": (sp.diff(own, Y), "positive"),
        "-h' > 0": (-sp.diff(other, Y), "positive"),
    }
    yield from signs("the log odds log f - log h - log(n-1) increase in beta, so that there is one root", cases)


def certified(claim: Claim) -> Iterator[Step]:
    """Signs of the log odds at both ends of the interval, on the whole range, then the numerical theory."""
    shift = claim.constant / SIZE
    low = (1 - shift) * OMEGA / KAPPA
    points = [(w, k) for w in (2.5, 5, 20, 60) for k in (0.125, 0.25, 0.875)]
    for w, k in points:
        words = f"at W = {w}, kappa = {k}: the log odds are negative at beta_L (1 - K/n)"
        yield positive(words, -log_odds(low) * SIZE, {"w": (w, w), "kappa": (k, k)}, precision=600)
    yield positive_from_zero("c(v) = -log(log(1+v)/v) > 0: v - log(1+v) > 0", V - sp.log(1 + V), (V, 1, {}), order=2)
    bend = sp.log(1 + V) - V * sp.exp(-V / 2)
    yield positive_from_zero("c(v) < v/2: log(1+v) > v e^(-v/2)", bend, (V, 1, {}), order=3)
    log = V + V**2 + sp.log(1 - V)
    yield positive_from_zero("-log(1-x) < x + x^2", log, (V, 0.5, {}), order=2)
    # -n (log odds) at beta_L (1 - K/n), with c, log(1 + e^(-beta)) and log(1 - 1/n) replaced by these bounds
    grown = sp.exp(OMEGA * shift) * OMEGA / (2 * KAPPA)
    linear = sp.exp(OMEGA - OMEGA / KAPPA * (1 - shift)) / (1 - shift)
    room = claim.constant * (1 + OMEGA) - grown - linear - 1 - 1 / SIZE
    domain = {"w": (1.75, 690), "kappa": ("1/10", "9/10")}
    yield positive(
        "so they are negative at beta_L (1 - K/n): (1+w) K > (w/2 kappa) e^(w K/n) + e^(w - w/kappa ..) + 1 + 1/n",
        room,
        domain,
    )
    yield positive("and K/n < 1", 1 - shift, domain)
    yield from _numeric(claim)


def _numeric(claim: Claim) -> Iterator[Step]:
    exact = (sp.LambertW(claim.argument) / (KAPPA * sp.log(N))).subs(N, sp.exp(LOG_N))
    points = grid(kappa=(0.125, 0.25, 0.875), log_n=(4.75, 7.0, 14.0, 600.0))
    yield agrees(
        "theory.softplus.half_weight_gamma_lambert = W(n kappa)/(kappa log n)",
        lambda kappa, log_n: softplus.half_weight_gamma_lambert(-kappa, log_n),
        exact,
        points,
        tolerance=1e-14,
    )
    constant = sp.lambdify([KAPPA], claim.constant)
    yield agrees(
        "theory.softplus.half_weight_gamma is within K/n of it",
        lambda kappa, log_n: softplus.half_weight_gamma(-kappa, log_n),
        exact,
        points,
        tolerance=lambda kappa, log_n: float(constant(kappa) * sp.exp(-log_n)) + 1e-14,
    )


THEOREM = Theorem(
    name="softplus_lambert",
    statement=Statement(
        "At rho < 0 softplus weights without bias have one half-weight point; it lies below the Lambert value "
        "beta_L = W(n |rho|)/|rho| by a relative error of at most K/n, K = 1/(2 |rho|) + 1.",
        r"\beta_L\Bigl(1-\frac Kn\Bigr)<\beta_{1/2}<\beta_L=\frac{W(n|\rho|)}{|\rho|},\quad K=\frac1{2|\rho|}+1",
    ),
    hypotheses=(
        "scores 1 and rho in [-0.9, -0.1]; rho < -1/(n-1) needs queries that differ from keys",
        "W(n |rho|) from 1.75 to 690: every n >= 101 up to 10^299",
        "no bias",
    ),
    source="[derived, docs/theory.md (11.5)]",
    grade=Grade.ASYMPTOTIC,
    claim={"argument": N * KAPPA, "constant": 1 / (2 * KAPPA) + 1},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("W(n/kappa)", {"argument": N / KAPPA}, "the score below the bias in the wrong place"),
        Mutant("K = 1/(4 kappa)", {"constant": 1 / (4 * KAPPA)}, "the error tends to 1/(2 kappa n) from above"),
        Mutant("from below", {"constant": sp.Integer(-1)}, "the Lambert value is high, not low"),
    ),
)
