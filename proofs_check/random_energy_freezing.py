"""Independent Gaussian scores freeze at beta = sqrt(2 log n): bounds on E sum A^2 at every n, and its limit."""

from collections.abc import Iterator
from typing import Any

import sympy as sp
from flint import acb, arb

from critattn.symbolic import N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, argued, equal, grid, positive, signs
from critattn.theorems.theorem import Claim
from critattn.theory import random_energy

BETA, X, B, E = sp.symbols("beta x b e", positive=True)
G1, G2, G3 = sp.symbols("g1 g2 g3", real=True)
LOG_N = sp.Symbol("log_n", positive=True)
SUM = sp.exp(BETA * G1) + sp.exp(BETA * G2) + sp.exp(BETA * G3)
SCORES = (G1, G2, G3)
WEIGHTS = [sp.exp(BETA * g) / SUM for g in SCORES]
MEAN: Any = sum(a * g for a, g in zip(WEIGHTS, SCORES, strict=True))
DENSITY = sp.exp(-(X**2) / 2) / sp.sqrt(2 * sp.pi)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The slope of the free energy is the mean of 1 - sum A^2, its bounds, and what convexity makes of them."""
    yield from _derivatives()
    free = sp.Function("F")(X)
    parts = -sp.diff(DENSITY * free, X) + DENSITY * sp.diff(free, X)
    yield equal("E g F(g) = E F'(g): phi' = -g phi", X * DENSITY * free, parts)
    level = sp.log(N) + BETA**2 / 2
    square = -((X - BETA) ** 2) / 2 + BETA**2 / 2
    yield equal("log E sum e^(beta g) = log n + beta^2/2: the square completed", BETA * X - X**2 / 2, square)
    at = {N: (5, 17, 1009, 10**40)}
    reduced = level.subs(BETA, B * claim.critical) / sp.log(N)
    yield equal("Jensen, in units of log n at beta = b beta_c: f(b) <= 1 + b^2", reduced, 1 + B**2, at=at)
    touch = level.subs(BETA, claim.critical), claim.critical * sp.sqrt(2 * sp.log(N))
    yield equal("the bounds log n + beta^2/2 and beta sqrt(2 log n) touch at beta_c", *touch, at=at)
    because = (
        "F/beta decreases, as its derivative is -H/beta^2; so f(b) <= b f(1) <= 2 b for b >= 1. Z >= e^(beta max), so "
        "f(b) >= 2 b e. The sums over three keys above have the same form over n, and expectations keep the signs."
    )
    yield argued("2 b e <= f(b) <= 2 b for b >= 1, with e = E max g/sqrt(2 log n)", because)
    because = "a convex function below 2 b has slope at most 2, and at least that of its chord from b = 1, f(1) <= 2"
    yield argued("(2 b e - 2)/(b - 1) <= f'(b) = 2 b (1 - E sum A^2) <= 2 for b > 1", because)
    yield equal("so that E sum A^2 >= 1 - 1/b, at every n", 1 - 2 / (2 * B), claim.limit(B))
    high = 1 - (2 * B * E - 2) / (B - 1) / (2 * B)
    yield equal("and E sum A^2 <= 1 - 1/b + (1-e)/(b-1)", high - claim.limit(B), (1 - E) / (B - 1))
    yield argued(
        "for b < 1: (1 - b^2) E sum A^2 <= int_b^1 2 x E sum A^2 dx = 1 - b^2 - f(1) + f(b) <= 2 - f(1) <= 2 (1 - e)",
        "sum A^2 increases in beta, f' = 2 b (1 - E sum A^2), f(b) <= 1 + b^2 and f(1) >= 2 e",
    )


def _derivatives() -> Iterator[Step]:
    free = sp.log(SUM)
    yield equal("d/dbeta log Z = sum A g (three keys)", sp.diff(free, BETA), MEAN)
    own = sp.diff(WEIGHTS[0], G1)
    yield equal(
        "dA_1/dg_1 = beta (A_1 - A_1^2): E sum A g = beta (1 - E sum A^2)", own, BETA * WEIGHTS[0] * (1 - WEIGHTS[0])
    )
    spread = sum(WEIGHTS[i] * WEIGHTS[j] * (SCORES[i] - SCORES[j]) ** 2 for i in range(3) for j in range(i))
    yield equal("d^2/dbeta^2 log Z = sum_(i<j) A_i A_j (g_i - g_j)^2 >= 0: convex", sp.diff(MEAN, BETA), spread)
    a = sp.Symbol("a", positive=True)
    yield equal(
        "d/dbeta (log Z)/beta = (sum A g - log Z/beta)/beta = -H/beta^2",
        sp.diff(free / BETA, BETA),
        (MEAN - free / BETA) / BETA,
    )
    term = -sp.log(a) * a
    yield from signs(
        "H = -sum A log A is no sum of negative terms",
        {"A = 1/(1+x)": (term.subs(a, 1 / (1 + X)).rewrite(sp.log), "positive")},
    )
    squares = sum(weight**2 for weight in WEIGHTS)
    twice = MEAN.subs(BETA, 2 * BETA)
    yield equal(
        "d/dbeta log sum A^2 = 2 (<g> at 2 beta - <g> at beta) >= 0, as <g> increases",
        sp.diff(squares, BETA),
        2 * squares * (twice - MEAN),
    )


def certified(claim: Claim) -> Iterator[Step]:
    """The mean of the largest score from below, and the numerical theory."""
    mills = sp.erfc(X / sp.sqrt(2)) / 2 - DENSITY * X / (1 + X**2)
    yield equal(
        "Q(x) > phi(x) x/(1+x^2): both vanish at oo, and the difference decreases",
        sp.diff(mills, X),
        -2 * DENSITY / (1 + X**2) ** 2,
    )
    size = sp.sqrt(2 * LOG_N - 3 * sp.log(LOG_N))
    expected = LOG_N ** sp.Rational(3, 2) * size / (1 + size**2) / sp.sqrt(2 * sp.pi)
    least = (N * DENSITY * X / (1 + X**2)).subs(X, size).subs(N, sp.exp(LOG_N))
    yield equal(
        "at x^2 = 2 log n - 3 log log n: n Q(x) > (log n)^(3/2) x/((1+x^2) sqrt(2 pi))",
        least,
        expected,
        at={LOG_N: (3, 5, 8, 60)},
    )
    none = sp.exp(-sp.log(2) * sp.exp(LOG_N))
    room = size * (1 - sp.exp(-expected)) - none - sp.sqrt(2 * LOG_N) * (1 - claim.rate * sp.log(LOG_N) / LOG_N)
    words = "E max >= x (1 - e^(-n Q)) - 2^(1-n) E g^-, so that 1 - e <= K log log n/log n"
    yield positive(f"{words}, K = {claim.rate}", room, {"log_n": (4.6, 691)})
    yield agrees(
        "theory.random_energy.critical_beta",
        random_energy.critical_beta,
        claim.critical.subs(N, sp.exp(LOG_N)),
        grid(log_n=(1.0, 7.0, 690.0)),
    )
    points = grid(reduced_beta=(1.25, 2.0, 8.0))
    yield agrees(
        "theory.random_energy.sum_of_squares_limit",
        random_energy.sum_of_squares_limit,
        lambda reduced_beta: claim.limit(reduced_beta),
        points,
    )
    yield agrees(
        "theory.random_energy.free_energy_exponent for b >= 1",
        random_energy.free_energy_exponent,
        lambda reduced_beta: 2 * reduced_beta,
        points,
    )
    yield agrees(
        "theory.random_energy.free_energy_exponent for b < 1",
        random_energy.free_energy_exponent,
        lambda reduced_beta: 1 + reduced_beta**2,
        grid(reduced_beta=(0.25, 0.75)),
    )
    yield agrees(
        "theory.random_energy.sum_of_squares at n = 2 is E (1 + tanh^2(beta g/sqrt 2))/2",
        lambda beta: random_energy.sum_of_squares(beta, float(sp.log(2))),
        two_keys,
        grid(beta=(0.25, 1.0, 3.0, 12.0)),
        tolerance=1e-11,
        precision=128,
    )
    yield from _between(claim)


def _between(claim: Claim) -> Iterator[Step]:
    """The means at finite n against their bounds for b > 1."""
    points = grid(b=(1.5, 3.0), log_n=(5.0, 9.0, 40.0))

    def error(b: float, log_n: float) -> float:
        # the middle of the two bounds, and half of their distance
        return float(claim.rate * sp.log(log_n) / log_n) / (b - 1) / 2

    yield agrees(
        "theory.random_energy.sum_of_squares lies between 1 - 1/b and 1 - 1/b + K log log n/((b-1) log n)",
        lambda b, log_n: random_energy.sum_of_squares(b * random_energy.critical_beta(log_n), log_n) - error(b, log_n),
        lambda b, log_n: claim.limit(b),
        points,
        tolerance=error,
        relative_to=sp.Integer(1),
    )


def two_keys(beta: arb) -> arb:
    """E sum A^2 of two keys by rigorous integration; beyond 30 standard deviations less than 1e-190."""

    def integrand(x: acb, analytic: bool) -> acb:
        return (-x * x / 2).exp() * (beta * x / arb(2).sqrt()).tanh() ** 2

    inner = acb.integral(integrand, 0, 30).real * (2 / arb.pi()).sqrt()
    return (1 + inner + arb(0, 1e-190)) / 2


THEOREM = Theorem(
    name="random_energy_freezing",
    statement=Statement(
        "For n independent Gaussian scores at beta = b sqrt(2 log n) and e = E max/sqrt(2 log n), E sum A^2 is at most "
        "2 (1-e)/(1-b^2) for b < 1 and between 1 - 1/b and 1 - 1/b + (1-e)/(b-1) for b > 1; "
        "1 - e <= 3 log log n/(2 log n).",
        r"b<1:\ E\sum A^2\le\tfrac{2(1-e)}{1-b^2};\quad b>1:\ 0\le E\sum A^2-\bigl(1-\tfrac1b\bigr)\le\tfrac{1-e}{b-1};"
        r"\quad 1-e\le\tfrac{3\log\log n}{2\log n}",
    ),
    hypotheses=("independent standard normal scores, fixed b != 1", "log n from 4.6 to 691 for the bound of 1 - e"),
    source="[classical, docs/theory.md (5.0), (5.1), (5.4); the bounds derived]",
    grade=Grade.LEMMA,
    claim={"critical": sp.sqrt(2 * sp.log(N)), "limit": lambda b: 1 - 1 / b, "rate": sp.Rational(3, 2)},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("frozen at sqrt(log n)", {"critical": sp.sqrt(sp.log(N))}, "the largest score is sqrt(2 log n)"),
        Mutant("frozen at log n", {"critical": sp.log(N)}, "the scale of bounded scores"),
        Mutant("limit 1 - 1/b^2", {"limit": lambda b: 1 - 1 / b**2}, "the weight of m = 1/b enters once"),
        Mutant("K = 1/4", {"rate": sp.Rational(1, 4)}, "1 - e is (log log n + 1.38)/(4 log n) to leading order"),
    ),
)
