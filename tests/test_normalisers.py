"""Every normaliser: against its formula, its Jacobian against automatic differentiation, its symmetries and limits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import critattn as ca
from critattn import normalisers
from critattn.errors import DomainError, SpecError
from critattn.protocols import Normaliser, RowContext, precision, pytree

EPS = np.finfo(float).eps
# name of the oracle, its parameter, the normaliser
CASES = {
    "softmax": ("softmax", 1.0, ca.Softmax()),
    "softplus-l1": ("softplus-l1", 1.0, ca.SoftplusL1()),
    "sigmoid": ("sigmoid", 1.0, ca.Sigmoid()),
    "sigmoid 2.5": ("sigmoid", 2.5, ca.Sigmoid(2.5)),
    "sigmoid-l1": ("sigmoid-l1", 1.0, ca.SigmoidL1()),
    "relu": ("relu", 1.0, ca.Relu()),
    "power 1": ("power", 1.0, ca.Power(1.0)),
    "power 3": ("power", 3.0, ca.Power()),
    "entmax 1.2": ("entmax", 1.2, ca.Entmax(1.2)),
    "entmax 1.5": ("entmax", 1.5, ca.Entmax()),
    "entmax 3": ("entmax", 3.0, ca.Entmax(3.0)),
    "sparsemax": ("sparsemax", 2.0, ca.Sparsemax()),
    "hardmax": ("hardmax", 1.0, ca.Hardmax()),
    "relu-power 3": ("relu-power over softplus-l1", 3.0, ca.ReluPower()),
    "relu-power 1 softmax": ("relu-power over softmax", 1.0, ca.ReluPower(1.0, ca.Softmax())),
    "relu-power 15 softmax": ("relu-power over softmax", 15.0, ca.ReluPower(15.0, ca.Softmax())),
    "relu-power 2 sigmoid-l1": ("relu-power over sigmoid-l1", 2.0, ca.ReluPower(2.0, ca.SigmoidL1())),
}
# one of each form of the weights; the slow tests have all kinds
FAST = ("softplus-l1", "entmax 1.5", "relu-power 3")
every = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in FAST else pytest.mark.slow) for case in CASES]
)


def context_of(keys_seen, n):
    return RowContext(jnp.asarray(keys_seen) - 1, jnp.arange(n), jnp.asarray(keys_seen), n, 1)


# rows that several tests share, so that each kind compiles once for them
SHARED = 9


# compiled once for each kind of normaliser: its exponent is an argument like any other
@jax.jit
def compiled(normaliser, logits, context, where):
    return normaliser(logits, context, where=where)


def call(normaliser, logits, context, where=None):
    # an argument left out and None would be compiled separately
    return compiled(normaliser, logits, context, where)


@jax.jit
def parts_of(normaliser, logits, context, where=None):
    return normaliser.jacobian_parts(logits, context, where=where)


@jax.jit
def dead_of(normaliser, logits, context, where=None):
    return normaliser.dead_rows(logits, context, where=where)


def drawn_logits(seed, n, beta):
    """Logits of unit tokens, three of them equal."""
    x = np.random.default_rng(seed).standard_normal((n, 3)) + 0.3
    x[:2] = x[-1]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosines = x @ x.T
    cosines[:, :2] = cosines[:, -1:]
    cosines[:2] = cosines[-1]
    return beta * cosines


@every
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_those_of_the_formula(case, causal):
    kind, parameter, normaliser = CASES[case]
    n = SHARED
    allowed = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
    with precision("float64"):
        context, where = context_of(allowed.sum(axis=1), n), jnp.asarray(allowed) if causal else None
        for seed, beta in itertools.product(range(4), (0.0, 0.7, 6.0)):
            logits = drawn_logits(seed, n, beta)
            found = np.asarray(call(normaliser, jnp.asarray(logits), context, where=where))
            expected = oracles.naive_weights(kind, logits, allowed, parameter)
            # the formula as written loses p eps n A/y where a weight is close to the mean
            np.testing.assert_allclose(found, expected, rtol=0, atol=64 * parameter * n * EPS)


@every
@pytest.mark.parametrize("causal", [False, True])
def test_row_jacobian_is_that_of_automatic_differentiation(case, causal):
    normaliser = CASES[case][2]
    n = 8
    allowed = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
    with precision("float64"):
        context, where = context_of(allowed.sum(axis=1), n), jnp.asarray(allowed)
        rows = jnp.arange(n)

        @jax.jit
        def everything(logits):
            def weights(s):
                return call(normaliser, s, context, where=where)

            parts = parts_of(normaliser, logits, context, where=where)
            made = jax.vmap(jnp.diag)(parts.g) - parts.u[:, :, None] * parts.g[:, None, :]
            if parts.c is not None and parts.b is not None:
                made -= parts.c[:, :, None] * parts.b[:, None, :]
            return made, jax.jacfwd(weights)(logits)[rows, :, rows], jax.jacrev(weights)(logits)[rows, :, rows]

        for seed, beta in itertools.product(range(5), (0.0, 0.9, 5.0)):
            parts, forward, backward = map(np.asarray, everything(jnp.asarray(drawn_logits(seed, n, beta))))
            scale = 1 + np.max(np.abs(forward))
            # terms of the size of the entries, each with the rounding of the weights, p n A/y of them amplified
            np.testing.assert_allclose(parts, forward, rtol=0, atol=2**12 * EPS * scale)
            np.testing.assert_allclose(backward, forward, rtol=0, atol=2**12 * EPS * scale)
            assert not np.any(parts[~allowed[:, :, None] & np.ones((1, 1, n), bool)])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.01, 1.3, 1.5, 2.0, 2.5])
def test_entmax_derivatives_against_central_differences(alpha):
    rng, n, h = np.random.default_rng(3), 7, 1e-6
    with precision("float64"):
        context = context_of([n], n)
        weights = jax.jit(lambda s, a: call(ca.Entmax(a), s, context)[0])
        for _ in range(5):
            s = jnp.asarray(2 * rng.standard_normal((1, n)))
            by_logits, by_alpha = jax.jacfwd(weights, argnums=(0, 1))(s, alpha)
            steps = np.eye(n)[:, None, :] * h
            around = [(weights(s + e, alpha) - weights(s - e, alpha)) / (2 * h) for e in steps]
            # truncation h^2 times a third derivative, and eps/h
            np.testing.assert_allclose(by_logits[:, 0], np.transpose(around), rtol=0, atol=1e-8)
            around = (weights(s, alpha + h / 100) - weights(s, alpha - h / 100)) / (h / 50)
            np.testing.assert_allclose(by_alpha, around, rtol=0, atol=1e-6)


@every
def test_rows_sum_to_their_stated_mass(case):
    normaliser = CASES[case][2]
    n = SHARED
    with precision("float64"):
        context = context_of(np.full(n, n), n)
        for beta in (0.0, 1.0, 30.0):
            weights = np.asarray(call(normaliser, jnp.asarray(drawn_logits(1, n, beta)), context))
            assert np.all(weights >= 0)
            if normaliser.unit_row_mass:
                np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=4 * n * EPS)
            if normaliser.full_support:
                assert np.all(weights > 0)
        if not normaliser.unit_row_mass:
            assert np.ptp(weights.sum(axis=1)) > 0.1
        if not normaliser.full_support:
            assert np.any(weights == 0)


@every
def test_permuting_the_keys_permutes_the_weights(case):
    normaliser = CASES[case][2]
    n = SHARED
    order = np.random.default_rng(0).permutation(n)
    with precision("float64"):
        context, logits = context_of(np.full(n, n), n), jnp.asarray(drawn_logits(2, n, 3.0))
        expected = np.asarray(call(normaliser, logits, context))[:, order]
        found = np.asarray(call(normaliser, logits[:, order], context))
        # only the order of summation differs
        np.testing.assert_allclose(found, expected, rtol=0, atol=64 * n * EPS)


@every
def test_a_common_shift_changes_nothing_exactly_where_stated(case):
    normaliser = CASES[case][2]
    n = SHARED
    with precision("float64"):
        context, logits = context_of(np.full(n, n), n), jnp.asarray(drawn_logits(4, n, 3.0))
        moved = np.max(np.abs(call(normaliser, logits + 0.75, context) - call(normaliser, logits, context)))
    # a logit near 4 rounds by 4 eps, which the exponent p and the distance to the mean amplify
    assert (moved <= 2**12 * EPS) == normaliser.shift_invariant


@every
def test_a_mask_is_the_same_as_leaving_keys_out(case):
    normaliser = CASES[case][2]
    n = SHARED
    keys = np.array([0, 3, 4, 7, 8])
    with precision("float64"):
        logits = jnp.asarray(drawn_logits(5, n, 2.0))
        where = jnp.zeros((n, n), bool).at[:, keys].set(True)
        context = context_of(np.full(n, keys.size), n)
        alone = np.asarray(call(normaliser, logits[:, keys], context_of(np.full(n, keys.size), keys.size)))
        for masked in (
            call(normaliser, logits, context, where=where),
            call(normaliser, jnp.where(where, logits, 1e9), context, where=where),
            call(normaliser, jnp.where(where, logits, -jnp.inf), context),
        ):
            np.testing.assert_allclose(np.asarray(masked)[:, keys], alone, rtol=0, atol=64 * n * EPS)
            assert not np.any(np.delete(np.asarray(masked), keys, axis=1))


def extreme_rows(dtype):
    info = jnp.finfo(dtype)
    big, least, tiny = float(info.max), float(info.min), float(info.tiny)
    return {
        "huge": [big, 0.0, -big, 1.0],
        "two huge": [big, big, 0.0, least],
        "all lowest": [least] * 4,
        "all highest": [big] * 4,
        "lowest and -inf": [least, -np.inf, least, -np.inf],
        "-inf but one": [-np.inf, -np.inf, -3.0, -np.inf],
        "all -inf": [-np.inf] * 4,
        "tiny": [tiny, 2 * tiny, -tiny, 0.0],
        "subnormal": [tiny / 2, tiny / 4, 0.0, -tiny / 2],
        "zeros": [0.0, -0.0, 0.0, 0.0],
        "equal": [1.5] * 4,
        "very negative": [-5000.0, -5001.0, -5000.0, -6000.0],
        "one ulp apart": [1.0, 1.0 + float(info.eps), 1.0, 1.0],
    }


@every
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_extreme_logits_have_finite_weights_of_the_stated_mass(case, dtype):
    normaliser = CASES[case][2]
    with precision("float64" if dtype == "float64" else "float32"):
        named = extreme_rows(jnp.dtype(dtype))
        logits = jnp.asarray(np.array(list(named.values())), dtype)
        context = context_of(np.full(len(named), 4), 4)
        weights = call(normaliser, logits, context)
        assert weights.dtype == jnp.dtype(dtype)
        wide = np.asarray(weights, np.float64)
        if not isinstance(normaliser, ca.Relu):
            assert np.all(np.isfinite(wide)), dict(zip(named, wide, strict=True))
        if normaliser.unit_row_mass:
            mass = dict(zip(named, wide.sum(axis=1), strict=True))
            assert mass.pop("all -inf") == 0
            np.testing.assert_allclose(list(mass.values()), 1, atol=4 * float(jnp.finfo(dtype).eps))
        parts = parts_of(normaliser, logits[-4:], context_of(np.full(4, 4), 4), where=None)
        for part in parts:
            assert part is None or np.all(np.isfinite(np.asarray(part, np.float64)))


@every
def test_uniform_one_key_and_masked_rows(case):
    normaliser = CASES[case][2]
    with precision("float64"):
        logits = jnp.asarray([[0.7, 0.7, 0.7], [0.7, 5.0, 1.0], [0.7, 5.0, 1.0]])
        where = jnp.asarray([[True] * 3, [False, False, True], [False] * 3])
        context = context_of([3, 1, 0], 3)
        weights = np.asarray(call(normaliser, logits, context, where=where))
        parts = parts_of(normaliser, logits, context, where=where)
    np.testing.assert_array_equal(weights[2], 0)
    assert all(part is None or np.all(np.isfinite(part)) for part in parts)
    if normaliser.unit_row_mass:
        np.testing.assert_allclose(weights[0], 1 / 3, rtol=4 * EPS)
        np.testing.assert_array_equal(weights[1], [0, 0, 1])


DEAD = [
    (ca.ReluPower(), [True, True, False, False]),
    (ca.ReluPower(offset_free_rows=1), [True, False, False, False]),
    (ca.Power(), [False, False, True, False]),
    (ca.Relu(), [False, False, True, False]),
]


@pytest.mark.parametrize(("normaliser", "dead"), DEAD)
def test_rows_without_mass_are_reported_and_have_no_derivative(normaliser, dead):
    with precision("float64"):
        logits = jnp.asarray([[2.0, 2.0, 2.0], [2.0, 1.0, 0.0], [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]])
        where = jnp.asarray([[True] * 3, [True, False, False], [True] * 3, [False] * 3])
        context = context_of([3, 1, 3, 0], 3)
        np.testing.assert_array_equal(dead_of(normaliser, logits, context, where=where), dead)
        weights = np.asarray(call(normaliser, logits, context, where=where))[dead]
        slope = jax.jit(jax.jacrev(lambda s: call(normaliser, s, context, where=where)))(logits)
        parts = parts_of(normaliser, logits, context, where=where)
    expected = np.asarray(where)[dead] / np.asarray(where)[dead].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights, expected if normaliser.unit_row_mass else 0 * expected, rtol=EPS)
    assert not np.any(np.asarray(slope)[dead])
    assert not np.any(np.asarray(parts.g)[dead])
    if parts.b is not None:
        assert not np.any(np.asarray(parts.b)[dead])


def test_rows_without_mass_have_equal_shares_and_are_counted():
    n = 6
    tokens = ca.Tokens(np.vstack([np.eye(n - 1), -np.ones((1, n - 1)) / np.sqrt(n - 1)]))
    names = ["dead_row_fraction", "row_mass", "entropy", "participation_ratio", "self_weight", "output_cosine"]
    # scores minus 2: no positive logit anywhere
    layer = ca.Attention(ca.Shift(2.0), ca.LogN(1.0), normaliser=ca.Relu())
    found = {name: estimate.value for name, estimate in ca.measure(layer, tokens, names[:5]).items()}
    assert (found["dead_row_fraction"], found["row_mass"], found["self_weight"]) == (1, 0, 0)
    assert found["entropy"] == pytest.approx(np.log(n), rel=4 * EPS)
    assert found["participation_ratio"] == pytest.approx(n, rel=4 * EPS)
    uniform = ca.measure(ca.Attention(ca.LogN(0.0), normaliser=ca.ReluPower(), mask=ca.Causal()), tokens, names)
    assert uniform["dead_row_fraction"].value == 1
    first = ca.measure(ca.Attention(ca.LogN(1.0), normaliser=ca.ReluPower(), mask=ca.Causal()), tokens, names)
    assert first["dead_row_fraction"].value == pytest.approx(1 / n)
    assert ca.measure(ca.Attention(ca.LogN(1.0)), tokens, names)["dead_row_fraction"].value == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("stage", [ca.Softmax(), ca.SoftplusL1()])
def test_the_fifteenth_power_in_every_format(dtype, stage):
    """x = n A_ii - 1 from far below the flush to zero up to n - 1, where x^15 itself would overflow."""
    n, p = 1000, 15.0
    excess = np.concatenate([np.geomspace(1e-4, n - 1.001, 60), [0.31, 0.315, 2.09, 2.1, 370.4, 370.6]])
    self_share = (1 + excess) / n
    # stage-one weights with this self weight and equal others: softmax logits, or softplus ones well above 0
    odds = self_share / (1 - self_share) * (n - 1)
    value = odds * np.log1p(np.e)
    own = np.log(odds) if isinstance(stage, ca.Softmax) else value + np.log(-np.expm1(-value))
    other = 0.0 if isinstance(stage, ca.Softmax) else 1.0
    own = np.minimum(own, float(jnp.finfo(dtype).max))
    with precision("float32"):
        logits = jnp.full((excess.size, n), other, dtype).at[:, 0].set(jnp.asarray(own, dtype))
        context = context_of(np.full(excess.size, n), n)
        weights = np.asarray(call(ca.ReluPower(p, stage), logits, context), np.float64)
    assert np.all(np.isfinite(weights))
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=4 * float(jnp.finfo(dtype).eps))
    # one key above the mean, or none after rounding of the logit to the format
    above = np.asarray(logits[:, 0] > logits[:, 1])
    np.testing.assert_array_equal(weights[above, 0], 1)
    # a second level: half of the keys a little lower, p log ratio below the range of every format
    with precision("float32"):
        mixed = jnp.asarray(np.random.default_rng(0).standard_normal((64, n)) * 3, dtype)
        weights = np.asarray(call(ca.ReluPower(p, stage), mixed, context_of(np.full(64, n), n)), np.float64)
    assert np.all(np.isfinite(weights))
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=n * float(jnp.finfo(dtype).eps) / 8)


def test_equal_tokens_stay_uniform_at_large_logits():
    """Logits of 200 round by 2e-14, softmax of them by as much: beyond 8 rounding units of a weight."""
    rng, n = np.random.default_rng(1), 64
    logits = 200 * (1 + EPS * rng.integers(-3, 4, (20, n)))
    with precision("float64"):
        context = context_of(np.full(20, n), n)
        for stage in (ca.Softmax(), ca.SoftplusL1()):
            normaliser = ca.ReluPower(15.0, stage)
            np.testing.assert_array_equal(call(normaliser, jnp.asarray(logits), context), 1 / n)
            assert np.all(dead_of(normaliser, jnp.asarray(logits), context))


@pytest.mark.parametrize("alpha", [1.0001, 1.05, 1.5, 1.9, 2.0, 2.5, 4.0, 30.0, 300.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 40.0])
def test_entmax_satisfies_its_equation(alpha, spread):
    n = 300
    logits = spread * np.random.default_rng(7).standard_normal((6, n))
    with precision("float64"):
        weights = np.asarray(call(ca.Entmax(alpha), jnp.asarray(logits), context_of(np.full(6, n), n)))
    k = alpha - 1
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=n * EPS)
    for row, found in zip(logits, weights, strict=True):
        on = found > 0
        # A^k - k s is the same -tau on the whole support, and k s stays below tau off it
        tau = k * row[on] - found[on] ** k
        scale = 1 + k * np.max(np.abs(row))
        assert np.ptp(tau) <= 64 * scale * (1 + k) * EPS
        assert np.all(k * row[~on] <= tau.max() + 64 * scale * EPS)


def test_entmax_against_bisection_and_sparsemax_against_its_closed_form():
    rng, n = np.random.default_rng(8), 50
    logits = np.vstack([s * rng.standard_normal((3, n)) for s in (0.1, 1.0, 10.0)])
    allowed = np.ones_like(logits, bool)
    with precision("float64"):
        context = context_of(np.full(9, n), n)
        for alpha in (1.1, 1.5, 1.8, 2.0):
            expected = oracles.naive_weights("entmax", logits, allowed, alpha)
            # x^(1/k) turns an error of x of a few eps (1 + k s) into 1/k of it
            tolerance = 64 * EPS * (10 + np.max(np.abs(logits))) / (alpha - 1)
            found = call(ca.Entmax(alpha), jnp.asarray(logits), context)
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
        found = np.asarray(call(ca.Sparsemax(), jnp.asarray(logits), context))
    for row, weights in zip(logits, found, strict=True):
        down = np.sort(row)[::-1]
        taus = (np.cumsum(down) - 1) / np.arange(1, n + 1)
        size = np.flatnonzero(down > taus)[-1]
        np.testing.assert_allclose(weights, np.maximum(row - taus[size], 0), rtol=0, atol=n * EPS * np.abs(row).max())


def test_entmax_tends_to_softmax_at_alpha_one():
    logits = drawn_logits(9, 30, 5.0)
    with precision("float64"):
        context = context_of(np.full(30, 30), 30)
        softmax = np.asarray(call(ca.Softmax(), jnp.asarray(logits), context))
        gaps = []
        for k in (1e-2, 1e-4, 1e-6, 1e-12):
            entmax = np.asarray(call(ca.Entmax(1 + k), jnp.asarray(logits), context))
            gaps.append(np.max(np.abs(entmax - softmax)) / k)
    # the difference is k/2 times the centred squares of the log weights, which are at most about (2 beta)^2
    assert gaps[1] == pytest.approx(gaps[2], rel=1e-2)
    assert max(gaps[:3]) <= 50
    assert gaps[3] * 1e-12 <= 1e-10


def test_reference_numbers_of_the_half_weight_on_a_simplex():
    """n = 1024, rho = .3: where entmax has self weight 1/2, where it is the identity, and softplus weights."""
    n, rho = 1024, 0.3
    scores = np.full((1, n), rho)
    scores[0, 0] = 1
    half = {1.5: 1.957139705064, 2.0: 0.713587487781, 1.25: 3.955481211374, 1.05: 8.082366652724}
    with precision("float64"):
        context = context_of([n], n)
        for alpha, beta in half.items():
            # a reference of 12 decimals moves the weight by its slope in beta, at most 2
            found = call(ca.Entmax(alpha), jnp.asarray(beta * scores), context)[0, 0]
            assert float(found) == pytest.approx(0.5, abs=1e-12 * 2)
        for alpha, beta in {1.5: 2.857142857143, 2.0: 1.428571428571}.items():
            below, above = (
                call(ca.Entmax(alpha), jnp.asarray(f * beta * scores), context)[0, 0] for f in (0.999, 1.001)
            )
            assert float(below) < 1 == float(above)
        c = np.log(64) * np.log(n)
        lssa = np.asarray(call(ca.SoftplusL1(), jnp.asarray(c * scores), context))[0]
        assert lssa[:2] == pytest.approx([0.003247742060611, 0.000974342383127457], rel=2e-13)
        identity = np.asarray(call(ca.ReluPower(0.01), jnp.asarray(c * scores), context))[0]
        np.testing.assert_array_equal(identity, np.eye(n)[0])


@pytest.mark.parametrize("make", [ca.Power, ca.ReluPower, lambda p: ca.ReluPower(p, ca.Softmax())])
def test_large_powers_tend_to_hardmax_with_ties_shared(make):
    logits = jnp.asarray([[1.0, 3.0, 3.0, 2.9, -1.0], [0.5, 0.2, 2.0, 0.1, 1.0]])
    with precision("float64"):
        context = context_of([5, 5], 5)
        hard = np.asarray(call(ca.Hardmax(), logits.astype(jnp.float64), context))
        np.testing.assert_array_equal(hard, [[0, 0.5, 0.5, 0, 0], [0, 0, 1, 0, 0]])
        np.testing.assert_allclose(call(make(1e5), logits.astype(jnp.float64), context), hard, atol=4 * EPS)
        distances = [
            np.max(np.abs(call(make(p), logits.astype(jnp.float64), context) - hard)) for p in (3.0, 15.0, 60.0)
        ]
    assert distances[0] > distances[1] > distances[2]


@pytest.mark.slow
def test_offset_free_rows_are_plain_powers_of_the_first_stage():
    n = 6
    allowed = np.tri(n, dtype=bool)
    logits = drawn_logits(11, n, 2.0)
    with precision("float64"):
        context, where = context_of(allowed.sum(axis=1), n), jnp.asarray(allowed)
        stage = np.asarray(call(ca.SoftplusL1(), jnp.asarray(logits), context, where=where))
        with_offset = np.asarray(call(ca.ReluPower(3.0), jnp.asarray(logits), context, where=where))
        published = ca.ReluPower(3.0, offset_free_rows=3)
        found = np.asarray(call(published, jnp.asarray(logits), context, where=where))
        parts = parts_of(published, jnp.asarray(logits), context, where=where)
        slope = jax.jacfwd(lambda s: call(published, s, context, where=where))(jnp.asarray(logits))
    expected = stage**3 / np.sum(stage**3, axis=1, keepdims=True)
    np.testing.assert_allclose(found[:3], expected[:3], rtol=32 * EPS)
    np.testing.assert_array_equal(found[3:], with_offset[3:])
    rows = np.arange(n)
    made = np.stack([np.diag(g) for g in parts.g]) - np.einsum("ij,ik->ijk", parts.u, parts.g)
    made -= np.einsum("ij,ik->ijk", parts.c, parts.b)
    np.testing.assert_allclose(made, np.asarray(slope)[rows, :, rows], rtol=0, atol=2**10 * EPS)


@every
def test_leading_axes_are_heads_and_jit_vmap_and_grad_go_through(case):
    normaliser = CASES[case][2]
    n = 5
    logits = jnp.asarray(np.random.default_rng(12).standard_normal((2, n, n)), jnp.float32)
    context, where = context_of(np.arange(1, n + 1), n), jnp.tri(n, dtype=bool)
    together = jax.jit(lambda s: call(normaliser, s, context, where=where))(logits)
    assert together.dtype == jnp.float32
    for head in range(2):
        # compiled and plain arithmetic round differently, and p times as much in a power
        alone = call(normaliser, logits[head], context, where=where)
        np.testing.assert_allclose(together[head], alone, atol=2e-5)
    slope = jax.jit(jax.vmap(jax.grad(lambda s: jnp.sum(call(normaliser, s, context, where=where) ** 2))))(logits)
    assert np.all(np.isfinite(slope))


@pytest.mark.slow
def test_exponents_can_be_traced_batched_and_given_by_row():
    tokens = ca.near_simplex(0, 30, 8, rho=0.3)
    for name, option, values in (("relu-power", "p", [1.0, 4.0]), ("entmax", "alpha", [1.2, 2.0])):
        made = normalisers.get(name, **{option: np.array(values)})
        batch = ca.measure_batch(ca.Attention(ca.LogN(1.0), normaliser=made), tokens, ["self_weight", "gradient_norm"])
        for k, value in enumerate(values):
            single = ca.Attention(ca.LogN(1.0), normaliser=normalisers.get(name, **{option: value}))
            for key, estimate in ca.measure(single, tokens, ["self_weight", "gradient_norm"]).items():
                assert batch[key].value[k] == pytest.approx(estimate.value, rel=1e-13)
    with precision("float64"):
        context, logits = context_of([5, 5], 5), jnp.asarray(np.random.default_rng(1).standard_normal((2, 5)))
        by_row = ca.Power(jnp.asarray([1.0, 7.0]))(logits, context)
        for k, p in enumerate((1.0, 7.0)):
            np.testing.assert_allclose(by_row[k], call(ca.Power(p), logits, context)[k], rtol=8 * EPS)
        slope = jax.grad(lambda p: call(ca.ReluPower(p), logits, context)[0, 0])(2.0)
        assert np.isfinite(float(slope))


def test_a_bias_in_units_of_the_score_is_a_shift_before_the_scale():
    scores = np.array([[1.0, 0.3], [0.3, 1.0]])
    layer = ca.Attention(ca.Shift(0.5), ca.InverseTemperature(4.0), normaliser=ca.SoftplusL1())
    with precision("float64"):
        found = np.asarray(ca.attention_weights(layer, scores))
    masses = np.log1p(np.exp(4 * (scores - 0.5)))
    np.testing.assert_allclose(found, masses / masses.sum(axis=1, keepdims=True), rtol=8 * EPS)


def test_masses_of_softplus_serve_a_stream_of_tokens():
    stream = ca.stream_near_simplex(0, 700, 16, rho=0.3)
    layer = ca.Attention(ca.LogN(2.0), normaliser=ca.SoftplusL1())
    names = ["self_weight", "entropy", "participation_ratio", "dead_row_fraction"]
    found = ca.measure(layer, stream, names, sample_rows=20)
    own = 2.0 * np.log(700)
    assert found["dead_row_fraction"].value == 0
    assert 1 / 700 < found["self_weight"].value < np.log1p(np.exp(own)) / 700
    assert np.log(700) - 1 < found["entropy"].value < np.log(700)


@pytest.mark.slow
def test_two_kinds_of_one_shape_are_never_taken_for_each_other():
    """jit chooses by tree structure: two classes with the same fields have to differ in it."""
    kinds = [normalisers.get(name) for name in normalisers.names()] + [ca.Bidirectional(), ca.Causal()]
    structures = [jax.tree_util.tree_structure(kind) for kind in kinds]
    for one, other in itertools.combinations(structures, 2):
        assert one != other
    assert structures[0] == jax.tree_util.tree_structure(normalisers.get("entmax"))

    def numbered(number):
        class Kind:
            def value(self):
                return number

        return pytree()(Kind)()

    value = jax.jit(lambda kind: jnp.asarray(kind.value()))
    made = [numbered(number) for number in range(150)]
    assert [int(value(kind)) for kind in made] == list(range(150))


def test_the_registry():
    assert normalisers.names() == [
        "entmax",
        "hardmax",
        "power",
        "relu",
        "relu-power",
        "sigmoid",
        "sigmoid-l1",
        "softmax",
        "softplus-l1",
        "sparsemax",
    ]
    for name in normalisers.names():
        made = normalisers.get(name)
        assert isinstance(made, Normaliser)
        assert made.name == name
        for attribute in ("analytic", "full_support", "shift_invariant", "unit_row_mass"):
            assert isinstance(getattr(made, attribute), bool)
    assert normalisers.get("relu-power", p=2.0, stage_one="softmax") == ca.ReluPower(2.0, ca.Softmax())
    assert normalisers.ReluPower(2.0, ca.Softmax()).shift_invariant
    assert not normalisers.ReluPower(2.0).shift_invariant


@pytest.mark.parametrize(
    ("name", "how", "error", "parts"),
    [
        ("power", {"p": 0.0}, DomainError, ["p = 0.0", "above 0"]),
        ("relu-power", {"p": float("nan")}, DomainError, ["p = nan", "above 0"]),
        ("relu-power", {"stage_one": "relu"}, SpecError, ["stage_one", "'relu'", "softplus-l1"]),
        ("entmax", {"alpha": 1.0}, DomainError, ["alpha = 1.0", "above 1"]),
        ("softmax", {"p": 2.0}, SpecError, ["softmax", "'p'", "none"]),
        ("softmex", {}, SpecError, ["softmex", "softmax"]),
    ],
)
def test_options_that_make_no_sense_are_refused(name, how, error, parts):
    with pytest.raises(error) as caught:
        normalisers.get(name, **how)
    for part in parts:
        assert part in str(caught.value)
