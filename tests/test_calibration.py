"""Standard errors of samples: Student intervals at 95 % cover what all rows give, as often as they should."""

import itertools

import numpy as np
import oracles
import pytest
from scipy import stats

import critattn as ca
from critattn import tokens
from critattn.blocks import Sample
from critattn.observables import pair_components, pair_count, pair_error, pair_ratio, row_mean, widening

REPETITIONS = 400
LOWEST, HIGHEST = 0.91, 0.985
ROWS = ("self_weight", "entropy", "participation_ratio", "sum_of_squares", "largest_weight")
PAIRS = ("angle_ratio", "angle_ratio_of_means", "output_cosine", "effective_rho")
GRADIENTS = ("gradient_norm_squared", "gradient_norm")
CONSTANT = ("row_mass", "excluded_pairs")


def coverage(values, errors, exact, size):
    """Share of Student intervals that hold the exact value."""
    reach = stats.t.ppf(0.975, size - 1) * np.asarray(errors, dtype=float)
    return np.mean(np.abs(np.asarray(values) - exact) <= reach)


def subsets(total, size):
    """The rows of each repetition."""
    generator = np.random.default_rng([total, size])
    return [generator.choice(total, size, replace=False) for _ in range(REPETITIONS)]


def population(n, d, rho, gamma, a=0.0, *, draw=5):
    """Rows of some observables, and terms (above, below) of pairs of others, of one layer in numpy."""
    x = np.asarray(tokens.near_simplex(draw, n, d, rho=rho).vectors, dtype=float)
    weights = oracles.softmax_weights(x, gamma * np.log(n))
    before = x / np.linalg.norm(x, axis=1, keepdims=True)
    after = a * x + weights @ before
    after /= np.linalg.norm(after, axis=1, keepdims=True)
    cosines, moved, other = before @ before.T, after @ after.T, 1 - np.eye(n)
    ratio = (1 - moved) / np.where(other, 1 - cosines, 1)
    rows = {"self_weight": np.diag(weights), "sum_of_squares": np.sum(weights**2, axis=1)}
    pairs = {
        "angle_ratio": (ratio * other, other),
        "angle_ratio_of_means": ((1 - moved) * other, (1 - cosines) * other),
        "output_cosine": (moved * other, other),
        "effective_rho": (cosines * other, other),
    }
    return rows, pairs


def pair_table(above, below, chosen):
    """What `measure` hands to the reducer of a ratio over pairs: sums over the pairs of the chosen rows."""
    above, below = above[np.ix_(chosen, chosen)], below[np.ix_(chosen, chosen)]
    squares = np.sum((above - above.sum() / below.sum() * below) ** 2, axis=1)
    return {"above": above.sum(axis=1), "below": below.sum(axis=1), "squares": squares}


@pytest.mark.parametrize(("n", "m"), [(7, 4), (8, 5), (9, 8)])
def test_variance_of_a_sampled_u_statistic_is_unbiased(n, m):
    # every sample there is of a small population: the mean of the estimated variance is the variance, to rounding
    kernel = np.random.default_rng(n).exponential(size=(n, n))
    kernel, others = np.triu(kernel, 1) + np.triu(kernel, 1).T, 1 - np.eye(n)
    values, variances = [], []
    for chosen in itertools.combinations(range(n), m):
        table = pair_table(kernel, others, np.array(chosen))
        values.append(table["above"].sum() / (m * (m - 1)))
        _, single, interaction = pair_components(table, values[-1])
        second = interaction * (1 / (m * (m - 1)) - 1 / (n * (n - 1)))
        variances.append(4 * single * (1 / m - 1 / n) + 2 * second)
    assert np.mean(values) == pytest.approx(kernel.sum() / (n * (n - 1)), rel=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(values), rel=1e-10)


