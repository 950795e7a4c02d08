"""Frozen weights, points of a Poisson process over their sum: moments and the largest; the exact mean at n keys."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import sympy as sp
from flint import acb, arb

from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid, positive
from critattn.theorems.theorem import Claim
from critattn.theory import random_energy

T, X, K, S, Q, W, V = sp.symbols("t x k s q w v", positive=True)
# 0 < m < 1: m = 1/(1+u)
U = sp.Symbol("u", positive=True)
M = 1 / (1 + U)
INTENSITY = M * X ** (-M - 1)


def symbolic(claim: Claim) -> Iterator[Step]:
    """1/Sigma^k as an integral over t, for keys that are few and for a Poisson process."""
    power = sp.integrate(T ** (S - 1) * sp.exp(-T * X), (T, 0, sp.oo))
    yield equal("int t^(k-1) e^(-t Sigma) dt = Gamma(k)/Sigma^k", power, sp.gamma(S) / X**S, at={S: (2, 3, 4, 5)})
    yield from _few_keys(claim)
    missing = -(1 - sp.exp(-T * X)) * X ** (-M)
    flux = sp.diff(missing, X) + T * sp.exp(-T * X) * X ** (-M)
    yield equal("by parts: (1 - e^(-tx)) m x^(-m-1)", flux, (1 - sp.exp(-T * X)) * INTENSITY)
    rest = T * (sp.gamma(1 - M) * T ** (M - 1))
    exponent = sp.gamma(1 - M) * T**M
    yield equal("so that E e^(-t Sigma) = exp(-Gamma(1-m) t^m), the ends being 0 for 0 < m < 1", rest, exponent)
    inner = M * sp.gamma(K - M) * T ** (M - K)
    there = {X: V / T}
    scaled = (X**K * INTENSITY * sp.exp(-T * X)).subs(there) / T
    gamma_density = V ** (K - M - 1) * sp.exp(-V) * M * T ** (M - K)
    yield equal("int x^k e^(-tx) m x^(-m-1) dx = m Gamma(k-m) t^(m-k): x = v/t", scaled, gamma_density)
    primitive = -claim.moment(K, M) * sp.exp(-exponent)
    integrand = T ** (K - 1) * inner * sp.exp(-exponent) / sp.gamma(K)
    yield equal(
        "E sum A^k, by Campbell's formula: the primitive of t^(k-1) m Gamma(k-m) t^(m-k) e^(-Gamma(1-m) t^m)/Gamma(k)",
        sp.diff(primitive, T),
        integrand,
        at={K: (2, 3, 4, 5)},
    )
    yield equal("E sum A = 1", claim.moment(sp.Integer(1), M), 1)
    yield equal("E sum A^2 = 1 - m", sp.gammasimp(claim.moment(sp.Integer(2), M)), 1 - M)


def _few_keys(claim: Claim) -> Iterator[Step]:
    """A few keys whose w is 1 or w with probability q: both sides by enumeration."""
    law = {sp.Integer(1): 1 - Q, W: Q}
    for n in (2, 3):
        direct = 0
        for values in product(law, repeat=n):
            chance = sp.prod([law[value] for value in values])
            direct += chance * sum(value**2 for value in values) / sum(values) ** 2
        square, laplace = (
            sum(p * v**2 * sp.exp(-T * v) for v, p in law.items()),
            sum(p * sp.exp(-T * v) for v, p in law.items()),
        )
        terms = sp.Add.make_args(sp.powsimp(sp.expand(square * laplace ** (n - 1))))
        words = f"E sum A^2 = n int t E[w^2 e^(-tw)] (E e^(-tw))^(n-1) dt, w of two values, n = {n}"
        yield equal(words, direct, sum(claim.keys(n) * _integrated(term) for term in terms))


def _integrated(term: Any) -> Any:
    """The integral of t c e^(-t a), c/a^2."""
    rate = -sp.diff(sp.log(term), T)
    rate = sp.simplify(sp.expand_log(rate, force=True))
    return term.subs(T, 0) / rate**2


def certified(claim: Claim) -> Iterator[Step]:
    """The largest weight, in balls, and the numerical theory."""
    x, t, m = sp.symbols("x t m", positive=True)
    density = m * x ** (-m - 1) * sp.exp(-(x ** (-m)))
    yield equal("the largest point has P(max <= x) = exp(-x^(-m))", sp.diff(sp.exp(-(x ** (-m))), x), density)
    y, a = sp.symbols("y a", positive=True)
    top = sp.integrate(sp.exp(-y) * sp.exp(-y * a), (y, 0, sp.oo))
    words = "given it, the rest below it: int e^(-y) e^(-y g(t)) dy = 1/(1 + g(t)), y = x^(-m)"
    yield equal(words, top, 1 / (1 + a))
    # g(t) = int_0^1 (1 - e^(-tv)) m v^(-m-1) dv, by parts
    missing = -(1 - sp.exp(-t * x)) * x ** (-m)
    flux = (1 - sp.exp(-t * x)) * m * x ** (-m - 1) - t * sp.exp(-t * x) * x ** (-m)
    yield equal("g(t) = -(1 - e^(-t)) + t^m gamma(1-m, t) by parts", sp.diff(missing, x), flux)
    for whole in (2, 4):
        # m = 1 - 1/k, v = y^k makes the integrand entire
        words = f"t^m gamma(1-m, t) = t int_0^1 e^(-tv) v^(-m) dv within 1e-15, m = {whole - 1}/{whole}, t = 1/8 and 20"
        yield positive(words, _distance(claim, whole), {"t": (20, 20)})
        yield positive(words, _distance(claim, whole), {"t": ("1/8", "1/8")})
    points = grid(reduced_beta=(1.0625, 1.5, 2.0, 8.0))
    yield agrees(
        "theory.random_energy.max_weight_limit",
        random_energy.max_weight_limit,
        lambda reduced_beta: largest(claim.rest, 1 / reduced_beta),
        points,
        tolerance=1e-11,
        precision=96,
    )

    def moment(reduced_beta: arb, k: arb) -> arb:
        m = 1 / reduced_beta
        return (k - m).gamma() / (k.gamma() * (1 - m).gamma())

    cases = grid(reduced_beta=(1.0625, 2.0, 8.0), k=(1.5, 2.0, 5.0))
    found = random_energy.poisson_dirichlet_moment
    yield agrees("theory.random_energy.poisson_dirichlet_moment", found, moment, cases, tolerance=1e-13)


def _distance(claim: Claim, whole: int) -> Callable[..., arb]:
    def distance(t: arb) -> arb:
        part = acb.integral(lambda y, analytic: (-t * y**whole).exp(), 0, 1).real
        return arb("1e-15") - abs(claim.rest(acb(t), acb(1 - arb(1) / whole)).real - whole * t * part)

    return distance


def largest(rest: Callable[[acb, acb], acb], m: arb) -> arb:
    """The integral of e^(-t)/(e^(-t) + t^m gamma(1-m, t)) over t > 0, its tail beyond 80 at most e^(-80)."""

    def integrand(t: acb, analytic: bool) -> acb:
        decay = (-t).exp()
        return decay / (decay + rest(t, acb(m)))

    tail = arb(0, 1e-33)
    return acb.integral(integrand, 0, 80, rel_tol=arb("1e-20"), abs_tol=arb("1e-20")).real + tail


def incomplete(t: acb, m: acb) -> acb:
    """t^m gamma(1-m, t) = t 1F1(1-m; 2-m; -t)/(1-m), entire in t."""
    return t * (-t).hypgeom_1f1(1 - m, 2 - m) / (1 - m)


THEOREM = Theorem(
    name="frozen_weights",
    statement=Statement(
        "The points of a Poisson process of density m x^(-m-1), over their sum, have E sum A^k = Gamma(k-m)/(Gamma(k) "
        "Gamma(1-m)) and a mean largest weight int e^(-t)/(e^(-t) + t^m gamma(1-m,t)) dt; for n independent keys "
        "E sum A^2 = n int t E[w^2 e^(-tw)] (E e^(-tw))^(n-1) dt.",
        r"E\sum A^k=\tfrac{\Gamma(k-m)}{\Gamma(k)\Gamma(1-m)},\quad "
        r"E\max A=\int_0^\infty\tfrac{e^{-t}}{e^{-t}+t^m\gamma(1-m,t)}\,dt",
    ),
    hypotheses=("0 < m = 1/b < 1, k > m", "that these are the limits of Gaussian weights above freezing is classical"),
    source="[classical, docs/theory.md (5.1); derived, docs/theory.md (5.2), (5.3)]",
    grade=Grade.IDENTITY,
    claim={
        "moment": lambda k, m: sp.gamma(k - m) / (sp.gamma(k) * sp.gamma(1 - m)),
        "rest": incomplete,
        "keys": lambda n: n,
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant(
            "Gamma(k+m)",
            {"moment": lambda k, m: sp.gamma(k + m) / (sp.gamma(k) * sp.gamma(1 + m))},
            "m with the wrong sign",
        ),
        Mutant("n - 1 keys", {"keys": lambda n: n - 1}, "each of n keys may be the one squared"),
        Mutant("rest without the part below", {"rest": lambda t, m: t}, "t^m gamma(1-m,t) is t/(1-m) to first order"),
    ),
)
