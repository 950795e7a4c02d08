"""The exact squared Frobenius norm of a layer's Jacobian, without the Jacobian, for any row of weights."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import sympy as sp
from flint import arb, fmpq, fmpz_mpoly, fmpz_mpoly_ctx

from critattn.gradient import terms
from critattn.protocols import precision
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, Verdict, agrees, argued, decided, equal
from critattn.theorems.theorem import Claim

# a vector, a polynomial or a fraction: all formulas below run on both
Vector = Sequence[Any]
DRAWN = 10**12
SIZES = ((3, 2), (5, 4))
TOLERANCE = 2.0**-36


@dataclass(frozen=True)
class Row:
    """One row of a layer on n unit tokens in d dimensions.

    Attributes:
        tokens: y_j.
        weights, g, u, c, b: one value a key; the row's Jacobian is diag(g) - u g^T - c b^T.
        inverse_norms: 1/r_j.
        beta, identity, attention: beta, a and b of the layer.
        i: the position of the query.
    """

    tokens: Sequence[Vector]
    weights: Vector
    g: Vector
    u: Vector
    c: Vector
    b: Vector
    inverse_norms: Vector
    beta: Any
    identity: Any
    attention: Any
    i: int = 0

    @property
    def d(self) -> int:
        """Dimensions."""
        return len(self.tokens[0])

    @property
    def query(self) -> Vector:
        """The token y_i."""
        return self.tokens[self.i]

    def mean(self, factors: Vector) -> Vector:
        """The vector sum_j factors_j y_j."""
        return combined(factors, self.tokens)


def dot(x: Vector, y: Vector) -> Any:
    """The inner product."""
    return sum(p * q for p, q in zip(x, y, strict=True))


def combined(factors: Vector, vectors: Sequence[Vector]) -> Vector:
    """A combination of vectors."""
    return [dot(factors, column) for column in zip(*vectors, strict=True)]


def block(row: Row, k: int) -> list[Vector]:
    """Columns of the block dx_i'/dx_k: each coordinate of x_k moved, by the chain rule alone."""
    keys, d, columns = range(len(row.tokens)), row.d, []
    for axis in range(d):
        y = row.tokens[k]
        # dy_k = P_k dx_k/r_k
        moved = [row.inverse_norms[k] * (int(axis == m) - y[axis] * y[m]) for m in range(d)]
        cosines = [0] * len(keys)
        for j in keys:
            cosines[j] += dot(row.query, moved) if j == k else 0
            cosines[j] += dot(row.tokens[j], moved) if row.i == k else 0
        first, second = dot(row.g, cosines), dot(row.b, cosines)
        weights = [row.beta * (row.g[j] * cosines[j] - row.u[j] * first - row.c[j] * second) for j in keys]
        output = [x + row.weights[k] * z for x, z in zip(row.mean(weights), moved, strict=True)]
        kept = row.identity * int(row.i == k)
        columns.append([kept * int(axis == m) + row.attention * x for m, x in enumerate(output)])
    return columns


def block_form(row: Row, k: int) -> list[Vector]:
    """Columns of (3.3): a delta_ik I + (b/r_k) [A_ik I + beta U_ik y_i^T + delta_ik beta K_i] P_k."""
    y, query, own = row.tokens[k], row.query, int(row.i == k)
    mu, q, eps, m0 = (row.mean(part) for part in (row.u, row.g, row.c, row.b))
    moved = combined((row.g[k], -row.g[k], -row.b[k]), [y, mu, eps])
    columns = []
    for axis in range(row.d):
        p = [int(axis == m) - y[axis] * y[m] for m in range(row.d)]
        keys = row.mean([g * dot(key, p) for g, key in zip(row.g, row.tokens, strict=True)])
        path = combined((own, -own * dot(q, p), -own * dot(m0, p)), [keys, mu, eps])
        factors = (row.weights[k], row.beta * dot(query, p), row.beta)
        output = combined(factors, [p, moved, path])
        scale = row.attention * row.inverse_norms[k]
        columns.append([own * row.identity * int(axis == m) + scale * x for m, x in enumerate(output)])
    return columns


def squared(columns: Sequence[Vector]) -> Any:
    """The sum of the squares of the entries."""
    return sum(dot(column, column) for column in columns)


def beside(row: Row, beta: Any) -> Row:
    """The row at a = 0, b = 1 and norms 1 whose query is a token of its own, which nothing attends to."""
    parts = {name: [*getattr(row, name), 0] for name in ("weights", "g", "u", "c", "b")}
    tokens = [*row.tokens, row.query]
    return Row(tokens, **parts, inverse_norms=[1] * len(tokens), beta=beta, identity=0, attention=1, i=len(row.tokens))


