"""A layer never turns the tokens of a simplex away from each other."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from critattn.symbolic import ATTENTION_WEIGHT, IDENTITY_WEIGHT, NORM, RHO, THETA, N
from critattn.symbolic import angle_ratio as exact_angle_ratio
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, positive, signs
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

LOG_N = sp.Symbol("log_n", positive=True)
# delta = contrast, mu = squared mean, k = a r/b: every simplex, at every n and gamma, is a point here
DELTA, MU, K = sp.symbols("delta mu k", real=True)
LAYER = {"identity_weight": 0.75, "attention_weight": 1.25, "norm": 1.5}
EXACT_LAYER: dict[Any, Any] = {IDENTITY_WEIGHT: "3/4", ATTENTION_WEIGHT: "5/4", NORM: "3/2"}


def symbolic(claim: Claim) -> Iterator[Step]:
    """Where delta and mu lie, and 1 - lambda as a product of factors that are not negative."""
    m, v, g = sp.symbols("m v g", positive=True)
    # n = 1 + m; any t > 0
    contrast = (1 - v) / (1 + m * v)
    yield equal("1 - delta = n t/(1 + (n-1) t)", 1 - contrast, (1 + m) * v / (1 + m * v))
    yield equal("1/(n-1) + delta = n/((n-1)(1 + (n-1) t))", 1 / m + contrast, (1 + m) / (m * (1 + m * v)))
    cases = {
        "1 - delta > 0": ((1 + m) * v / (1 + m * v), "positive"),
        "delta > -1/(n-1) >= -1, also for gamma < 0": ((1 + m) / (m * (1 + m * v)), "positive"),
    }
    yield from signs("the contrast", cases)
    yield equal(
        "mu = ((n-1) rho + 1)/n vanishes at rho = -1/(n-1) and is 1 at rho = 1",
        (RHO + THETA / N) * N,
        (N - 1) * RHO + 1,
    )
    e, kappa = sp.symbols("e kappa")
    ratio = e**2 / (MU * kappa**2 + (1 - MU) * e**2)
    product = MU * (kappa - e) * (kappa + e) / (MU * kappa**2 + (1 - MU) * e**2)
    yield equal("1 - lambda = mu (kappa - e)(kappa + e)/(mu kappa^2 + (1-mu) e^2)", 1 - ratio, product)
    yield equal("kappa - e = b (1 - delta), with k = a r/b", (K + 1) - (K + DELTA), 1 - DELTA)
    kept = sp.Symbol("k", nonnegative=True)
    # delta = -1 + g
    total = (kept + 1) + (kept - 1 + g)
    yield from signs("kappa + e = b (2 k + 1 + delta)", {"positive for k >= 0": (total, "positive")})


def certified(claim: Claim) -> Iterator[Step]:
    """Lambda below its bound on the whole domain, and the numerical theory."""
    e, kappa = K + DELTA, K + 1
    square = MU * kappa**2 + (1 - MU) * e**2
    # multiplied out as above: without cancellation, so that one box does for the theorem
    room = (claim.upper - 1) * square + MU * (1 - DELTA) * (2 * K + 1 + DELTA)
    yield equal("upper |x_i'|^2 - e^2 in factors", room, claim.upper * square - e**2)
    domain = {"delta": claim.contrast, "mu": claim.mean, "k": claim.kept}
    yield positive(f"lambda < {claim.upper}: {claim.upper} |x_i'|^2 > e^2", room, domain)
    for words, layer, exact in (
        ("without", {}, exact_angle_ratio(residual=False)),
        ("with", LAYER, exact_angle_ratio().subs(EXACT_LAYER)),
    ):

        def numeric(layer: dict[str, float] = layer, **point: float) -> float:
            return simplex.angle_ratio(**point, **layer)

        yield agrees(
            f"theory.simplex.angle_ratio {words} residual",
            numeric,
            exact.subs(N, sp.exp(LOG_N)),
            grid(gamma=(0.25, 1.0, 2.0, 3.0), rho=(0.0, 0.125, 0.75), log_n=(0.75, 5.0, 40.0, 600.0)),
            tolerance=lambda gamma, rho, log_n: 2.0**-52 * (32 + 8 * (1 + gamma) * log_n),
        )


THEOREM = Theorem(
    name="contraction",
    statement=Statement(
        "On a simplex the angle ratio is at most 1, at every n, rho and gamma, with any residual a, b >= 0; it is "
        "1 only where the tokens sum to zero.",
        r"\lambda=\frac{e^2}{\mu\kappa^2+(1-\mu)e^2}\le1,\qquad "
        r"1-\lambda=\frac{\mu(\kappa-e)(\kappa+e)}{\mu\kappa^2+(1-\mu)e^2}",
    ),
    hypotheses=(
        "unit directions with common cosine rho in [-1/(n-1), 1), so that mu >= 0",
        "a >= 0 and b > 0",
        "n >= 2",
    ),
    source="[derived, docs/theory.md (1.5)]",
    grade=Grade.BOUND,
    claim={"upper": 1, "contrast": ("-999/1000", "999/1000"), "mean": ("1/1000", 1), "kept": (0, 100)},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("at most 1/2", {"upper": sp.Rational(1, 2)}, "above the threshold the ratio goes to 1"),
        Mutant("any sign of a", {"kept": (-3, 100)}, "a residual of the other sign expands: e = -3, kappa = -2"),
        Mutant("any rho", {"mean": ("-1/2", 1)}, "rho < -1/(n-1) would give mu < 0; no n tokens have such cosines"),
    ),
)
