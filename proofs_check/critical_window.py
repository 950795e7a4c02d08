"""The critical window gamma = 1/(1-rho) + c/log n: a sigmoid in c, up to 1/n."""

from collections.abc import Iterator

import sympy as sp

from critattn.symbolic import RHO, THETA, WINDOW, N
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    changes_at_most,
    equal,
    grid,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

EPS = sp.Symbol("eps", nonnegative=True)
LOG_N = sp.Symbol("log_n", positive=True)
DECAY = sp.exp(-WINDOW * THETA)
LOGISTIC = 1 / (1 + DECAY)
POINTS = grid(c=(-20.0, -3.0, 0.0, 2.0, 9.0), rho=(0.125, 0.5, 0.875))


def symbolic(claim: Claim) -> Iterator[Step]:
    """The self weight in the window, its distance from the sigmoid, and the width from 10 to 90 %."""
    gamma = 1 / THETA + WINDOW / sp.log(N)
    log_odds = (gamma * THETA - 1) * sp.log(N) + sp.log(N) - sp.log(N - 1)
    at = {N: (3, 17, 1009, 10**12)}
    yield equal(
        "log odds of A_ii = c (1-rho) - log(1 - 1/n)", log_odds, WINDOW * THETA + sp.log(N) - sp.log(N - 1), at=at
    )
    weight = 1 / (1 + (1 - EPS) * DECAY)
    yield equal("as n -> oo A_ii -> s_c", weight.subs(EPS, 0), claim.weight)
    # s_c = 1/(1+v), n = 1 + m
    v, m = sp.symbols("v m", positive=True)
    limit, exact = 1 / (1 + v), 1 / (1 + v * m / (1 + m))
    yield equal("A_ii - s_c = s_c (1-s_c)/(n - 1 + s_c)", exact - limit, limit * (1 - limit) / (m + limit))
    room = (m * (1 - v) ** 2 + 1 + v) / (4 * m * (1 + v) * (m * (1 + v) + 1))
    yield equal("1/(4 (n-1)) - (A_ii - s_c), multiplied out", 1 / (4 * m) - (exact - limit), room)
    yield from signs("hence 0 < A_ii - s_c < 1/(4 (n-1))", {"the remainder is positive": (room, "positive")})
    slope = THETA * sp.log(N)
    nine = sp.log(9)
    yield equal("log odds from -log 9 to log 9, at slope (1-rho) log n", claim.width, 2 * nine / slope, at=at)


def certified(claim: Claim) -> Iterator[Step]:
    """The rate of the cosine in 1/n, and the numerical theory."""
    delta = (1 - EPS * DECAY) / (1 + (1 - EPS) * DECAY)
    mu = RHO + THETA * EPS
    cosine = 1 - THETA * delta**2 / (mu + (1 - mu) * delta**2)
    limit = 1 - THETA * claim.weight**2 / (RHO + THETA * claim.weight**2)
    there = in_the_decay(limit, cosine.subs(EPS, 0))
    yield equal("as n -> oo cos' -> 1 - (1-rho) s_c^2/(rho + (1-rho) s_c^2)", *there)
    words = f"|cos' - lim cos'| <= {claim.rate}/n for n >= 10"
    domain = {"c": (-6, 6), "rho": ("1/20", 1)}
    yield changes_at_most(words, cosine, (EPS, 0.1, domain), claim.rate)
    yield positive(
        "the self weight stays inside (0, 1)", claim.weight * (1 - claim.weight), {"c": (-50, 50), "rho": (0, 0.99)}
    )
    yield agrees(
        "theory.simplex.critical_window_self_weight", simplex.critical_window_self_weight, claim.weight, POINTS
    )
    yield agrees(
        "theory.simplex.critical_window_output_cosine",
        simplex.critical_window_output_cosine,
        limit,
        POINTS,
        relative_to=sp.Integer(1),
    )
    width = claim.width.subs(N, sp.exp(LOG_N))
    places = grid(rho=(0.0, 0.5, 0.875), log_n=(1.0, 11.0, 690.0))
    yield agrees("theory.simplex.transition_width", simplex.transition_width, width, places)
    yield from _inside(claim)


def _inside(claim: Claim) -> Iterator[Step]:
    """At the float gamma nearest to the window's, the sigmoid is within 1/(4 (n-1)) and rounding."""
    gamma = sp.Symbol("gamma", positive=True)
    c = (gamma - 1 / THETA) * LOG_N
    yield agrees(
        "theory.simplex.self_weight at c = (gamma - 1/(1-rho)) log n is the sigmoid, up to 1/n",
        simplex.self_weight,
        claim.weight.subs(WINDOW, c),
        grid(gamma=(1.5, 2.0, 2.25), rho=(0.5,), log_n=(20.0, 60.0)),
        tolerance=lambda gamma, rho, log_n: 2.0**-52 * (16 + 8 * log_n) + float(sp.exp(-log_n)),
    )


def in_the_decay(left: sp.Expr, right: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Both sides with e^(-c (1-rho)) as one symbol, for which they are rational."""
    decay = sp.Symbol("E", positive=True)
    return left.subs(DECAY, decay), right.subs(DECAY, decay)


THEOREM = Theorem(
    name="critical_window",
    statement=Statement(
        "At gamma = 1/(1-rho) + c/log n the self weight is sigmoid(c (1-rho)) up to 1/(4(n-1)), and the output cosine "
        "follows; from 10 % to 90 % the transition is exactly 2 log 9/((1-rho) log n) wide.",
        r"\gamma=\tfrac1{1-\rho}+\tfrac c{\log n}:\ A_{ii}=s_c+O(1/n),\ s_c=\tfrac1{1+e^{-c(1-\rho)}},\ "
        r"\cos'\to1-\tfrac{(1-\rho)s_c^2}{\rho+(1-\rho)s_c^2}",
    ),
    hypotheses=("0 < rho < 1, c fixed", "a = 0 for the cosine", "n >= 2"),
    source="[derived, docs/theory.md (1.12)]",
    grade=Grade.ASYMPTOTIC,
    claim={"weight": LOGISTIC, "width": 2 * sp.log(9) / (THETA * sp.log(N)), "rate": 8},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("sigmoid(c)", {"weight": 1 / (1 + sp.exp(-WINDOW))}, "the factor 1 - rho is missing"),
        Mutant("half the width", {"width": sp.log(9) / (THETA * sp.log(N))}, "from 10 % to 50 % only"),
        Mutant("rate 1/(8 n)", {"rate": sp.Rational(1, 8)}, "the constant is above 1 for some c and rho"),
    ),
)
