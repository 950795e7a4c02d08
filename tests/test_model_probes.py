"""Statistics of rows of logits, their predictions and tables, against loops in float64 and autodiff."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import t as student

from critattn import formats
from critattn.errors import DomainError, SpecError
from critattn.formats.emulation import emulate
from critattn.models import agreement, head_table, predictions, probes, random_rows, readings, sensitivity
from critattn.protocols import precision

HEADS, ROWS, N, WIDEST = 3, 6, 60, 256
REAL = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


def plain(logits):
    """Every statistic of one row of allowed logits, one number at a time, in float64."""
    row = np.sort(np.asarray(logits, np.float64))[::-1]
    k, gaps = len(row), row[0] - row[1:]
    weights = np.exp(row - logsumexp(row))
    found = {"spread": row.std(), "largest_weight": weights[0], "participation_ratio": 1 / np.sum(weights**2)}
    found["entropy"] = -sum(p * math.log(p) for p in weights if p > 0)
    found["jacobian_norm"] = np.linalg.eigvalsh(np.diag(weights) - np.outer(weights, weights))[-1]
    if k > 1:
        found["top_gap"] = gaps[0]
        found["gap"] = row[0] - (logsumexp(row[1:]) - math.log(k - 1))
        found["relative_entropy"] = found["entropy"] / math.log(k)
        found["freezing_ratio"] = found["spread"] / math.sqrt(2 * math.log(k))
    if k > 2:
        found["gap_ratio"] = found["gap"] / math.log(k - 1)
    if k > 2 and gaps[0] > 0:
        high = math.log(k - 1) / gaps[0] * (1 + 1e-9)
        found["critical_multiplier"] = brentq(lambda t: logsumexp(-t * gaps), 0, high, xtol=1e-300, rtol=1e-14)
        found["operating_point"] = 1 / found["critical_multiplier"]
    return found


def measured(logits, allowed=None, *, dtype="float64", exact_shape=False, **options):
    """Statistics of rows, beside masked keys and rows: one shape is compiled once."""
    logits = np.asarray(logits, dtype)
    heads, rows, n = logits.shape
    allowed = np.ones((rows, n), bool) if allowed is None else allowed
    if not exact_shape:
        padding = (HEADS - heads, ROWS - rows, WIDEST - n)
        logits = np.pad(logits, [(0, more) for more in padding])
        allowed = np.pad(allowed, [(0, more) for more in padding[1:]])
    with precision(dtype):
        found = probes.row_statistics(logits, allowed, **options)
        return {name: np.asarray(values)[:heads, :rows] for name, values in found.items()}


def causal_case(seed=0):
    rng = np.random.default_rng(seed)
    positions = np.array([0, 1, 2, 7, 30, N - 1])
    logits = 2.5 * rng.standard_normal((HEADS, ROWS, N))
    logits[1] *= 40
    logits[2, :, 0] += 6
    return logits, np.arange(N) <= positions[:, None]


@pytest.mark.parametrize("drop", [False, True])
def test_every_statistic_is_that_of_a_loop(drop):
    """Causal rows of 1 to 60 keys. All steps are backward stable: some hundred roundings of 1e-16."""
    logits, allowed = causal_case()
    logits = np.where(allowed, logits, np.nan)
    found = measured(logits, allowed, drop_first=drop)
    for h, r in np.ndindex(HEADS, ROWS):
        row = logits[h, r, allowed[r]]
        sink = np.exp(row[0] - logsumexp(row))
        row = row[drop:]
        expected = plain(row) if len(row) else {}
        if len(row) == 2:
            expected |= {"critical_multiplier": 0.0, "operating_point": math.inf}
        for name in (*probes.GAPS, *probes.WEIGHTS):
            wanted = expected.get(name, math.nan) if name != "sink_mass" else (sink if len(row) else math.nan)
            # eigvalsh is right to 1e-16 of the largest entry, 1; the entropy here sums p log p
            assert found[name][h, r] == pytest.approx(wanted, rel=1e-11, abs=1e-14, nan_ok=True), (name, h, r)


def test_float32_has_the_accuracy_of_its_logits():
    """Against float64 on the same float32 logits; an error of f in t_c is divided by an entropy, above .5 here."""
    logits = (2.6 * np.random.default_rng(1).standard_normal((HEADS, ROWS, WIDEST))).astype(np.float32)
    single, double = measured(logits, dtype="float32"), measured(logits)
    for name in (*probes.GAPS, *probes.WEIGHTS):
        assert single[name].dtype == np.float32
        np.testing.assert_allclose(single[name], double[name], rtol=200 * 2.0**-24, err_msg=name)


HARD = {
    "geometric gaps": -np.sort(10.0 ** -np.linspace(0, 12, 80)),
    "wide gaps": -(10.0 ** np.linspace(-9, 4, 80)),
    "near tie above a plateau": np.r_[0, -1e-12, np.full(78, -10.0)],
    "all close": np.r_[0, -1e-3 * (1 + 1e-9 * np.arange(79))],
    "huge": 1e4 * np.random.default_rng(2).standard_normal(80),
    "heavy tails": np.random.default_rng(3).standard_cauchy(80),
}


@pytest.mark.parametrize("name", HARD)
def test_both_roots_are_found_where_newton_has_far_to_climb(name):
    expected, found = plain(HARD[name]), measured(HARD[name][None, None])
    for statistic in ("critical_multiplier", "jacobian_norm"):
        assert found[statistic][0, 0] == pytest.approx(expected[statistic], rel=1e-12, abs=1e-15)
    multiplied = np.exp(found["critical_multiplier"][0, 0] * (HARD[name] - HARD[name].max()))
    assert 1 / multiplied.sum() == pytest.approx(0.5, abs=1e-12)


def test_the_jacobian_norm_keeps_its_relative_accuracy_where_it_is_tiny():
    """Two keys: 2 p (1 - p) in closed form, down to exp(-300); three: the trace bounds it."""
    gaps = np.array([0.0, 1e-9, 1.0, 40.0, 300.0])
    found = measured(np.stack([np.zeros(5), -gaps], 1)[None])["jacobian_norm"][0]
    np.testing.assert_allclose(found, 2 * np.exp(-gaps) / (1 + np.exp(-gaps)) ** 2, rtol=4e-16 * 8)


def test_ties_have_no_critical_multiplier_and_pairs_a_zero_one():
    rows = np.full((1, 4, 5), -np.inf)
    rows[0, 0, :4] = [3.0, 3.0, 1.0, 0.0]
    rows[0, 1, :2] = [2.0, 1.0]
    rows[0, 2, :2] = [2.0, 2.0]
    rows[0, 3, 4] = 1.0
    found = measured(rows)
    np.testing.assert_array_equal(found["critical_multiplier"][0], [np.nan, 0, np.nan, np.nan])
    np.testing.assert_array_equal(found["operating_point"][0], [np.nan, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(np.isnan(found["gap_ratio"][0]), [False, True, True, True])
    np.testing.assert_allclose(found["jacobian_norm"][0], [found["largest_weight"][0, 0], 2 * 0.19661193324, 0.5, 0])
    assert found["top_gap"][0, 0] == 0


def test_a_row_without_keys_is_nan_and_infinite_logits_are_masked_keys():
    logits, allowed = causal_case()
    allowed[0] = False
    found = measured(logits, allowed)
    assert all(np.isnan(values[:, 0]).all() for values in found.values())
    masked = measured(np.where(allowed, logits, -np.inf))
    for name, values in found.items():
        np.testing.assert_array_equal(values, masked[name], err_msg=name)


def test_blocks_of_rows_change_nothing(monkeypatch):
    logits, allowed = causal_case()
    whole = measured(logits, allowed)
    monkeypatch.setattr(probes, "CACHE_BYTES", 4 * N * 8)
    for name, values in measured(logits, allowed, exact_shape=True).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", list(REAL))
def test_shares_by_format_are_those_of_real_casts(name):
    """Gaps avoid the thresholds by 2^-16, ten times what float32 exponentials of such arguments err by."""
    form = formats.get(name)
    limits = form.thresholds()
    edges = -np.array([limits.zero, limits.subnormal, limits.normal, limits.absorption])
    around = np.r_[edges - 2.0**-16, edges + 2.0**-16, np.random.default_rng(4).uniform(0, 120, 200)]
    row = -np.r_[0.0, around]
    found = {key: values[0, 0] * len(row) for key, values in measured(row[None, None]).items()}
    numerators = emulate(row, name).numerators
    assert found[f"underflow_{name}"] == pytest.approx(np.sum(numerators == 0))
    # below 2^e before rounding, which is monotone: subnormal, or up to 2^e from within half a step
    exact = np.exp(row)
    assert found[f"subnormal_{name}"] == pytest.approx(np.sum(exact < np.ldexp(1.0, form.least_exponent)))
    weights = (exact / exact.sum()).astype(np.float32).astype(REAL[name])
    assert found[f"weight_underflow_{name}"] == pytest.approx(np.sum(weights == 0))
    one = np.array(1, REAL[name])
    added = np.array([np.float64(1) + x for x in exact]).astype(REAL[name])
    assert found[f"absorption_{name}"] == pytest.approx(np.sum(added == one))


def test_bfloat16_absorbs_from_two_to_the_minus_eight_on():
    """Not from 2^-9 on: 1 + 2^-8 is a tie that goes to the even 1, and whatever is above it counts."""
    one = np.array(1, ml_dtypes.bfloat16)
    for share, absorbed in ((2.0**-9, True), (2.0**-8, True), (2.0**-8 * 1.01, False)):
        assert (np.array(1 + share).astype(ml_dtypes.bfloat16) == one) == absorbed
        row = np.array([[[0.0, math.log(share) - 1e-12]]])
        assert measured(row)["absorption_bf16"][0, 0] == absorbed / 2


@settings(max_examples=25)
@given(st.lists(st.integers(-4000, 4000), min_size=8, max_size=8), st.integers(-500, 500), st.randoms())
def test_a_shift_and_a_permutation_change_nothing(row, shift, random):
    """Logits in 64ths, so that shifts are exact; sums in another order differ by a few roundings."""
    row = np.array(row) / 64
    order = list(range(8))
    random.shuffle(order)
    logits = np.stack([row, row + shift, row[order]])[None]
    found = measured(logits)
    for name in set(found) - {"sink_mass"}:
        np.testing.assert_allclose(found[name][0, 1:], found[name][0, 0], rtol=1e-11, atol=1e-14, err_msg=name)
    ratio, largest = found["gap_ratio"][0, 0], found["largest_weight"][0, 0]
    assert (ratio > 1) == (largest > 0.5) or abs(largest - 0.5) < 1e-12
    assert 0 <= found["jacobian_norm"][0, 0] <= 0.5 * (1 + 1e-14)


def test_multiplying_the_logits_divides_the_critical_multiplier():
    logits, allowed = causal_case()
    one, two = measured(logits, allowed), measured(2 * logits, allowed)
    np.testing.assert_allclose(two["critical_multiplier"] * 2, one["critical_multiplier"], rtol=1e-13)


def test_shapes_and_formats_are_checked():
    with pytest.raises(DomainError, match="shapes"):
        measured(np.zeros((2, 3, 4)), np.ones((4, 3), bool), exact_shape=True)
    with pytest.raises(SpecError, match="unknown"):
        measured(np.zeros((1, 1, 4)), formats=("fp17",))


def test_query_rows():
    np.testing.assert_array_equal(probes.query_rows(128), np.arange(112, 128))
    np.testing.assert_array_equal(probes.query_rows(3), [0, 1, 2])
    np.testing.assert_array_equal(probes.query_rows(8, 2, causal=False), [2, 6])
    with pytest.raises(DomainError, match="at least 1"):
        probes.query_rows(0)


def critical_multipliers(logits):
    """t_c of rows by bisection in numpy."""
    ordered = -np.sort(-logits, axis=-1)
    gaps = ordered[..., :1] - ordered[..., 1:]
    low, high = np.zeros(len(gaps)), math.log(gaps.shape[-1]) / gaps[..., 0]
    for _ in range(60):
        middle = (low + high) / 2
        above = np.exp(-middle[:, None] * gaps).sum(axis=-1) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def test_the_limiting_law_of_the_critical_multiplier():
    """sin(pi m)/(pi m) against weights of PD(m, 0), e_i^(-1/m) over their sum for Poisson points e_i: 4 sigma."""
    rng, draws = np.random.default_rng(5), 4000
    points = np.cumsum(rng.exponential(size=(draws, 2000)), axis=1)
    for m in (0.3, 0.6, 0.8):
        # the points beyond the last, whose mean is int_E^inf x^(-1/m) dx
        rest = points[:, -1] ** (1 - 1 / m) / (1 / m - 1)
        weights = points ** (-1 / m)
        share = np.mean(weights[:, 0] > (weights.sum(axis=1) + rest) / 2)
        expected = float(random_rows.limiting_probability(1 / m))
        assert expected == pytest.approx(math.sin(math.pi * m) / (math.pi * m))
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / draws))
    assert random_rows.limiting_probability(0.9) == 0
    assert np.sinc(1 / random_rows.limiting_median()) == pytest.approx(0.5, abs=1e-13)
    with pytest.raises(DomainError, match="positive"):
        random_rows.limiting_probability(0.0)


@pytest.mark.parametrize("keys", [3, 50, 400])
def test_the_law_at_a_finite_number_of_keys(keys):
    """Shares of simulated rows at five multipliers, within 4 sigma."""
    draws = 4000
    roots = critical_multipliers(np.random.default_rng(keys).standard_normal((draws, keys)))
    for reduced in (0.3, 0.8, 1.2, 2.0, 5.0):
        t = reduced * math.sqrt(2 * math.log(keys))
        expected = random_rows.crossing_probability(t, keys)
        sigma = math.sqrt(max(expected * (1 - expected), 1 / draws) / draws)
        assert np.mean(roots <= t) == pytest.approx(expected, abs=4 * sigma)


def test_three_keys_by_quadrature():
    """k = 3 by direct integration over the largest and one other score, the third in closed form."""
    grid = np.linspace(-9, 9, 361)
    phi = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi) * (grid[1] - grid[0])
    t = 1.3
    # given x and g_2 < x, g_3 must lie below x + log(1 - exp(t (g_2 - x)))/t
    x, g = grid[:, None], grid[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(g < x, x + np.log1p(-np.exp(t * (g - x))) / t, -np.inf)
    inner = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)))(bound)
    expected = 3 * np.sum(phi[:, None] * phi[None, :] * inner)
    # the trapezoidal rule meets the square-root-like edge at g = x: one cell of it, .05^2
    assert random_rows.crossing_probability(t, 3) == pytest.approx(expected, abs=2.5e-3)


def test_medians_of_many_key_counts_follow_the_exact_ones():
    keys = np.arange(100, 140)
    spline = random_rows.median_multipliers(keys)
    for k in (100, 117, 139):
        assert spline[k - 100] == pytest.approx(random_rows.median_multiplier(k), rel=1e-4)
    quartile = random_rows.median_multiplier(50, 0.25)
    assert random_rows.crossing_probability(quartile, 50) == pytest.approx(0.25, abs=1e-5)
    for bad in (lambda: random_rows.median_multiplier(2), lambda: random_rows.median_multiplier(9, 1.0)):
        with pytest.raises(DomainError):
            bad()
    with pytest.raises(DomainError, match="positive"):
        random_rows.crossing_probability(0.0, 9)


def gaussian_rows(keys=512, rows=400, spread=2.5, seed=6):
    return spread * np.random.default_rng(seed).standard_normal((rows, keys))


def test_score_statistics_are_those_of_a_loop():
    logits, allowed = causal_case(7)
    found = predictions.score_statistics(logits[0], allowed)
    for r in range(ROWS):
        row = np.sort(logits[0, r, allowed[r]])[::-1]
        if len(row) < 8:
            assert np.isnan(found.height[r])
            continue
        u = math.ceil(math.sqrt(len(row) - 1))
        assert found.keys[r] == len(row)
        assert found.height[r] == pytest.approx(row[0] - row[1:].mean())
        assert found.spread[r] == pytest.approx(row[1:].std())
        assert found.row_spread[r] == pytest.approx(row.std())
        assert found.upper[r] == u
        assert found.depth[r] == pytest.approx(row[0] - row[u + 1])
        assert found.excess[r] == pytest.approx((row[1 : u + 1] - row[u + 1]).mean())


def test_the_annealed_root_solves_its_equation():
    height, spread, keys = np.array([12.0, 8.0, 3.0]), np.array([2.0, 1.0, 2.0]), np.array([1024, 30, 1024])
    found = predictions.annealed_multiplier(height, spread, keys)
    t = np.minimum(found, 1e9)
    np.testing.assert_allclose((t * height - t**2 * spread**2 / 2)[:2], np.log(keys - 1)[:2], rtol=1e-13)
    assert found[2] == np.inf


def test_predictions_of_a_key_far_above_a_gaussian_row():
    """The annealed mean of n exponentials errs by its own spread, e^(t^2 s^2/2)/sqrt(n) of log odds: here 5 %."""
    rows = np.concatenate([np.full((400, 1), 15.0), gaussian_rows(spread=2.0)], axis=1)
    exact = critical_multipliers(rows)
    found = agreement.validation(predictions.predicted_multipliers(rows), exact)
    s = 2 * np.median(exact)
    log_odds_error = math.exp(s**2 / 2) / math.sqrt(512)
    for name in ("annealed", "random_energy", "tail"):
        # of t_c relative: divided by t G - t^2 s^2, the slope of the log odds times t; four times it for outliers
        bound = 4 * log_odds_error / (15 * np.median(exact) - s**2)
        assert found[name].missing == 0
        assert abs(found[name].median) < bound / math.sqrt(400) + found[name].spread / 5
        assert found[name].spread < bound
        assert found[name].favourable
    assert not found["spread"].favourable


def test_predictions_of_gaussian_rows():
    """The laws of their errors: 400 rows, medians within 4 standard errors of the values of docs/theory.md."""
    rows = gaussian_rows()
    found = agreement.validation(predictions.predicted_multipliers(rows), critical_multipliers(rows))
    # the spread alone is exact in the median: half of the rows lie above it, within 4 sigma of a share
    assert np.mean(found["spread"].errors > 0) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(400))
    # 1.25 spread/sqrt(rows) is the standard error of a median; .1 the stated bias
    for name in ("random_energy", "tail"):
        assert abs(found[name].median) < 0.1 + 4 * 1.25 * found[name].spread / 20
        assert found[name].correlation > 0.8
        assert found[name].favourable
    # a row has an annealed root where its top key is above s sqrt(2 log(k-1)), and only there
    heights = predictions.score_statistics(rows)
    above = heights.height >= heights.spread * math.sqrt(2 * math.log(511))
    np.testing.assert_array_equal(np.isfinite(found["annealed"].errors), above)
    assert not found["annealed"].favourable


def test_the_truncated_and_the_tail_law_by_quadrature():
    grid = np.linspace(-60, 0, 600_001)
    for t, depth, height, spread in (
        (0.5, 0.0, 9.0, 2.0),
        (6.0, 0.0, 9.0, 2.0),
        (3.0, 2.0, 7.0, 2.5),
        (1.0, 1.0, 0.5, 1.0),
    ):
        density = np.exp(-((grid + height) ** 2) / (2 * spread**2)) * (grid <= -depth)
        expected = np.sum(density * np.exp(t * grid)) / np.sum(density)
        found = predictions._truncated_gaussian(*(np.array(x) for x in (t, depth, height, spread)))
        # one cell of 1e-4 at the cut
        assert found == pytest.approx(math.log(expected), abs=2e-3)
    for share in (0.01, 0.3, 0.5, 0.7):
        rate = predictions._tail_rate(np.array(3 * share), np.array(3.0))
        x = np.linspace(0, 3, 300_001)
        law = np.exp(-rate * x)
        assert np.sum(x * law) / np.sum(law) == pytest.approx(3 * share, rel=1e-3)


def test_random_energy_far_beyond_freezing_is_the_frozen_branch():
    """A top key inside the bulk, G = s: t_c = t_f + A to first order in s/(t_c - t_f), which is 1/400 here."""
    keys, spread = 1001, 0.01
    t = predictions.random_energy_multiplier(spread, spread, keys)
    density = (keys - 1) * math.exp(-0.5) / math.sqrt(2 * math.pi) / spread / (0.5 * math.erfc(-1 / math.sqrt(2)))
    assert float(t) == pytest.approx(1 / spread + density, rel=2 / 200)


def test_rows_without_a_prediction():
    equal, short = np.zeros((1, 20)), np.arange(5.0)[None]
    for rows in (equal, short):
        assert all(np.isnan(values).all() for values in predictions.predicted_multipliers(rows).values())
    with pytest.raises(DomainError, match="NaN"):
        predictions.score_statistics(np.array([np.nan, 1.0]))


def test_agreement_by_hand():
    measured_values = np.array([1.0, 2.0, 4.0, np.nan, 5.0])
    given_values = {"a": np.array([1.1, 2.0, 2.0, 1.0, np.nan])}
    found = agreement.validation(given_values, measured_values)["a"]
    np.testing.assert_allclose(found.errors, [0.1, 0, -0.5, np.nan, np.nan])
    assert (found.median, found.within, found.missing) == pytest.approx((0, 0.5, 0.25))
    assert found.correlation == pytest.approx(math.sqrt(3) / 2)
    assert found.favourable
    empty = agreement.validation({"a": np.full(5, np.nan)}, measured_values)["a"]
    assert empty.missing == 1
    assert not empty.favourable
    with pytest.raises(DomainError, match="shape"):
        agreement.validation({"a": [1.0]}, measured_values)
    with pytest.raises(DomainError, match="tolerance"):
        agreement.validation({}, measured_values, tolerance=0)


class View:
    """The two methods of a layer that are read."""

    def __init__(self, seed):
        self.all = 2 * np.random.default_rng(seed).standard_normal((2, 40, 40)).astype(np.float32)

    def logits(self, rows):
        return jnp.asarray(self.all[:, rows])

    def allowed(self, rows):
        return jnp.asarray(np.arange(40) <= np.asarray(rows)[:, None])


def test_a_layer_read_at_two_lengths_at_once():
    rows = np.r_[probes.query_rows(20, 8), probes.query_rows(40, 8)]
    view, names = View(0), readings.reading_names()
    found = readings.read_layer(view, rows)
    assert found.shape == (len(names), 2, 2, 16)
    wanted = names.index("critical_multiplier")
    for h, r in ((0, 0), (1, 15)):
        for drop in (0, 1):
            row = view.all[h, rows[r], drop : rows[r] + 1]
            assert found[wanted, h, drop, r] == pytest.approx(plain(row)["critical_multiplier"], rel=1e-4)
            tail = predictions.predicted_multipliers(row)["tail"]
            assert found[names.index("predicted_tail"), h, drop, r] == pytest.approx(float(tail))
    assert len(readings.reading_names(predictions=False)) == len(readings.read_layer(view, rows, predictions=False))


def reading(text, values):
    return readings.TextReading(text, ("x", "critical_multiplier"), (20,), values)


def test_a_table_over_three_texts():
    rng = np.random.default_rng(8)
    texts = [rng.lognormal(size=(2, 1, 3, 2, 2, 7)) for _ in range(3)]
    texts[0][0, 0, 1, 0, 0, :3] = np.nan
    table = head_table.summarise([reading(str(i), values) for i, values in enumerate(texts)])
    medians = np.array([np.nanmedian(values, axis=-1) for values in texts])
    np.testing.assert_allclose(table.values[0], medians[:, 0].mean(axis=0))
    np.testing.assert_allclose(table.errors[0], medians[:, 0].std(axis=0, ddof=1) / math.sqrt(3))
    np.testing.assert_allclose((table.high - table.values)[0], student.ppf(0.975, 2) * table.errors[0])
    # t_c is averaged as 1/t_c, and its ends are those of 1/t_c
    points = 1 / medians[:, 1]
    error = points.std(axis=0, ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(table.values[1], 1 / points.mean(axis=0))
    np.testing.assert_allclose(table.errors[1], error / points.mean(axis=0) ** 2)
    np.testing.assert_allclose(1 / table.low[1], points.mean(axis=0) + student.ppf(0.975, 2) * error)
    least = points.mean(axis=0) - student.ppf(0.975, 2) * error
    np.testing.assert_allclose(table.high[1], np.where(least > 0, 1 / np.where(least > 0, least, 1), np.inf))
    np.testing.assert_allclose(table.by_text[:, 1], medians[:, 1])
    assert table.found[0, 0, 1, 0, 0] == pytest.approx(18 / 21)
    assert table.between == "texts"
    dropped = table.column("x", 20, "dropped")
    np.testing.assert_array_equal(table.percentiles("x", 20, "dropped"), np.percentile(dropped, [5, 25, 50, 75, 95]))
    np.testing.assert_allclose(table.layer_medians("x", 20), np.median(table.column("x", 20), axis=1))
    low, high = table.bootstrap("x", 20)
    kept = medians[:, 0, 0, :, :, 0]
    # the smallest and the largest of the draws have all three texts equal
    assert np.all((kept.min(axis=0) <= low) & (low <= table.column("x", 20)) & (high <= kept.max(axis=0)))
    first = table.records()[0]
    assert first["value"] == table.values[0, 0, 0, 0, 0]
    assert (first["statistic"], first["length"], first["sink"], first["between"]) == ("x", 20, "kept", "texts")
    assert len(table.records()) == 2 * 3 * 2 * 2
    for bad in (("y", 20, "kept"), ("x", 21, "kept"), ("x", 20, "lost")):
        with pytest.raises(SpecError, match="known"):
            table.column(*bad)


def test_one_text_has_intervals_over_row_blocks():
    values = np.random.default_rng(9).standard_normal((2, 1, 1, 1, 2, 16))
    table = head_table.summarise([reading("only", values)])
    blocks = np.median(values[0, 0, 0, 0, 0].reshape(4, 4), axis=1)
    assert table.between == "row blocks"
    assert table.values[0, 0, 0, 0, 0] == np.median(values[0, 0, 0, 0, 0])
    assert table.errors[0, 0, 0, 0, 0] == pytest.approx(blocks.std(ddof=1) / 2)
    assert np.isnan(table.bootstrap("x", 20)[0]).all()
    other = values.copy()
    other[0, 0, 0, 0, 0, :9] = np.inf
    never = head_table.summarise([reading("only", values), reading("never", other)])
    assert never.values[0, 0, 0, 0, 0] == np.inf
    assert never.records()[0]["value"] is None
    assert np.isnan(never.bootstrap("x", 20)[1][0, 0])
    missing = head_table.summarise([reading("none", np.full((2, 1, 1, 1, 2, 1), np.nan))])
    assert missing.records()[0]["value"] is None
    assert np.isnan(missing.percentiles("x", 20)).all()


def test_readings_that_do_not_fit_are_refused():
    one = reading("one", np.zeros((2, 1, 1, 1, 2, 4)))
    with pytest.raises(DomainError, match="shape"):
        reading("bad", np.zeros((2, 1, 1, 1, 3, 4)))
    with pytest.raises(DomainError, match="differs"):
        head_table.summarise([one, reading("other", np.zeros((2, 1, 2, 1, 2, 4)))])
    with pytest.raises(DomainError, match="empty"):
        head_table.summarise([])
    with pytest.raises(DomainError, match="resamples"):
        head_table.summarise([one]).bootstrap("x", 20, resamples=1)


def test_the_table_holds_predictions_against_measurements():
    names, rows = readings.reading_names(), probes.query_rows(40, 16)
    values = [np.stack([readings.read_layer(View(seed + layer), rows) for layer in (0, 1)], 1) for seed in (0, 10)]
    made = [readings.TextReading(str(i), names, (40,), value[:, None]) for i, value in enumerate(values)]
    found = head_table.summarise(made).agreement(40)
    assert set(found) == set(predictions.PREDICTIONS)
    assert found["tail"].errors.shape == (2, 2)


def test_medians_leave_out_nan_and_keep_infinity():
    rows = np.array([[1, np.nan, 3, 2], [np.inf, 1, np.inf, 2], [np.nan] * 4, [np.inf, 2, np.nan, np.nan]])
    np.testing.assert_array_equal(readings.median(rows), [2, np.inf, np.nan, np.inf])


def test_effective_rho_is_the_mean_of_all_cosines():
    rng = np.random.default_rng(10)
    tokens = rng.standard_normal((3, 30, 8)) + 2 * rng.standard_normal((3, 1, 8))
    for centred in (False, True):
        shifted = tokens - centred * tokens.mean(axis=1, keepdims=True)
        units = shifted / np.linalg.norm(shifted, axis=-1, keepdims=True)
        cosines = (units @ np.swapaxes(units, -1, -2))[:, ~np.eye(30, dtype=bool)]
        np.testing.assert_allclose(sensitivity.effective_rho(tokens)[centred], cosines.mean(axis=1), rtol=1e-12)


def test_effective_rho_of_tokens_without_a_direction():
    found = sensitivity.effective_rho(np.array([[1.0, 0], [0, 0], [1, 0], [1e-200, 0]]))
    assert found.raw == pytest.approx(1)
    same = sensitivity.effective_rho(np.full((5, 3), 0.1))
    assert same.raw == pytest.approx(1)
    assert np.isnan(same.centred)
    with pytest.raises(DomainError, match="at least 2"):
        sensitivity.effective_rho(np.ones((1, 3)))
    with pytest.raises(DomainError, match="finite"):
        sensitivity.effective_rho(np.full((2, 3), np.inf))


def head(query, value, x):
    scores = x @ query @ x.T
    return jax.nn.softmax(jnp.where(jnp.tri(len(x), dtype=bool), scores, -jnp.inf), axis=1) @ x @ value


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_the_gradient_norm_is_that_of_the_exact_jacobian(mode):
    """Within 4 standard errors of the exact variance, and the standard error found within 4 of its own."""
    rng = np.random.default_rng(11)
    n, width, probes_ = 5, 4, 300
    with precision("float64"):
        x = jnp.asarray(rng.standard_normal((n, width)))
        weights = [jnp.asarray(rng.standard_normal(shape)) / 2 for shape in ((width, width), (width, 3))]
        made = jax.tree_util.Partial(head, *weights)
        jacobian = np.asarray(jax.jit(jax.jacfwd(made))(x)).reshape(n * 3, n * width)
        gram = jacobian @ jacobian.T if mode == "vjp" else jacobian.T @ jacobian
        error = math.sqrt(2 * (np.sum(gram**2) - np.sum(np.diag(gram) ** 2)) / probes_)
        found = sensitivity.gradient_norm(made, x, jax.random.key(0), probes=probes_, mode=mode)
        assert found.value == pytest.approx(np.sum(jacobian**2), abs=4 * error)
        # a deviation has the relative error sqrt((kurtosis - 1)/(4 probes)); a squared normal has kurtosis 15
        assert found.standard_error == pytest.approx(error, rel=4 * math.sqrt(14 / 4 / probes_))


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_any_function_will_do(mode):
    """3 x has |J u|^2 = 9 |u|^2 for every vector of signs: exact, without spread."""
    found = sensitivity.gradient_norm(lambda x: 3 * x, jnp.ones((4, 6)), jax.random.key(2), probes=2, mode=mode)
    assert (found.value, found.standard_error) == (9 * 24, 0)


def test_a_partial_is_compiled_once_for_all_heads():
    x = jnp.ones((4, 6))
    before = sensitivity._compiled._cache_size()
    for scale in (1.0, 2.0, 3.0):
        weights = (scale * jnp.eye(6), jnp.ones((6, 2)))
        sensitivity.gradient_norm(jax.tree_util.Partial(head, *weights), x, jax.random.key(1), probes=2)
    assert sensitivity._compiled._cache_size() == before + 1


def test_gradient_norm_refuses():
    x = jnp.ones((4, 6))
    with pytest.raises(DomainError, match="probes"):
        sensitivity.gradient_norm(lambda y: y, x, jax.random.key(1), probes=1)
    with pytest.raises(SpecError, match="mode"):
        sensitivity.gradient_norm(lambda y: y, x, jax.random.key(1), mode="forward")
