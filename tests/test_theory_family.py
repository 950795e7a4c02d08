"""The family of normalisers on the simplex against dense rows, and its SymPy form."""

import math

import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from critattn import symbolic_family as sym
from critattn.errors import DomainError
from critattn.symbolic import GAMMA, RHO, N
from critattn.theory import entmax, family, needle, power, relu_power, sigmoid, simplex, softplus

LOG_1024 = math.log(1024)


def row(n, rho):
    scores = np.full(n, float(rho))
    scores[0] = 1.0
    return scores


def normalised(values):
    return values[0] / values.sum()


def entmax_by_bisection(scores, alpha):
    """Entmax by its definition: the threshold at which the weights sum to 1."""
    z = (alpha - 1) * scores

    def total(tau):
        return (np.maximum(z - tau, 0) ** (1 / (alpha - 1))).sum() - 1

    tau = optimize.brentq(total, z.max() - 1, z.max(), xtol=1e-15)
    return np.maximum(z - tau, 0) ** (1 / (alpha - 1))


DENSE = {
    "softmax": lambda gamma, n, rho: normalised(np.exp(gamma * math.log(n) * (row(n, rho) - 1))),
    "softplus-l1": lambda gamma, n, rho: normalised(np.logaddexp(0, gamma * math.log(n) * row(n, rho))),
    "sigmoid": lambda gamma, n, rho: normalised(1 / (1 + n ** (-gamma * row(n, rho)))),
    "sigmoid-log-n": lambda gamma, n, rho: normalised(1 / (1 + n ** (1 - gamma * row(n, rho)))),
    "sigmoid-2-log-n": lambda gamma, n, rho: normalised(1 / (1 + n ** (2 - gamma * row(n, rho)))),
    "relu": lambda beta, n, rho: normalised(np.maximum(beta * row(n, rho), 0) / n),
    "power": lambda p, n, rho: normalised(np.maximum(row(n, rho), 0) ** p),
    "entmax": lambda beta, n, rho: entmax_by_bisection(beta * row(n, rho), 1.5)[0],
    "sparsemax": lambda beta, n, rho: entmax_by_bisection(beta * row(n, rho), 2.0)[0],
    "hardmax": lambda _, n, rho: normalised((row(n, rho) == row(n, rho).max()).astype(float)),
}


def test_every_member_has_a_dense_form():
    assert set(DENSE) | {"relu-power"} == set(family.MEMBERS)


@pytest.mark.parametrize("name", sorted(DENSE))
@pytest.mark.parametrize("rho", [-0.2, 0.0, 0.3, 0.9])
def test_self_weight_against_the_dense_row(name, rho):
    member = family.MEMBERS[name]
    for n in (5 if rho < 0 else 2, 40, 1000):
        if rho < 0 and name == "softmax" and n > 5:
            continue
        for control in (0.4, 1.2, 3.0):
            dense = DENSE[name](control, n, rho)
            assert member.self_weight(control, rho, math.log(n)) == pytest.approx(dense, rel=1e-9), (n, control)


@pytest.mark.parametrize("name", sorted(family.MEMBERS))
@pytest.mark.parametrize("n", [3, 1024, 10**300])
def test_half_weight_of_every_member(name, n):
    member, log_n = family.MEMBERS[name], math.log(n)
    point = member.half_weight(0.3, log_n)
    if name == "relu-power":
        assert point == 0
        return
    if math.isnan(point):
        weights = np.array([member.self_weight(x, 0.3, log_n) for x in np.geomspace(0.01, 1e4, 40)])
        # never a half, or always above it
        assert np.all(weights < 0.5) or np.all(weights > 0.5)
        assert member.scale == "none" or n == 3
        return
    assert member.self_weight(point, 0.3, log_n) == pytest.approx(0.5, abs=1e-10)
    assert member.self_weight(point * 0.99, 0.3, log_n) < 0.5 < member.self_weight(point * 1.01, 0.3, log_n)


@pytest.mark.parametrize("name", sorted(family.MEMBERS))
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.8])
def test_limits_of_every_member(name, rho):
    member, log_n = family.MEMBERS[name], 1e6
    for control in (0.2, 0.7, 1.9, 3.7, 40.0):
        scaled = control * log_n if name == "power" else control
        found = member.self_weight(scaled, rho, log_n)
        assert found == pytest.approx(member.limit(control, rho), abs=1e-4), control


