import math
import pathlib
import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critattn.errors import DomainError
from critattn.theory import simplex

T1 = (1.2, 0.3, math.log(8))
RESIDUAL = {"identity_weight": 1.0, "attention_weight": 0.5, "norm": 1.3}
HUGE = 300 * math.log(10)
# d < n has no tokens but a formal value
FORMAL_D = math.log(5)


def close(value, digits):
    """Equal to a printed decimal: half a unit of its last digit, and a dozen roundings of float64."""
    places = len(digits.split(".")[1])
    return abs(value - float(digits)) <= 0.5 * 10.0**-places + 12 * 2.0**-52 * abs(value)


def embedded(n, d, rho):
    """Unit tokens (n, d) with common cosine rho, from the eigenvectors of their Gram matrix."""
    values, vectors = np.linalg.eigh((1 - rho) * np.eye(n) + rho)
    order = np.argsort(values)[::-1][: min(n, d)]
    tokens = np.zeros((n, d))
    tokens[:, : len(order)] = vectors[:, order] * np.sqrt(np.maximum(values[order], 0))
    return tokens


def dense_layer(tokens, beta, *, identity_weight=0.0, attention_weight=1.0):
    """The map itself, by definition."""
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    weights = np.exp(beta * (unit @ unit.T))
    weights /= weights.sum(axis=1, keepdims=True)
    return identity_weight * tokens + attention_weight * weights @ unit, weights


@jax.jit
def jacobian_of_the_definition(tokens, beta, identity_weight, attention_weight):
    def layer(x):
        unit = x / jnp.sqrt((x * x).sum(axis=1, keepdims=True))
        scores = beta * unit @ unit.T
        weights = jnp.exp(scores) / jnp.exp(scores).sum(axis=1, keepdims=True)
        return identity_weight * x + attention_weight * weights @ unit

    return jax.jacfwd(layer)(tokens)


def dense_jacobian(tokens, beta, *, identity_weight=0.0, attention_weight=1.0):
    """The n d x n d Jacobian by automatic differentiation in float64."""
    with jax.enable_x64(True):
        jacobian = jacobian_of_the_definition(np.asarray(tokens), beta, identity_weight, attention_weight)
        return np.asarray(jacobian).reshape(tokens.size, tokens.size)


def cosine(x, y):
    return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


def test_weights_reference():
    assert close(simplex.self_weight(*T1), "0.45036915921147")
    assert close(simplex.cross_weight(*T1), "0.07851869154122")
    assert close(simplex.contrast(*T1), "0.37185046767025")
    assert close(simplex.entropy(*T1), "1.757744849177")
    assert close(simplex.participation_ratio(*T1), "4.065227815837")


def test_forward_reference():
    assert close(simplex.output_norm(*T1) ** 2, "0.47219207181278")
    assert close(simplex.output_norm(*T1) ** 2 * simplex.output_cosine(*T1), "0.37540113259817")
    assert close(simplex.output_cosine(*T1), "0.79501786456723")
    assert close(simplex.angle_ratio(*T1), "0.29283162204681")
    assert close(simplex.output_cosine(*T1, **RESIDUAL), "0.40734262400632")
    assert close(simplex.angle_ratio(*T1, **RESIDUAL), "0.84665339427668")


@pytest.mark.parametrize(
    ("d", "update", "digits"),
    [
        (8, {}, "23.359406525333"),
        (12, {}, "31.231044093917"),
        (5, {}, "17.455678348895"),
        (8, RESIDUAL, "93.098443628456"),
        (12, RESIDUAL, "137.348897128659"),
    ],
)
def test_gradient_reference(d, update, digits):
    assert close(simplex.gradient_norm_squared(*T1, log_d=math.log(d), **update), digits)


def test_formal_gradient_norm_below_n_dimensions():
    assert close(simplex.gradient_norm(*T1, log_d=FORMAL_D), "0.43639195872237")


