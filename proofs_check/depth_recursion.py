"""A layer maps a simplex to a simplex: depth is two scalars a layer, and a start above the threshold is metastable."""

from collections.abc import Iterator
from typing import Any

import sympy as sp
from flint import arb, ctx

from critattn.symbolic import ATTENTION_WEIGHT, IDENTITY_WEIGHT, NORM, RHO, THETA, N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, continuous_at, equal, grid
from critattn.theorems.theorem import Claim
from critattn.theory import depth

S, W, DELTA, MU, E, KAPPA = sp.symbols("s w delta mu e kappa", positive=True)
KEPT = IDENTITY_WEIGHT * NORM
LAYER = {"identity_weight": 0.25, "attention_weight": 1.25, "norm": 1.5}
ALONE = {"identity_weight": 0.0, "attention_weight": 1.0, "norm": 1.0}


def symbolic(claim: Claim) -> Iterator[Step]:
    """The Gram matrix after a layer, and the decay of theta above the threshold."""
    own, other = KEPT + ATTENTION_WEIGHT * S, ATTENTION_WEIGHT * W
    squares, products = own**2 + (N - 1) * other**2, 2 * own * other + (N - 2) * other**2
    total = (own + (N - 1) * other) ** 2
    square, inner = squares + RHO * (total - squares), products + RHO * (total - products)
    row = {W: (1 - S) / (N - 1)}
    known = {E: KEPT + ATTENTION_WEIGHT * (S - W), KAPPA: KEPT + ATTENTION_WEIGHT, MU: RHO + THETA / N}
    size = claim.square(E, KAPPA, MU)
    yield equal("r'^2 = |x_i'|^2 from the Gram matrix", square.subs(row), size.subs(known).subs(row))
    theta = THETA * claim.ratio(E, KAPPA, MU)
    yield equal("1 - cos' = theta' from the Gram matrix", (1 - inner / square).subs(row), theta.subs(known).subs(row))
    mean = MU * KAPPA**2 / size
    after = 1 - theta + theta / N
    yield equal("mu' = rho' + theta'/n = mu kappa^2/r'^2", after.subs(known), mean.subs(known))
    lost = MU * (1 + DELTA) / (MU + (1 - MU) * DELTA**2)
    ratio = claim.ratio(DELTA, sp.Integer(1), MU)
    yield equal(
        "without residual (1 - lambda)/(1 - delta) = mu (1+delta)/(mu + (1-mu) delta^2)",
        (1 - ratio) / (1 - DELTA),
        lost,
    )
    words = "1 - delta = n w; above the threshold delta -> 1, so that a layer takes (1 - lambda)/(n w) -> 2 rho"
    yield continuous_at(words, lost, {DELTA: 1, MU: RHO}, claim.decay)


def certified(claim: Claim) -> Iterator[Step]:
    """Five layers of all tokens against the recursion, and the numerical theory."""
    points = grid(gamma=(0.5, 1.5, 4.0), rho=(0.125, 0.5), n=(3, 6))
    theory = grid(gamma=(0.5, 1.5, 4.0), rho=(0.125, 0.5), log_n=(1.5, 7.0, 40.0))
    for words, layer in (("without residual", ALONE), ("with residual", LAYER)):

        def dense(layer: dict[str, float] = layer, **point: Any) -> float:
            return gram_after(layer, **point)

        def exact(layer: dict[str, float] = layer, **point: arb) -> arb:
            log_n = point["n"].log() if "n" in point else point["log_n"]
            return recursion(claim, layer, (point["gamma"], point["rho"], log_n))

        def numeric(layer: dict[str, Any] = layer, **point: Any) -> float:
            return depth.layers(**point, depth=5, **layer).cosines[-1]

        yield agrees(f"the Gram matrix of n tokens after 5 layers, {words}", dense, exact, points)
        tolerance = 2.0**-52 * 2000
        yield agrees(
            f"theory.depth.layers, 5 layers, {words}", numeric, exact, theory, tolerance=tolerance, precision=2000
        )


