"""The mean square of the Jacobian on a simplex: its closed form, and its three limits."""

from collections.abc import Iterator, Sequence
from typing import Any

import sympy as sp
from flint import arb, arb_series, ctx

from critattn import symbolic as sym
from critattn.symbolic import ATTENTION_WEIGHT, GAMMA, IDENTITY_WEIGHT, NORM, RHO, THETA, D, N
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
)
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

S, W, BETA, T = sp.symbols("s w beta t", positive=True)
EPS, X, Y, INVERSE_D = sp.symbols("eps x y delta_d", nonnegative=True)
LOG_N, LOG_D = sp.symbols("log_n log_d", positive=True)
LAYER = {"identity_weight": 0.75, "attention_weight": 1.25, "norm": 1.5}
EXACT_LAYER: dict[Any, Any] = {IDENTITY_WEIGHT: "3/4", ATTENTION_WEIGHT: "5/4", NORM: "3/2"}
ALONE: dict[Any, Any] = {IDENTITY_WEIGHT: 0, ATTENTION_WEIGHT: 1, NORM: 1}
# a vector c_i y_i + c_k y_k + c_o (sum of the n - 2 other tokens)
Vector = tuple[Any, Any, Any]
Y_I, Y_K, MEAN = (1, 0, 0), (0, 1, 0), (S, W, W)


def dot(u: Vector, v: Vector) -> sp.Expr:
    """The inner product by the Gram matrix (1-rho) I + rho 11^T."""
    totals = (u[0] + u[1] + (N - 2) * u[2]) * (v[0] + v[1] + (N - 2) * v[2])
    return RHO * totals + THETA * (u[0] * v[0] + u[1] * v[1] + (N - 2) * u[2] * v[2])


def minus(u: Vector, v: Vector, factor: Any = 1) -> Vector:
    """The vector u - factor v."""
    return tuple(a - factor * b for a, b in zip(u, v, strict=True))


def row_square(trace: sp.Expr, square: sp.Expr) -> sp.Expr:
    """Squared norm of one row of blocks a delta_ik I + (b/r)[A_ik I + beta U_ik y_i^T + delta_ik beta C] P_k."""
    tangent, difference = minus(Y_I, Y_K, RHO), minus(Y_K, MEAN)
    other = W**2 * (
        (D - 1) + 2 * BETA * dot(difference, tangent) + BETA**2 * dot(difference, difference) * dot(tangent, tangent)
    )
    own = S**2 * (D - 1) + 2 * BETA * S * trace + BETA**2 * square
    factor = ATTENTION_WEIGHT / NORM
    mixed = 2 * IDENTITY_WEIGHT * factor * (S * (D - 1) + BETA * trace)
    return factor**2 * (own + (N - 1) * other) + IDENTITY_WEIGHT**2 * D + mixed


def covariance() -> tuple[sp.Expr, sp.Expr]:
    """tr(CP) and ||CP||^2 of C = sum_j A_j y_j y_j^T - m m^T off the query."""
    h, other = dot(MEAN, Y_I), dot(MEAN, Y_K)
    squares = S**2 + (N - 1) * W**2
    trace = 1 - dot(MEAN, MEAN) - (S + (N - 1) * W * RHO**2 - h**2)
    whole = squares + RHO**2 * (1 - squares) - 2 * (S * h**2 + (N - 1) * W * other**2) + dot(MEAN, MEAN) ** 2
    image = minus((S, W * RHO, W * RHO), MEAN, h)
    return trace, whole - dot(image, image)


def in_powers(expression: Any) -> Any:
    """An expression with t = n^(-gamma (1-rho)) and beta = gamma log n as symbols, rational in the rest."""
    powers = [(N ** (1 - GAMMA * THETA), N * T), (N ** (-GAMMA * THETA), T)]
    return expression.subs(powers).subs(GAMMA, BETA / sp.log(N))


