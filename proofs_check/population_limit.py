"""Tokens uniform on the sphere, all of them: attention shortens each and turns none, at every temperature."""

from collections.abc import Iterator
from fractions import Fraction

import sympy as sp
from flint import arb

from critattn.symbolic import D
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    equal,
    grid,
)
from critattn.theorems.theorem import Claim
from critattn.theory import finite_dimension

BETA, U, K, J, ORDER = sp.symbols("beta u k j nu", positive=True)
A = sp.Symbol("A", positive=True)


def symbolic(claim: Claim) -> Iterator[Step]:
    """Integration by parts under the law e^(beta u) (1-u^2)^((d-3)/2) of a key's cosine u with the query."""
    weight = sp.exp(BETA * U) * (1 - U**2) ** ((D - 3) / 2)
    edge = sp.exp(BETA * U) * (1 - U**2) ** ((D - 1) / 2)
    parts = BETA * (1 - U**2) - (D - 1) * U
    yield equal(
        "d/du [e^(beta u) (1-u^2)^((d-1)/2)] = [beta (1-u^2) - (d-1) u] e^(beta u) (1-u^2)^((d-3)/2)",
        sp.simplify(sp.diff(edge, U) / weight),
        parts,
        at={U: [Fraction(k, 7) for k in (1, 3, -2, 5)]},
    )
    # the edge vanishes at u = -1 and 1 for d > 1: beta E(1-u^2) = (d-1) E u
    spread = (D - 1) * A / BETA
    words = "so beta E(1-u^2) = (d-1) A, and off the query beta C_i P_i, one of d - 1 equal directions, is"
    yield equal(f"{words} A P_i", BETA * spread / (D - 1), claim.query)
    variance = 1 - spread - A**2
    yield equal("along the query C_i has A' = var u = 1 - (d-1) A/beta - A^2", variance, claim.slope)
    # J_ii = (A_ii + beta C_i) P_i/r with A_ii = 0; P_i has trace d - 1
    own = claim.query**2 * (D - 1) / D
    yield equal("eta = ||beta C_i P_i||^2/(q d) = (A^2/q)(1 - 1/d)", own, claim.eta)
    yield equal("m_i = A y_i: the cosine of m_i and m_j is that of y_i and y_j", A**2 * U / (A * A), claim.kept * U)
    yield from _bessel(claim)


