"""One score against Gaussian noise under ReLU^p: the mean of the odds, the context it guarantees, and p to infinity."""

from collections.abc import Iterator
from typing import Any

import sympy as sp
from flint import arb

from critattn.symbolic import N
from critattn.symbolic_family import SNR, P
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    enclosed,
    equal,
    grid,
    limit_is,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim
from critattn.theory import needle

X, V, T, ODDS, A = sp.symbols("x v t T a", positive=True)
LOG_N = sp.Symbol("log_n", positive=True)
DENSITY = sp.exp(-(X**2) / 2) / sp.sqrt(2 * sp.pi)


def symbolic(claim: Claim) -> Iterator[Step]:
    """The half moment, the mean of the odds, and a row's weight between the two."""
    density = (X**P * DENSITY).subs(X, sp.sqrt(2 * V)) / sp.sqrt(2 * V)
    gamma = 2 ** (P / 2 - 1) / sp.sqrt(sp.pi) * V ** ((P - 1) / 2) * sp.exp(-V)
    yield equal("v = x^2/2: x^p phi(x) dx = 2^(p/2-1) v^((p-1)/2) e^(-v) dv/sqrt(pi)", density, gamma)
    euler = sp.integrate(V ** (A - 1) * sp.exp(-V), (V, 0, sp.oo))
    yield equal(
        "int v^(a-1) e^(-v) dv = Gamma(a), a = (p+1)/2",
        euler.subs(A, (P + 1) / 2) * 2 ** (P / 2 - 1) / sp.sqrt(sp.pi),
        claim.moment(P),
    )
    yield equal("mu_2 = 1/2: half of the variance", claim.moment(sp.Integer(2)), sp.Rational(1, 2))
    mean = (N - 1) * claim.moment(P) / SNR**P
    yield equal("E T = (n-1) mu_p SNR^(-p) is 1 at n_max", mean.subs(N, claim.length(P, SNR)), 1)
    bend = sp.diff(1 / (1 + ODDS), ODDS, 2)
    words = "1/(1+T) is convex: E A_* >= 1/(1 + E T), which is at least 1/2 for n <= n_max, at every p"
    yield from signs(words, {"'' > 0": (bend, "positive")})
    share = sp.Symbol("q", positive=True)
    yield equal(
        "Markov: P(A_* < 1/2) <= E T = q at n = 1 + q SNR^p/mu_p",
        mean.subs(N, 1 + share * (claim.length(P, SNR) - 1)),
        share,
    )
    rest = X**P
    low, high = sp.exp(-sp.Symbol("gap", positive=True)), sp.exp(sp.Symbol("gap", positive=True))
    yield limit_is("noise below s_*: (g/SNR)^p -> 0, and A_* -> 1 if all of it is", rest.subs(X, low), (P, sp.oo), 0)
    yield limit_is("noise above s_*: (g/SNR)^p -> oo, and A_* -> 0 if some is", 1 / rest.subs(X, high), (P, sp.oo), 0)


def certified(claim: Claim) -> Iterator[Step]:
    """Where the mean of the odds is least, and the numerical theory."""
    log_odds = sp.log(claim.moment(P)) - P * sp.log(SNR)
    slope = sp.digamma((P + 1) / 2) / 2 + sp.log(2) / 2 - sp.log(SNR)
    words = "d/dp log E T = psi((p+1)/2)/2 + (log 2)/2 - log SNR, psi increasing"
    yield equal(words, in_psi(sp.diff(log_odds, P)), in_psi(slope))
    words = "psi((p+1)/2) = log(SNR^2/2) is least at p < SNR^2: 2 e^psi > p, for p up to 6"
    yield positive(words, lambda p: rising(p) - p, {"p": ("1/16", 6)})
    words = f"and p > SNR^2 - {claim.shift}/p"
    yield positive(words, lambda p: p + exact(claim.shift) / p - rising(p), {"p": ("1/16", 6)})
    moment = sp.Symbol("p", positive=True)
    points = grid(p=(0.5, 1.0, 3.0, 15.0, 40.0))
    yield agrees(
        "theory.needle.log_half_moment",
        needle.log_half_moment,
        lambda p: log_moment(claim, p),
        points,
        relative_to=lambda p: 1 + p,
        tolerance=1e-14,
    )
    pairs = grid(p=(1.0, 3.0, 15.0), snr=(2.5, 4.25, 8.0))
    limit = sp.log(claim.length(moment, sp.Symbol("snr", positive=True)))
    yield agrees(
        "theory.needle.log_length_limit",
        lambda p, snr: needle.log_length_limit(p, snr).log_n,
        limit,
        pairs,
        relative_to=lambda p, snr: 1 + p,
        tolerance=1e-14,
    )
    places = grid(p=(1.0, 3.0, 15.0), log_n=(2.0, 9.0, 60.0))
    needed = ((sp.exp(LOG_N) - 1) * claim.moment(moment)) ** (1 / moment)
    yield agrees(
        "theory.needle.required_snr",
        needle.required_snr,
        needed,
        places,
        tolerance=lambda p, log_n: 2.0**-52 * (32 + 8 * log_n),
    )
    yield agrees(
        "theory.needle.turning_p: 2 e^psi((p+1)/2) there is SNR^2",
        lambda snr: float(rising(arb(needle.turning_p(snr))).mid()),
        lambda snr: snr**2,
        grid(snr=(1.0, 2.5, 4.25, 8.0)),
        tolerance=1e-11,
    )
    yield from _hard(claim)


