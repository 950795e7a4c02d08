"""Tokens that are almost a simplex: each row has one threshold, between those of its extreme cosines."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from critattn.symbolic import N
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    argued,
    continuous_at,
    equal,
    grid,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import finite_dimension

# 1 - rho_1 = wide >= 1 - rho_2 = near: the gaps of the smallest and of the largest cosine of a row to its self score
WIDE, NEAR, GAP, EXTRA, SIZE, GAMMA = sp.symbols("wide near gap extra log_n gamma", positive=True)
EPS, OWN, Z, X, Y = sp.symbols("eps own z x y", nonnegative=True)
# all 2^d sign vectors over sqrt(d), shrunk by sqrt(1-c) beside a common coordinate sqrt(c)
BITS, COMMON, REDUCED, TILT = sp.symbols("d c g x", positive=True)


def symbolic(claim: Claim) -> Iterator[Step]:
    """One root in every row, between those of rows with equal cosines; then the weights on both sides."""
    term = sp.exp(-GAMMA * GAP * SIZE)
    words = "F(gamma) = sum_(j != i) n^(-gamma (1 - G_ij)) = 1/A_ii - 1"
    case = "each term falls strictly, from F(0) = n - 1 to F(oo) = 0: one root"
    yield from signs(words, {case: (sp.diff(term, GAMMA), "negative")})
    steeper = -GAMMA * GAP * SIZE + GAMMA * (GAP + EXTRA) * SIZE
    yield from signs("a larger gap 1 - G_ij", {"the term is smaller": (steeper, "positive")})
    at: dict[Any, Any] = {N: (3, 17, 1009, 10**40)}
    for words, bound, gap in (("1 - rho_1", claim.low, WIDE), ("1 - rho_2", claim.high, NEAR)):
        exponent = sp.log(N - 1) - bound * gap * sp.log(N)
        yield equal(f"with all gaps {words} the row has F = 1 at the stated bound", exponent, 0, at=at)
    share = sp.Symbol("share", positive=True)
    below = 1 - (1 - share) * claim.subcritical * WIDE
    yield equal("at gamma = (1 - share) times the lower threshold, n^(1 - gamma (1 - rho_1)) = n^share", below, share)
    above = (1 + share) * claim.supercritical * NEAR - 1
    yield equal("at gamma = (1 + share) times the upper threshold, n^(1 - gamma (1 - rho_2)) = n^-share", above, share)
    yield continuous_at("below: A_ii <= y/(y + 1 - 1/n) -> 0, y = n^-share", Y / (Y + 1 - EPS), {Y: 0, EPS: 0}, 0)
    yield continuous_at("above: A_ii >= 1/(1 + (1 - 1/n) x) -> 1, x = n^-share", 1 / (1 + (1 - EPS) * X), {X: 0}, 1)
    yield argued(
        "above: |m_i - y_i| <= (1 - A_ii) sqrt(2 (1 - rho_1)) -> 0, so that all angles stay",
        "m_i - y_i = sum_j A_ij (y_j - y_i), |y_j - y_i|^2 = 2 (1 - G_ij), and the triangle inequality",
    )
    yield from _gradient(claim)


def _gradient(claim: Claim) -> Iterator[Step]:
    yield argued(
        "sqrt(q_1 eta_i) <= (1 + 2 beta/sqrt d) sqrt(A_ii) + beta/sqrt d, eta_i = sum_k ||J_ik||^2/d, without residual",
        "triangle inequality over the value, key and query path of (3.3): sum_j A_ij^2 <= max_j A_ij = A_ii, "
        "|y_k - m_i| <= 2, and ||C_i||_F <= tr C_i <= 1",
    )
    bound = ((1 + 2 * Z) * OWN + claim.query * Z) ** 2
    words = "below the lower threshold eta -> 0 where z = beta/sqrt d -> 0"
    yield continuous_at(words, bound, {OWN: 0, Z: 0}, 0)
    # two bits, four keys: weights e^(x (b_1 + b_2)), the query being (1, 1)
    keys = list(itertools.product((1, -1), repeat=2))
    total: Any = sum(sp.exp(TILT * sum(key)) for key in keys)
    first = sum(key[0] * sp.exp(TILT * sum(key)) for key in keys) / total
    both = sum(key[0] * key[1] * sp.exp(TILT * sum(key)) for key in keys) / total
    mean = (sp.exp(TILT) - sp.exp(-TILT)) / (sp.exp(TILT) + sp.exp(-TILT))
    yield equal("sign vectors: a bit of the keys has the mean tanh x, x = beta (1-c)/d", first, mean)
    yield equal("and two bits are uncorrelated: C_i = ((1-c)/d)(1 - tanh^2 x) on the bits", both - first**2, 0)


def certified(claim: Claim) -> Iterator[Step]:
    """Rows with two cosines, the tokens that keep the query path below the threshold, and the numerical theory."""
    part, others = sp.symbols("part log_others", positive=True)
    domain = {"log_others": (1, 690), "near": ("1/10", "9/10"), "extra": ("1/10", 1), "part": ("1/10", "9/10")}
    for words, bound, sign in (("lower", claim.low, 1), ("upper", claim.high, -1)):
        beta = (bound * sp.log(N)).subs(sp.log(N - 1), others).subs(WIDE, NEAR + EXTRA)
        near, far = (sp.exp(sp.factor(others - beta * gap)) for gap in (NEAR, NEAR + EXTRA))
        largest = near if sign > 0 else sp.Integer(1)
        room = factored(sign * (part * near + (1 - part) * far - 1) / largest)
        words = f"a part of the keys at rho_2, the others at rho_1: F {'>' if sign > 0 else '<'} 1 at the {words} bound"
        yield positive(words, room, domain)
    yield from _sign_vectors(claim)
    points = grid(low=(-0.5, 0.0, 0.25), high=(0.25, 0.5, 0.875), log_n=(1.5, 5.0, 40.0, 690.0))
    for k, (bound, symbol, name) in enumerate(((claim.low, WIDE, "low"), (claim.high, NEAR, "high"))):
        exact = bound.subs(N, sp.exp(SIZE)).subs(symbol, 1 - sp.Symbol(name))

        def numeric(low: float, high: float, log_n: float, k: int = k) -> float:
            return float(finite_dimension.row_bounds(low, high, log_n)[k])

        words = f"theory.finite_dimension.row_bounds, the {'upper' if k else 'lower'} one"
        yield agrees(words, numeric, exact, points, tolerance=64 * 2.0**-52)


def factored(expression: Any) -> Any:
    """An expression factored with its exponentials as symbols, without which a wide box shows nothing."""
    expression = sp.expand(expression)
    names = {power: sp.Dummy() for power in expression.atoms(sp.exp)}
    return sp.factor(expression.xreplace(names)).xreplace({name: power for power, name in names.items()})


def _sign_vectors(claim: Claim) -> Iterator[Step]:
    """Tokens sqrt(c) e_0 + sqrt((1-c)/d) (+-1, ..., +-1): n = 2^d, rho_1 = 2c - 1, and g = gamma (1 - rho_1) < 1."""
    x = REDUCED * sp.log(2) / 2
    slope = 1 - sp.tanh(TILT) ** 2
    query = (TILT * slope) ** 2 * (BITS - 1 + COMMON)

    def enumerated(x: float, c: float, d: float) -> float:
        return query_square(x, c, int(d))

    points = grid(x=(0.125, 0.5, 1.5), c=(0.0, 0.5, 0.75), d=(3.0, 6.0))
    words = "beta^2 ||C_i P_i||^2 = (x/cosh^2 x)^2 (d - 1 + c), by enumeration"
    yield agrees(words, enumerated, query, points, tolerance=2.0**-40)
    # both sides over x^2, so that nothing wide cancels
    own = sp.exp(-BITS / 2 * sp.log(1 + sp.exp(-2 * x)))
    ratio = sp.sqrt(BITS) / ((1 - COMMON) * sp.sqrt(1 + 1 / BITS))
    bound = ((1 / x + 2 * ratio) * own + claim.query * ratio) ** 2
    eta = slope.subs(TILT, x) ** 2 * (1 - (2 - COMMON) / (BITS + 1))
    domain = {"d": (4, 10**6), "c": (0, "9/10"), "g": ("1/10", "99/100")}
    words = "sign vectors, d = log n/log 2: eta >= (x/cosh^2 x)^2 (d-1+c)/(d+1) is within the bound (over x^2)"
    yield positive(words, bound - eta, domain)
    floor = (TILT * slope).subs(TILT, x) ** 2 / 2 - sp.Rational(1, 2000)
    yield positive("and it does not vanish: eta > 1/2000 below the threshold", floor, {"g": ("1/10", "99/100")})


def query_square(x: float, c: float, d: int) -> float:
    """The squared norm beta^2 ||C_i P_i||_F^2 of the query path on sign vectors, by a sum over all 2^d keys.

    Args:
        x: beta (1-c)/d.
        c: squared common coordinate.
        d: bits.
    """
    bits = np.array(list(itertools.product((1.0, -1.0), repeat=d)))
    tokens = np.hstack([np.full((len(bits), 1), np.sqrt(c)), np.sqrt((1 - c) / d) * bits])
    query, beta = tokens[0], x * d / (1 - c)
    weights = np.exp(beta * (tokens @ query - 1))
    weights /= weights.sum()
    away = tokens - weights @ tokens
    covariance = (away * weights[:, None]).T @ away
    tangential = covariance - np.outer(covariance @ query, query)
    return float(beta**2 * (tangential**2).sum())


LOG_ODDS = sp.log(N - 1) / sp.log(N)

THEOREM = Theorem(
    name="almost_simplex_rows",
    statement=Statement(
        "Every row of any distinct unit tokens has its self weight 1/2 at exactly one gamma, between log(n-1)/((1-c) "
        "log n) with c its smallest and its largest cosine. If all cosines lie in [rho_1, rho_2], self weights go to 0 "
        "for gamma < 1/(1-rho_1) and to 1, with all angles unchanged, for gamma > 1/(1-rho_2). Below, the mean square "
        "of the Jacobian vanishes where d grows faster than (log n)^2; not in every d.",
        r"\frac{\log(n-1)}{(1-\min_jG_{ij})\log n}\le\gamma_i\le\frac{\log(n-1)}{(1-\max_jG_{ij})\log n};\qquad"
        r"\sqrt{q_1\eta_i}\le\Bigl(1+\frac{2\beta}{\sqrt d}\Bigr)\sqrt{A_{ii}}+\frac\beta{\sqrt d}",
    ),
    hypotheses=(
        "unit directions y_i with cosines G_ij < 1 for j != i; n >= 2",
        "for the limits, rho_1 <= G_ij <= rho_2 < 1 with fixed bounds",
        "for the gradient: no residual, norms at least sqrt(q_1), and (log n)^2/d -> 0. A bound on the smallest cosine "
        "alone is not enough: sign vectors beside a common coordinate have cosines from a fixed rho_1 > 0 on, "
        "d = log n/log 2, and a query path that stays. Their largest cosine 1 - 2 (1-c)/d tends to 1, so that nothing "
        "is decided here for d = C log n at a fixed rho_2 < 1, where simulation says the same (4.12)",
    ),
    source="[Chen 2025, Thm 2.3, 2.5; derived, docs/theory.md (3.3), (4.8), (4.12)]",
    grade=Grade.LEMMA,
    claim={
        "low": LOG_ODDS / WIDE,
        "high": LOG_ODDS / NEAR,
        "subcritical": 1 / WIDE,
        "supercritical": 1 / NEAR,
        "query": sp.Integer(1),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("bounds exchanged", {"low": LOG_ODDS / NEAR, "high": LOG_ODDS / WIDE}, "the far keys cross first"),
        Mutant("n competitors", {"high": 1 / NEAR}, "n - 1: the token itself is none"),
        Mutant("subcritical up to 1/(1-rho_2)", {"subcritical": 1 / NEAR}, "rows with all cosines rho_1 have crossed"),
        Mutant("supercritical from 1/(1-rho_1)", {"supercritical": 1 / WIDE}, "rows with cosines rho_2 have not"),
        Mutant(
            "gradient vanishes below in any d",
            {"query": sp.Integer(0)},
            "sign vectors: eta -> (x/cosh^2 x)^2, x = (gamma (1-rho_1)/2) log 2, as on random tokens (4.12)",
        ),
    ),
)