def test_members_broadcast():
    for member in family.MEMBERS.values():
        shape = np.shape(member.self_weight(np.array([[1.0], [2.0]]), 0.3, np.array([3.0, 4.0, 5.0])))
        assert shape == (2, 3)
        assert np.shape(member.half_weight(0.3, np.array([3.0, 4.0, 5.0]))) == (3,)
        assert np.shape(member.limit(np.array([1.0, 2.0]), 0.3)) == (2,)


def test_scaled_limits():
    assert family.relu_scaled_limit(0.25) == 4
    np.testing.assert_allclose(family.sigmoid_scaled_limit(np.array([-0.1, 0, 0.4])), [np.inf, 2, 1])
    n = 1e7
    assert n * family.relu_self_weight(2.0, 0.25, math.log(n)) == pytest.approx(4, rel=1e-6)
    for rho in (0.0, 0.4):
        found = n * sigmoid.self_weight(50.0, rho, math.log(n), bias_factor=0)
        assert found == pytest.approx(family.sigmoid_scaled_limit(rho), rel=1e-6)
        # at most twice the uniform weight at every gamma
        assert np.all(n * sigmoid.self_weight(np.linspace(0, 50, 60), rho, math.log(n), bias_factor=0) <= 2)


def test_hardmax_and_relu_edges():
    assert family.hardmax_self_weight(1.0, math.log(8)) == pytest.approx(1 / 8)
    assert family.relu_self_weight(0.0, 0.3, math.log(8)) == pytest.approx(1 / 8)
    assert family.relu_self_weight(1.0, -0.1, math.log(8)) == 1
    assert family.relu_self_weight(1.0, 0.3, 0.0) == 1


def test_entmax_reference_numbers():
    quoted = {1.5: 1.957139705064, 2: 0.713587487781, 1.25: 3.955481211374, 1.05: 8.082366652724}
    for alpha, beta in quoted.items():
        assert entmax.half_weight_beta(0.3, LOG_1024, alpha=alpha) == pytest.approx(beta, abs=6e-13)
    assert entmax.identity_beta(0.3, alpha=1.5) == pytest.approx(2.857142857143, abs=6e-13)
    assert entmax.identity_beta(0.3, alpha=2) == pytest.approx(1.428571428571, abs=6e-13)


@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("n", [2, 3, 1024, 10**300])
def test_entmax_weights_and_their_inverse(alpha, n):
    log_n = math.log(n)
    for weight in (0.6, 0.9, 0.999):
        beta = entmax.beta_of_self_weight(weight, 0.3, log_n, alpha=alpha)
        assert entmax.self_weight(beta, 0.3, log_n, alpha=alpha) == pytest.approx(weight, rel=1e-9)
        with mpmath.workdps(50):
            x, other = mpmath.mpf(weight), (1 - mpmath.mpf(weight)) / (mpmath.mpf(n) - 1)
            a = mpmath.mpf(alpha) - 1
            gap = (x**a - other**a) / a if alpha > 1 else mpmath.log(x / other)
        assert beta == pytest.approx(float(gap) / 0.7, rel=1e-12)
    assert entmax.self_weight(0.0, 0.3, log_n, alpha=alpha) == pytest.approx(1 / n)
    last = entmax.identity_beta(0.3, alpha=alpha)
    if alpha > 1:
        assert entmax.self_weight(last, 0.3, log_n, alpha=alpha) == 1
        assert entmax.beta_of_self_weight(1.0, 0.3, log_n, alpha=alpha) == pytest.approx(last)
    else:
        assert last == math.inf


def test_entmax_between_softmax_and_sparsemax():
    soft = math.log(1023) / 0.7
    assert entmax.half_weight_beta(0.3, LOG_1024, alpha=1) == pytest.approx(soft)
    assert entmax.half_weight_beta(0.3, LOG_1024, alpha=1 + 1e-9) == pytest.approx(soft, rel=1e-7)
    for beta in (0.1, 0.9, 1.4):
        closed = (1 + 1023 * beta * 0.7) / 1024
        assert entmax.self_weight(beta, 0.3, LOG_1024, alpha=2) == pytest.approx(closed, rel=1e-12)
    assert entmax.self_weight(1.0, 0.3, 690.0, alpha=1.5) == pytest.approx(0.35**2)
    assert entmax.self_weight_limit(1.0, 0.3, alpha=1.5) == pytest.approx(0.35**2)
    assert entmax.self_weight_limit(5.0, 0.3, alpha=1.5) == 1
    assert entmax.self_weight_limit(5.0, 0.3, alpha=1) == 0


