"""The largest singular value of the Jacobian is no step: it stays up below the threshold, and diverges at it."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from critattn.symbolic import RHO, THETA, N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, continuous_at, equal, grid
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

S, BETA, U = sp.symbols("s beta u", positive=True)
EPS = sp.Symbol("eps", nonnegative=True)
OPEN: dict[Any, Any] = {RHO: 1 / (1 + U)}
# a vector c_y y_i + c_o (sum of the n - 1 other tokens)
Vector = tuple[Any, Any]
Y_I, TOTAL = (1, 0), (1, 1)
CROSS = (1 - S) / (N - 1)
MEAN = (S, CROSS)
SIGMA = 1 + (N - 1) * RHO


def dot(u: Vector, v: Vector) -> Any:
    """The inner product by the Gram matrix."""
    totals = (u[0] + (N - 1) * u[1]) * (v[0] + (N - 1) * v[1])
    return RHO * totals + THETA * (u[0] * v[0] + (N - 1) * u[1] * v[1])


def plus(*terms: tuple[Any, Vector]) -> Vector:
    """A combination of vectors."""
    return sum(f * v[0] for f, v in terms), sum(f * v[1] for f, v in terms)


def symbolic(claim: Claim) -> Iterator[Step]:
    """A common shift off the span; then a shift of all tokens along the tangential part of their sum."""
    total = S + (N - 1) * CROSS
    yield equal(
        "a shift of all tokens by z off their span: P_k z = z, y_i.z = 0, so J z = (a + b/r) z", total, claim.floor
    )
    image = _image()
    closed = plus((1, TOTAL), (-SIGMA, MEAN), (-2 * BETA * THETA * SIGMA * S, plus((1, Y_I), (-1, MEAN))))
    words = (
        "u_k = P_k S, S = sum of y: value, key and query path add up to S - sigma m - 2 beta theta sigma s (y_i - m)"
    )
    for name, found, wanted in zip(("y_i", "the others"), image, closed, strict=True):
        yield equal(f"{words}, coefficient of {name}", found, wanted)
    square = dot(TOTAL, TOTAL) - dot(Y_I, TOTAL) ** 2
    yield equal("|P_k S|^2 = n sigma - sigma^2", square, N * SIGMA - SIGMA**2)
    # at the threshold s = 1/(2 - 1/n)
    known = {S: 1 / (2 - EPS), N: 1 / EPS}
    growing = plus((2 * THETA * SIGMA * S, plus((1, Y_I), (-1, MEAN))))
    leading = (dot(growing, growing) / square).subs(known).subs(OPEN)
    slope = (claim.slope * THETA).subs(OPEN)
    words = "at the threshold |J u|/|u| = slope log n to leading order, beta = log n/(1-rho)"
    yield continuous_at(words, leading, {EPS: 0}, slope**2)
    constant = plus((1, TOTAL), (-SIGMA, MEAN))
    rest = (dot(constant, constant) / square).subs(known).subs(OPEN)
    bounded = (1 - 3 * RHO / 4).subs(OPEN)
    yield continuous_at("and the square of the part without beta tends to 1 - 3 rho/4", rest, {EPS: 0}, bounded)


def _image() -> Vector:
    """The row sum_k J_ik P_k S from the blocks (3.3), at a = 0 and b = r = 1."""
    lifted = THETA * SIGMA
    value = plus((1, TOTAL), (-SIGMA, MEAN))
    # y_i.P_k S = theta sigma for k != i and 0 for k = i; U_ik = w (y_k - m)
    key = plus((CROSS, (0, 1)), (-(N - 1) * CROSS, MEAN))
    # C P_i S = sum_j A_j y_j (y_j.P_i S) - m (m.P_i S)
    query = plus((CROSS, (0, 1)), (-(1 - S), MEAN))
    return plus((1, value), (BETA * lifted, key), (BETA * lifted, query))


def certified(claim: Claim) -> Iterator[Step]:
    """The numerical spectrum: at least 1 below the threshold, and the slope at it."""
    yield agrees(
        "theory.simplex.critical_operator_slope",
        simplex.critical_operator_slope,
        claim.slope,
        grid(rho=(0.125, 0.5, 0.875)),
    )

    def local_slope(rho: float) -> float:
        gamma = simplex.critical_gamma(rho)
        high, low = (simplex.operator_norm(gamma, rho, size, log_d=size + 1) for size in (600.0, 300.0))
        return (high - low) / 300.0

    words = "theory.simplex.operator_norm grows by that slope from log n = 300 to 600: no other mode grows faster"
    # what is left is of relative order 1/log(n)^2
    yield agrees(words, local_slope, claim.slope, grid(rho=(0.25, 0.5, 0.75)), tolerance=1e-3)
    yield agrees(
        "theory.simplex.operator_norm is 1 deep below the threshold",
        lambda gamma, log_n: simplex.operator_norm(gamma, 0.5, log_n, log_d=log_n + 1),
        sp.Integer(claim.floor),
        grid(gamma=(0.5, 1.0), log_n=(100.0, 600.0)),
        tolerance=1e-9,
    )


THEOREM = Theorem(
    name="operator_norm",
    statement=Statement(
        "Below the threshold the operator norm of the Jacobian does not vanish: it is at least a + b/r for d > n. At "
        "the threshold it diverges: at a = 0 it is at least (b/r) (sqrt(rho)/2) log n to leading order, by the mode in "
        "which all tokens move along the tangential part of their sum.",
        r"\lVert J\rVert_{op}\ge a+\frac br\ (d>n);\qquad"
        r"\liminf\frac{\lVert J\rVert_{op}}{\log n}\ge\frac br\,\frac{\sqrt\rho}2\ "
        r"\bigl(\gamma=\tfrac1{1-\rho}\bigr)",
    ),
    hypotheses=(
        "a simplex with 0 < rho < 1 fixed",
        "d > n for the first statement: some direction is off the span of the tokens",
        "a = 0, b = r = 1 in the second; that no mode grows faster is seen in the numerical spectrum only",
    ),
    source="[derived, docs/theory.md (2.5)]",
    grade=Grade.LIMIT,
    claim={"floor": 1, "slope": sp.sqrt(RHO) / 2},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("slope sqrt(rho)", {"slope": sp.sqrt(RHO)}, "s (1-s) is 1/4, not 1/2"),
        Mutant("slope rho/2", {"slope": RHO / 2}, "wrong power"),
        Mutant("vanishing below the threshold", {"floor": 0}, "the mean square vanishes, the norm does not"),
    ),
)
