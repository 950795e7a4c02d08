"""Sigmoid of gamma s log n - B log n over its sum: rows localise in a window of gamma, iff B > 1/(1-rho)."""

from collections.abc import Iterator
from typing import Any

import sympy as sp
from flint import arb

from critattn import symbolic_family as family
from critattn.symbolic import GAMMA, RHO, THETA, N
from critattn.symbolic_family import BIAS_FACTOR as B
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
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import sigmoid

# what goes to 0: 1/n, and powers of n that are negative in each case
INVERSE, LOW, HIGH, OTHER = sp.symbols("inverse low high other", nonnegative=True)
Z = sp.Symbol("z", real=True)
G, U, V = sp.symbols("g u v", positive=True)
OWN, REST = 1 + N ** (B - GAMMA), 1 + N ** (B - GAMMA * RHO)
AGAINST = (N - 1) * OWN / REST
# the constant at which the bound of the odds is met: rho^rho (1-rho)^(1-rho)
CONSTANT = RHO**RHO * THETA**THETA


def symbolic(claim: Claim) -> Iterator[Step]:
    """The odds in powers of n, their limits case by case, and one bound for all gamma."""
    weight = family.sigmoid_self_weight()
    yield equal("(1 - A_ii)/A_ii = (n-1)(1 + n^(B-gamma))/(1 + n^(B-gamma rho))", 1 / weight - 1, AGAINST)
    yield from _ends(claim)
    yield from _cases()
    yield from _bound(claim)
    tied = (1 - INVERSE) * (1 + HIGH) / (1 + INVERSE)
    there = AGAINST.subs({B: 1, RHO: 0})
    yield equal(
        "rho = 0, B = 1, with n^(1-gamma) as a symbol", there.subs(N ** (1 - GAMMA), HIGH), tied.subs(INVERSE, 1 / N)
    )
    yield continuous_at("rho = 0, B = 1, gamma > 1: A_ii -> 1/2", 1 / (1 + tied), {INVERSE: 0, HIGH: 0}, claim.tied)


def _ends(claim: Claim) -> Iterator[Step]:
    """Where the powers n^(1-gamma(1-rho)) and n^(1-B+gamma rho) of the odds against are 1; which comes first."""
    low, high = claim.window(RHO, B)
    yield equal("n^(1 - gamma(1-rho)) is 1 at the lower end", 1 - low * THETA, 0)
    yield equal("n^(1 - B + gamma rho) is 1 at the upper end", 1 - B + high * RHO, 0)
    yield equal("the two ends meet at B = 1/(1-rho)", (high - low).subs(B, claim.least(RHO)), 0)
    open_: dict[Any, Any] = {RHO: 1 / (1 + U)}
    for words, bias, sign in (
        ("B = 1/(1-rho) + v", 1 / THETA + V, "positive"),
        ("B = 1/((1-rho)(1+v))", 1 / (THETA * (1 + V)), "negative"),
    ):
        width = sp.factor((high - low).subs(B, bias).subs(open_))
        yield from signs("upper end - lower end", {words: (width, sign)})


def _cases() -> Iterator[Step]:
    """Limits in each case, for rho > 0."""
    # over n^(B - gamma rho): LOW = n^(1-gamma(1-rho)), HIGH = n^(1-B+gamma rho), INVERSE HIGH = n^(gamma rho - B)
    powers = (1 - INVERSE) * (HIGH + LOW) / (1 + INVERSE * HIGH)
    known = {INVERSE: 1 / N, LOW: N ** (1 - GAMMA * THETA), HIGH: N ** (1 - B + GAMMA * RHO)}
    yield equal(
        "(1-A_ii)/A_ii = (1 - 1/n)(n^(1-B+gamma rho) + n^(1-gamma(1-rho)))/(1 + n^(gamma rho - B))",
        powers.subs(known),
        AGAINST,
    )
    weight = 1 / (1 + powers)
    zero = {INVERSE: 0}
    yield continuous_at("inside of the window A_ii -> 1", weight, {**zero, LOW: 0, HIGH: 0}, 1)
    yield continuous_at("at its lower end A_ii -> 1/2", weight, {**zero, LOW: 1, HIGH: 0}, sp.Rational(1, 2))
    yield continuous_at("at its upper end A_ii -> 1/2", weight, {**zero, LOW: 0, HIGH: 1}, sp.Rational(1, 2))
    odds = (1 / powers).subs(INVERSE, 1 / (1 + V))
    size: dict[Any, Any] = {LOW: U, HIGH: G}
    bounds = {
        name: ((1 / power + INVERSE) / (1 - INVERSE)).subs(INVERSE, 1 / (1 + V))
        for name, power in (("LOW", LOW), ("HIGH", HIGH))
    }
    cases = {f"with {name}": ((bound - odds).subs(size), "positive") for name, bound in bounds.items()}
    words = "the odds are below (1/LOW + 1/n)/(1 - 1/n), and the same with HIGH"
    yield from signs(f"{words}, LOW and HIGH the two powers above", cases)
    bound = (OTHER + INVERSE) / (1 - INVERSE)
    yield continuous_at("so that A_ii -> 0 below 1/(1-rho) and above (B-1)/rho", bound, {**zero, OTHER: 0}, 0)


