"""Attention on a simplex of tokens as SymPy expressions: weights, angles, gradient norm, phases as limits.

The symbols are module constants; all are positive, which every formula here that is meant as n goes to
infinity needs. Equation numbers refer to docs/theory.md. `sympy.lambdify` makes functions of the expressions.
"""

from functools import cache

import sympy as sp

from critattn.errors import DomainError

N = sp.Symbol("n", positive=True)
D = sp.Symbol("d", positive=True)
RHO = sp.Symbol("rho", positive=True)
GAMMA = sp.Symbol("gamma", positive=True)
IDENTITY_WEIGHT = sp.Symbol("a", nonnegative=True)
ATTENTION_WEIGHT = sp.Symbol("b", positive=True)
NORM = sp.Symbol("r", positive=True)
WINDOW = sp.Symbol("c", real=True)
THETA = 1 - RHO


@cache
def self_weight() -> sp.Expr:
    """Self weight 1/(1 + (n-1) n^(-gamma (1-rho))) in n, gamma, rho.

    Source: [derived, docs/theory.md (1.1)].
    """
    return 1 / (1 + (1 - 1 / N) * N ** (1 - GAMMA * THETA))


@cache
def cross_weight() -> sp.Expr:
    """Cross weight n^(-gamma (1-rho)) A_ii in n, gamma, rho.

    Source: [derived, docs/theory.md (1.1)].
    """
    return N ** (-GAMMA * THETA) * self_weight()


@cache
def contrast() -> sp.Expr:
    """Contrast delta = A_ii - A_ij in n, gamma, rho.

    Source: [derived, docs/theory.md (1.2)].
    """
    return (1 - N ** (-GAMMA * THETA)) * self_weight()


@cache
def mean_square() -> sp.Expr:
    """Squared length mu = rho + (1-rho)/n of the mean token.

    Source: [derived, docs/theory.md (1.0)].
    """
    return RHO + THETA / N


@cache
def entropy() -> sp.Expr:
    """Entropy -A_ii log A_ii - (1-A_ii) log A_ij of a row, in nats.

    Source: [derived, docs/theory.md (1.13)].
    """
    own, cross = self_weight(), cross_weight()
    return -own * sp.log(own) - (N - 1) * cross * sp.log(cross)


@cache
def participation_ratio() -> sp.Expr:
    """Participation ratio 1/(A_ii^2 + (n-1) A_ij^2).

    Source: [derived, docs/theory.md (1.13)].
    """
    return 1 / _power_sum(2)


@cache
def output_norm_squared(*, residual: bool = True) -> sp.Expr:
    """Squared norm mu kappa^2 + (1-mu) e^2 of an output token.

    Args:
        residual: in a, b and r; without it at a = 0, b = 1, where r drops out.

    Source: [derived, docs/theory.md (1.4)].
    """
    e, kappa = _scales(residual)
    return mean_square() * kappa**2 + (1 - mean_square()) * e**2


@cache
def output_gram(*, residual: bool = True) -> tuple[sp.Expr, sp.Expr]:
    """Output Gram matrix: |x'_i|^2 and <x'_i, x'_j> = |x'_i|^2 - (1-rho) e^2 for i != j.

    Args:
        residual: in a, b and r; without it at a = 0, b = 1, where r drops out.

    Source: [derived, docs/theory.md (1.3), (1.4)].
    """
    square = output_norm_squared(residual=residual)
    return square, square - THETA * _scales(residual)[0] ** 2


@cache
def angle_ratio(*, residual: bool = True) -> sp.Expr:
    """Angle ratio lambda = e^2/(mu kappa^2 + (1-mu) e^2).

    Args:
        residual: in a, b and r; without it at a = 0, b = 1, where r drops out.

    Source: [derived, docs/theory.md (1.5)].
    """
    return _scales(residual)[0] ** 2 / output_norm_squared(residual=residual)


@cache
def output_cosine(*, residual: bool = True) -> sp.Expr:
    """Output cosine 1 - (1-rho) lambda.

    Args:
        residual: in a, b and r; without it at a = 0, b = 1, where r drops out.

    Source: [Chen 2025, proof of Thm 2.1; derived, docs/theory.md (1.5)].
    """
    return 1 - THETA * angle_ratio(residual=residual)


