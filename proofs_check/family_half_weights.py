"""Where the normalisers of the family put half of the weight on the token itself, row by row of their table."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from critattn import symbolic_family as family
from critattn.symbolic import RHO, N
from critattn.symbolic_family import BETA, TAU, P
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, positive, signs
from critattn.theorems.theorem import Claim
from critattn.theory import family as numeric_family
from critattn.theory import power, sigmoid

# rho = 1/(1+u), n - 1 = m, n' = (n-1)^(1/p) = q, threshold t
U, M, Q, T, Z = sp.symbols("u m q t z", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
OPEN: dict[Any, Any] = {RHO: 1 / (1 + U), N: 1 + M}
SMALL = {T: ("1/10", "1/8", "1/20", "1/9"), RHO: ("3/10", "1/2", "4/5", "2/3"), N: (5, 17, 1009, 40)}


def symbolic(claim: Claim) -> Iterator[Step]:
    """phi(beta)/phi(beta rho) = n - 1 at each claimed point."""
    rows = sp.log(N - 1)
    at: dict[Any, Any] = {key: [sp.Rational(value) for value in values] for key, values in SMALL.items()}
    own, other = sp.exp(BETA), sp.exp(BETA * RHO)
    yield equal(
        "A_ii = phi(beta)/(phi(beta) + (n-1) phi(beta rho)) is 1/2 iff phi(beta) = (n-1) phi(beta rho)", *_half()
    )
    ratio = sp.expand_log(sp.log(own / other), force=True)
    yield equal("exponential", ratio.subs(BETA, claim.exponential), rows, at=at)
    yield equal("power: p log(1/rho) = log(n-1)", (claim.power * sp.log(1 / RHO)).subs(OPEN), rows.subs(OPEN))
    shifted = claim.shifted * sp.log((1 - T) / (RHO - T))
    yield equal("power of s - t, t < rho: p log((1-t)/(rho-t)) = log(n-1)", shifted, rows, at=at)
    # n - 1 = q^p
    beta = claim.rectified.subs(N, 1 + Q**P).subs((Q**P) ** (1 / P), Q)
    scores = (BETA - TAU) / (BETA * RHO - TAU)
    yield equal(
        "ReLU^p(beta s - tau): (beta - tau)/(beta rho - tau) = (n-1)^(1/p)", sp.simplify(scores.subs(BETA, beta)), Q
    )
    slope = sp.factor(sp.diff(scores.subs(RHO, 1 / (1 + U)), BETA))
    yield from signs(
        "its ratio falls in beta: identity below, diffuse above", {"d/dbeta < 0": (_open(slope), "negative")}
    )
    yield equal(
        "ReLU: A_ii = beta/(beta + (n-1) beta rho), without beta", BETA / (BETA + (N - 1) * BETA * RHO), claim.relu
    )


def _half() -> tuple[sp.Expr, sp.Expr]:
    f, h = sp.symbols("f h", positive=True)
    return f / (f + (N - 1) * h) - sp.Rational(1, 2), (f - (N - 1) * h) / (2 * (f + (N - 1) * h))


def _open(slope: Any) -> Any:
    """The slope for beta > tau/rho, where every key survives: beta = tau (1 + u) + z."""
    return sp.factor(slope.subs(BETA, TAU * (1 + U) + Z))


def certified(claim: Claim) -> Iterator[Step]:
    """The sigmoid without bias has no transition, and the numerical theory."""
    room = claim.sigmoid * (1 + sp.exp(-BETA)) - 1 - sp.exp(-BETA * RHO)
    words = f"sigmoid without bias: phi(beta)/phi(beta rho) < {claim.sigmoid}, so that A_ii < 1/2 for n >= 3"
    yield positive(words, room, {"beta": ("1/100", 12), "rho": (0, 1)})
    # e^(-beta) = u, e^(-beta rho) = 1/(1+z)
    yield from signs(words, {"at every beta": (sp.expand(claim.sigmoid * (1 + U) - 2) + Z / (1 + Z), "positive")})
    at_log: dict[Any, Any] = {N: sp.exp(LOG_N)}
    points = grid(rho=(0.125, 0.3, 0.875), log_n=(1.5, 7.0, 600.0))
    yield agrees("theory.power.critical_p", power.critical_p, claim.power.subs(at_log), points, tolerance=1e-13)
    threshold = sp.Symbol("threshold", positive=True)
    yield agrees(
        "theory.power.critical_p with a threshold",
        power.critical_p,
        claim.shifted.subs(T, threshold).subs(at_log),
        grid(rho=(0.3, 0.875), log_n=(1.5, 7.0, 600.0), threshold=(0.125, 0.25)),
        tolerance=1e-13,
    )
    yield agrees(
        "theory.power.rectified_critical_beta",
        power.rectified_critical_beta,
        claim.rectified.subs(at_log),
        grid(rho=(0.5, 0.875), log_n=(7.0, 9.0), p=(2.0, 3.0), tau=(0.5, 2.0)),
        tolerance=1e-13,
    )
    relu = claim.relu.subs(at_log)
    cases = [{"beta": 2.0, **point} for point in points]
    yield agrees("theory.family.relu_self_weight", numeric_family.relu_self_weight, relu, cases, tolerance=1e-12)
    yield from _sigmoid()


def _sigmoid() -> Iterator[Step]:
    gamma, bias = sp.symbols("gamma bias_factor", positive=True)
    exact = family.sigmoid_self_weight().subs({N: sp.exp(LOG_N), family.BIAS_FACTOR: bias})
    yield agrees(
        "theory.sigmoid.self_weight",
        sigmoid.self_weight,
        exact,
        grid(gamma=(0.5, 1.5, 4.0), rho=(0.125, 0.75), log_n=(1.5, 7.0, 60.0), bias_factor=(1.0, 2.0)),
        tolerance=lambda gamma, rho, log_n, bias_factor: 2.0**-52 * (64 + 8 * (gamma + bias_factor) * log_n),
    )


THEOREM = Theorem(
    name="family_half_weights",
    statement=Statement(
        "Weights phi(beta s)/sum phi(beta s) on a simplex are half its own where phi(beta)/phi(beta rho) = n - 1, "
        "at beta = log(n-1)/(1-rho) for the exponential, at p = log(n-1)/log(1/rho) for powers, in reversed direction "
        "for ReLU^p(beta s - tau), and nowhere in beta for ReLU and for the sigmoid without bias.",
        r"\frac{\phi(\beta)}{\phi(\beta\rho)}=n-1:\quad \beta=\tfrac{\log(n-1)}{1-\rho},\ "
        r"p=\tfrac{\log(n-1)}{\log(1/\rho)},\ \beta=\tau\tfrac{n'-1}{\rho n'-1},\ n'=(n-1)^{1/p}",
    ),
    hypotheses=(
        "0 < rho < 1 and n >= 3",
        "0 <= t < rho for powers of s - t",
        "rho n' > 1 for ReLU^p(beta s - tau): for larger p every beta above tau localises",
    ),
    source="[derived, docs/theory.md (13.1), (13.2), (13.4), (13.6)]",
    grade=Grade.IDENTITY,
    claim={
        "exponential": sp.log(N - 1) / (1 - RHO),
        "power": family.power_critical_p(),
        "shifted": sp.log(N - 1) / sp.log((1 - T) / (RHO - T)),
        "rectified": family.rectified_critical_beta(),
        "relu": 1 / (1 + (N - 1) * RHO),
        "sigmoid": 2,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("powers with 1 - rho", {"power": sp.log(N - 1) / (1 - RHO)}, "log(1/rho) is 1 - rho only near rho = 1"),
        Mutant(
            "threshold in the self score only", {"shifted": sp.log(N - 1) / sp.log((1 - T) / RHO)}, "t acts on both"
        ),
        Mutant("n' without its root", {"rectified": TAU * (N - 2) / (RHO * (N - 1) - 1)}, "true at p = 1 only"),
        Mutant("ReLU with all n", {"relu": 1 / (1 + N * RHO)}, "n - 1 others"),
        Mutant("sigmoid ratio below 3/2", {"sigmoid": sp.Rational(3, 2)}, "it comes close to 2 at rho = 0"),
    ),
)