def _bound(claim: Claim) -> Iterator[Step]:
    """With Y = n^(B-gamma) the odds are (1 + n^(B(1-rho)) Y^rho)/((n-1)(1+Y))."""
    y = sp.Symbol("y", positive=True)
    open_: dict[Any, Any] = {B: V, GAMMA: U}
    odds = (1 + N ** (B * THETA) * y**RHO) / ((N - 1) * (1 + y))
    yield equal("odds in Y = n^(B-gamma)", odds.subs(y, N ** (B - GAMMA)).subs(open_), (1 / AGAINST).subs(open_))
    # Y = e^z: log(1+Y) - rho log Y is convex and least where Y/(1+Y) = rho
    gap = sp.log(1 + sp.exp(Z)) - RHO * Z
    least = sp.log(RHO / THETA)
    at: dict[Any, Any] = {RHO: (sp.Rational(1, 7), sp.Rational(1, 2), sp.Rational(4, 5), sp.Rational(9, 10))}
    yield equal("log(1+Y) - rho log Y, Y = e^z, is level at Y = rho/(1-rho)", sp.diff(gap, Z).subs(Z, least), 0, at=at)
    yield from signs("and convex", {"'' > 0": (sp.simplify(sp.diff(gap, Z, 2)), "positive")})
    yield equal(
        "so that Y^rho <= rho^rho (1-rho)^(1-rho) (1+Y)", _logs(gap.subs(Z, least)), -_logs(sp.log(claim.constant))
    )
    share = claim.constant * N ** (B * THETA)
    small = sp.Symbol("small", nonnegative=True)
    words = "hence A_ii/(1-A_ii) <= (1 + rho^rho (1-rho)^(1-rho) n^(B(1-rho)))/(n-1) at every gamma"
    part = (INVERSE + claim.constant * small) / (1 - INVERSE)
    known = {INVERSE: 1 / N, small: N ** (B * THETA - 1)}
    yield equal(words, part.subs(known), (1 + share) / (N - 1), at=at)
    yield continuous_at(f"{words}, which tends to 0 for B < 1/(1-rho)", part, {INVERSE: 0, small: 0}, 0)
    yield equal("at B = 1 the largest odds are of order n^(-rho)", (N ** (B * THETA) / N).subs(B, 1), N ** (-RHO))
    yield equal("at gamma = B the factor is 1/2 instead", (y**RHO / (1 + y)).subs(y, 1), sp.Rational(1, 2))
    yield limit_is("it exceeds 1/2 towards rho = 0", CONSTANT, (RHO, 0), 1)


def _logs(expression: Any) -> Any:
    """At rho = 1/(1+u), logarithms of products as sums."""
    there = expression.subs(RHO, 1 / (1 + U)).replace(sp.log, lambda part: sp.log(sp.factor(part)))
    return sp.expand_log(there, force=True)


def certified(claim: Claim) -> Iterator[Step]:
    """The numerical theory."""
    rho, bias = sp.symbols("rho bias_factor", positive=True)
    points = grid(rho=(0.125, 0.3, 0.5), bias_factor=(2.5, 4.0))
    for k, name in enumerate(("low", "high")):

        def end(k: int = k, **point: float) -> float:
            return float(sigmoid.window(**point)[k])

        yield agrees(f"theory.sigmoid.window, {name}", end, claim.window(rho, bias)[k], points)
    nothing = [{"rho": 0.5, "bias_factor": 1.0}, {"rho": 0.75, "bias_factor": 3.5}]
    words = "theory.sigmoid.window is empty for B <= 1/(1-rho)"
    yield agrees(
        words, lambda **point: float(sigmoid.window(**point).low != sigmoid.window(**point).low), sp.Integer(1), nothing
    )
    yield from _finite()
    for gamma, wanted in ((1.5, 0), (2.5, 1), (6.5, 0), (2.0, sp.Rational(1, 2)), (6.0, sp.Rational(1, 2))):
        yield agrees(
            f"theory.sigmoid.self_weight_limit at rho = 1/2, B = 4, gamma = {gamma}",
            lambda gamma: sigmoid.self_weight_limit(gamma, 0.5, bias_factor=4.0),
            sp.sympify(wanted),
            [{"gamma": gamma}],
        )
    yield agrees(
        "and at rho = 0, B = 1",
        lambda gamma: sigmoid.self_weight_limit(gamma, 0.0, bias_factor=1.0),
        sp.sympify(claim.tied),
        grid(gamma=(1.5, 4.0)),
    )


