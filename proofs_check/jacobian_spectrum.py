"""Every singular value of the Jacobian on a simplex: values, multiplicities, and that no square is missing."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy as sp

from critattn import symbolic as sym
from critattn.symbolic import ATTENTION_WEIGHT, GAMMA, IDENTITY_WEIGHT, NORM, RHO, THETA, D, N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, argued, equal, grid
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

S, W, BETA, T, A, F = sp.symbols("s w beta t a f", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
DELTA = S - W
SIGMA = 1 + (N - 1) * RHO
# the own weight by the cross weight
SUMS_TO_ONE = 1 - (N - 1) * W
OWN = {W: T / (1 + (N - 1) * T), S: 1 / (1 + (N - 1) * T)}
# f = b/r
LAYER = {"identity_weight": 0.75, "attention_weight": 1.25, "norm": 2.0}
EXACT_LAYER: dict[Any, Any] = {A: sp.Rational(3, 4), F: sp.Rational(5, 8)}
# coefficients of y_1, ..., y_5 and of the sum of the n - 5 other tokens
Vector = tuple[Any, ...]
SHOWN = 5
ZERO: Vector = (0,) * (SHOWN + 1)
# perturbations of tokens 1 to 5, and the common one of the others
Moved = tuple[Sequence[Vector], Vector]


def unit(i: int) -> Vector:
    """The token y_i."""
    return tuple(int(i == j) for j in range(SHOWN + 1))


TOTAL: Vector = (1,) * (SHOWN + 1)
REST = unit(SHOWN)


def plus(*terms: tuple[Any, Vector]) -> Vector:
    """A combination of vectors."""
    return tuple(sum(factor * vector[j] for factor, vector in terms) for j in range(SHOWN + 1))


def with_rest(u: Vector) -> Any:
    """The inner product with any one of the other tokens."""
    return RHO * (sum(u[:SHOWN]) + (N - SHOWN) * u[SHOWN]) + THETA * u[SHOWN]


def with_token(u: Vector, i: int) -> Any:
    """The inner product with y_i, i below 5."""
    return RHO * (sum(u[:SHOWN]) + (N - SHOWN) * u[SHOWN]) + THETA * u[i]


def image(moved: Moved, i: int) -> Vector:
    """Row i of J u at a = 0, f = 1, from the blocks (3.3): value, key and query path."""
    shown, others = moved
    tangent = [plus((1, u), (-with_token(u, k), unit(k))) for k, u in enumerate(shown)]
    radial = -with_rest(others)
    weights = [S if k == i else W for k in range(SHOWN)]
    mean = tuple(weights) + (W,)
    away = plus((1, REST), (-(N - SHOWN), mean))
    value = plus(*zip(weights, tangent, strict=True), (W * (N - SHOWN), others), (W * radial, REST))
    differences = [plus((1, unit(k)), (-1, mean)) for k in range(SHOWN)]
    key = [(weights[k] * with_token(tangent[k], i), differences[k]) for k in range(SHOWN)]
    key.append((W * (with_token(others, i) + RHO * radial), away))
    query = [(weights[k] * with_token(tangent[i], k), differences[k]) for k in range(SHOWN)]
    query.append((W * with_rest(tangent[i]), away))
    return plus((1, value), (BETA, plus(*key)), (BETA, plus(*query)))


def same(words: str, found: Vector, wanted: Vector) -> Step:
    """Equality of all coefficients, in one step: those of powers of a free symbol."""
    z = sp.Symbol("z")
    left, right = (sum(sp.expand(x) * z**j for j, x in enumerate(vector)) for vector in (found, wanted))
    return equal(words, sp.sympify(left).subs(S, SUMS_TO_ONE), sp.sympify(right).subs(S, SUMS_TO_ONE))


def symbolic(claim: Claim) -> Iterator[Step]:
    """One generating perturbation of each block, at every n, then counts and squares."""
    rows = (S + (N - 1) * W).subs(OWN)
    yield equal("z off the span: P_k z = z, y_i.z = 0; common: sum_k A_ik = 1", rows, claim.common)
    yield equal("and zero-sum c: sum_k A_ik c_k = (s - w) c_i", S - W, claim.zero_sum)
    y = [unit(k) for k in range(SHOWN)]
    first, second = plus((1, y[2]), (-1, y[3])), plus((1, y[0]), (-1, y[1]))
    minus = [plus((-1, vector)) for vector in (first, second)]
    blocks: Mapping[str, tuple[list[Vector], Any]] = {
        "symmetric": ([first, minus[0], second, minus[1], ZERO], claim.symmetric),
        "antisymmetric": (
            [plus((1, y[1]), (-1, y[2])), plus((1, y[2]), (-1, y[0])), second, ZERO, ZERO],
            claim.antisymmetric,
        ),
    }
    for name, (shown, value) in blocks.items():
        for i in (0, 2, 4):
            found = image((shown, ZERO), i)
            yield same(f"{name} block, token {i + 1}: J u = value u", found, plus((value, shown[i])))
    yield from _coupled(claim)
    counts = claim.counts
    total = sum(counts[block] * size for block, size in SIZES.items())
    yield equal("the multiplicities sum to n d", total, N * D)
    yield argued(
        "there are no other values: the blocks are orthogonal to each other, before and after J",
        "J commutes with permutations of the tokens, whose six parts these are: off the span their directions differ, "
        "within it the four blocks hold inequivalent irreducible parts (Schur's lemma)",
    )
    norm = gradient_norm()
    squares = [block_squares(claim, block) for block in SIZES]
    for k, words in enumerate(("a^2", "a b/r", "(b/r)^2")):
        parts = sum(counts[block] * square[k] for block, square in zip(SIZES, squares, strict=True))
        left, right = (sp.sympify(side).subs(S, SUMS_TO_ONE) for side in (parts, norm[k]))
        yield equal(f"sum of squares = ||J||_F^2 of (2.1), terms in {words}", left, right)


def gradient_norm() -> tuple[Any, Any, Any]:
    """The norm (2.1) in s, w and beta: its terms in a^2, a f and f^2."""
    known: dict[Any, Any] = {GAMMA: BETA / sp.log(N), IDENTITY_WEIGHT: A, ATTENTION_WEIGHT: F, NORM: 1}
    powers = [(sym.self_weight(), S), (N ** (-GAMMA * THETA), W / S)]
    norm = sp.expand(N * D * sym.gradient_norm().subs(powers).subs(known))
    return norm.coeff(A, 2), norm.coeff(A, 1).coeff(F, 1), norm.coeff(F, 2)


def _coupled(claim: Claim) -> Iterator[Step]:
    """The standard block with c = (1, -1, 0, ...) in coordinates c_i y_i, c_i S, Y_c, and the trivial one."""
    y, c = [unit(k) for k in range(SHOWN)], (1, -1, 0, 0, 0)
    weighted = plus((1, y[0]), (-1, y[1]))
    perturbed: Sequence[Moved] = (
        ([plus((c[k], TOTAL)) for k in range(SHOWN)], ZERO),
        ([weighted] * SHOWN, weighted),
    )
    columns = claim.standard()
    for moved, column, name in zip(perturbed, columns, ("c_i S", "Y_c"), strict=True):
        for i in (0, 2):
            wanted = plus((c[i] * column[0], y[i]), (c[i] * column[1], TOTAL), (column[2], weighted))
            yield same(f"standard block: image of {name} at token {i + 1}", image(moved, i), wanted)
    own, sums = claim.trivial()
    found = image(([TOTAL] * SHOWN, TOTAL), 0)
    yield same("trivial block: image of S", found, plus((own, y[0]), (sums, TOTAL)))


def standard() -> tuple[Vector, Vector]:
    """Images of c_i S and Y_c in the coordinates c_i y_i, c_i S, Y_c, at a = 0, f = 1."""
    y, sums, weighted = (sp.Matrix(3, 1, [int(j == k) for j in range(3)]) for k in range(3))
    mean = DELTA * y + W * sums
    both = weighted - y + mean
    first = DELTA * sums - SIGMA * (DELTA * y + W * weighted)
    first += BETA * SIGMA * THETA * (W * both - S * (y - mean))
    second = weighted - THETA * (DELTA * y + W * weighted)
    second += BETA * W * THETA * (sums - y - (N - 1) * mean - RHO * both)
    second += BETA * THETA * (DELTA * y + W * weighted - DELTA * mean - THETA * S * (y - mean))
    return tuple(first), tuple(second)


def trivial() -> Vector:
    """The image of S in the coordinates y_i, S, at a = 0, f = 1."""
    y, sums = sp.Matrix([1, 0]), sp.Matrix([0, 1])
    mean = DELTA * y + W * sums
    moved = BETA * SIGMA * THETA * (W * (sums - y - (N - 1) * mean) - S * (y - mean))
    return tuple(sums - SIGMA * mean + moved)


def coupled(claim: Claim) -> dict[str, tuple[sp.Matrix, sp.Matrix, sp.Matrix]]:
    """Images at a = 0, f = 1, preimages (radial and tangential) and Gram matrix of the two coupled blocks."""
    base = sp.Matrix([[1, -SIGMA, -THETA], [0, 1, 0], [0, 0, 1]])
    gram = sp.Matrix([[1, SIGMA, THETA], [SIGMA, N * SIGMA, 0], [THETA, 0, N * THETA]])
    three = sp.Matrix.hstack(sp.zeros(3, 1), *(sp.Matrix(column) for column in claim.standard()))
    two = sp.Matrix.hstack(sp.zeros(2, 1), sp.Matrix(claim.trivial()))
    return {
        "standard": (three, base, gram),
        "trivial": (two, base.extract([0, 1], [0, 1]), gram.extract([0, 1], [0, 1])),
    }


def block_squares(claim: Claim, block: str) -> tuple[Any, Any, Any]:
    """The sum of squares of the values of a block, each value once: its terms in a^2, a f and f^2."""
    if SIZES[block] == 1:
        value = getattr(claim, block)
        return 1, 2 * value, value**2
    out, base, gram = coupled(claim)[block]
    inverse = (base.T * gram * base).inv().applyfunc(sp.factor)
    return SIZES[block], 2 * (inverse * base.T * gram * out).trace(), (inverse * (out.T * gram * out)).trace()


def certified(claim: Claim) -> Iterator[Step]:
    """The numerical spectrum, block by block and as a whole."""
    values = ("common", "zero_sum", "symmetric", "antisymmetric")
    exact: dict[str, tuple[slice, Callable[..., float], Any]] = {}
    for k, block in enumerate(values):
        exact[block] = (slice(k, k + 1), lambda x: x[0], A + F * getattr(claim, block))
    for block, part in (("standard", slice(4, 7)), ("trivial", slice(7, 9))):
        out, base, _ = coupled(claim)[block]
        kept, mixed, added = block_squares(claim, block)
        squares = A**2 * kept + A * F * mixed + F**2 * added
        exact[f"{block}, sum of squares"] = (part, lambda x: sum(v * v for v in x), squares)
        exact[f"{block}, product"] = (part, math.prod, sp.Abs((A * base + F * out).det()))
    points = grid(gamma=(0.5, 1.5, 2.5), rho=(0.25, 0.75), log_n=(2.5, 40.0, 300.0))
    size = sp.exp(LOG_N)
    decay = sp.exp(-GAMMA * THETA * LOG_N)
    for words, (part, joined, formula) in exact.items():
        formula = formula.subs(OWN).subs(EXACT_LAYER).subs({BETA: GAMMA * LOG_N, T: decay}).subs(N, size)

        def numeric(gamma: float, rho: float, log_n: float, part: slice = part, joined: Any = joined) -> float:
            levels = simplex.singular_values(gamma, rho, log_n, log_d=log_n + 1, **LAYER)
            return joined([level.value for level in levels[part]])

        yield agrees(
            f"theory.simplex.singular_values: {words}", numeric, formula, points, tolerance=1e-11, precision=2000
        )


# how many values each block has, every one with the multiplicity of the block
SIZES = {"common": 1, "zero_sum": 1, "symmetric": 1, "antisymmetric": 1, "standard": 3, "trivial": 2}
COUNTS = {
    "common": D - N,
    "zero_sum": (D - N) * (N - 1),
    "symmetric": N * (N - 3) / 2,
    "antisymmetric": (N - 1) * (N - 2) / 2,
    "standard": N - 1,
    "trivial": sp.Integer(1),
}
LIFTED = DELTA + 2 * BETA * W * THETA


def without_keys() -> tuple[Vector, Vector]:
    """The standard block with half of the term in which a sum of tokens is seen as keys."""
    first, second = standard()
    return first, tuple(x - BETA * W * THETA * z for x, z in zip(second, (-1, 1, 0), strict=True))


THEOREM = Theorem(
    name="jacobian_spectrum",
    statement=Statement(
        "The n d singular values of the Jacobian on a simplex are |a + b x/r| with x = 1, delta, delta + 2 beta w "
        "(1-rho) and delta, n(n-3)/2 and (n-1)(n-2)/2 times for the last two, three values n - 1 times and two values "
        "once, from a matrix of 3 x 3 and one of 2 x 2. Their squares sum to the gradient norm (2.1).",
        r"\sigma\in\Bigl\{\bigl|a+\tfrac br\bigr|,\ \bigl|a+\tfrac br\delta\bigr|,\ "
        r"\bigl|a+\tfrac br(\delta+2\beta w\theta)\bigr|,\dots\Bigr\},\qquad\sum\sigma^2=\lVert\nabla_XX'\rVert_F^2",
    ),
    hypotheses=("a simplex with -1/(n-1) < rho < 1", "n >= 4 and d >= n", "a >= 0, b > 0 (signs: absolute values)"),
    source="[derived, docs/theory.md (2.1), (2.4), (3.3)]",
    grade=Grade.LEMMA,
    claim={
        "common": sp.Integer(1),
        "zero_sum": DELTA,
        "symmetric": LIFTED,
        "antisymmetric": DELTA,
        "standard": standard,
        "trivial": trivial,
        "counts": COUNTS,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("one path only", {"symmetric": DELTA + BETA * W * THETA}, "query and key path add up"),
        Mutant("antisymmetric lifted too", {"antisymmetric": LIFTED}, "there the two paths cancel"),
        Mutant("n(n-1)/2 symmetric", {"counts": {**COUNTS, "symmetric": N * (N - 1) / 2}}, "row sums are zero"),
        Mutant(
            "one more symmetric",
            {"counts": {**COUNTS, "symmetric": N * (N - 3) / 2 + 1, "antisymmetric": N * (N - 3) / 2}},
            "the same total, other squares",
        ),
        Mutant("no key path in the standard block", {"standard": without_keys}, "a key of all queries"),
    ),
)