def test_power_reference_numbers():
    assert power.critical_p(0.3, LOG_1024, threshold=0.1) == pytest.approx(4.607804612187, abs=6e-13)
    assert power.rectified_critical_beta(0.3, LOG_1024, p=3, tau=1) == pytest.approx(4.486835149613, abs=6e-13)


def test_powers_against_dense_rows():
    for threshold in (-0.5, 0.0, 0.1):
        p = power.critical_p(0.3, LOG_1024, threshold=threshold)
        dense = normalised(np.maximum(row(1024, 0.3) - threshold, 0) ** p)
        assert dense == pytest.approx(0.5)
        assert power.self_weight(p, 0.3, LOG_1024, threshold=threshold) == pytest.approx(0.5)
    for beta in (0.5, 5.0, 1e4):
        p = power.softplus_critical_p(beta, 0.3, LOG_1024)
        logs = p * np.log(np.logaddexp(0, beta * row(1024, 0.3)))
        assert normalised(np.exp(logs - logs.max())) == pytest.approx(0.5)
    assert power.softplus_critical_p(1e9, 0.3, LOG_1024) == pytest.approx(power.critical_p(0.3, LOG_1024))
    beta = power.rectified_critical_beta(0.3, LOG_1024, p=3, tau=1)
    for x in (0.9 * beta, beta, 1.1 * beta, 3.0, 1.2, 0.5):
        values = np.maximum(x * row(1024, 0.3) - 1, 0) ** 3
        dense = normalised(values) if values.sum() else 1 / 1024
        assert power.rectified_self_weight(x, 0.3, LOG_1024, p=3, tau=1) == pytest.approx(dense, rel=1e-12)
    # reversed: identity below, diffuse above
    assert power.rectified_self_weight(0.9 * beta, 0.3, LOG_1024, p=3, tau=1) > 0.5
    assert power.rectified_self_weight(1.1 * beta, 0.3, LOG_1024, p=3, tau=1) < 0.5


def test_powers_without_a_transition():
    for rho in (-0.5, 0.0, 0.1, 1.0):
        assert math.isnan(power.critical_p(rho, LOG_1024, threshold=0.1))
        assert math.isnan(power.rectified_critical_beta(min(rho, 0.0), LOG_1024, p=3, tau=1))
    assert power.self_weight(0.5, 0.1, LOG_1024, threshold=0.1) == 1
    assert power.self_weight(9.0, 1.0, LOG_1024) == pytest.approx(1 / 1024)
    assert math.isnan(power.critical_p(0.3, 0.0))
    assert math.isnan(power.softplus_critical_p(1.0, 1.0, 5.0))
    # larger p than log(n-1)/log(1/rho): every beta above tau localises
    p = 1.01 * power.critical_p(0.3, LOG_1024)
    assert math.isnan(power.rectified_critical_beta(0.3, LOG_1024, p=p, tau=1))
    assert power.rectified_self_weight(1e9, 0.3, LOG_1024, p=p, tau=1) > 0.5
    assert power.rectified_critical_beta(0.3, 690.0, p=3, tau=2) == pytest.approx(2 / 0.3)
    np.testing.assert_array_equal(power.self_weight_limit([0.5, 1, 2]), [0, 0.5, 1])


