"""Above the threshold tokens live n^(gamma theta - 1)/(2 rho theta gamma log n) layers, ever more exactly."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import sympy as sp
from flint import arb, ctx

from critattn.symbolic import GAMMA, RHO, THETA, N
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
    positive_from_zero,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import depth

DELTA, MU, SHARE, T, U, V, X, Y = sp.symbols("delta mu nt t u v x y", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
# what goes to 0 in the bounds: e^(-X), X/k, 1/n, nt and k nt at X, 1/(lifetime claimed), k/(lifetime claimed)
TAIL, SHIFT, INVERSE, SMALL, STEP, SHORT, SLOW = sp.symbols(
    "tail shift inverse small step short slow", nonnegative=True
)
STARTS = ((4, "1/2", 100), (4, "1/2", 1000), (5, "1/2", 100), (2.5, "1/5", 1000))


def symbolic(claim: Claim) -> Iterator[Step]:
    """One layer between two simple bounds, and the sum of the layers."""
    ratio = DELTA**2 / (MU + (1 - MU) * DELTA**2)
    lost = MU * (1 + DELTA) / (MU + (1 - MU) * DELTA**2)
    yield equal("1 - lambda = (1 - delta) g, g = mu (1+delta)/(mu + (1-mu) delta^2)", 1 - ratio, (1 - DELTA) * lost)
    contrast = (1 - SHARE / N) / (1 + (N - 1) * SHARE / N)
    # nt = n^(1 - gamma theta)
    row = SHARE / (1 + (N - 1) * SHARE / N)
    yield equal("1 - delta = nt/(1 + (n-1) t), t = n^(-gamma theta)", 1 - contrast, row)
    open_ = {DELTA: 1 / (1 + U), MU: 1 / (1 + V)}
    cases = {
        "g < 2 mu/delta^2": ((2 * MU / DELTA**2 - lost).subs(open_), "positive"),
        "g > mu (1 + delta)": ((lost - MU * (1 + DELTA)).subs(open_), "positive"),
    }
    yield from signs("0 < delta, mu < 1", cases)
    # y = e^(-x), x = k (theta_0 - theta), k = gamma log n
    start, moved = sp.symbols("theta_0 k", positive=True)
    there = sp.exp(-moved * (start - X)) * sp.exp(-moved * X)
    yield equal(
        "y t = t_0 at every theta: y = e^(-k (theta_0 - theta)), t = e^(-k theta)", there, sp.exp(-moved * start)
    )
    yield positive_from_zero("1 - e^(-x) < x", X - 1 + sp.exp(-X), (X, 4, {}), order=2)
    yield positive_from_zero("1 - e^(-x) > x - x^2/2", 1 - sp.exp(-X) - X + X**2 / 2, (X, 4, {}), order=3)
    because = (
        "a layer takes x = k (theta_0 - theta) up by k theta (1 - lambda), and y down by y (1 - e^(-that)). While "
        "theta_0 - theta <= X/k, mu is in [rho_0, rho_0 + X/k + 1/n], delta >= delta_X. So y, which starts at 1, falls "
        "by at most k theta_0 n t_0 2 (rho_0 + X/k + 1/n)/delta_X^2, and layers to y = e^(-X) number at least "
        "1 - e^(-X) over that"
    )
    yield argued("L >= (1 - e^(-X)) delta_X^2/(2 k theta_0 n t_0 (rho_0 + X/k + 1/n)), X <= k theta_0/2", because)
    because = (
        "there y falls by at least k (theta_0 - X/k) n t_0 rho_0 (1+delta_X)/(1 + nt_X) (1 - D/2), D the largest step "
        "of x; later, while nt < 1 and the step of x is below 1, by at least (1 - 1/e) k theta_0 n t_0 rho_0/4. Steps "
        "of x above 1 are at most k theta_0/2 in number, and those with nt >= 1 move x by at least k theta_0 rho_0/4 "
        "each: at most 2/rho_0"
    )
    yield argued("L <= the sum of these numbers and 4 for rounding", because)
    yield from _limits(claim)


def _limits(claim: Claim) -> Iterator[Step]:
    """Both bounds over the claimed lifetime."""
    ends = dict.fromkeys((TAIL, SHIFT, INVERSE, SMALL, STEP, SHORT, SLOW), 0)
    claimed = sp.simplify(
        claim.life(GAMMA, RHO, LOG_N) * GAMMA * LOG_N * THETA * RHO / sp.exp((GAMMA * THETA - 1) * LOG_N)
    )
    # 1/(k theta_0 n t_0 rho_0) over the claimed lifetime
    unit = 1 / claimed
    delta = (1 - SMALL * INVERSE) / (1 + SMALL)
    low = unit * (1 - TAIL) * delta**2 * RHO / (2 * (RHO + SHIFT + INVERSE))
    words = "with X = log log n for one, all of e^(-X), X/k, 1/n, k nt_X and k over the lifetime go to 0"
    yield continuous_at(f"{words}: lower bound/claimed -> 1", low, ends, 1, at={GAMMA: (4, 5, 6, 7)})
    largest = 2 * THETA * (RHO + SHIFT + INVERSE) * STEP / delta**2
    first = (1 - TAIL) * THETA * (1 + SMALL) / ((THETA - SHIFT) * (1 + delta) * (1 - largest / 2))
    second = 4 * TAIL / (1 - sp.exp(-1))
    rest = SHORT * (4 + 2 / RHO) + SLOW * THETA / 2
    open_ = {RHO: 1 / (1 + U)}
    high = (unit * (first + second) + rest).subs(open_)
    yield continuous_at(f"{words}: upper bound/claimed -> 1", high, ends, 1, at={GAMMA: (4, 5, 6, 7)})


def certified(claim: Claim) -> Iterator[Step]:
    """Layers counted by the recursion in balls against the lower bound, and the numerical theory."""
    for gamma, rho, n in STARTS:
        layers = counted(gamma, rho, n)
        box = {"gamma": (gamma, gamma), "rho": (rho, rho), "n": (n, n)}
        words = (
            f"gamma = {gamma}, rho = {rho}, n = {n}: {layers} layers by the recursion, above the lower bound at X = 2"
        )
        yield positive(words, layers - _least(), box, budget=1)
        found = [{"gamma": float(gamma), "rho": float(sp.Rational(rho)), "n": float(n)}]
        yield agrees(
            f"theory.depth.lifetime: {layers} layers",
            lambda gamma, rho, n: depth.lifetime(gamma, rho, float(sp.log(n))),
            sp.Integer(layers),
            found,
        )
    yield agrees(
        "theory.depth.lifetime_asymptotic",
        depth.lifetime_asymptotic,
        claim.life(GAMMA, RHO, LOG_N),
        grid(gamma=(4.0, 6.5), rho=(0.125, 0.5, 0.625), log_n=(5.0, 11.0, 90.0)),
        tolerance=lambda gamma, rho, log_n: 2.0**-52 * (16 + 8 * gamma * log_n),
    )


def _least() -> sp.Expr:
    """The lower bound at X = 2."""
    slope = GAMMA * sp.log(N)
    start = N ** (1 - GAMMA * THETA)
    small = start * sp.exp(2)
    delta = (1 - small / N) / (1 + small)
    return (1 - sp.exp(-2)) * delta**2 / (2 * slope * THETA * start * (RHO + 2 / slope + 1 / N))


@lru_cache
def counted(gamma: float, rho: str, n: int) -> int:
    """Layers until theta has halved, the recursion in balls of 2000 bits; 0 where these do not decide."""
    share = Fraction(rho)
    with ctx.workprec(2000):
        theta = start = arb(share.denominator - share.numerator) / share.denominator
        slope = arb(gamma) * arb(n).log()
        for count in range(1, 2000):
            rise = -(-slope * theta).expm1()
            delta, mu = rise / (1 + (n - 1) * (1 - rise)), 1 - theta + theta / n
            theta = theta * delta**2 / (mu + (1 - mu) * delta**2)
            if theta <= start / 2:
                return count
            if not theta > start / 2:
                break
    return 0


THEOREM = Theorem(
    name="depth_lifetime",
    statement=Statement(
        "Without residual and for gamma theta_0 > 1 the number of layers until theta has halved, over "
        "n^(gamma theta_0 - 1)/(2 rho_0 theta_0 gamma log n), tends to 1.",
        r"L\Big/\frac{n^{\gamma\theta_0-1}}{2\rho_0\theta_0\gamma\log n}\to1\qquad(\gamma\theta_0>1)",
    ),
    hypotheses=("0 < rho_0 < 1, gamma (1 - rho_0) > 1, both fixed", "a = 0: attention without residual, n -> oo"),
    source="[derived, docs/theory.md (8.1), (8.2)]",
    grade=Grade.LEMMA,
    claim={
        "life": lambda gamma, rho, log_n: (
            sp.exp((gamma * (1 - rho) - 1) * log_n) / (2 * rho * (1 - rho) * gamma * log_n)
        )
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "without the factor 2",
            {
                "life": lambda gamma, rho, log_n: (
                    sp.exp((gamma * (1 - rho) - 1) * log_n) / (rho * (1 - rho) * gamma * log_n)
                )
            },
            "1 + delta is 2 above the threshold",
        ),
        Mutant(
            "without rho",
            {
                "life": lambda gamma, rho, log_n: (
                    sp.exp((gamma * (1 - rho) - 1) * log_n) / (2 * (1 - rho) * gamma * log_n)
                )
            },
            "orthogonal tokens do not contract",
        ),
        Mutant(
            "without gamma log n",
            {"life": lambda gamma, rho, log_n: sp.exp((gamma * (1 - rho) - 1) * log_n) / (2 * rho * (1 - rho))},
            "the decay feeds back on itself",
        ),
        Mutant(
            "n^(gamma theta)",
            {
                "life": lambda gamma, rho, log_n: (
                    sp.exp(gamma * (1 - rho) * log_n) / (2 * rho * (1 - rho) * gamma * log_n)
                )
            },
            "n - 1 other tokens pull",
        ),
    ),
)