@pytest.mark.parametrize(
    ("draw", "n", "d", "rho", "gamma", "a", "m"),
    [
        (0, 400, 16, 0.4, 1.6, 0.0, 40),  # skew rows near the transition: skewness up to 3.7 in this draw
        (5, 400, 16, 0.4, 1.6, 1.0, 20),
        (5, 160, 16, 0.4, 1.6, 0.0, 120),  # most of the population
        (5, 600, 64, 0.0, 1.2, 0.0, 12),  # cosines with hardly any first-order term
        (5, 600, 64, 0.0, 4.0, 0.0, 60),  # angle ratios of frozen tokens with hardly any
    ],
)
def test_reducers_are_calibrated(draw, n, d, rho, gamma, a, m):
    rows, pairs = population(n, d, rho, gamma, a, draw=draw)
    chosen, sample = subsets(n, m), Sample(m, n, d)
    if gamma < 4:  # almost all frozen rows have self weight 1: skewness -6, of which 60 rows know too little
        for name, values in rows.items():
            found = [row_mean({"value": values[rows_of]}, sample) for rows_of in chosen]
            covered = coverage([e.value for e in found], [e.standard_error for e in found], values.mean(), m)
            assert LOWEST <= covered <= HIGHEST, (name, covered)
    for name, (above, below) in pairs.items():
        found = [pair_ratio(pair_table(above, below, rows_of), sample) for rows_of in chosen]
        exact = above.sum() / below.sum()
        covered = coverage([e.value for e in found], [e.standard_error for e in found], exact, m)
        assert LOWEST <= covered <= HIGHEST, (name, covered)


def test_counts_of_equal_pairs_are_calibrated():
    # twenty directions, each of ten to thirty tokens
    n, m = 400, 60
    labels = np.repeat(np.arange(20), np.tile([10, 20, 20, 30], 5))
    equal = (labels[:, None] == labels[None, :]) & ~np.eye(n, dtype=bool)
    found = [
        pair_count({"value": np.sum(equal[np.ix_(rows, rows)], axis=1).astype(float)}, Sample(m, n, 3))
        for rows in subsets(n, m)
    ]
    covered = coverage([e.value for e in found], [e.standard_error for e in found], equal.sum() / 2, m)
    assert LOWEST <= covered <= HIGHEST
    x = np.random.default_rng(0).standard_normal((20, 6))[labels]
    measured = ca.measure(ca.Attention(ca.LogN(1.5)), x, ["excluded_pairs"], sample_rows=m, seed=3)["excluded_pairs"]
    assert abs(measured.value - equal.sum() / 2) < 4 * measured.standard_error
    assert 0 < measured.standard_error < 0.2 * measured.value


@pytest.mark.slow
def test_measured_errors_are_those_of_the_pairs_in_numpy():
    n, a = 120, 0.5
    x = tokens.near_simplex(5, n, 8, rho=0.3)
    _, pairs = population(n, 8, 0.3, 1.6, a)
    # the least budget there is: blocks of 64 rows; 100 sampled rows are two of them
    for m in (30, 100):
        options = {"identity_weight": a, "sample_rows": m, "seed": 2, "memory_bytes": 1}
        found = ca.measure(ca.Attention(ca.LogN(1.6)), x, PAIRS, **options)
        chosen = np.sort(np.random.default_rng([2, 0x5A3B1E]).choice(n, size=m, replace=False))
        for name, (above, below) in pairs.items():
            expected = pair_ratio(pair_table(above, below, chosen), Sample(m, n, 8))
            assert found[name].value == pytest.approx(expected.value, rel=1e-12), name
            assert found[name].standard_error == pytest.approx(expected.standard_error, rel=1e-9), name


@pytest.mark.slow
def test_errors_vanish_as_all_rows_are_measured():
    n = 400
    rows, pairs = population(n, 16, 0.4, 2.5)
    spread = np.std(rows["self_weight"], ddof=1)
    above, below = pairs["output_cosine"]
    last = np.inf
    for m in (50, 200, 390, 399):
        chosen, sample, scale = subsets(n, m)[0], Sample(m, n, 16), np.sqrt(1 / m - 1 / n)
        error = row_mean({"value": rows["self_weight"][chosen]}, sample).standard_error
        assert error == pytest.approx(spread * scale, rel=0.2)
        error = pair_ratio(pair_table(above, below, chosen), sample).standard_error
        assert error < 0.9 * last
        last = error
    # one row is missing: the spread over which one it is
    missing = [np.delete(np.arange(n), k) for k in range(n)]
    values = [pair_ratio(pair_table(above, below, rows_of), sample).value for rows_of in missing]
    assert last == pytest.approx(np.std(values), rel=0.02)
    everything = ca.measure(ca.Attention(ca.LogN(2.5)), tokens.near_simplex(5, n, 16, rho=0.4), sample_rows=n)
    assert all(estimate.standard_error is None for estimate in everything.values())


