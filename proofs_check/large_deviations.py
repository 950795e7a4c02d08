"""Tokens uniform on a sphere of dimension log n/L: one threshold from the log n law to the law of a fixed dimension."""

import math
from collections.abc import Iterator
from fractions import Fraction

import sympy as sp

from critattn.symbolic import D
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    argued,
    changes_at_most,
    equal,
    grid,
    limit_is,
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import finite_dimension

# the saddle h parametrises everything: kappa = beta/d and L; u = 1/h - 1 makes 0 < h < 1 a hypothesis SymPy sees
H, E, U, GAP = sp.symbols("h e u gap", positive=True)
INSIDE = {H: 1 / (1 + U)}
HALF = sp.Rational(1, 2)
KAPPA = H / (1 - H**2)
LOAD = H / (1 + H) - sp.log(1 - H**2) / 2
POINTS = [Fraction(k, 11) for k in (2, 5, 8, 10)]


def symbolic(claim: Claim) -> Iterator[Step]:
    """The saddle of the competitors, its equation, and bounds of the exact moment M_d by it."""
    at = {H: POINTS}
    kappa, load = claim.kappa, claim.load
    exponent = sp.Symbol("kappa") * H + sp.log(1 - H**2) / 2
    yield equal(
        "kappa h + log(1-h^2)/2 is stationary at kappa = h/(1-h^2)",
        sp.diff(exponent, H).subs(sp.Symbol("kappa"), kappa),
        0,
        at=at,
    )
    curve = sp.together(sp.diff(exponent, H, 2).subs(INSIDE))
    yield from signs("the saddle", {"concave: a maximum": (curve, "negative")})
    psi = kappa * H + sp.log(1 - H**2) / 2
    yield equal("psi(kappa) = its value has psi' = h", sp.diff(psi, H) / sp.diff(kappa, H), H, at=at)
    yield equal("L + psi(kappa) = kappa, where n competitors weigh as much as the token", load + psi, kappa, at=at)
    slope = sp.factor(sp.diff(load, H).subs(INSIDE))
    yield from signs("L = h/(1+h) - log(1-h^2)/2", {"rises from 0 to oo: one root h for each L": (slope, "positive")})
    left = load + sp.log(1 - H**2) / 2
    yield equal("log of the competitors at the saddle, over d: L + log(1-h^2)/2 = h/(1+h)", left, H / (1 + H), at=at)
    yield from signs("never frozen", {"h/(1+h) > 0": (H / (1 + H), "positive")})
    yield from _moment(claim)
    yield limit_is("L -> 0: gamma_c = kappa/L -> 1", kappa / load, (H, 0), claim.smallest)
    # log kappa written out, which SymPy does not for an unknown sign of 1 - h^2
    ratio = sp.log(H) - sp.log(1 - H**2) + sp.log(claim.factor) - claim.exponent * load
    yield equal("log(kappa/(e^(2L)/e)) = log h + (1-h)/(1+h)", ratio, sp.log(H) + (1 - H) / (1 + H), at=at)


def _moment(claim: Claim) -> Iterator[Step]:
    """Let q_e(k) = h at k = e kappa(h). A = (log M_d)' lies between two of them."""
    for name, size, sign in (("lower", claim.below, 1), ("upper", claim.above, -1)):
        k = size * KAPPA
        change = 1 - (D - 1) * H / k - H**2 - 1 / sp.diff(k, H)
        room = sp.factor(sp.together(sign * change).subs(INSIDE).subs(D, 1 + GAP))
        words = f"q_e, e = {size}, is a {name} solution: {'q' if sign > 0 else '-q'}' stays below the right side"
        yield from signs("A' = 1 - (d-1) A/k - A^2 (theorem population_limit)", {words: (room, "positive")})
    yield argued(
        "d psi(beta/d) <= log M_d(beta) <= (d-1) psi(beta/(d-1))",
        "A - q vanishes at k = 0 and, times k^(d-1) exp(int (A+q)), is monotonous; integrate, with psi' = h",
    )
    yield argued(
        "so (n-1) M_d(beta) = e^beta has its root between e kappa(log(n-1)/e) at e = d and at e = d - 1",
        "beta - log M_d(beta) increases, as A < 1; kappa - psi(kappa) = L on the curve",
    )