def _hard(claim: Claim) -> Iterator[Step]:
    """The limit p -> infinity in n tokens."""

    def probability(snr: arb, log_n: arb) -> arb:
        return ((log_n.exp() + claim.others) * (-(snr / arb(2).sqrt()).erfc() / 2).log1p()).exp()

    yield equal("at n = 2 there is one other", 2 + claim.others, 1)
    points = grid(snr=(0.5, 2.5, 4.25), log_n=(1.0, 7.0, 12.0))

    def allowed(snr: float, log_n: float) -> float:
        lost = float(probability(arb(snr), arb(log_n)).log())
        return 2.0**-52 * (16 + abs(lost) * (16 + log_n + snr**2))

    yield agrees(
        "theory.needle.hard_limit_weight = Phi(SNR)^(n-1)",
        needle.hard_limit_weight,
        probability,
        points,
        tolerance=allowed,
    )

    def half(log_n: float) -> float:
        return float(probability(arb(float(needle.hard_boundary(log_n))), arb(log_n)).mid())

    words = "theory.needle.hard_boundary: the weight there is 1/2"
    yield agrees(
        words,
        half,
        sp.Rational(1, 2),
        grid(log_n=(1.0, 7.0, 60.0)),
        tolerance=lambda log_n: 2.0**-52 * (64 + 16 * log_n),
    )


def exact(value: sp.Rational) -> arb:
    """A fraction as a ball."""
    return arb(int(value.p)) / int(value.q)


def rising(p: arb) -> arb:
    """2 e^psi((p+1)/2), increasing, from its ends."""
    low, high = (2 * ((end + 1) / 2).digamma().exp() for end in (p.lower(), p.upper()))
    return low.union(high)


def log_moment(claim: Claim, p: arb) -> arb:
    """The logarithm of mu_p of the claim by its value in balls."""
    return enclosed(sp.log(claim.moment(sp.Symbol("p", positive=True))))(p=p)


def in_psi(expression: Any) -> Any:
    """The one digamma function in it as a symbol."""
    return expression.replace(lambda part: part.func is sp.polygamma, lambda part: sp.Symbol("psi"))


def moment(p: sp.Expr) -> sp.Expr:
    """mu_p = 2^(p/2-1) Gamma((p+1)/2)/sqrt(pi)."""
    return 2 ** (p / 2 - 1) * sp.gamma((p + 1) / 2) / sp.sqrt(sp.pi)


THEOREM = Theorem(
    name="needle_threshold",
    statement=Statement(
        "A score SNR standard deviations above n-1 Gaussian scores has E A_* >= 1/2 under ReLU^p for every n <= n_max "
        "= 1 + SNR^p/mu_p; the mean of the odds is least at a p between SNR^2 - 1/(5p) and SNR^2; as p -> oo E A_* "
        "tends to Phi(SNR)^(n-1).",
        r"n\le1+\frac{\mathrm{SNR}^p}{\mu_p}\Rightarrow EA_*\ge\tfrac12,\quad "
        r"\mu_p=\tfrac{2^{p/2-1}}{\sqrt\pi}\Gamma\bigl(\tfrac{p+1}2\bigr),"
        r"\quad \lim_{p\to\infty}EA_*=\Phi(\mathrm{SNR})^{n-1}",
    ),
    hypotheses=(
        "independent Gaussian scores; those below their mean rho are cut off, p > 0, SNR > 0",
        "n_max is where the mean of the odds is 1: a guarantee; the context that p serves is longer beyond p = log n",
        "the place of the least mean for p up to 6",
    ),
    source="[derived, docs/theory.md (12.11), (12.12), (12.13); the guarantee derived]",
    grade=Grade.BOUND,
    claim={
        "moment": moment,
        "length": lambda p, snr: 1 + snr**p / moment(p),
        "others": -1,
        "shift": sp.Rational(1, 5),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("the whole moment", {"moment": lambda p: 2 * moment(p)}, "only scores above the mean count"),
        Mutant("n_max = SNR^p", {"length": lambda p, snr: 1 + snr**p}, "the moment of the noise is left out"),
        Mutant("Phi^n", {"others": 0}, "n - 1 noise scores"),
        Mutant("least within 1/(12 p)", {"shift": sp.Rational(1, 12)}, "the distance is 1/(6 p) to leading order"),
    ),
)