def test_a_constant_has_no_error():
    sample = Sample(10, 50, 4)
    assert row_mean({"value": np.full(10, 0.25)}, sample).standard_error == 0
    assert widening(np.full(10, 0.25), sample) == 1
    table = {"above": np.full(10, 4.5), "below": np.full(10, 9.0), "squares": np.zeros(10)}
    assert pair_ratio(table, sample) == ca.protocols.Estimate(0.5, 0.0)
    assert pair_count({"value": np.zeros(10)}, sample) == ca.protocols.Estimate(0.0, 0.0)
    found = ca.measure(ca.Attention(ca.LogN(1.5)), oracles.gaussian_tokens(1, 50, 4, 0.3), CONSTANT, sample_rows=10)
    assert found["row_mass"].standard_error < 1e-15
    assert found["excluded_pairs"].standard_error == 0


def test_widening_grows_with_skewness_only():
    sample = Sample(5, 10**9, 1)
    assert widening(np.array([-2.0, -1, 0, 1, 2]), sample) == pytest.approx(1, rel=1e-14)
    values = np.array([0.0, 0, 0, 0, 1])
    # skewness 1.5 of the five times sqrt(20)/3 is sqrt(5); the Student quantile of 4 degrees of freedom is 2.776
    skewness = np.sqrt(5) * (1 + 27 / 16)
    assert widening(values, sample) == pytest.approx(1 + (2.776**4 + 2 * 2.776**2 - 3) * skewness**2 / 90, rel=1e-3)
    assert widening(values, Sample(5, 10, 1)) - 1 == pytest.approx((widening(values, sample) - 1) / 2, rel=1e-6)
    assert widening(-1e-180 * values, sample) == 1  # squares underflow


def test_pairs_without_squares_have_the_error_of_the_jackknife():
    _, pairs = population(200, 16, 0.0, 1.2)
    chosen, sample = subsets(200, 30)[0], Sample(30, 200, 16)
    table = pair_table(*pairs["effective_rho"], chosen)
    ratio = table["above"].sum() / table["below"].sum()
    sums = {key: table[key] for key in ("above", "below")}
    left_out = (table["above"].sum() - 2 * table["above"]) / (29 * 28)
    jackknife = np.sqrt(29 / 30 * np.sum((left_out - left_out.mean()) ** 2) * sample.correction)
    error = pair_error(sums, ratio, sample)
    assert error == pytest.approx(jackknife * widening(pair_components(sums, ratio)[0], sample), rel=1e-10)
    assert 1.2 < error / pair_error(table, ratio, sample) < 1.5
    assert pair_error(table, ratio, Sample(200, 200, 16)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "rho", "gamma", "a", "m"),
    [
        (400, 16, 0.4, 1.6, 0.0, 40),
        (400, 16, 0.4, 1.6, 1.0, 20),
        (400, 16, 0.4, 1.6, 0.0, 12),
        (1000, 64, 0.0, 1.2, 0.0, 100),
        (1000, 128, 0.5, 2.2, 0.0, 100),
        (1000, 16, 0.0, 1.0, 1.0, 40),
    ],
)
def test_measured_intervals_cover_the_exact_values(n, d, rho, gamma, a, m):
    x, layer = tokens.near_simplex(5, n, d, rho=rho), ca.Attention(ca.LogN(gamma))
    wanted = (*ROWS, *PAIRS, *GRADIENTS, *CONSTANT)
    exact = ca.measure(layer, x, wanted, identity_weight=a)
    draws = [ca.measure(layer, x, wanted, identity_weight=a, sample_rows=m, seed=seed) for seed in range(REPETITIONS)]
    missed = {}
    for name in (*ROWS, *PAIRS, *GRADIENTS):
        estimates = [draw[name] for draw in draws]
        errors = [estimate.standard_error for estimate in estimates]
        covered = coverage([estimate.value for estimate in estimates], errors, exact[name].value, m)
        if not LOWEST <= covered <= HIGHEST:
            missed[name] = covered
    assert not missed
    assert max(draw[name].standard_error for draw in draws for name in CONSTANT) < 1e-15


@pytest.mark.slow
def test_sampled_and_probed_gradients_cover_the_exact_value():
    x, layer = tokens.near_simplex(5, 300, 16, rho=0.4), ca.Attention(ca.LogN(2.5))
    exact = ca.measure(layer, x, GRADIENTS)
    draws = [ca.measure(layer, x, GRADIENTS, sample_rows=150, probes=2, seed=seed) for seed in range(REPETITIONS)]
    for name in GRADIENTS:
        errors = [draw[name].standard_error for draw in draws]
        covered = coverage([draw[name].value for draw in draws], errors, exact[name].value, 150)
        assert LOWEST <= covered <= HIGHEST, covered
