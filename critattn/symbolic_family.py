"""The family of normalisers on the simplex as SymPy expressions: weights, half-weight points, limits.

Symbols are those of `symbolic`, with the exponent p, the entmax parameter alpha, the bias factor B, the weight x and
the signal to noise; for number formats the significant bits p and the least exponent e. Equation numbers refer to
docs/theory.md.
"""

from functools import cache

import sympy as sp

from critattn.symbolic import GAMMA, RHO, THETA, N

P = sp.Symbol("p", positive=True)
ALPHA = sp.Symbol("alpha", positive=True)
BIAS_FACTOR = sp.Symbol("B", positive=True)
WEIGHT = sp.Symbol("x", positive=True)
BETA = sp.Symbol("beta", positive=True)
TAU = sp.Symbol("tau", positive=True)
SNR = sp.Symbol("R", positive=True)
SELF_SCORE = sp.Symbol("a", positive=True)
BELOW = sp.Symbol("delta", positive=True)
BITS = sp.Symbol("p", integer=True, positive=True)
LEAST = sp.Symbol("e", integer=True)


@cache
def softplus_self_weight() -> sp.Expr:
    """Self weight f/(f + (n-1) h), f = log(1 + n^gamma), h = log(1 + n^(gamma rho)), without bias.

    Source: [derived, docs/theory.md (11.1)].
    """
    own, other = sp.log(1 + N**GAMMA), sp.log(1 + N ** (GAMMA * RHO))
    return own / (own + (N - 1) * other)


@cache
def softplus_half_weight_gamma() -> sp.Expr:
    """Half-weight gamma W(n delta/a)/(delta log n) for scores delta below the bias and a self score a above it.

    Source: [derived, docs/theory.md (11.5)], heuristic.
    """
    return sp.LambertW(N * BELOW / SELF_SCORE) / (BELOW * sp.log(N))


@cache
def entropy_deficit_limit() -> sp.Expr:
    """Limit (1/rho) log(1/rho) - (1/rho - 1) of n (log n - H) for softplus.

    Source: [derived, docs/theory.md (11.7)].
    """
    return sp.log(1 / RHO) / RHO - (1 / RHO - 1)


@cache
def diagonal_excess() -> sp.Expr:
    """Excess n A_ii - 1 = (n-1)(f - h)/(f + (n-1) h) of the softplus self weight.

    Source: [derived, docs/theory.md (11.2), (12.1)].
    """
    own, other = sp.log(1 + N**GAMMA), sp.log(1 + N ** (GAMMA * RHO))
    return (N - 1) * (own - other) / (own + (N - 1) * other)


@cache
def half_moment() -> sp.Expr:
    """Half moment mu_p = 2^(p/2-1) Gamma((p+1)/2)/sqrt(pi) of a standard normal variable.

    Source: [classical, docs/theory.md (12.6)].
    """
    return 2 ** (P / 2 - 1) * sp.gamma((P + 1) / 2) / sp.sqrt(sp.pi)


@cache
def critical_p_lambert() -> sp.Expr:
    """Critical p = -2 log n/W_(-1)(-2 log n/(e R^2)) of ReLU^p, leading order in log n.

    Source: [derived, docs/theory.md (12.7)], heuristic.
    """
    return -2 * sp.log(N) / sp.LambertW(-2 * sp.log(N) / (sp.E * SNR**2), -1)


@cache
def length_limit() -> sp.Expr:
    """Longest context n = 1 + R^p/mu_p.

    Source: [derived, docs/theory.md (12.13)], heuristic.
    """
    return 1 + SNR**P / half_moment()


@cache
def power_self_weight() -> sp.Expr:
    """Self weight 1/(1 + (n-1) rho^p) of powers of the scores.

    Source: [derived, docs/theory.md (13.1)].
    """
    return 1 / (1 + (N - 1) * RHO**P)


@cache
def power_critical_p() -> sp.Expr:
    """Critical p = log(n-1)/log(1/rho) of powers of the scores.

    Source: [derived, docs/theory.md (13.1)].
    """
    return sp.log(N - 1) / sp.log(1 / RHO)


@cache
def rectified_self_weight() -> sp.Expr:
    """Self weight of ReLU^p(beta s - tau), where every key survives: 1/(1 + (n-1)((beta rho - tau)/(beta - tau))^p).

    Source: [derived, docs/theory.md (13.2)].
    """
    return 1 / (1 + (N - 1) * ((BETA * RHO - TAU) / (BETA - TAU)) ** P)


@cache
def rectified_critical_beta() -> sp.Expr:
    """The beta tau (n'-1)/(rho n' - 1), n' = (n-1)^(1/p), at which that weight is 1/2.

    Source: [derived, docs/theory.md (13.2)].
    """
    root = (N - 1) ** (1 / P)
    return TAU * (root - 1) / (RHO * root - 1)


@cache
def entmax_beta() -> sp.Expr:
    """The beta at which alpha-entmax has self weight x.

    Source: [derived, docs/theory.md (13.3)].
    """
    other = (1 - WEIGHT) / (N - 1)
    return (WEIGHT ** (ALPHA - 1) - other ** (ALPHA - 1)) / ((ALPHA - 1) * THETA)


@cache
def sigmoid_self_weight() -> sp.Expr:
    """Self weight f/(f + (n-1) h), f = 1/(1 + n^(B-gamma)), h = 1/(1 + n^(B - gamma rho)).

    Source: [derived, docs/theory.md (13.4)].
    """
    own, other = 1 / (1 + N ** (BIAS_FACTOR - GAMMA)), 1 / (1 + N ** (BIAS_FACTOR - GAMMA * RHO))
    return own / (own + (N - 1) * other)


@cache
def re_weighted_weights() -> tuple[sp.Expr, sp.Expr]:
    """Self and cross weight of ReLU^p re-weighting of `softplus_self_weight`: 1 and 0, the identity, for rho < 1.

    A_ij = (n a_ij - 1)_+^p/sum_k (n a_ik - 1)_+^p, where n a_ii - 1 is `diagonal_excess` X and n a_ij - 1 = -X/(n-1).
    X has the sign of f - h, and f > h as the softplus increases.

    Source: [derived, docs/theory.md (12.1), (12.2)].
    """
    excess = sp.Symbol("X", positive=True)
    others = sp.Symbol("m", positive=True)
    own, other = (sp.Max(value, 0) ** P for value in (excess, -excess / others))
    total = own + others * other
    return own / total, other / total


@cache
def format_thresholds() -> dict[str, sp.Expr]:
    """Logits at which exp(x) meets the limits of a number format, in nats, in p significant bits and least exponent e.

    Returns:
        normal e ln 2, subnormal (e-p+1) ln 2, zero (e-p) ln 2 and absorption -p ln 2: names as in `formats.Thresholds`.

    Source: [classical, docs/theory.md (14.1)-(14.3), (14.5)].
    """
    exponents = {"normal": LEAST, "subnormal": LEAST - BITS + 1, "zero": LEAST - BITS, "absorption": -BITS}
    return {name: exponent * sp.log(2) for name, exponent in exponents.items()}