@cache
def gradient_norm(*, residual: bool = True) -> sp.Expr:
    """Mean square eta = ||grad_X X'||_F^2/(n d) of the Jacobian.

    Args:
        residual: in a, b and r; without it at a = 0, b = 1 and r = 1.

    Source: [derived, docs/theory.md (2.1)].
    """
    s, w, beta, mu = self_weight(), cross_weight(), GAMMA * sp.log(N), mean_square()
    s2, s3 = _power_sum(2), _power_sum(3)
    trace = THETA * (1 - s2) - THETA**2 * s * (1 - s)
    query = THETA**2 * (s2 - 2 * s3 + s2**2) - THETA**3 * s**2 * (1 - 2 * s + s2)
    alignment = contrast() * (1 - RHO**2) + (1 - contrast()) * mu * THETA
    key = beta**2 * THETA * (1 - RHO**2) * (1 - 2 * w + s2) - 2 * beta * alignment
    total = (D - 1) * s2 + 2 * beta * s * trace + beta**2 * query + (N - 1) * w**2 * key
    if not residual:
        return total / D
    a, b = IDENTITY_WEIGHT, ATTENTION_WEIGHT / NORM
    return (b**2 * total + a**2 * D + 2 * a * b * (s * (D - 1) + beta * trace)) / D


@cache
def singular_blocks(*, residual: bool = True) -> dict[str, tuple[sp.Matrix, sp.Expr]]:
    """Singular values of the n d x n d Jacobian: by block a matrix that has them and how often each occurs.

    Args:
        residual: in a, b and r; without it at a = 0, b = 1 and r = 1.

    Returns:
        Matrices, 1 x 1 for `common`, `zero_sum`, `symmetric` and `antisymmetric`, 3 x 3 for `standard`, 2 x 2 for
        `trivial`, and multiplicities that sum with these sizes to n d. For n >= 4, d >= n and rho > -1/(n-1).

    Source: [derived, docs/theory.md (2.4)].
    """
    kept, factor = (IDENTITY_WEIGHT, ATTENTION_WEIGHT / NORM) if residual else (sp.Integer(0), sp.Integer(1))
    lifted = contrast() + 2 * GAMMA * sp.log(N) * cross_weight() * THETA
    alone = {"common": sp.Integer(1), "zero_sum": contrast(), "symmetric": lifted, "antisymmetric": contrast()}
    parts = {name: sp.Matrix([[value]]) for name, value in alone.items()}
    parts |= {"standard": _standard_block(), "trivial": _trivial_block()}
    counts = {
        "common": D - N,
        "zero_sum": (D - N) * (N - 1),
        "symmetric": N * (N - 3) / 2,
        "antisymmetric": (N - 1) * (N - 2) / 2,
        "standard": N - 1,
        "trivial": sp.Integer(1),
    }
    return {name: (kept * sp.eye(part.rows) + factor * part, counts[name]) for name, part in parts.items()}


def critical_gamma() -> sp.Expr:
    """Critical coefficient 1/(1-rho) of log n.

    Source: [Chen 2025, Thm 2.1].
    """
    return 1 / THETA


def half_weight_gamma() -> sp.Expr:
    """The gamma log(n-1)/((1-rho) log n) at which the self weight is 1/2.

    Source: [derived, docs/theory.md (1.7)].
    """
    return sp.log(N - 1) / (THETA * sp.log(N))


def half_angle_gamma() -> sp.Expr:
    """The gamma at which the angle ratio is 1/2, without residual.

    Source: [derived, docs/theory.md (1.8)].
    """
    delta = sp.sqrt(mean_square() / (1 + mean_square()))
    return -sp.log((1 - delta) / (1 + (N - 1) * delta)) / (THETA * sp.log(N))