def test_spectrum_reference():
    levels = simplex.singular_values(*T1, log_d=math.log(12))
    expected = [
        ("1.0", 4),
        ("0.371850467670", 28),
        ("0.646152516372", 20),
        ("0.371850467670", 21),
        ("1.072341888078", 7),
        ("0.624113205998", 7),
        ("0.000000000000", 7),
        ("1.152985658553", 1),
        ("0.000000000000", 1),
    ]
    assert [level.multiplicity for level in levels] == [count for _, count in expected]
    assert all(close(level.value, digits) for level, (digits, _) in zip(levels, expected, strict=True))
    assert close(simplex.operator_norm(*T1, log_d=math.log(8)), "1.152985658553")
    assert close(simplex.operator_norm(*T1, log_d=math.log(12), **RESIDUAL), "1.441340486314")


def test_half_points_reference():
    log_n = math.log(512)
    assert close(simplex.half_weight_gamma(0.5, log_n), "1.999373217986")
    assert close(simplex.half_angle_gamma(0.5, log_n), "2.100947292405")
    assert close(simplex.gradient_norm(2.0, 0.5, log_n, log_d=log_n), "0.260581678533")
    assert close(simplex.angle_ratio(2.0, 0.5, log_n), "0.398906494427")


@pytest.mark.parametrize(("n", "digits"), [(1e3, "0.256092"), (1e5, "0.250116"), (1e7, "0.250002")])
def test_critical_gradient_approaches_a_quarter(n, digits):
    assert close(simplex.gradient_norm(2.0, 0.5, math.log(n), log_d=math.log(n)), digits)


def test_operator_norm_diverges_at_the_critical_point():
    log_n = np.log([1e3, 1e5, 1e7])
    slopes = np.diff(simplex.operator_norm(2.0, 0.5, log_n, log_d=log_n)) / np.diff(log_n)
    assert close(slopes[0], "0.3459")
    assert close(slopes[1], "0.3503")
    far = np.log([1e100, 1e300])
    norms = simplex.operator_norm(2.0, 0.5, far, log_d=far)
    # corrections to the slope fall off as 1/log(n)^2, here 2e-5
    assert np.diff(norms)[0] / np.diff(far)[0] == pytest.approx(simplex.critical_operator_slope(0.5), abs=1e-4)
    assert simplex.critical_operator_slope(0.5) == pytest.approx(math.sqrt(0.5) / 2)


@pytest.mark.parametrize(("rho", "near", "far"), [(0.5, 0.02, 0.002), (0.2, 0.08, 0.01), (0.1, 0.15, 0.02)])
def test_local_slopes_of_the_operator_norm(rho, near, far):
    for sizes, expected in (([1e3, 1e5], near), ([1e10, 1e14], far)):
        log_n = np.log(sizes)
        norms = simplex.operator_norm(simplex.critical_gamma(rho), rho, log_n, log_d=log_n)
        shortfall = 1 - np.diff(norms)[0] / np.diff(log_n)[0] / simplex.critical_operator_slope(rho)
        # expected to one digit
        assert shortfall == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize(("n", "peak"), [(1e4, 2.069), (1e8, 2.0175)])
def test_peak_of_the_operator_norm(n, peak):
    log_n = math.log(n)
    gammas = peak + np.array([-5e-4, 0, 5e-4])
    norms = simplex.operator_norm(gammas, 0.5, log_n, log_d=log_n)
    assert norms.argmax() == 1


