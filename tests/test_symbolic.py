import math

import numpy as np
import pytest
import sympy as sp

from critattn import formats
from critattn import symbolic as sym
from critattn import symbolic_family as family
from critattn.errors import DomainError
from critattn.theory import relu_power_exact, simplex

POINTS = [(8, 1.2, 0.3), (512, 2.0, 0.5), (100000, 1.1, 0.05), (3, 4.0, 0.8)]
UPDATE = {"identity_weight": 0.7, "attention_weight": 1.3, "norm": 1.6}
UPDATE_SYMBOLS = (sym.IDENTITY_WEIGHT, sym.ATTENTION_WEIGHT, sym.NORM)


def evaluate(expression, point, *, d=1):
    arguments = (sym.N, sym.GAMMA, sym.RHO, sym.D, *UPDATE_SYMBOLS)
    return sp.lambdify(arguments, expression)(*point, d, *UPDATE.values())


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ["self_weight", "cross_weight", "contrast", "entropy", "participation_ratio"])
def test_weights_equal_the_numerical_theory(name, point):
    n, gamma, rho = point
    expected = getattr(simplex, name)(gamma, rho, math.log(n))
    assert evaluate(getattr(sym, name)(), point) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("residual", [True, False])
def test_angles_and_gradients_equal_the_numerical_theory(point, residual):
    n, gamma, rho = point
    update = UPDATE if residual else {}
    at = (gamma, rho, math.log(n))
    for name in ("angle_ratio", "output_cosine"):
        found = evaluate(getattr(sym, name)(residual=residual), point)
        assert found == pytest.approx(getattr(simplex, name)(*at, **update), rel=1e-12)
    square = evaluate(sym.output_norm_squared(residual=residual), point)
    assert square == pytest.approx(simplex.output_norm(*at, **update) ** 2, rel=1e-12)
    eta = evaluate(sym.gradient_norm(residual=residual), point, d=n + 3)
    # the symbolic form cancels near A_ii = 1, by a factor beta^2
    assert eta == pytest.approx(simplex.gradient_norm(*at, log_d=math.log(n + 3), **update), rel=1e-10)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("residual", [True, False])
def test_output_gram_matrix_equals_that_of_the_outputs(point, residual):
    n, gamma, rho = point
    n = min(n, 60)
    a, b, r = UPDATE.values() if residual else (0.0, 1.0, 1.0)
    cosines = (1 - rho) * np.eye(n) + rho
    weights = np.exp(gamma * math.log(n) * (cosines - 1))
    layer = a * r * np.eye(n) + b * weights / weights.sum(axis=1, keepdims=True)
    outputs = layer @ cosines @ layer.T
    found = [evaluate(entry, (n, gamma, rho)) for entry in sym.output_gram(residual=residual)]
    # sums of n products of numbers up to 1, and the exponent's rounding
    assert found == pytest.approx([outputs[0, 0], outputs[0, 1]], rel=1e-12)
    square = simplex.output_norm(gamma, rho, math.log(n), **(UPDATE if residual else {})) ** 2
    cosine = simplex.output_cosine(gamma, rho, math.log(n), **(UPDATE if residual else {}))
    assert found == pytest.approx([square, square * cosine], rel=1e-12)


@pytest.mark.parametrize("point", [(8, 1.2, 0.3), (512, 2.0, 0.5), (4, 0.7, 0.8)])
@pytest.mark.parametrize("residual", [True, False])
def test_singular_values_and_multiplicities_equal_the_numerical_theory(point, residual):
    n, gamma, rho = point
    levels = simplex.singular_values(gamma, rho, math.log(n), log_d=math.log(n + 3), **(UPDATE if residual else {}))
    found = []
    for matrix, multiplicity in sym.singular_blocks(residual=residual).values():
        values = np.linalg.svd(np.array(evaluate(matrix, point, d=n + 3), dtype=float), compute_uv=False)
        found += [(value, evaluate(multiplicity, point, d=n + 3)) for value in values]
    assert [count for _, count in found] == [level.multiplicity for level in levels]
    assert sum(count for _, count in found) == n * (n + 3)
    # a singular value is as exact as the largest entry of its block
    largest = max(level.value for level in levels)
    assert [value for value, _ in found] == pytest.approx([level.value for level in levels], abs=1e-12 * largest)


def test_multiplicities_sum_to_the_number_of_coordinates():
    total = sum(matrix.rows * count for matrix, count in sym.singular_blocks().values())
    assert sp.expand(total - sym.N * sym.D) == 0


def test_re_weighted_weights_are_the_identity():
    own, other = family.re_weighted_weights()
    assert (own, other) == (1, 0)
    for n, gamma, rho in POINTS:
        assert float(own) == relu_power_exact.simplex_self_weight(2.5, rho, math.log(n))
        # from the definition, rows of softplus weights
        cosines = (1 - rho) * np.eye(min(n, 60)) + rho
        shares = np.log1p(np.exp(gamma * math.log(n) * cosines))
        shares /= shares.sum(axis=1, keepdims=True)
        kept = np.maximum(len(shares) * shares - 1, 0) ** 2.5
        np.testing.assert_array_equal(kept / kept.sum(axis=1, keepdims=True), np.eye(len(shares)))


