"""A common cosine with independent Gaussian scores on top: rows that cross a half, and the annealed threshold."""

from collections.abc import Iterator
from typing import Any

import sympy as sp
from flint import arb

from critattn.symbolic import GAMMA, RHO, THETA
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, limit_is, positive, signs
from critattn.theorems.theorem import Claim
from critattn.theory import mixed

TAU, Y, X, BETA, S, U, ODDS = sp.symbols("tau y x beta s u T", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
INSIDE: dict[Any, Any] = {Y: tuple(sp.Rational(k, 11) for k in (3, 5, 8, 10))}
# with tau = y theta/sqrt(2 log n)
SPREAD = Y * THETA / sp.sqrt(2 * LOG_N)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The mean of the odds, the root of its exponent, its limits, and what Jensen's inequality makes of it."""
    square = -((X - BETA * TAU) ** 2) / 2 + BETA**2 * TAU**2 / 2
    yield equal("E e^(beta tau g) = e^(beta^2 tau^2/2): the square completed", BETA * TAU * X - X**2 / 2, square)
    # log E T - log(n-1) + log n, over log n
    exponent = 1 - GAMMA * THETA + GAMMA**2 * TAU**2 * LOG_N / 2
    at_root = exponent.subs(TAU, SPREAD).subs(GAMMA, claim.root(RHO, Y))
    words = "1 - gamma (1-rho) + gamma^2 tau^2 log n/2 = 0: then E T = (n-1)/n"
    yield equal(f"{words}, tau = y (1-rho)/sqrt(2 log n)", at_root, 0, at=INSIDE)
    slope = sp.diff(exponent, GAMMA).subs(TAU, SPREAD).subs(GAMMA, claim.root(RHO, Y))
    wanted = -THETA * sp.sqrt(1 - Y**2)
    yield equal(
        "it falls there, with slope -(1-rho) sqrt(1-y^2): the smaller root, real for y <= 1", slope, wanted, at=INSIDE
    )
    first = THETA / (TAU**2 * LOG_N) * (1 - sp.sqrt(1 - 2 * TAU**2 * LOG_N / THETA**2))
    yield equal(
        "the other form, (1-rho)/(tau^2 log n) (1 - sqrt(1-y^2))",
        first.subs(TAU, SPREAD),
        claim.root(RHO, Y),
        at=INSIDE,
    )
    yield limit_is("tau -> 0: the simplex", claim.root(RHO, Y), (Y, 0), 1 / THETA)
    yield equal("y = 1: twice as much", claim.root(RHO, Y).subs(Y, 1), 2 / THETA)
    bend = sp.diff(1 / (1 + ODDS), ODDS, 2)
    yield from signs(
        "1/(1+T) is convex, so that E A_ii >= 1/(1 + E T) > 1/2 there, at every n", {"'' > 0": (bend, "positive")}
    )
    below = sp.exp(-BETA * S)
    cases = {
        "a score s below the self score: e^(-beta s) decreases": (sp.diff(below, BETA), "negative"),
        "a score s above it: e^(beta s) increases from 1, so that T > 1 at every beta > 0": (
            sp.diff(1 / below, BETA),
            "positive",
        ),
    }
    yield from signs("T = sum of e^(-beta (s_ii - s_ij)), and A_ii = 1/(1+T) crosses a half iff all are below", cases)
    yield limit_is("and then T -> 0", below, (BETA, sp.oo), 0)


def certified(claim: Claim) -> Iterator[Step]:
    """The median boundary between y = 1 and its next order, and the numerical theory."""
    density = sp.exp(-(X**2) / 2) / sp.sqrt(2 * sp.pi)
    above = sp.erfc(X / sp.sqrt(2)) / 2
    low, high = density * X / (1 + X**2), density / X
    rates = -2 * density / (1 + X**2) ** 2, density / X**2
    yield equal("Q(z) > phi(z) z/(1+z^2): both vanish at oo, Q less this decreases", sp.diff(above - low, X), rates[0])
    yield equal("Q(z) < phi(z)/z: both vanish at oo, Q less this increases", sp.diff(above - high, X), rates[1])
    # n phi(z) = e^(log n - z^2/2)/sqrt(2 pi), in which log n drops out
    size = sp.sqrt(2 * LOG_N)
    most = 1 / (size * sp.sqrt(2 * sp.pi))
    words = "at y = 1, n Q/(1-Q) < log 2: more than half of the rows cross"
    yield positive(f"{words}, n from 20 on", sp.log(2) * (1 - most * sp.exp(-LOG_N)) - most, {"log_n": (3, 690)})
    eps = claim.excess(LOG_N) / LOG_N
    left = LOG_N - LOG_N / (1 + eps) ** 2
    short = claim.excess(LOG_N) * (2 + eps) / (1 + eps) ** 2
    yield equal("log n - z^2/2 at y = 1 + eps", left, short, at={LOG_N: (5, 8, 60, 600)})
    z = size / (1 + eps)
    least = (1 - sp.exp(-LOG_N)) * sp.exp(short) * z / ((1 + z**2) * sp.sqrt(2 * sp.pi))
    words = "at y = 1 + eps, (n-1) Q > log 2: less than half do"
    yield positive(
        f"{words}, eps = {claim.excess(LOG_N) / LOG_N}, n from 100 on", least - sp.log(2), {"log_n": (4.6, 690)}
    )
    yield from _numeric(claim)


def _numeric(claim: Claim) -> Iterator[Step]:
    yield equal("at n = 2 there is one other", 2 + claim.others, 1)
    points = grid(tau=(0.0625, 0.125, 0.25), rho=(0.0, 0.5), log_n=(2.0, 9.0, 60.0))

    def probability(tau: arb, rho: arb, log_n: arb) -> arb:
        others = log_n.exp() + claim.others
        return (others * (-tail((1 - rho) / tau)).log1p()).exp()

    def allowed(tau: float, rho: float, log_n: float) -> float:
        lost = probability(arb(tau), arb(rho), arb(log_n)).log()
        return 2.0**-52 * (16 + abs(float(lost)) * (16 + log_n + ((1 - rho) / tau) ** 2))

    found = mixed.crossing_probability
    yield agrees(
        "theory.mixed.crossing_probability = Phi((1-rho)/tau)^(n-1)", found, probability, points, tolerance=allowed
    )

    def half(rho: float, log_n: float) -> float:
        at = mixed.median_boundary(rho, log_n)
        return float(probability(arb(at), arb(rho), arb(log_n)).mid())

    places = grid(rho=(0.0, 0.5, 0.875), log_n=(2.0, 9.0, 60.0, 600.0))
    words = "theory.mixed.median_boundary: the probability there is 1/2"
    # z^2 is some 2 log n, and what it is wrong by counts with it in the exponent
    yield agrees(words, half, sp.Rational(1, 2), places, tolerance=lambda rho, log_n: 2.0**-52 * (64 + 16 * log_n))
    spread = sp.Symbol("tau", positive=True)
    reduced = spread * sp.sqrt(2 * LOG_N) / THETA
    narrow = grid(tau=(0.03125, 0.0625), rho=(0.125, 0.5), log_n=(2.0, 9.0, 30.0))
    yield agrees("theory.mixed.reduced_disorder", mixed.reduced_disorder, reduced, narrow)
    yield agrees("theory.mixed.critical_gamma", mixed.critical_gamma, claim.root(RHO, reduced), narrow, tolerance=1e-14)
    yield agrees(
        "theory.mixed.freezing_beta",
        mixed.freezing_beta,
        sp.sqrt(2 * LOG_N) / spread,
        grid(tau=(0.03125, 2.0), log_n=(2.0, 600.0)),
    )
    meeting = grid(rho=(0.125, 0.5), log_n=(2.0, 600.0))
    yield agrees(
        "theory.mixed.triple_point, gamma: the root at y = 1",
        lambda rho, log_n: mixed.triple_point(rho, log_n).gamma,
        claim.root(RHO, sp.Integer(1)),
        meeting,
    )
    yield agrees(
        "theory.mixed.triple_point, tau: y = 1",
        lambda rho, log_n: mixed.triple_point(rho, log_n).tau,
        THETA / sp.sqrt(2 * LOG_N),
        meeting,
    )


def tail(z: arb) -> arb:
    """Q(z) = P(g > z)."""
    return (z / arb(2).sqrt()).erfc() / 2


THEOREM = Theorem(
    name="random_scores",
    statement=Statement(
        "Scores 1 for the token itself and rho + tau g for the others: E A_ii > 1/2 at gamma_c = "
        "2/((1-rho)(1 + sqrt(1-y^2))), y = tau sqrt(2 log n)/(1-rho) <= 1; a row crosses 1/2 at all with probability "
        "Phi((1-rho)/tau)^(n-1), which is 1/2 at a y between 1 and 1 + (log log n + 3)/(4 log n).",
        r"\gamma_c=\tfrac2{(1-\rho)(1+\sqrt{1-y^2})}:\ EA_{ii}>\tfrac12;\quad "
        r"P(\text{crosses})=\Phi\bigl(\tfrac{1-\rho}\tau\bigr)^{n-1}",
    ),
    hypotheses=(
        "independent standard normal g, n >= 3",
        "y <= 1 for gamma_c; that the median row is not far below it is heuristic",
        "log n from 4.6 to 690 for the bounds of the boundary",
    ),
    source="[derived, docs/theory.md (9.1), (9.2)]",
    grade=Grade.ASYMPTOTIC,
    claim={
        "root": lambda rho, y: 2 / ((1 - rho) * (1 + sp.sqrt(1 - y**2))),
        "others": -1,
        "excess": lambda log_n: (sp.log(log_n) + 3) / 4,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "the larger root",
            {"root": lambda rho, y: 2 / ((1 - rho) * (1 - sp.sqrt(1 - y**2)))},
            "there rare rows dominate the mean of the odds, which rises",
        ),
        Mutant("as without disorder", {"root": lambda rho, y: 1 / (1 - rho)}, "true at tau = 0 only"),
        Mutant("Phi^n", {"others": 0}, "n - 1 others"),
        Mutant("next order with 1", {"excess": lambda log_n: (sp.log(log_n) + 1) / 4}, "the constant tends to 1.80"),
    ),
)
