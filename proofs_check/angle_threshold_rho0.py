"""Orthogonal tokens: their angles turn at gamma = 1/2, not at the 1 of their weights."""

from collections.abc import Iterator

import sympy as sp

from critattn import symbolic as sym
from critattn.symbolic import RHO, N
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
    positive_from_zero,
)
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

# h = n^(-1/2), z = n^(1/2 - gamma), y = 1/z, t = n^(-gamma)
H, Z, Y, T = sp.symbols("h z y t", nonnegative=True)
LOG_N = sp.Symbol("log_n", positive=True)
REGIMES = ("below", "at", "above")


def symbolic(claim: Claim) -> Iterator[Step]:
    """The angle ratio in powers of n, its limits, and the point at which it is 1/2 in n tokens."""
    delta, mu = (1 - T) / (1 + (N - 1) * T), 1 / N
    ratio = delta**2 / (mu + (1 - mu) * delta**2)
    inverse = (H * (1 - T) + Z) / (1 - T)
    form = 1 / (1 - H**2 + inverse**2)
    powers = {H: 1 / sp.sqrt(N), Z: sp.sqrt(N) * T}
    yield equal(
        "lambda = 1/(1 - h^2 + (h (1-t) + z)^2/(1-t)^2) with h = n^(-1/2), z = n^(1/2) t", form.subs(powers), ratio
    )
    yield equal("z = n^(1/2 - gamma) is 1 at the threshold", N ** (sp.Rational(1, 2) - claim.threshold), 1)
    ends = {"at": {H: 0, T: 0, Z: 1}, "above": {H: 0, T: 0, Z: 0}}
    flipped = sp.cancel(form.subs(Z, 1 / Y))
    yield continuous_at("below it z -> oo and lambda -> 0", flipped, {H: 0, T: 0, Y: 0}, claim.limits["below"])
    for regime, point in ends.items():
        words = f"{regime} it lambda -> {claim.limits[regime]}"
        yield continuous_at(words, form, point, claim.limits[regime])
    yield from _half_angle(claim)


def _half_angle(claim: Claim) -> Iterator[Step]:
    # m^2 = n + 1
    m = sp.Symbol("m", positive=True)
    delta = 1 / m
    decay = ((1 - delta) / (1 + (m**2 - 2) * delta)).subs(m, sp.sqrt(N + 1))
    at = {N: (3, 17, 1009, 10**12)}
    yield equal(
        "lambda = 1/2 where delta = (n+1)^(-1/2), that is t = 1/(2 + sqrt(n+1))", decay, 1 / (2 + sp.sqrt(N + 1)), at=at
    )
    exact = -sp.log(1 / (2 + sp.sqrt(N + 1))) / sp.log(N)
    yield equal("so that gamma* = -log t/log n = log(2 + sqrt(n+1))/log n", claim.half_angle_gamma, exact, at=at)
    yield limit_is("gamma* tends to the threshold", claim.half_angle_gamma, (N, sp.oo), claim.threshold)


def certified(claim: Claim) -> Iterator[Step]:
    """How far gamma* lies above 1/2, for every n, and the numerical theory."""
    shift = sp.log(2 * H + sp.sqrt(1 + H**2))
    words = "gamma* - 1/2 = log(2 h + sqrt(1+h^2))/log n with h = n^(-1/2)"
    yield positive_from_zero(f"{words} is positive", shift, (H, 1, {}), order=1)
    yield positive_from_zero(f"{words} is below (2 h + h^2/2)/log n", 2 * H + H**2 / 2 - shift, (H, 1, {}), order=2)
    yield agrees(
        "theory.simplex.half_angle_gamma at rho = 0",
        lambda log_n: simplex.half_angle_gamma(0.0, log_n),
        claim.half_angle_gamma.subs(N, sp.exp(LOG_N)),
        grid(log_n=(0.7, 1.5, 5.0, 40.0, 600.0)),
        tolerance=64 * 2.0**-52,
    )
    yield agrees(
        "theory.simplex.angle_ratio at rho = 0",
        lambda gamma, log_n: simplex.angle_ratio(gamma, 0.0, log_n),
        sym.angle_ratio(residual=False).subs(RHO, 0).subs(N, sp.exp(LOG_N)),
        grid(gamma=(0.25, 0.5, 0.75, 2.0), log_n=(0.75, 5.0, 40.0, 600.0)),
        tolerance=lambda gamma, log_n: 2.0**-52 * (32 + 8 * (1 + gamma) * log_n),
    )
    for regime, gamma in zip(REGIMES, (0.25, 0.5, 0.75), strict=True):
        yield agrees(
            f"theory.simplex.angle_ratio_limit at rho = 0, {regime} the threshold",
            lambda gamma: simplex.angle_ratio_limit(gamma, 0.0),
            sp.sympify(claim.limits[regime]),
            grid(gamma=(gamma,)),
            relative_to=sp.Integer(1),
        )


THEOREM = Theorem(
    name="angle_threshold_rho0",
    statement=Statement(
        "For orthogonal tokens without residual the angle ratio tends to 0, 1/2 and 1 below, at and above gamma = 1/2, "
        "although their self weight turns at gamma = 1; in n tokens it is 1/2 at log(2 + sqrt(n+1))/log n.",
        r"\lambda\to 0,\ \tfrac12,\ 1\ \text{ for }\ \gamma<,=,>\tfrac12;\qquad"
        r"\gamma^*=\frac{\log(2+\sqrt{n+1})}{\log n}",
    ),
    hypotheses=("rho = 0, which the threshold 1/(1-rho) of angles excludes", "a = 0", "n >= 2, d >= n"),
    source="[derived, docs/theory.md (1.5), (1.8)]",
    grade=Grade.LIMIT,
    claim={
        "threshold": sp.Rational(1, 2),
        "limits": {"below": 0, "at": sp.Rational(1, 2), "above": 1},
        "half_angle_gamma": sp.log(2 + sp.sqrt(N + 1)) / sp.log(N),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("threshold 1/(1-rho) = 1", {"threshold": sp.Integer(1)}, "the threshold of rho > 0, read at rho = 0"),
        Mutant("critical ratio 1", {"limits": {"below": 0, "at": 1, "above": 1}}, "1/(1+3 rho) at rho = 0"),
        Mutant(
            "half angle at log(sqrt n)/log n",
            {"half_angle_gamma": sp.log(2 + sp.sqrt(N)) / sp.log(N)},
            "n + 1 under the root: the mean enters its own norm",
        ),
    ),
)