def test_the_excess_of_every_other_key_is_opposite():
    f, h, n = sp.symbols("f h n", positive=True)
    own, other = (n * value / (f + (n - 1) * h) - 1 for value in (f, h))
    assert sp.simplify(other + own / (n - 1)) == 0


@pytest.mark.parametrize("name", formats.names())
def test_format_thresholds_equal_those_of_the_formats(name):
    one = formats.get(name)
    expected = one.thresholds()
    for kind, expression in family.format_thresholds().items():
        found = sp.lambdify((family.BITS, family.LEAST), expression)(one.significand_bits, one.least_exponent)
        assert found == pytest.approx(getattr(expected, kind), rel=1e-12)


def test_half_points():
    for n, _, rho in POINTS[:3]:
        found = evaluate(sym.half_weight_gamma(), (n, 1.0, rho))
        assert found == pytest.approx(simplex.half_weight_gamma(rho, math.log(n)), rel=1e-13)
        found = evaluate(sym.half_angle_gamma(), (n, 1.0, rho))
        assert found == pytest.approx(simplex.half_angle_gamma(rho, math.log(n)), rel=1e-11)


def test_half_weight_is_an_identity():
    at_root = sym.self_weight().subs(sym.N ** (1 - sym.GAMMA * sym.THETA), sym.N / (sym.N - 1))
    assert sp.simplify(at_root) == sp.Rational(1, 2)
    exponent = (1 - sym.half_weight_gamma() * sym.THETA) * sp.log(sym.N)
    assert sp.simplify(exponent - sp.log(sym.N) + sp.log(sym.N - 1)) == 0


def test_rows_sum_to_one_and_outputs_follow_from_the_gram_matrix():
    s, w, n, rho = sp.symbols("s w n rho")
    total = sym.self_weight() + (sym.N - 1) * sym.cross_weight()
    assert sp.simplify(total) == 1
    # <x'_i, x'_k> from the definition, with A_ii = s and A_ij = w = (1-s)/(n-1)
    a, b, r = sp.symbols("a b r")
    own, other = a * r + b * s, b * w
    norm = own**2 + (n - 1) * other**2 + rho * ((own + (n - 1) * other) ** 2 - own**2 - (n - 1) * other**2)
    inner = 2 * own * other + (n - 2) * other**2
    inner += rho * ((own + (n - 1) * other) ** 2 - inner)
    delta, mu = s - w, rho + (1 - rho) / n
    e, kappa = a * r + b * delta, a * r + b
    ratio = e**2 / (mu * kappa**2 + (1 - mu) * e**2)
    difference = inner / norm - (1 - (1 - rho) * ratio)
    assert sp.simplify(difference.subs(w, (1 - s) / (n - 1))) == 0


PHASES = [(sp.Rational(1, 3), 0), (sp.Rational(9, 10), 0), (1, sp.Rational(1, 2)), (sp.Rational(5, 4), 1)]


@pytest.mark.parametrize(("reduced_gamma", "weight"), PHASES)
def test_phases_are_limits(reduced_gamma, weight):
    def limit(expression):
        return sym.phase_limit(expression, reduced_gamma)

    ratio = weight**2 / (sym.RHO + sym.THETA * weight**2)
    assert limit(sym.self_weight()) == weight
    assert sp.simplify(limit(sym.angle_ratio(residual=False)) - ratio) == 0
    assert sp.simplify(limit(sym.output_cosine(residual=False)) - (1 - sym.THETA * ratio)) == 0
    # what is left of the mean square gradient for d >= n, see (2.2)
    assert limit(1 / sym.participation_ratio()) == weight**2


@pytest.mark.parametrize(("reduced_gamma", "weight"), PHASES)
def test_phases_with_residual_are_limits(reduced_gamma, weight):
    # a positive: at a = 0 the limit below the threshold is another
    a = sp.Symbol("a", positive=True)
    e, kappa = a * sym.NORM + sym.ATTENTION_WEIGHT * weight, a * sym.NORM + sym.ATTENTION_WEIGHT
    expected = e**2 / (sym.RHO * kappa**2 + sym.THETA * e**2)
    found = sym.phase_limit(sym.angle_ratio().subs(sym.IDENTITY_WEIGHT, a), reduced_gamma)
    assert sp.simplify(found - expected) == 0


def test_critical_window_is_a_limit():
    logistic = 1 / (1 + sp.exp(-sym.WINDOW * sym.THETA))
    assert sp.simplify(sym.window_limit(sym.self_weight()) - logistic) == 0
    expected = 1 - sym.THETA * logistic**2 / (sym.RHO + sym.THETA * logistic**2)
    assert sp.simplify(sym.window_limit(sym.output_cosine(residual=False)) - expected) == 0


@pytest.mark.parametrize("wrong", [0, -1, 0.5, sp.Symbol("x", positive=True)])
def test_limits_need_a_rational(wrong):
    with pytest.raises(DomainError, match="reduced_gamma"):
        sym.phase_limit(sym.self_weight(), wrong)