def test_sigmoid_window():
    assert sigmoid.window(0.3, bias_factor=2) == (pytest.approx(1 / 0.7), pytest.approx(1 / 0.3))
    log_n = math.log(1e12)
    for gamma, quoted in ((1.2, 0.0119), (1.6, 0.965), (3.0, 0.941), (4.0, 0.0040)):
        assert sigmoid.self_weight(gamma, 0.3, log_n, bias_factor=2) == pytest.approx(quoted, abs=5.1e-4)
    exact = sigmoid.half_weight_window(0.3, log_n, bias_factor=2)
    assert exact == (pytest.approx(1 / 0.7, rel=1e-7), pytest.approx(1 / 0.3, rel=1e-7))
    for found in (sigmoid.window(0.3, bias_factor=1), sigmoid.half_weight_window(0.3, log_n, bias_factor=1)):
        assert np.isnan(found).all()
    # the window opens at B = 1/(1-rho)
    assert np.isnan(sigmoid.window(0.3, bias_factor=1 / 0.7 - 1e-6)).all()
    low, high = sigmoid.window(0.3, bias_factor=1 / 0.7 + 1e-6)
    assert high - low == pytest.approx(1e-6 / 0.3, rel=1e-5)


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.2, 0.6])
@pytest.mark.parametrize("bias", [-0.5, 0.0, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("log_n", [LOG_1024, 690.0])
def test_sigmoid_half_weights(rho, bias, log_n):
    low, high = sigmoid.half_weight_window(rho, log_n, bias_factor=bias)
    gammas = np.linspace(0, 60.0123, 4001)
    grid = sigmoid.self_weight(gammas, rho, log_n, bias_factor=bias)
    if math.isnan(low):
        # the margin rho = 0, B = 1 reaches 1/2 to rounding
        assert grid.max() <= 0.5
        return
    for end in (low, high):
        if math.isfinite(end):
            assert sigmoid.self_weight(end, rho, log_n, bias_factor=bias) == pytest.approx(0.5, abs=1e-9)
    inside = (gammas > low) & (gammas < high)
    np.testing.assert_array_equal(grid > 0.5, inside)
    limit = sigmoid.window(rho, bias_factor=bias)
    if log_n > 600 and not math.isnan(limit.low):
        assert (low, high) == (pytest.approx(limit.low, abs=0.01), pytest.approx(limit.high, abs=0.01))


def test_sigmoid_at_the_margin():
    # rho = 0, B = 1: half in the limit, from above at finite n
    assert sigmoid.self_weight_limit(3.0, 0.0, bias_factor=1) == 0.5
    assert sigmoid.self_weight(3.0, 0.0, LOG_1024, bias_factor=1) == pytest.approx(0.5, abs=1e-3)
    root = sigmoid.half_weight_window(0.0, LOG_1024, bias_factor=1)
    assert root == (pytest.approx(1 + math.log(1023 / 2) / LOG_1024, abs=1e-9), math.inf)
    assert np.isnan(sigmoid.window(0.0, bias_factor=1)).all()
    assert sigmoid.window(0.0, bias_factor=1.5) == (1, math.inf)
    assert sigmoid.window(-0.5, bias_factor=0) == (2, math.inf)
    for gamma, rho, bias in ((1 / 0.7, 0.3, 2.0), (1 / 0.3, 0.3, 2.0), (2.0, 0.5, 2.0), (1.0, 0.0, 1.0)):
        limit = sigmoid.self_weight_limit(gamma, rho, bias_factor=bias)
        assert sigmoid.self_weight(gamma, rho, 1e5, bias_factor=bias) == pytest.approx(limit, abs=1e-6)


def test_sigmoid_without_the_sum():
    n, gamma, rho = 1e6, 1.5, 0.3
    assert sigmoid.raw_self_weight(gamma, math.log(n)) == pytest.approx(1 / (1 + n ** (1 - gamma)))
    mass = sigmoid.raw_self_weight(gamma, math.log(n)) + (n - 1) / (1 + n ** (1 - gamma * rho))
    assert sigmoid.raw_row_mass(gamma, rho, math.log(n)) == pytest.approx(mass)
    assert math.log(sigmoid.raw_row_mass(gamma, rho, 690.0)) / 690 == pytest.approx(gamma * rho, abs=1e-3)
    assert sigmoid.raw_row_mass(5.0, 0.9, 1e4) == math.inf


@settings(deadline=None, max_examples=150)
@given(st.floats(0, 0.95), st.floats(1.1, 600), st.floats(0.05, 20), st.floats(0.01, 3))
def test_more_control_gives_more_self_weight(rho, log_n, control, step):
    for name in ("softmax", "softplus-l1", "power", "entmax", "sparsemax"):
        member = family.MEMBERS[name]
        low, high = (member.self_weight(c, rho, log_n) for c in (control, control + step))
        assert high >= low * (1 - 1e-9)
        assert 0 <= low <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: entmax.self_weight(1.0, 1.0, 5.0, alpha=2),
        lambda: entmax.self_weight(1.0, 0.3, 5.0, alpha=0.5),
        lambda: entmax.self_weight(-1.0, 0.3, 5.0, alpha=2),
        lambda: entmax.self_weight_limit(-1.0, 0.3, alpha=2),
        lambda: entmax.half_weight_beta(0.3, 0.0, alpha=2),
        lambda: entmax.beta_of_self_weight(1e-9, 0.3, 5.0, alpha=2),
        lambda: entmax.beta_of_self_weight(1.1, 0.3, 5.0, alpha=2),
        lambda: power.critical_p(0.3, 5.0, threshold=1),
        lambda: power.self_weight(0.0, 0.3, 5.0),
        lambda: power.critical_p(1.3, 5.0),
        lambda: power.rectified_critical_beta(0.3, 5.0, p=3, tau=0),
        lambda: power.rectified_self_weight(-1.0, 0.3, 5.0, p=3, tau=1),
        lambda: sigmoid.window(1.2, bias_factor=2),
        lambda: sigmoid.self_weight(-1.0, 0.2, 5.0),
        lambda: sigmoid.self_weight_limit(0.0, 0.2, bias_factor=2),
        lambda: sigmoid.half_weight_window(0.2, 5.0, bias_factor=math.nan),
        lambda: family.relu_self_weight(-1.0, 0.2, 5.0),
        lambda: family.hardmax_self_weight(1.2, 5.0),
        lambda: family.sigmoid_scaled_limit(-1.2),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(DomainError):
        call()


def number(expression, **values):
    symbols = {
        "n": N,
        "gamma": GAMMA,
        "rho": RHO,
        "p": sym.P,
        "alpha": sym.ALPHA,
        "bias": sym.BIAS_FACTOR,
        "x": sym.WEIGHT,
        "beta": sym.BETA,
        "tau": sym.TAU,
        "snr": sym.SNR,
        "own": sym.SELF_SCORE,
        "below": sym.BELOW,
    }
    exact = {symbols[name]: sp.Rational(str(value)) for name, value in values.items()}
    return float(sp.N(expression.subs(exact), 30))


@pytest.mark.parametrize(("n", "rho"), [(8, 0.3), (1024, 0.3), (10**6, 0.7)])
def test_symbolic_forms_equal_the_numerical_theory(n, rho):
    log_n = math.log(n)
    pairs = [
        (number(sym.softplus_self_weight(), n=n, rho=rho, gamma=1.5), softplus.self_weight(1.5, rho, log_n)),
        (number(sym.diagonal_excess(), n=n, rho=rho, gamma=1.5), relu_power.diagonal_excess(1.5, rho, log_n)),
        (
            number(sym.softplus_half_weight_gamma(), n=n, own=0.5, below=0.2),
            softplus.half_weight_gamma_lambert(0.3, log_n, bias=0.5),
        ),
        (number(sym.entropy_deficit_limit(), rho=rho), softplus.entropy_deficit_limit(rho)),
        (number(sym.half_moment(), p=3.5), math.exp(needle.log_half_moment(3.5))),
        (number(sym.critical_p_lambert(), n=n, snr=8), relu_power.critical_p_lambert(0, log_n, 64)),
        (number(sym.length_limit(), p=4, snr=8), math.exp(needle.log_length_limit(4, 8).log_n)),
        (number(sym.power_self_weight(), n=n, rho=rho, p=4), power.self_weight(4, rho, log_n)),
        (number(sym.power_critical_p(), n=n, rho=rho), power.critical_p(rho, log_n)),
        (
            number(sym.rectified_self_weight(), n=n, rho=rho, p=2, beta=9, tau=1),
            power.rectified_self_weight(9, rho, log_n, p=2, tau=1),
        ),
        (
            number(sym.rectified_critical_beta(), n=n, rho=0.7, p=1.5, tau=2),
            power.rectified_critical_beta(0.7, log_n, p=1.5, tau=2),
        ),
        (
            number(sym.entmax_beta(), n=n, rho=rho, alpha=1.5, x=0.5),
            entmax.half_weight_beta(rho, log_n, alpha=1.5),
        ),
        (
            number(sym.sigmoid_self_weight(), n=n, rho=rho, gamma=2.5, bias=2),
            sigmoid.self_weight(2.5, rho, log_n, bias_factor=2),
        ),
    ]
    for index, (symbolic, numerical) in enumerate(pairs):
        assert symbolic == pytest.approx(numerical, rel=1e-11), index


def test_symbolic_identities():
    at_root = sym.power_self_weight().subs(RHO**sym.P, sp.exp(-sym.P * sp.log(1 / RHO)))
    assert sp.simplify(at_root.subs(sym.P, sym.power_critical_p())) == sp.Rational(1, 2)
    ratio = (sym.BETA * RHO - sym.TAU) / (sym.BETA - sym.TAU)
    root = sp.simplify(ratio.subs(sym.BETA, sym.rectified_critical_beta()))
    assert sp.simplify(root * (N - 1) ** (1 / sym.P)) == 1
    softmax = simplex.half_weight_gamma(0.3, LOG_1024) * LOG_1024
    assert number(sp.limit(sym.entmax_beta(), sym.ALPHA, 1), n=1024, rho=0.3, x=0.5) == pytest.approx(softmax)