def value_and_key(row: Row, k: int) -> Any:
    """The definition of T_ik: the block of x_k as value and key, as if a token equal to y_i were the query."""
    return squared(block(beside(row, row.beta), k))


def query_path(row: Row) -> list[Vector]:
    """The definition of K_i P_i: how the output moves with the query while every key stays, at beta = 1."""
    return block(beside(row, 1), len(row.tokens))


def key_term(row: Row, k: int) -> Any:
    """T_ik by (3.4)."""
    y, mu, eps = row.tokens[k], row.mean(row.u), row.mean(row.c)
    cosine, g, b, weight = dot(row.query, y), row.g[k], row.b[k], row.weights[k]
    tangent = -g * (dot(mu, row.query) - dot(mu, y) * cosine) - b * (dot(eps, row.query) - dot(eps, y) * cosine)
    size = g**2 * (1 - 2 * dot(mu, y) + dot(mu, mu)) + b**2 * dot(eps, eps)
    size -= 2 * g * b * (dot(eps, y) - dot(mu, eps))
    return (row.d - 1) * weight**2 + 2 * row.beta * weight * tangent + row.beta**2 * size * (1 - cosine**2)


def image(row: Row) -> Vector:
    """The vector K_i y_i of (3.5)."""
    y, cosines = row.query, [dot(row.query, key) for key in row.tokens]
    first = row.mean([g * cosine for g, cosine in zip(row.g, cosines, strict=True)])
    factors = (1, -dot(row.mean(row.g), y), -dot(row.mean(row.b), y))
    return combined(factors, [first, row.mean(row.u), row.mean(row.c)])


def trace(row: Row) -> Any:
    """tr(K_i P_i) by (3.5)."""
    subtracted = dot(row.mean(row.u), row.mean(row.g)) + dot(row.mean(row.c), row.mean(row.b))
    return sum(row.g) - subtracted - dot(row.query, image(row))


def square(row: Row) -> Any:
    """||K_i P_i||_F^2 by (3.6)."""
    mu, q, eps, m0 = (row.mean(part) for part in (row.u, row.g, row.c, row.b))
    pairs = product(zip(row.g, row.tokens, strict=True), repeat=2)
    whole = sum(g * h * dot(y, z) ** 2 for (g, y), (h, z) in pairs)
    for left, right in ((mu, q), (eps, m0)):
        whole -= 2 * sum(g * dot(left, y) * dot(right, y) for g, y in zip(row.g, row.tokens, strict=True))
        whole += dot(left, left) * dot(right, right)
    return whole + crossed(row) - dot(image(row), image(row))


def crossed(row: Row) -> Any:
    """The product 2 (mu.eps)(q.m0) of the two rank-one terms in (3.6)."""
    return 2 * dot(row.mean(row.u), row.mean(row.c)) * dot(row.mean(row.g), row.mean(row.b))


def total(row: Row, claim: Claim) -> Any:
    """The sum of ||J_ik||_F^2 over k, the share of row i in (3.7)."""
    a, b, inverse = row.identity, row.attention, row.inverse_norms
    own, found = row.weights[row.i], claim.trace(row)
    result = sum(claim.key(row, k) * inverse[k] ** 2 for k in range(len(row.tokens)))
    result += (2 * row.beta * own * found + row.beta**2 * claim.square(row)) * inverse[row.i] ** 2
    mixed = claim.mixed * a * b * inverse[row.i] * (own * (row.d - 1) + row.beta * found)
    return b**2 * result + row.d * a**2 + mixed


@cache
def polynomial_row(n: int, d: int) -> tuple[Row, tuple[fmpz_mpoly, ...]]:
    """A row of free symbols, and the relations |y_j|^2 - 1 = 0 between them."""
    names = [f"y{j}_{m}" for j in range(n) for m in range(d)]
    names += [f"{part}{j}" for part in ("A", "g", "u", "c", "B", "w") for j in range(n)] + ["beta", "a", "b"]
    free = iter(fmpz_mpoly_ctx.get(names, "lex").gens())
    tokens = [[next(free) for _ in range(d)] for _ in range(n)]
    weights, g, u, c, b, inverse_norms = ([next(free) for _ in range(n)] for _ in range(6))
    beta, identity, attention = free
    row = Row(tokens, weights, g, u, c, b, inverse_norms, beta, identity, attention)
    return row, tuple(dot(y, y) - 1 for y in tokens)