def symbolic(claim: Claim) -> Iterator[Step]:
    """The sum over blocks at every n and d, then the limits of its leading part."""
    own = 1 / (1 + (N - 1) * T)
    total = row_square(*covariance()).subs(W, T * S).subs(S, own)
    words = "eta = (1/d) sum_k ||J_ik||^2 from the blocks (3.3) and the Gram matrix = the closed form (2.1)"
    at = {N: (5, 17, 9, 40), D: (7, 23, 11, 44), T: (sp.Rational(1, 3), sp.Rational(1, 9), sp.Rational(2, 5), 2)}
    yield equal(words, total / D, in_powers(claim.eta), at=at)
    _, first, second = terms()
    leading = (D - 1) * (S**2 + (1 - S) * W)
    split = ((leading + BETA * first + BETA**2 * second) / D).subs(EPS, 1 / N).subs(W, T * S).subs(S, own)
    words = "at a = 0, b = r = 1: eta = (1-1/d) s_2 + (beta c_1 + beta^2 c_2)/d, c_1 and c_2 bounded below"
    yield equal(words, split, in_powers(claim.eta).subs(ALONE), at=at)
    rate = (GAMMA * sp.log(N)) ** 2 / N
    yield limit_is("beta^2/d -> 0 for d >= n", rate, (N, sp.oo), 0)
    # s and s_2 = s^2 + (1-s) t s in variables that go to 0
    regimes = (
        ("below", Y / (Y + 1 - EPS), {EPS: 0, T: 0, Y: 0}),
        ("at", 1 / (2 - EPS), {EPS: 0, T: 0}),
        ("above", 1 / (1 + X - T), {X: 0, T: 0}),
    )
    factor, a = ATTENTION_WEIGHT / NORM, IDENTITY_WEIGHT
    for (regime, weight, point), limit in zip(regimes, claim.weights, strict=True):
        squares = weight**2 + (1 - weight) * T * weight
        point = {**point, INVERSE_D: 0}
        words = f"{regime} the threshold (1-1/d) s_2 -> {limit**2}"
        yield continuous_at(words, (1 - INVERSE_D) * squares, point, limit**2)
        whole = factor**2 * (1 - INVERSE_D) * squares + a**2 + 2 * a * factor * (1 - INVERSE_D) * weight
        words = f"with residual, {regime} the threshold, the leading part tends to (a + b s/r)^2 with s = {limit}"
        yield continuous_at(words, whole, point, (a + factor * limit) ** 2)


def certified(claim: Claim) -> Iterator[Step]:
    """The remainder, the Jacobian by automatic differentiation, and the numerical theory."""
    yield from _remainder()
    points = [
        {"gamma": 0.5, "rho": 0.25, "n": 3, "d": 3},
        {"gamma": 1.5, "rho": 0.5, "n": 4, "d": 5},
        {"gamma": 2.0, "rho": -0.125, "n": 4, "d": 4},
    ]
    for residual in (False, True):
        layer = LAYER if residual else {"identity_weight": 0.0, "attention_weight": 1.0, "norm": 1.0}
        exact = claim.eta.subs(EXACT_LAYER if residual else ALONE)
        words = "with" if residual else "without"

        def brute(layer: dict[str, float] = layer, **point: Any) -> float:
            return jacobian_mean_square(layer, **point)

        yield agrees(f"the Jacobian by automatic differentiation in balls, {words} residual", brute, exact, points)

        def numeric(layer: dict[str, float] = layer, **point: float) -> float:
            return simplex.gradient_norm(**point, **layer)

        yield agrees(
            f"theory.simplex.gradient_norm {words} residual",
            numeric,
            exact.subs({N: sp.exp(LOG_N), D: sp.exp(LOG_D)}),
            grid(gamma=(0.5, 1.5, 3.0), rho=(0.125, 0.75), log_n=(0.75, 5.0, 40.0, 300.0), log_d=(6.0, 300.0)),
            tolerance=lambda gamma, rho, log_n, log_d: 2.0**-52 * (64 + 16 * (1 + gamma) * log_n),
            precision=6000,
        )
    for gamma, limit in zip((1.0, 2.0, 3.0), claim.weights, strict=True):
        value = ((IDENTITY_WEIGHT + ATTENTION_WEIGHT / NORM * limit) ** 2).subs(EXACT_LAYER)
        yield agrees(
            f"theory.simplex.gradient_norm_limit at gamma = {gamma:g}, rho = 1/2",
            lambda gamma: simplex.gradient_norm_limit(gamma, 0.5, **LAYER),
            value,
            grid(gamma=(gamma,)),
        )


def terms() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """The trace, and what (2.1) holds in beta and in beta^2 beside (d-1) s_2, with (n-1) w = 1 - s."""
    q = 1 - S
    squares, cubes = S**2 + q * W, S**3 + q * W**2
    trace = THETA * (1 - squares) - THETA**2 * S * q
    square = THETA**2 * (squares - 2 * cubes + squares**2) - THETA**3 * S**2 * (1 - 2 * S + squares)
    delta, mu = S - W, RHO + THETA * EPS
    alignment = delta * (1 - RHO**2) + (1 - delta) * mu * THETA
    first = 2 * S * trace - 2 * q * W * alignment
    return trace, first, square + q * W * THETA * (1 - RHO**2) * (1 - 2 * W + squares)