def certified(claim: Claim) -> Iterator[Step]:
    """How fast both laws are reached, and the numerical theory."""
    excess = claim.kappa - claim.load - claim.slope * claim.load**2
    words = f"gamma_c > 1 + {claim.slope} L"
    yield positive_from_zero(words, excess, (H, 0.5, {}), order=3)
    words = f"gamma_c < 1 + {claim.slope} L + L^2"
    yield positive_from_zero(words, claim.load**3 - excess, (H, 0.375, {}), order=3)
    # u = 1 - h
    large = (1 - U) * sp.exp(U / (2 - U))
    words = "L -> oo: h e^((1-h)/(1+h)) is 1 up to (1-h), so that beta_c/((d/e) n^(2/d)) -> 1"
    yield changes_at_most(words, large, (U, 0.5, {}), 1)
    yield positive_from_zero("and from below: beta_c < (d/e) n^(2/d)", 1 - large, (U, 0.5, {}), order=1)
    load = sp.lambdify([H], LOAD, "math")
    yield agrees(
        "theory.finite_dimension.large_deviation_gamma",
        lambda h, d: finite_dimension.large_deviation_gamma(d * load(h), d),
        claim.kappa / claim.load,
        grid(h=(0.25, 0.5, 0.875, 0.99), d=(64.0, 1e4)),
        # L enters with its condition number, below 2 + 2 L
        tolerance=lambda h, d: 2.0**-52 * 16 * (1 + load(h)) / (1 - h),
    )

    def annealed(h: float, d: float) -> float:
        others = d * load(h)
        log_n = others + math.log1p(math.exp(-others))
        return finite_dimension.annealed_half_weight_gamma(log_n, d) * log_n / d

    def between(h: float, d: float) -> float:
        # e kappa(log(n-1)/e) moves by L/(1-h) - kappa from e = d to d - 1, to first order
        return 1.25 * (load(h) / (1 - h) * (1 - h * h) / h - 1) / d

    words = "theory.finite_dimension.annealed_half_weight_gamma is between the bounds at e = d and e = d - 1"
    yield agrees(words, annealed, claim.kappa, grid(h=(0.25, 0.5, 0.75), d=(64.0, 512.0, 4096.0)), tolerance=between)


THEOREM = Theorem(
    name="large_deviations",
    statement=Statement(
        "For tokens uniform on the sphere of dimension d = log n/L the annealed half-weight equation has, up to 1/d, "
        "the root beta_c = d h/(1-h^2), where h solves h/(1+h) = L + log(1-h^2)/2, alone, and is never frozen. gamma_c "
        "is 1 + L/2 + O(L^2), the log n law, for small L; beta_c is (d/e) n^(2/d) for large L.",
        r"\frac h{1+h}=L+\tfrac12\log(1-h^2),\quad\gamma_c=\frac h{L(1-h^2)};\qquad"
        r"\gamma_c=1+\tfrac L2+O(L^2),\quad\beta_c\sim\frac de\,n^{2/d}",
    ),
    hypotheses=(
        "rho = 0: tokens uniform on the sphere; d > 1, n >= 3",
        "the annealed equation (n-1) M_d(beta) = e^beta, whose competitors are averaged; that rows follow it is seen "
        "in simulation only",
        "small L: h up to 3/8 (L up to 0.35); large L: h from 1/2 (L from 0.48)",
    ),
    source="[derived, docs/theory.md (4.5), (4.6); Amos 1974 for the bounds of Bessel ratios]",
    grade=Grade.LEMMA,
    claim={
        "kappa": KAPPA,
        "load": LOAD,
        "below": D,
        "above": D - 1,
        "smallest": sp.Integer(1),
        "slope": HALF,
        "factor": sp.E,
        "exponent": sp.Integer(2),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("log(1-h^2) without 1/2", {"load": H / (1 + H) - sp.log(1 - H**2)}, "density (1-u^2)^(d/2)"),
        Mutant("kappa = h", {"kappa": H}, "the competitors' density falls: their saddle costs more"),
        Mutant("upper solution at e = d", {"above": D}, "that is the lower one"),
        Mutant("gamma_c = 1 + L", {"slope": sp.Integer(1)}, "x/2 of (4.4)"),
        Mutant("beta_c ~ d n^(2/d)", {"factor": sp.Integer(1)}, "the factor 1/e"),
        Mutant("beta_c ~ (d/e) n^(1/d)", {"exponent": sp.Integer(1)}, "distances, not their squares"),
    ),
)