def identical(claim: str, left: Any, right: Any, relations: Sequence[fmpz_mpoly]) -> Step:
    """The step left = right on unit tokens, also of lists: the normal form of the difference by the relations is 0.

    The squares of the first coordinates lead the relations and have no variable in common, so that these are a Groebner
    basis: a polynomial vanishes modulo them just where its remainder does.
    """
    how = "full expansion by python-flint, remainder by |y_j|^2 = 1"
    sides = zip(left, right, strict=True) if isinstance(left, list) else [(left, right)]
    for rest in (p - q for p, q in sides):
        for relation in relations:
            rest = divmod(rest, relation)[1]
        if rest != 0:
            exponents, factor = next(iter(rest.terms()))
            names = zip(rest.context().names(), exponents, strict=True)
            first = " ".join(f"{name}^{power}" if power > 1 else name for name, power in names if power)
            detail = f"{len(rest)} terms are left of the difference, first {factor} {first}"
            return Step(claim, Verdict.FAILS, how, detail)
    return Step(claim, Verdict.HOLDS, how)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The blocks by the chain rule, as polynomials of every coordinate and of every part of the row."""
    x = sp.symbols("x1:4", positive=True)
    r = sp.sqrt(sum(one**2 for one in x))
    for k, words in ((0, "its own coordinate"), (1, "another")):
        expected = (int(k == 0) - x[0] * x[k] / r**2) / r
        yield equal(f"d(x/|x|)/dx = P/r, {words}, d = 3", sp.diff(x[0] / r, x[k]), expected)
    for d in (2, 3):
        row, relations = polynomial_row(3, d)
        at = f"n = 3, d = {d}"
        for k, words in ((0, "the query itself"), (1, "another token")):
            found, form = ([x for column in made(row, k) for x in column] for made in (block, block_form))
            yield identical(f"(3.3) for {words}, each entry: {at}", found, form, relations)
            yield identical(f"(3.4) for {words}: {at}", value_and_key(row, k), claim.key(row, k), relations)
        path = query_path(row)
        yield identical(f"(3.5): {at}", sum(path[m][m] for m in range(d)), claim.trace(row), relations)
        yield identical(f"(3.6): {at}", squared(path), claim.square(row), relations)
        for k in range(3):
            plain = replace(row, inverse_norms=[w if j == k else 0 * w for j, w in enumerate(row.inverse_norms)])
            words = f"(3.7), row 1, terms in 1/r_{k + 1}: {at}"
            found = squared(block(plain, k)) + (0 if k == 0 else row.identity**2 * d)
            yield identical(words, found, total(plain, claim), relations)
    yield argued(
        "the same for every row, n and d",
        "rows do not mix, and x_k moves row i by the block of 1/r_k alone; the right sides follow from tr P = d - 1, "
        "P^2 = P = P^T, P_i y_i = 0 and tr(x y^T) = x.y, of which none knows n or d",
    )


def drawn_row(n: int, d: int, i: int, seed: int) -> Row:
    """A row of drawn fractions; tokens are on the sphere by stereographic projection."""
    source = random.Random(f"{n} {d} {seed}")

    def values(count: int) -> list[fmpq]:
        return [fmpq(source.randint(1, DRAWN), DRAWN // 2) - 1 for _ in range(count)]

    tokens = []
    for _ in range(n):
        place = values(d - 1)
        size = dot(place, place)
        tokens.append([(1 - size) / (1 + size), *(2 * x / (1 + size) for x in place)])
    return Row(tokens, *(values(n) for _ in range(6)), *values(3), i=i)


def certified(claim: Claim) -> Iterator[Step]:
    """Every row at drawn fractions in other sizes, and the functions that the package computes with."""
    for n, d in SIZES:
        rows = [drawn_row(n, d, i, 1) for i in range(n)]
        explicit = [sum(squared(block(row, k)) for k in range(n)) for row in rows]
        cases = {f"row {i + 1}": explicit[i] == total(row, claim) for i, row in enumerate(rows)}
        # 8 in each y_j, of degree 2 over degree 2 in its place; 8 in the parts, beta and b; 2 in 1/r
        degree = 16 * n + 10
        words = (
            f"(3.7) exactly at drawn fractions, n = {n}, d = {d}: a polynomial of degree {degree} or less that is not "
            f"0 vanishes at a uniform draw out of 10^12 values with probability {degree}/10^12 or less "
            "(Schwartz-Zippel); this draw is pseudo-random, of a fixed seed"
        )
        yield decided(words, cases)
    formulas: dict[str, tuple[Callable[..., float], Callable[[Row], Any]]] = {
        "key_terms": (numeric_key, lambda row: sum(claim.key(row, k) for k in range(len(row.tokens)))),
        "query_trace": (numeric_trace, lambda row: row.beta * claim.trace(row)),
        "query_exact": (numeric_square, lambda row: row.beta**2 * claim.square(row)),
    }
    points = [{"seed": float(seed), "d": float(d)} for seed in range(3) for d in (2, 4)]
    for name, (function, formula) in formulas.items():

        def code(seed: float, d: float, function: Any = function) -> float:
            return function(drawn_row(4, int(d), 0, int(seed)))

        def exact(seed: arb, d: arb, formula: Any = formula) -> arb:
            return arb(formula(drawn_row(4, int(float(d)), 0, int(float(seed)))))

        yield agrees(f"gradient.terms.{name}", code, exact, points, tolerance=TOLERANCE)


def in_floats(row: Row) -> tuple[terms.RowMoments, Any]:
    """The row as the package holds it, beta in g and b, and its tokens."""

    def array(values: Any) -> Any:
        return jnp.asarray(np.vectorize(lambda x: float(Fraction(int(x.p), int(x.q))))(np.array(values, dtype=object)))

    units, beta = array(row.tokens), float(Fraction(int(row.beta.p), int(row.beta.q)))
    g, u, c, b = (array(part)[None] for part in (row.g, row.u, row.c, row.b))
    own = units[row.i][None]
    parts = (beta * g, beta * b, own, u @ units, beta * g @ units, c @ units, beta * b @ units)
    return terms.RowMoments(own @ units.T, array(row.weights)[None], *parts), units


def numeric_key(row: Row) -> float:
    """The sum of T_ik over k of the package."""
    with precision("float64"):
        return float(terms.key_terms(*in_floats(row)).sum())


def numeric_trace(row: Row) -> float:
    """The trace beta tr(K_i P_i) of the package."""
    with precision("float64"):
        return float(terms.query_trace(*in_floats(row))[0][0])


def numeric_square(row: Row) -> float:
    """The square beta^2 ||K_i P_i||^2 of the package."""
    with precision("float64"):
        moments, units = in_floats(row)
        return float(terms.query_exact(moments, units, terms.query_trace(moments, units)[1], None, 2)[0])


def own_key(row: Row, k: int) -> Any:
    """(3.4) with the key term of the query itself left in: U_ii y_i^T, not projected."""
    if k != row.i:
        return key_term(row, k)
    mu, eps = row.mean(row.u), row.mean(row.c)
    away = combined((row.g[k], -row.g[k], -row.b[k]), [row.query, mu, eps])
    return key_term(row, k) + 2 * row.beta * row.weights[k] * dot(away, row.query) + row.beta**2 * dot(away, away)


THEOREM = Theorem(
    name="exact_gradient_norm",
    statement=Statement(
        "The squared Frobenius norm of a layer's Jacobian is a sum of inner products of the tokens, for every row of "
        "weights whose Jacobian is diag(g) - u g^T - c B^T, with the normalisation of the tokens in it.",
        r"\lVert\nabla_XX'\rVert_F^2=b^2\sum_{ik}\frac{T_{ik}}{r_k^2}+b^2\sum_i\frac{2\beta A_{ii}\operatorname{tr}"
        r"(K_iP_i)+\beta^2\lVert K_iP_i\rVert_F^2}{r_i^2}+na^2d"
        r"+2ab\sum_i\frac{A_{ii}(d-1)+\beta\operatorname{tr}(K_iP_i)}{r_i}",
    ),
    hypotheses=(
        "tokens are normalised, r_i > 0, and queries, keys and values are the normalised tokens",
        "the weights of row i are differentiable in its logits beta G_ij and depend on nothing else",
        "the algebra in full for n = 3 and d = 2 and 3; other n and d by the argument",
    ),
    source="[derived, docs/theory.md (3.2)-(3.7)]",
    grade=Grade.LEMMA,
    claim={"key": key_term, "trace": trace, "square": square, "mixed": 2},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("own key left in", {"key": own_key}, "y_i^T P_i = 0: a query is no key of itself"),
        Mutant(
            "projector of trace d",
            {"key": lambda row, k: key_term(row, k) + row.weights[k] ** 2},
            "the radial direction is lost: d - 1",
        ),
        Mutant(
            "query path not projected",
            {"square": lambda row: square(row) + dot(image(row), image(row))},
            "the query is normalised too",
        ),
        Mutant(
            "no product of the rank-one terms",
            {"square": lambda row: square(row) - crossed(row)},
            "they are not orthogonal",
        ),
        Mutant("residual counted once", {"mixed": 1}, "a square: twice the product"),
    ),
)