def _remainder() -> Iterator[Step]:
    """|eta - (1-1/d) s_2| <= (2 beta + 4 beta^2)/d at a = 0."""
    trace, first, second = terms()
    domain = {"s": (0, 1), "w": (0, 0.5), "rho": (0, 1)}
    wide = {**domain, "eps": (0, 0.5)}
    for sign, words in ((1, "<= 2"), (-1, ">= -2")):
        yield positive(f"the trace in the product with the residual is {words}", 2 - sign * trace, domain)
    for sign, words in ((1, "<= 2"), (-1, ">= -2")):
        yield positive(f"the terms of (2.1) in beta/d are {words}", 2 - sign * first, wide)
    for sign, words in ((1, "<= 4"), (-1, ">= -4")):
        yield positive(f"the terms of (2.1) in beta^2/d are {words}", 4 - sign * second, domain)


def jacobian_mean_square(layer: dict[str, float], gamma: float, rho: float, n: int, d: int) -> float:
    """Mean square of the n d x n d Jacobian of x' = a x + b ATT, by automatic differentiation in balls.

    Args:
        layer: identity_weight, attention_weight and norm.
        gamma: coefficient of log n.
        rho: cosine of two tokens.
        n: tokens.
        d: dimensions, at least n.
    """
    with ctx.workprec(200):
        # y_i = side e_i + shift (1, ..., 1) has the Gram matrix (1-rho) I + rho 11^T
        side, size = (1 - arb(rho)).sqrt(), arb(layer["norm"])
        shift = ((side**2 + n * arb(rho)).sqrt() - side) / n
        tokens = [[size * (shift + side * int(i == k)) if k < n else arb(0) for k in range(d)] for i in range(n)]
        beta = arb(gamma) * arb(n).log()
        total = arb(0)
        for i in range(n):
            for k in range(d):
                moved = [
                    [arb_series([x, int((i, k) == (j, m))], 2) for m, x in enumerate(row)]
                    for j, row in enumerate(tokens)
                ]
                total += sum((out[1] ** 2 for row in _step(moved, beta, layer) for out in row), arb(0))
        return float((total / (n * d)).mid())


def _step(tokens: list[list[Any]], beta: arb, layer: dict[str, float]) -> list[list[Any]]:
    a, b = arb(layer["identity_weight"]), arb(layer["attention_weight"])
    units = [[x / _inner(row, row).sqrt() for x in row] for row in tokens]
    columns = list(zip(*units, strict=True))
    outputs = []
    for row, query in zip(tokens, units, strict=True):
        weights = [(_inner(query, key) * beta).exp() for key in units]
        total = _inner(weights, [arb_series([1], 2)] * len(weights))
        means = [_inner(weights, column) / total for column in columns]
        outputs.append([x * a + mean * b for x, mean in zip(row, means, strict=True)])
    return outputs


def _inner(u: Sequence[Any], v: Sequence[Any]) -> Any:
    return sum((x * y for x, y in zip(u, v, strict=True)), arb_series([0], 2))


THEOREM = Theorem(
    name="gradient_norm",
    statement=Statement(
        "The mean square of the Jacobian has a closed form at every n and d. Without residual and with unit tokens it "
        "is (1-1/d) sum_j A_ij^2 up to (2 beta + 4 beta^2)/d, and tends to 0, 1/4 and 1 as n goes to infinity; with "
        "residual to (a + b s/r)^2, s = 0, 1/2, 1.",
        r"\eta=\frac1{nd}\lVert\nabla_XX'\rVert_F^2\to\Bigl(a+\frac{b\,s}r\Bigr)^2,\quad s=0,\ \tfrac12,\ 1",
    ),
    hypotheses=(
        "a simplex with 0 < rho < 1 fixed (the closed form: any rho)",
        "d >= n, so that d goes to infinity with n; at a fixed d the same values times 1 - 1/d are formal",
        "a >= 0 and b > 0, gamma > 0 fixed",
    ),
    source="[Chen 2025, Thm 2.4 for the limits; derived, docs/theory.md (2.1)-(2.3), (3.3)]",
    grade=Grade.LIMIT,
    claim={"eta": sym.gradient_norm(), "weights": (sp.Integer(0), sp.Rational(1, 2), sp.Integer(1))},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "value path in d directions",
            {"eta": sym.gradient_norm().subs(D - 1, D)},
            "the radial direction is lost: d - 1",
        ),
        Mutant(
            "no query path",
            {
                "eta": sym.gradient_norm()
                - (GAMMA * sp.log(N)) ** 2
                * ATTENTION_WEIGHT**2
                / (NORM**2 * D)
                * covariance()[1].subs(W, sym.cross_weight()).subs(S, sym.self_weight())
            },
            "each token is a query too",
        ),
        Mutant(
            "critical value 1/2",
            {"weights": (sp.Integer(0), 1 / sp.sqrt(2), sp.Integer(1))},
            "the weight, not its square",
        ),
    ),
)