def recursion(claim: Claim, layer: dict[str, float], start: tuple[arb, arb, arb], *, count: int = 5) -> arb:
    """The cosine after some layers by the recursion for theta and r."""
    gamma, rho, log_n = start
    a, b, size = (arb(layer[name]) for name in ("identity_weight", "attention_weight", "norm"))
    theta, n = 1 - rho, log_n.exp()
    for _ in range(count):
        # 1 - t without cancellation: theta falls double exponentially below the threshold
        rise = -(-gamma * log_n * theta).expm1()
        delta, mu = rise / (1 + (n - 1) * (1 - rise)), 1 - theta + theta / n
        e, kappa = a * size + b * delta, a * size + b
        theta, size = theta * claim.ratio(e, kappa, mu), claim.square(e, kappa, mu).sqrt()
    return 1 - theta


def gram_after(layer: dict[str, float], gamma: float, rho: float, n: int, *, count: int = 5) -> float:
    """The cosine of two tokens after some layers of attention on all n tokens, by their Gram matrix."""
    with ctx.workprec(300):
        a, b, size = (arb(layer[name]) for name in ("identity_weight", "attention_weight", "norm"))
        beta = arb(gamma) * arb(n).log()
        gram = [[size**2 * (1 if i == j else arb(rho)) for j in range(n)] for i in range(n)]
        for _ in range(count):
            gram = _layer(gram, beta, (a, b))
        return float((gram[0][1] / gram[0][0]).mid())


def _layer(gram: list[list[Any]], beta: arb, update: tuple[arb, arb]) -> list[list[Any]]:
    n, (a, b) = len(gram), update
    norms = [gram[i][i].sqrt() for i in range(n)]
    # x_i' = sum_j (a [i=j] + b A_ij/r_j) x_j
    powers = [[(beta * gram[i][j] / (norms[i] * norms[j])).exp() for j in range(n)] for i in range(n)]
    rows = [[b * power / (sum(row, arb(0)) * norms[j]) for j, power in enumerate(row)] for row in powers]
    for i in range(n):
        rows[i][i] += a
    half = [[sum((rows[i][k] * gram[k][j] for k in range(n)), arb(0)) for j in range(n)] for i in range(n)]
    return [[sum((half[i][k] * rows[j][k] for k in range(n)), arb(0)) for j in range(n)] for i in range(n)]


def ratio(e: Any, kappa: Any, mu: Any) -> Any:
    """The angle ratio e^2/(mu kappa^2 + (1-mu) e^2)."""
    return e**2 / square(e, kappa, mu)


def square(e: Any, kappa: Any, mu: Any) -> Any:
    """The squared output norm mu kappa^2 + (1-mu) e^2."""
    return mu * kappa**2 + (1 - mu) * e**2


THEOREM = Theorem(
    name="depth_recursion",
    statement=Statement(
        "A layer maps a simplex with (theta, r) to one with theta' = theta lambda and r'^2 = (1-mu) e^2 + mu kappa^2. "
        "Above the threshold, without residual, theta loses 2 rho n w of itself a layer, n w = n^(1-gamma theta).",
        r"\theta'=\theta\lambda(\theta,r),\quad r'^2=(1-\mu)e^2+\mu\kappa^2,\quad \mu'=\mu\kappa^2/r'^2",
    ),
    hypotheses=(
        "a simplex, the same weights a and b in each layer, tokens not brought back to their norm",
        "gamma theta > 1 and a = 0 for the share; the lifetime that is summed from it stays heuristic",
    ),
    source="[derived, docs/theory.md (8.1); the share: (8.2)]",
    grade=Grade.IDENTITY,
    claim={"ratio": ratio, "square": square, "decay": 2 * RHO},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("share rho n w", {"decay": RHO}, "both factors of kappa^2 - e^2 count"),
        Mutant("norm kappa^2", {"square": lambda e, kappa, mu: kappa**2}, "only the common part grows by kappa"),
        Mutant("contrast in place of the ratio", {"ratio": lambda e, kappa, mu: e / kappa}, "lengths shrink too"),
    ),
)