def test_operator_norm_does_not_vanish_below_the_threshold():
    assert simplex.operator_norm(1.0, 0.5, 50.0, log_d=51.0, norm=2.0) >= 0.5


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("rho", [-0.1, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("update", [{}, {"identity_weight": 0.7, "attention_weight": 1.3}])
@pytest.mark.parametrize("gamma", [1.4, 0.0, -2.5])
def test_forward_against_the_definition(n, rho, update, gamma):
    norm = 1.7
    tokens = norm * embedded(n, n, rho)
    out, weights = dense_layer(tokens, gamma * math.log(n), **update)
    point = (gamma, rho, math.log(n))
    # a few dozen roundings of numbers of order 1
    tolerance = {"rel": 0, "abs": 5e-14}
    assert simplex.self_weight(*point) == pytest.approx(weights[0, 0], **tolerance)
    assert simplex.cross_weight(*point) == pytest.approx(weights[0, 1], **tolerance)
    assert simplex.contrast(*point) == pytest.approx(weights[0, 0] - weights[0, 1], **tolerance)
    entropy = -(weights[0] * np.log(weights[0])).sum()
    assert simplex.entropy(*point) == pytest.approx(entropy, **tolerance)
    assert simplex.participation_ratio(*point) == pytest.approx(1 / (weights[0] ** 2).sum(), abs=5e-13)
    assert simplex.output_norm(*point, norm=norm, **update) == pytest.approx(np.linalg.norm(out[0]), abs=5e-14)
    cos = cosine(out[0], out[1])
    assert simplex.output_cosine(*point, norm=norm, **update) == pytest.approx(cos, **tolerance)
    ratio = simplex.angle_ratio(*point, norm=norm, **update)
    assert ratio == pytest.approx((1 - cos) / (1 - rho), rel=0, abs=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "rho"),
    [
        (1, 3, 0.2),
        (2, 2, 0.3),
        (2, 4, -1.0),
        (3, 2, -0.5),
        (4, 4, 0.3),
        (5, 6, 0.8),
        (5, 4, -0.25),
        (5, 7, -0.25),
        (7, 8, -0.1),
    ],
)
@pytest.mark.parametrize("update", [{}, {"identity_weight": 0.7, "attention_weight": 1.3}])
@pytest.mark.parametrize("gamma", [0.6, 1.8])
def test_spectrum_against_dense_jacobian(n, d, rho, update, gamma):
    norm = 1.3
    beta = gamma * math.log(n)
    dense = np.linalg.svd(dense_jacobian(norm * embedded(n, d, rho), beta, **update), compute_uv=False)
    point = (gamma, rho, math.log(n))
    levels = simplex.singular_values(*point, log_d=math.log(d), norm=norm, **update)
    listed = np.concatenate([np.full(int(level.multiplicity), level.value) for level in levels])
    # round-off of an SVD of a matrix of norm below 5 and condition below 10
    np.testing.assert_allclose(np.sort(listed)[::-1], dense, rtol=0, atol=2e-13)
    square = simplex.gradient_norm_squared(*point, log_d=math.log(d), norm=norm, **update)
    assert square == pytest.approx((dense**2).sum(), rel=1e-13)
    top = simplex.operator_norm(*point, log_d=math.log(d), norm=norm, **update)
    assert top == pytest.approx(dense[0], rel=1e-13)


@given(
    n=st.integers(4, 10**6),
    extra=st.integers(0, 1000),
    rho=st.floats(0, 0.99),
    gamma=st.floats(0, 5),
    a=st.floats(0, 2),
    b=st.floats(0.1, 2),
)
@settings(max_examples=60, deadline=None)
def test_spectrum_sums_to_gradient_norm(n, extra, rho, gamma, a, b):
    update = {"identity_weight": a, "attention_weight": b}
    point, log_d = (gamma, rho, math.log(n)), math.log(n + extra)
    levels = simplex.singular_values(*point, log_d=log_d, **update)
    assert sum(level.multiplicity for level in levels) == pytest.approx(n * (n + extra), rel=1e-14)
    # sizes n and d pass through their logarithms: relative errors of 1e-15 log n each; the 3 x 3 blocks lose
    # a factor 1/(1-rho), but weigh 1/n of the sum at most times beta^2
    square = math.fsum(level.multiplicity * level.value**2 for level in levels)
    assert square == pytest.approx(simplex.gradient_norm_squared(*point, log_d=log_d, **update), rel=1e-11)


def test_spectrum_in_logarithms_at_ten_to_the_300():
    point, log_d = (2.01, 0.4, HUGE), HUGE + math.log(10)
    levels = simplex.singular_values(*point, log_d=log_d, **RESIDUAL)
    parts = [level.log_multiplicity + 2 * math.log(level.value) for level in levels]
    total = np.logaddexp.reduce(parts)
    # absolute error of a logarithm of size 1384 is 2e-13 a term
    expected = simplex.log_gradient_norm_squared(*point, log_d=log_d, **RESIDUAL)
    assert total == pytest.approx(expected, rel=0, abs=2e-12)
    assert np.logaddexp.reduce([level.log_multiplicity for level in levels]) == pytest.approx(HUGE + log_d)
    assert [level.multiplicity for level in levels if level.log_multiplicity == 0] == [1, 1]
    assert all(level.multiplicity is None for level in levels if level.log_multiplicity > 0)


@pytest.mark.parametrize("gamma", [0.5, 1.42, 1.4285714285714286, 1.43, 3.0])
def test_weights_against_mpmath_at_ten_to_the_300(gamma):
    rho = 0.3
    with mpmath.workdps(700):
        # the exact numbers that the function receives: floats gamma, rho and log n
        n = mpmath.exp(mpmath.mpf(HUGE))
        t = mpmath.exp(-mpmath.mpf(gamma) * mpmath.mpf(HUGE) * mpmath.mpf(1 - rho))
        own = 1 / (1 + (n - 1) * t)
        cross = t * own
        entropy = -own * mpmath.log(own) - (n - 1) * cross * mpmath.log(cross)
        own, cross, entropy = float(own), float(cross), float(entropy)
    # the exponent, about 690, is rounded to 1e-13, and that is the relative error of the weights
    assert simplex.self_weight(gamma, rho, HUGE) == pytest.approx(own, rel=1e-12)
    assert simplex.cross_weight(gamma, rho, HUGE) == pytest.approx(cross, rel=1e-12)
    assert simplex.entropy(gamma, rho, HUGE) == pytest.approx(entropy, rel=1e-12)


@pytest.mark.parametrize("gamma", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("update", [{}, RESIDUAL])
def test_limits_are_reached_at_ten_to_the_300(gamma, update):
    point = (gamma, 0.5, HUGE)
    assert simplex.self_weight(*point) == pytest.approx(simplex.self_weight_limit(gamma, 0.5), abs=1e-12)
    assert simplex.angle_ratio(*point, **update) == pytest.approx(
        simplex.angle_ratio_limit(gamma, 0.5, **update), abs=1e-12
    )
    assert simplex.output_cosine(*point, **update) == pytest.approx(
        simplex.output_cosine_limit(gamma, 0.5, **update), abs=1e-12
    )
    eta = simplex.gradient_norm(*point, log_d=HUGE + math.log(10), **update)
    assert eta == pytest.approx(simplex.gradient_norm_limit(gamma, 0.5, **update), abs=1e-12)
    # the binary entropy of 1/2 adds log 2 at the critical point
    extra = math.log(2) / HUGE if gamma == 2 else 0
    fraction = simplex.entropy(*point) / HUGE
    assert fraction == pytest.approx(simplex.entropy_fraction_limit(gamma, 0.5) + extra, abs=1e-12)


def test_published_limits():
    rho = np.array([0.2, 0.5, 0.8])
    critical = simplex.critical_gamma(rho)
    np.testing.assert_allclose(simplex.output_cosine_limit(0.9 * critical, rho), 1, rtol=1e-15)
    np.testing.assert_allclose(simplex.output_cosine_limit(critical, rho), 4 * rho / (1 + 3 * rho), rtol=1e-15)
    np.testing.assert_allclose(simplex.output_cosine_limit(1.1 * critical, rho), rho, rtol=1e-15)
    for step, factor in ((0.9, 0), (1.0, 0.25), (1.1, 1)):
        eta = simplex.gradient_norm_limit(step * critical, rho, log_d=math.log(4), norm=2.0)
        np.testing.assert_allclose(eta, factor / 4 * 0.75)


def test_gradient_limit_with_residual():
    a, b, r = 0.7, 1.3, 1.6
    for gamma, own in ((1.0, 0), (2.0, 0.5), (4.0, 1)):
        eta = simplex.gradient_norm_limit(gamma, 0.5, identity_weight=a, attention_weight=b, norm=r)
        assert eta == pytest.approx((a + b * own / r) ** 2)


@pytest.mark.parametrize("gamma", [0.3, 0.5, 0.7])
def test_angles_of_orthogonal_tokens_turn_at_one_half(gamma):
    ratio = simplex.angle_ratio(gamma, 0.0, HUGE)
    assert ratio == pytest.approx(simplex.angle_ratio_limit(gamma, 0.0), abs=1e-12)
    assert simplex.half_angle_gamma(0.0, HUGE) == pytest.approx(0.5, abs=1e-12)
    assert simplex.angle_ratio_limit(gamma, 0.0, **RESIDUAL) == 1


@pytest.mark.parametrize("c", [-3.0, 0.0, 2.0])
def test_critical_window(c):
    # the correction is O(log(n)^2/n), 2e-9 here
    rho, log_n = 0.4, math.log(1e12)
    gamma = simplex.critical_gamma(rho) + c / log_n
    own = simplex.critical_window_self_weight(c, rho)
    assert simplex.self_weight(gamma, rho, log_n) == pytest.approx(own, abs=1e-9)
    cos = simplex.output_cosine(gamma, rho, log_n)
    assert cos == pytest.approx(simplex.critical_window_output_cosine(c, rho), abs=1e-9)
    eta = simplex.gradient_norm(gamma, rho, log_n, log_d=log_n, norm=1.5)
    assert eta == pytest.approx(simplex.critical_window_gradient_norm(c, rho, norm=1.5), abs=1e-8)
    assert own == pytest.approx(1 / (1 + math.exp(-0.6 * c)))


def test_transition_width_is_the_distance_between_10_and_90_percent():
    rho, log_n = 0.5, math.log(65536)
    width = simplex.transition_width(rho, log_n)
    middle = simplex.half_weight_gamma(rho, log_n)
    assert simplex.self_weight(middle - width / 2, rho, log_n) == pytest.approx(0.1, abs=1e-13)
    assert simplex.self_weight(middle + width / 2, rho, log_n) == pytest.approx(0.9, abs=1e-13)
    assert close(width, "0.79")


@given(rho=st.floats(0, 0.99), log_n=st.floats(0.7, 700), a=st.floats(0, 0.5), norm=st.floats(0.5, 2))
@settings(max_examples=100, deadline=None)
def test_half_points_are_roots(rho, log_n, a, norm):
    assert simplex.self_weight(simplex.half_weight_gamma(rho, log_n), rho, log_n) == pytest.approx(0.5)
    residual = simplex.half_angle_residual(rho, log_n, identity_weight=a, norm=norm)
    root = simplex.half_angle_gamma(rho, log_n, identity_weight=a, norm=norm)
    assert math.isnan(root) == math.isnan(residual)
    # delta near 0 comes from beta theta of size root; an error of 1e-16 there divided by delta
    assert math.isnan(root) or (root >= 0 and abs(residual) < 1e-9)


@given(rho=st.floats(0.01, 0.99), n=st.integers(2, 1000), a=st.floats(0, 3))
@settings(max_examples=100, deadline=None)
def test_half_angle_gamma_is_nan_exactly_where_the_ratio_stays_above(rho, n, a):
    start = simplex.angle_ratio(0.0, rho, math.log(n), identity_weight=a)
    root = simplex.half_angle_gamma(rho, math.log(n), identity_weight=a)
    # the ratio rises from its value at gamma = 0 to nearly 1
    if abs(start - 0.5) > 1e-9:
        assert math.isnan(root) == (start > 0.5)


def test_half_angle_gamma_without_a_common_direction():
    assert math.isnan(simplex.half_angle_gamma(-1 / 7, math.log(8)))
    assert simplex.angle_ratio(1.0, -1 / 7, math.log(8)) == pytest.approx(1)


@given(
    gamma=st.floats(-5, 20),
    rho=st.one_of(st.just(0.0), st.floats(1e-200, 0.999)),
    log_n=st.floats(0.7, 1e4),
    extra=st.floats(0, 100),
)
@settings(max_examples=200, deadline=None)
def test_everything_is_finite_and_in_range(gamma, rho, log_n, extra):
    point = (gamma, rho, log_n)
    assert 0 <= simplex.self_weight(*point) <= 1
    assert 0 <= simplex.cross_weight(*point) <= 1
    assert -1e-12 <= simplex.entropy(*point) <= log_n * (1 + 1e-12) + 1e-12
    assert simplex.participation_ratio(*point) >= 1 - 1e-12
    assert 0 <= simplex.gradient_norm(*point, log_d=log_n + extra) < math.inf
    if gamma > 0 and (rho > 0 or log_n <= 700):
        assert 0 <= simplex.angle_ratio(*point) <= 1 + 1e-12
        assert rho - 1e-12 <= simplex.output_cosine(*point) <= 1


def test_broadcasting():
    gamma, rho = np.linspace(0, 3, 4)[:, None], np.array([0.1, 0.5])
    log_n = math.log(100)
    for function in (simplex.self_weight, simplex.entropy, simplex.angle_ratio, simplex.output_norm):
        table = function(gamma, rho, log_n)
        assert table.shape == (4, 2)
        assert table[2, 1] == function(2.0, 0.5, log_n)
        assert isinstance(function(2.0, 0.5, log_n), float)
    eta = simplex.gradient_norm(gamma, rho, log_n, log_d=log_n, identity_weight=np.array([0.0, 1.0]))
    assert eta[2, 1] == simplex.gradient_norm(2.0, 0.5, log_n, log_d=log_n, identity_weight=1.0)
    assert simplex.operator_norm(gamma, rho, log_n, log_d=log_n).shape == (4, 2)


def test_one_token():
    assert simplex.self_weight(1.0, 0.3, 0.0) == 1
    assert simplex.entropy(1.0, 0.3, 0.0) == 0
    assert simplex.output_norm(1.0, 0.3, 0.0, **RESIDUAL) == pytest.approx(1.8)
    undefined = [
        simplex.cross_weight(1.0, 0.3, 0.0),
        simplex.angle_ratio(1.0, 0.3, 0.0),
        simplex.output_cosine(1.0, 0.3, 0.0),
        simplex.half_weight_gamma(0.3, 0.0),
        simplex.half_angle_gamma(0.3, 0.0),
        simplex.transition_width(0.3, 0.0),
    ]
    assert np.isnan(undefined).all()


@pytest.mark.parametrize(
    ("rho", "log_n"),
    [(1.0, 2.0), (1.5, 2.0), (-0.2, math.log(8)), (math.nan, 2.0), (0.3, -1.0), (0.3, math.inf)],
)
def test_outside_the_domain(rho, log_n):
    for function in (simplex.self_weight, simplex.angle_ratio, simplex.entropy):
        with pytest.raises(DomainError, match="must be"):
            function(1.0, rho, log_n)
    with pytest.raises(DomainError, match="must be"):
        simplex.half_weight_gamma(np.array([0.1, rho]), log_n)


def test_other_refusals():
    with pytest.raises(DomainError, match="gamma"):
        simplex.self_weight(math.inf, 0.3, 2.0)
    with pytest.raises(DomainError, match="norm"):
        simplex.angle_ratio(1.0, 0.3, 2.0, norm=0.0)
    with pytest.raises(DomainError, match="log_d"):
        simplex.singular_values(1.0, 0.3, math.log(8), log_d=math.log(7))
    with pytest.raises(DomainError, match="log_d"):
        simplex.singular_values(1.0, -1 / 7, math.log(8), log_d=math.log(6))
    with pytest.raises(DomainError, match="whole"):
        simplex.singular_values(1.0, 0.3, math.log(2.5), log_d=math.log(4))
    with pytest.raises(DomainError, match="at most 700"):
        simplex.angle_ratio(0.6, 0.0, 1000.0)
    with pytest.raises(DomainError, match="at most 700"):
        simplex.half_angle_gamma(0.0, 1000.0)
    with pytest.raises(DomainError, match="rho"):
        simplex.self_weight_limit(1.0, -0.1)
    with pytest.raises(DomainError, match="rho"):
        simplex.critical_gamma(1.0)


def test_every_cited_equation_is_in_the_docs():
    root = pathlib.Path(__file__).parent.parent
    text = (root / "docs" / "theory.md").read_text()
    names = ("simplex*", "depth", "random_energy", "mixed")
    sources = [file.read_text() for name in names for file in (root / "critattn" / "theory").glob(f"{name}.py")]
    cited = set(re.findall(r"\((\d\.\d+)\)", " ".join(sources)))
    assert len(cited) > 25
    # (1.9)-(1.11) is one entry
    assert {number for number in cited if f"({number})" not in text} == set()