def _finite() -> Iterator[Step]:
    """The two half weights at finite n; the weight there in balls is 1/2."""
    for k, name in enumerate(("low", "high")):

        def half(k: int = k, **point: float) -> float:
            gamma = arb(float(sigmoid.half_weight_window(**point)[k]))
            rho, log_n, bias = arb(point["rho"]), arb(point["log_n"]), arb(point["bias_factor"])
            own, other = (1 + ((bias - score * gamma) * log_n).exp() for score in (1, rho))
            return float((1 / (1 + (log_n.exp() - 1) * own / other)).mid())

        points = grid(rho=(0.125, 0.3), log_n=(7.0, 40.0), bias_factor=(2.5, 4.0))
        words = f"theory.sigmoid.half_weight_window, {name}: the self weight there is 1/2"
        yield agrees(
            words,
            half,
            sp.Rational(1, 2),
            points,
            tolerance=lambda rho, log_n, bias_factor: 2.0**-52 * (64 + 64 * bias_factor / rho * log_n),
        )
    log_n = sp.Symbol("log_n", positive=True)
    gamma, bias = sp.symbols("gamma bias_factor", positive=True)
    raw = grid(gamma=(0.5, 1.0, 1.5), log_n=(2.0, 60.0), bias_factor=(1.0, 2.0))
    yield agrees(
        "theory.sigmoid.raw_self_weight = 1/(1 + n^(B-gamma))",
        sigmoid.raw_self_weight,
        1 / (1 + sp.exp((bias - gamma) * log_n)),
        raw,
        tolerance=lambda gamma, log_n, bias_factor: 2.0**-52 * (16 + 8 * bias_factor * log_n),
    )


THEOREM = Theorem(
    name="sigmoid_window",
    statement=Statement(
        "Sigmoid weights with bias -B log n over their sum tend to the identity for 1/(1-rho) < gamma < (B-1)/rho, "
        "0 < rho < 1, which exists iff B > 1/(1-rho). Else, as at the published B = 1, A_ii/(1-A_ii) is at most "
        "(1 + rho^rho (1-rho)^(1-rho) n^(B(1-rho)))/(n-1) at every gamma.",
        r"A_{ii}\to1:\ \tfrac1{1-\rho}<\gamma<\tfrac{B-1}\rho\ \Bigl(B>\tfrac1{1-\rho}\Bigr),\qquad "
        r"\frac{A_{ii}}{1-A_{ii}}\le\frac{1+\rho^\rho(1-\rho)^{1-\rho}n^{B(1-\rho)}}{n-1}",
    ),
    hypotheses=(
        "0 < rho < 1, or rho = 0 with B = 1",
        "beta = gamma log n, gamma and B fixed for the limits",
        "n >= 2 for the bound",
    ),
    source="[derived, docs/theory.md (13.4), (13.5)]",
    grade=Grade.LIMIT,
    claim={
        "window": lambda rho, bias: (1 / (1 - rho), (bias - 1) / rho),
        "least": lambda rho: 1 / (1 - rho),
        "constant": CONSTANT,
        "tied": sp.Rational(1, 2),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "upper end B/rho",
            {"window": lambda rho, bias: (1 / (1 - rho), bias / rho)},
            "one n more for the n - 1 others",
        ),
        Mutant(
            "lower end B",
            {"window": lambda rho, bias: (bias, (bias - 1) / rho)},
            "the end without the division by the sum",
        ),
        Mutant("a window for every B > 1", {"least": lambda rho: sp.Integer(1)}, "its ends cross below B = 1/(1-rho)"),
        Mutant("bound at gamma = B", {"constant": sp.Rational(1, 2)}, "the best gamma differs from B by 1/log n"),
        Mutant("identity at rho = 0, B = 1", {"tied": sp.Integer(1)}, "n - 1 others of weight 1/n each"),
    ),
)