def _bessel(claim: Claim) -> Iterator[Step]:
    """A = M'/M, M(k) = sum_j E u^(2j) k^(2j)/(2j)!, against I_nu(k) = sum_j (k/2)^(2j+nu)/(j! Gamma(j+nu+1))."""
    moment = (2 * J + 1) * (1 - U**2) - (D - 1) * U**2
    bare = U ** (2 * J + 1) * (1 - U**2) ** ((D - 1) / 2)
    law = (1 - U**2) ** ((D - 3) / 2)
    words = "d/du [u^(2j+1) (1-u^2)^((d-1)/2)] gives E u^(2j+2) = E u^(2j) (2j+1)/(2j+d)"
    yield equal(
        words,
        sp.simplify(sp.diff(bare, U) / (law * U ** (2 * J))),
        moment,
        at={U: [Fraction(k, 7) for k in (1, 2, 3, 5)]},
    )
    high, low = claim.orders
    step = K**2 / ((2 * J + 1) * (2 * J + 2)) * (2 * J + 1) / (2 * J + D)
    derived = step.subs(J, J + 1) * (2 * J + 4) / (2 * J + 2)
    bessel = K**2 / (4 * (J + 1) * (J + 1 + ORDER))
    yield equal("ratio of the terms of M = that of I_(d/2-1)", step, bessel.subs(ORDER, low))
    yield equal("ratio of the terms of M' = that of I_(d/2)", derived, bessel.subs(ORDER, high))
    first = (K / 2) ** (high - low) * sp.gammasimp(sp.gamma(low + 1) / sp.gamma(high + 1))
    yield equal("first terms: M'/M = k/d + ... = I_(d/2)/I_(d/2-1)", first, K / D)
    for d in (3, 5):
        # half an integer: elementary
        density = sp.exp(K * U) * (1 - U**2) ** ((d - 3) // 2)
        moments = (density, U * density, (1 - U**2) * density)
        total, mean, off = (sp.integrate(sp.expand(f), (U, -1, 1)) for f in moments)
        mean, off = mean / total, K * off / total / (d - 1)
        ratio = half_integer(high.subs(D, d)) / half_integer(low.subs(D, d))
        yield equal(f"d = {d}: A by integration", mean, ratio)
        yield equal(f"d = {d}: beta C_i P_i by integration", off, claim.query.subs({A: ratio, D: d}))
        slope = claim.slope.subs({A: ratio, D: d, BETA: K})
        yield equal(f"d = {d}: A'", sp.diff(mean, K), slope)


def half_integer(order: sp.Expr) -> sp.Expr:
    """The Bessel function I_order(k) sqrt(pi k/2) at half an integer, by recursion from cosh and sinh."""
    low, high = (sp.exp(K) + sp.exp(-K)) / 2, (sp.exp(K) - sp.exp(-K)) / 2
    for j in range(int(order - sp.Rational(1, 2))):
        low, high = high, low - (2 * j + 1) / K * high
    return high


def certified(claim: Claim) -> Iterator[Step]:
    """The numerical theory."""
    high, low = (sp.lambdify([D], order) for order in claim.orders)

    def resultant(kappa: arb, d: arb) -> arb:
        return kappa.bessel_i(high(d)) / kappa.bessel_i(low(d))

    points = grid(kappa=(0.125, 1.0, 7.5, 60.0), d=(2.0, 3.0, 16.0, 100.0))
    words = "theory.finite_dimension.bessel_ratio"
    yield agrees(words, finite_dimension.bessel_ratio, resultant, points, tolerance=1e-12)
    # far below the threshold of n = e^600 tokens the own weight is below 1e-200
    far = grid(kappa=(1.0, 7.5, 60.0), d=(16.0, 100.0))
    mean_square = sp.lambdify([A, D], claim.eta)

    def numeric(kappa: float, d: float) -> float:
        return float(finite_dimension.gradient_norm(kappa / 600, 600.0, d))

    words = "theory.finite_dimension.gradient_norm at n = e^600, beta fixed"
    yield agrees(words, numeric, lambda kappa, d: mean_square(resultant(kappa, d), d), far, tolerance=4e-12)


THEOREM = Theorem(
    name="population_limit",
    statement=Statement(
        "On the uniform law of the sphere attention returns A_d(beta) y_i, A_d the mean resultant length of the "
        "von Mises-Fisher law: no pair of angles changes. The row covariance off the query is beta C_i P_i = "
        "A_d(beta) P_i exactly, so that the query path alone gives the mean square A_d^2 (1-1/d)/q of the Jacobian.",
        r"m_i=A_d(\beta)\,y_i,\ A_d=\frac{I_{d/2}(\beta)}{I_{d/2-1}(\beta)};\quad\lambda=1;\quad"
        r"\beta C_iP_i=A_d(\beta)P_i;\quad\eta=\frac{A_d(\beta)^2}q\Bigl(1-\frac1d\Bigr)",
    ),
    hypotheses=(
        "keys are the uniform law on the unit sphere, d >= 2: what n independent tokens tend to at fixed beta and d",
        "beta > 0; no residual; common norm sqrt(q), 1 in the steps",
    ),
    source="[derived, docs/theory.md (3.3), (4.5), (4.10)]",
    grade=Grade.IDENTITY,
    claim={
        "query": A,
        "slope": 1 - (D - 1) * A / BETA - A**2,
        "eta": A**2 * (1 - 1 / D),
        "kept": sp.Integer(1),
        "orders": (D / 2, D / 2 - 1),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("query path A (1-1/d)", {"query": A * (1 - 1 / D)}, "d - 1 directions share E(1-u^2), not d"),
        Mutant("variance without d - 1", {"slope": 1 - D * A / BETA - A**2}, "d - 1 directions off the query"),
        Mutant("eta = A^2", {"eta": A**2}, "the radial direction has no derivative"),
        Mutant("contraction by A^2", {"kept": A**2}, "the output is shorter, not turned"),
        Mutant("orders d/2 + 1 and d/2", {"orders": (D / 2 + 1, D / 2)}, "the resultant in two more dimensions"),
    ),
)