def phase_limit(expression: sp.Expr, reduced_gamma: sp.Rational) -> sp.Expr:
    """Limit of an expression as n goes to infinity at a fixed fraction of the critical gamma, by SymPy.

    A number it must be: with symbolic exponents SymPy 1.14 gets some of these limits wrong.

    Args:
        expression: in `N`, `GAMMA`, `RHO` and the symbols of the update.
        reduced_gamma: gamma (1-rho), a positive rational: below, at or above 1.

    Returns:
        The limit, simplified.

    Raises:
        DomainError: for anything but a positive rational.

    Source: [Chen 2025, Thm 2.1; derived, docs/theory.md (1.6), (1.9)-(1.11)].
    """
    fraction = sp.sympify(reduced_gamma)
    if not (fraction.is_Rational and fraction.is_positive):
        raise DomainError.of("reduced_gamma", reduced_gamma, "a positive rational")
    return _limit(expression, fraction / THETA)


def window_limit(expression: sp.Expr) -> sp.Expr:
    """Limit of an expression as n goes to infinity at gamma = 1/(1-rho) + c/log n, by SymPy.

    Args:
        expression: as for `phase_limit`.

    Returns:
        The limit, in `WINDOW` and the symbols of the expression.

    Source: [derived, docs/theory.md (1.12)].
    """
    decay = sp.exp(-WINDOW * THETA)
    powers = [(N ** (1 - GAMMA * THETA), decay), (N ** (-GAMMA * THETA), decay / N)]
    return sp.simplify(sp.limit(expression.subs(powers).subs(GAMMA, 1 / THETA + WINDOW / sp.log(N)), N, sp.oo))


def _limit(expression: sp.Expr, gamma: sp.Expr) -> sp.Expr:
    powers = [(power, N ** sp.simplify(power.exp.subs(GAMMA, gamma))) for power in _powers_of_n(expression)]
    return sp.simplify(sp.limit(expression.subs(powers).subs(GAMMA, gamma), N, sp.oo))


def _powers_of_n(expression: sp.Expr) -> list[sp.Pow]:
    return [power for power in expression.atoms(sp.Pow) if power.base == N and power.exp.has(GAMMA)]


def _power_sum(k: int) -> sp.Expr:
    return self_weight() ** k + (N - 1) * cross_weight() ** k


def _scales(residual: bool) -> tuple[sp.Expr, sp.Expr]:
    if not residual:
        return contrast(), sp.Integer(1)
    kept = IDENTITY_WEIGHT * NORM
    return kept + ATTENTION_WEIGHT * contrast(), kept + ATTENTION_WEIGHT


def _standard_block() -> sp.Matrix:
    """The block of c_i y_i, c_i S and sum_j c_j y_j in an orthonormal frame, at a = 0, b = r = 1."""
    s, w, delta, beta = self_weight(), cross_weight(), contrast(), GAMMA * sp.log(N)
    root, tau = sp.sqrt(mean_square()), sp.sqrt(THETA / N)
    sums, weighted = sp.Matrix([1, 0, 0]), sp.Matrix([0, 1, 0])
    y = sp.Matrix([root, tau, sp.sqrt(THETA * (1 - 2 / N))])
    mean = delta * y + N * w * root * sums
    toward_sums = N * w * root * sums - w * y - (1 - s) * mean
    toward_weighted = N * w * tau * weighted - w * y + w * mean
    spread = delta * y + N * w * tau * weighted
    first = delta * sums - root * spread + beta * root * THETA * (toward_weighted - s * (y - mean))
    second = weighted - tau * spread - beta * THETA * tau * s * (y - mean)
    second += beta * tau * (toward_sums - RHO * toward_weighted + spread - delta * mean)
    return sp.Matrix.hstack(first, second, -(root * first + tau * second) / y[2])


def _trivial_block() -> sp.Matrix:
    """The block of y_i and S, each the same for every token, in an orthonormal frame, at a = 0, b = r = 1."""
    s, w, beta, root = self_weight(), cross_weight(), GAMMA * sp.log(N), sp.sqrt(mean_square())
    sums = sp.Matrix([1, 0])
    y = sp.Matrix([root, sp.sqrt(THETA * (1 - 1 / N))])
    mean = contrast() * y + N * w * root * sums
    moved = N * w * root * sums - w * y - (1 - s) * mean - s * (y - mean)
    image = sums - root * mean + beta * root * THETA * moved
    return sp.Matrix.hstack(image, -root * image / y[1])
