"""Blindness against brute force on real softmaxes, the published figures, and the recipes of real code."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critattn import blindness, families, formats
from critattn.biases import (
    Alibi,
    Clamp,
    KerpleLog,
    KerplePower,
    LogDistance,
    NtkScaled,
    Sandwich,
    T5Buckets,
    alibi_slopes,
    robust_slopes,
)
from critattn.blindness import blindness_distance
from critattn.blindness.certification import BLIND, UNDECIDED, VISIBLE, safe_bias
from critattn.blindness.distances import first_reached
from critattn.errors import DomainError, SpecError


def tau(name, kind="zero"):
    return formats.get(name).thresholds().of(kind)


FLUSHED = tau("fp32", "normal")
COLUMNS = [("bf16", "normal"), ("bf16", "zero"), ("fp32", "zero"), ("fp16", "zero"), ("e4m3", "zero"), ("e5m2", "zero")]
# least; largest distance, in the order of COLUMNS
MODELS = {
    "bloom-560m": "124 22359 132 23778 148 26617 25 4437 10 1775 17 3017",
    "jina-v2": "124 22359 132 23778 148 26617 25 4437 10 1775 17 3017",
    "mpt-7b": "104 22359 111 23778 124 26617 21 4437 9 1775 15 3017",
    "mpt-7b-storywriter": "124 5723688 132 6087097 148 6813915 25 1135653 10 454261 17 772244",
    "baichuan-13b": "96 22359 102 23778 114 26617 19 4437 8 1775 13 3017",
    "bloom-176b": "92 22359 97 23778 109 26617 19 4437 8 1775 13 3017",
    "falcon-rw-7b": "762 178866 811 190222 908 212935 152 35490 61 14196 103 24133",
    "falcon-rw-1b": "831 178866 884 190222 990 212935 165 35490 66 14196 113 24133",
}


@pytest.mark.parametrize("name", MODELS)
def test_distances_of_the_models(name):
    facts = families.get(name)
    bias = Alibi(alibi_slopes(facts.heads, facts.bias_max, rule=facts.rule))
    found = []
    for column in COLUMNS:
        distances = blindness_distance(bias, tau(*column), scale=facts.scale)
        found += [distances.min(), distances.max()]
    assert found == [float(word) for word in MODELS[name].split()]


FRACTIONS = {
    (2048, "bf16", "normal"): (0.3655, 0.2849),
    (2048, "bf16", "zero"): (0.3547, 0.2751),
    (2048, "fp32", "zero"): (0.3374, 0.2570),
    (2048, "fp16", "zero"): (0.6506, 0.5622),
    (2048, "e4m3", "zero"): (0.8156, 0.7253),
    (2048, "e5m2", "zero"): (0.7188, 0.6306),
    (8192, "bf16", "normal"): (0.6088, 0.5215),
    (8192, "bf16", "zero"): (0.5975, 0.5109),
    (8192, "fp32", "zero"): (0.5793, 0.4911),
    (8192, "fp16", "zero"): (0.8848, 0.8063),
}


@pytest.mark.parametrize("point", FRACTIONS)
def test_shares_of_sixteen_heads(point):
    length, name, kind = point
    distances = blindness_distance(Alibi(alibi_slopes(16)), tau(name, kind))
    blind = distances[:, None] <= np.arange(length)
    for over, printed in zip(("row", "matrix"), FRACTIONS[point], strict=True):
        share = blindness.blind_fraction(distances, length, over=over)
        assert share == pytest.approx(printed, abs=5.1e-5)
        assert share == pytest.approx(blindness.counted_fraction(blind, over=over), rel=1e-12)


def test_shares_of_a_whole_matrix_are_counted_entries():
    length, delta = 50, np.array([0.0, 1.0, 7.0, 49.0, 60.0, np.inf])
    i, j = np.indices((length, length))
    for one in delta:
        causal = np.mean((i - j)[i >= j] >= one)
        assert blindness.blind_fraction(one, length, over="matrix") == pytest.approx(causal, abs=1e-15)
        assert blindness.blind_fraction(one, length, over="square") == pytest.approx(
            np.mean(abs(i - j) >= one), abs=1e-15
        )
        marks = np.arange(length) >= one
        assert blindness.counted_fraction(marks, over="square") == pytest.approx(np.mean(abs(i - j) >= one), abs=1e-15)
    # the continuum is within 1/N of the count
    for over in ("row", "matrix"):
        pair = [blindness.blind_fraction(delta, length, over=over, continuum=one) for one in (False, True)]
        assert abs(pair[0] - pair[1]) < 1 / length
    assert blindness.blind_fraction(124.0, 1e300, over="matrix") == 1
    assert list(blindness.visible_window(np.array([1.0, 124.0]))) == [1, 247]


@pytest.mark.parametrize(
    ("exponent", "normalised", "numerators"), [(0.5, 123, 148), (2.0, 344, 416), (8.0, 20939, 26617)]
)
def test_normalised_and_numerator_rules(exponent, normalised, numerators):
    bias = Alibi(2.0**-exponent)
    assert blindness_distance(bias, FLUSHED, convention="normalised")[0] == normalised
    assert blindness_distance(bias, FLUSHED, convention="normalised", length=32768)[0] == normalised
    assert blindness_distance(bias, tau("fp32"))[0] == numerators


def softmax32(logits):
    numerators = np.exp((logits - logits.max()).astype(np.float32))
    return numerators / numerators.sum(dtype=np.float32)


@pytest.mark.parametrize("slope", [0.5**0.5, 0.25, 0.9])
def test_distances_are_those_of_a_real_softmax(slope):
    """numpy keeps subnormals: numerators vanish where the rule says; quotients k/Z of subnormals where k/Z <= 1/2."""
    logits = -slope * np.arange(2000.0)
    numerators = np.exp(logits.astype(np.float32))
    # the float32 logit differs from m d by half a unit of 64, that is 4e-6: no whole d is so close here
    assert int(np.argmax(numerators == 0)) == blindness_distance(Alibi(slope), tau("fp32"))[0]
    quantum, total = 2.0**-149, -1 / math.expm1(-slope)
    kept = np.rint(np.exp(logits) / quantum)
    expected = int(np.argmax(kept / total <= 0.5))
    assert int(np.argmax(softmax32(logits) == 0)) == expected
    # flushed by hand: normal weights stay, the others go
    normal = softmax32(logits) >= 2.0**-126
    assert int(np.argmin(normal)) == blindness_distance(Alibi(slope), FLUSHED, convention="normalised")[0]


@pytest.mark.parametrize(("exponent", "clamp"), [(0.5, None), (2.0, None), (8.0, None), (0.5, -87.0), (8.0, -87.0)])
def test_distances_are_those_of_the_backend(exponent, clamp):
    """A softmax on this backend, which flushes subnormals or not: with the clamp 32645 and 11829 zeros of 32768."""
    import jax
    import jax.numpy as jnp

    bias = Alibi(2.0**-exponent) if clamp is None else Clamp(Alibi(2.0**-exponent), clamp)
    weights = np.asarray(jax.nn.softmax(-jnp.asarray(bias.amount(np.arange(32768.0)), jnp.float32)))
    flushes = not np.asarray(jnp.exp(jnp.float32(-90.0))) > 0
    if flushes:
        threshold = FLUSHED
        found = blindness_distance(bias, threshold, convention="normalised", length=32768)[0]
        assert np.count_nonzero(weights == 0) == 32768 - found
    else:
        # a quotient of subnormals is zero no earlier than a single rounding says, and no later than numerators are
        first = 32768 - np.count_nonzero(weights == 0)
        once = blindness_distance(bias, tau("fp32"), convention="normalised", length=32768)[0]
        assert min(once, 32768) - 1 <= first <= min(blindness_distance(bias, tau("fp32"))[0], 32768)


@pytest.mark.parametrize(
    ("dtype", "name"), [(ml_dtypes.bfloat16, "bf16"), (np.float16, "fp16"), (ml_dtypes.float8_e4m3, "e4m3")]
)
def test_distances_are_those_of_a_real_cast(dtype, name):
    for slope in (0.7, 0.1, 0.031):
        weights = np.exp(-slope * np.arange(4000.0)).astype(np.float32).astype(dtype)
        assert int(np.argmax(weights == 0)) == blindness_distance(Alibi(slope), tau(name))[0]


def test_published_slopes_of_nine_heads():
    slopes = np.sort(alibi_slopes(9))[::-1]
    rounded = blindness_distance(Alibi(slopes), FLUSHED, convention="rounded")
    assert list(rounded) == [124, 175, 349, 699, 1397, 2795, 5590, 11179, 22358]
    least = blindness_distance(Alibi(slopes), FLUSHED)
    assert list(least) == [124, 175, 350, 699, 1398, 2795, 5590, 11180, 22359]


def test_the_logit_gap_moves_the_distance():
    for slope, moved in ((2**-0.5, 7), (2**-8, 1280)):
        base = blindness_distance(Alibi(slope), FLUSHED)[0]
        for gap in (-5.0, 5.0):
            shift = blindness_distance(Alibi(slope), FLUSHED, logit_gap=gap)[0] - base
            assert shift == pytest.approx(math.copysign(moved, gap), abs=1)
    assert blindness_distance(Alibi(0.5), FLUSHED, logit_gap=-200.0)[0] == 0


MONOTONE = {
    "alibi": lambda a, b: Alibi(a),
    "kerple-log": lambda a, b: KerpleLog(5 + 20 * a, b),
    "kerple-power": lambda a, b: KerplePower(a, 0.4 + b),
    "log": lambda a, b: LogDistance(8 + 10 * a),
    "ntk": lambda a, b: NtkScaled(Alibi(a), 1 + b),
}


@given(
    name=st.sampled_from(sorted(MONOTONE)),
    a=st.floats(0.02, 2.0),
    b=st.floats(0.1, 1.5),
    gap=st.floats(-5, 5),
    kind=st.sampled_from(COLUMNS),
)
def test_the_inverse_finds_what_a_search_finds(name, a, b, gap, kind):
    bias, threshold = MONOTONE[name](a, b), tau(*kind)
    found = blindness_distance(bias, threshold, logit_gap=gap)[0]
    limit = 1 << 18
    searched = first_reached(bias, max(0.0, gap - threshold), limit)
    assert found == searched or (found >= limit and searched == math.inf)


@given(st.floats(1e-3, 2.0), st.floats(1.0, 3.0), st.floats(-5, 5), st.sampled_from(blindness.CONVENTIONS))
def test_a_steeper_slope_is_blind_no_later(slope, factor, gap, convention):
    how = {"logit_gap": gap, "convention": convention}
    flat, steep = (blindness_distance(Alibi(m), FLUSHED, **how)[0] for m in (slope, slope * factor))
    # ln Z falls with the slope, by less than the bias at the threshold grows
    assert steep <= flat


@given(st.floats(1e-3, 2.0), st.floats(0.05, 20.0))
def test_scale_and_stretch_are_slopes(slope, factor):
    """A softmax scale s of score and bias makes slopes s m; a context a times longer m/a."""
    exact = blindness_distance(Alibi(slope * factor), FLUSHED)[0]
    # products are rounded differently: only whole numbers within 1e-12 of the real distance may differ, by one
    assert abs(blindness_distance(Alibi(slope), FLUSHED, scale=factor)[0] - exact) <= 1
    assert abs(blindness_distance(NtkScaled(Alibi(slope), 1 / factor), FLUSHED)[0] - exact) <= 1


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.sampled_from(COLUMNS))
def test_robust_slopes_reach_the_distance_they_were_made_for(wanted, kind):
    threshold = tau(*kind)
    assert list(blindness_distance(Alibi(robust_slopes(wanted, threshold)), threshold)) == wanted
    log = LogDistance(robust_slopes(wanted, threshold, log_distance=True))
    assert list(blindness_distance(log, threshold)) == wanted
    if kind == ("bf16", "normal"):
        moved = blindness_distance(Alibi(robust_slopes(wanted, threshold)), tau("bf16", "subnormal"))
        # 133/126 = 1.0556; the least whole number is at most one above
        assert np.all(moved >= np.array(wanted) * 133 / 126 - 1e-6)
        assert np.all(moved < np.array(wanted) * 133 / 126 + 1)


def test_logarithmic_distance():
    assert blindness_distance(LogDistance(2**-0.5), FLUSHED)[0] == pytest.approx(4.3733e53, rel=2e-5)
    assert blindness_distance(LogDistance(2**-0.5), tau("bf16", "subnormal"))[0] == pytest.approx(4.177e56, rel=2e-4)
    assert blindness_distance(LogDistance(2**-0.5), tau("fp32", "subnormal"))[0] == pytest.approx(2.706e63, rel=2e-4)
    logs = np.sort(blindness.log10_distance(LogDistance(alibi_slopes(9)), FLUSHED))
    np.testing.assert_allclose(logs, [53.6, 75.9, 151.7, 303, 607, 1214, 2428, 4855, 9710], rtol=2e-3)
    assert blindness_distance(LogDistance(2**-8), FLUSHED)[0] == math.inf


def test_sandwich_is_searched_for_its_first_zero():
    exact = Sandwich(1.0).amount(np.array([2048.0, 4096.0, 19812.0, 350766.0]))
    np.testing.assert_allclose(exact, [56.34, 67.27, 81.85, 87.36], atol=5e-3)
    assert blindness_distance(Sandwich(1.0), FLUSHED)[0] == 350766
    assert blindness_distance(Sandwich(1.07), FLUSHED)[0] == pytest.approx(19812, abs=200)
    # not monotone: what is blind at first is seen again further out
    amounts = 1.07 * Sandwich(1.0).amount(np.arange(20500.0))
    assert amounts.max() > -FLUSHED > amounts[-1]
    assert blindness_distance(Sandwich(0.5), FLUSHED)[0] == math.inf
    assert blindness_distance(T5Buckets(np.linspace(0, -80, 32)), FLUSHED)[0] == math.inf
    # the last bucket begins below 128; the table falls by 100/31 a bucket, and 28 of them make 90.3
    reached = blindness_distance(T5Buckets(np.linspace(0, -100, 32)), FLUSHED)[0]
    amounts = T5Buckets(np.linspace(0, -100, 32)).amount(np.arange(200))
    assert reached == np.argmax(amounts >= -FLUSHED)


def test_log_sums():
    for exponent, printed in ((0.5, 0.679), (1, 0.933), (8, 5.547)):
        endless = blindness.log_partition(Alibi(2.0**-exponent))
        assert endless == pytest.approx(printed, abs=6e-4)
        assert blindness.log_partition(Alibi(2.0**-exponent), length=200_000) == pytest.approx(endless, rel=1e-12)
    direct = math.log(sum(math.exp(-0.3 * 1.2 * math.log(1 + d)) for d in range(500)))
    assert blindness.log_partition(LogDistance(1.2), scale=0.3, length=500) == pytest.approx(direct, rel=1e-13)
    with pytest.raises(DomainError, match="length"):
        blindness.log_partition(LogDistance(1.2))


def test_a_log_n_scale_alone_hides_keys():
    for gap, printed in ((4, 3.0e9), (8, 55109), (12, 1449)):
        assert blindness.blind_length(gap, FLUSHED) == pytest.approx(printed, rel=0.013)
    assert math.ceil(blindness.blind_length(2, tau("fp16"))) == 5793
    assert math.ceil(blindness.blind_length(4, tau("fp16"))) == 77
    # the ratio at that length is the threshold
    n = blindness.blind_length(8, FLUSHED, gamma=1.3)
    assert n ** (-1.3 * 8) == pytest.approx(2.0**-126, rel=1e-12)
    assert blindness.blind_length(1e-3, FLUSHED) == math.inf


def test_where_the_mass_goes():
    for distance, printed in ((124, 8.3e-39), (25, 2.1e-8), (10, 8.5e-4)):
        assert blindness.flushed_mass(2**-0.5, distance) == pytest.approx(printed, rel=0.01)
    weights = np.exp(-0.3 * np.arange(40))
    assert blindness.flushed_mass(0.3, 7, 40) == pytest.approx(weights[7:].sum() / weights.sum(), rel=1e-13)
    assert blindness.flushed_mass(0.3, 40, 40) == 0
    logits = -0.3 * np.arange(40)
    exact = weights / weights.sum()
    kept = blindness.flushed_row(logits, -0.3 * 7)
    mass = blindness.flushed_mass(0.3, 7, 40)
    assert 0.5 * np.abs(kept - exact).sum() == pytest.approx(mass, rel=1e-12)
    np.testing.assert_allclose(kept[:7] * (1 - mass), exact[:7], rtol=1e-13)
    leaking = blindness.flushed_row(logits, math.log(exact[7]) + 1e-9, pipeline="leaking")
    assert leaking.sum() == pytest.approx(1 - mass, rel=1e-12)
    assert mass <= blindness.flushed_bound(math.log(exact[7]), 33)
    assert blindness.flushed_bound(tau("fp16"), 4096) == pytest.approx(4096 * 2.0**-25, rel=1e-12)


def test_absorption_comes_first():
    for name, expected, dtype in (("fp32", [24, 4259], np.float32), ("bf16", [8, 1420], ml_dtypes.bfloat16)):
        slopes = np.array([2**-0.5, 2**-8])
        assert list(blindness.absorption_distance(Alibi(slopes), formats.get(name))) == expected
        for slope, distance in zip(slopes, expected, strict=True):
            last, first = (np.exp(-slope * d) for d in (distance - 1, distance))
            assert dtype(1 + last) > dtype(1)
            assert dtype(1 + first) == dtype(1)


# Total variation of equal scores; of normal scores with the bias rounded, with score and sum too; relative form; fp16.
ROUNDED = {
    (0.5, 1024): (0.230, 0.256, 0.333, 0.0008, 0.065),
    (0.5, 2048): (0.386, 0.348, 0.455, 0.0008, 0.148),
    (1, 2048): (0.257, 0.257, 0.382, 0.0008, 0.059),
    (2, 2048): (0.188, 0.188, 0.289, 0.0009, 0.038),
    (4, 2048): (0.063, 0.062, 0.107, 0.0010, 0.011),
    (6, 2048): (0.0158, 0.0157, 0.0273, 0.0011, 0.0030),
    (8, 2048): (0.0039, 0.0039, 0.0071, 0.0014, 0.0008),
}


@pytest.mark.parametrize("point", ROUNDED)
def test_rounded_positions_against_printed_ones(point):
    exponent, length = point
    slope = 2.0**-exponent
    equal, bias, total, relative, half = ROUNDED[point]
    assert blindness.position_error(slope, length).total_variation == pytest.approx(
        equal, abs=5.1 * 10 ** -_digits(equal)
    )
    scores = np.random.default_rng(11).standard_normal((400, length))
    ways = (
        (bias, {"rounding": "bias"}),
        (total, {"rounding": "scores"}),
        (relative, {"rounding": "scores", "recipe": "relative"}),
        (half, {"rounding": "scores", "format": "fp16"}),
    )
    for printed, how in ways:
        found = blindness.position_error(slope, length, scores=scores, **how)
        # 4 standard errors of the difference between 400 rows here and 200 printed ones, and the printed digits
        error = 4 * found.standard_error * math.sqrt(1 + 2) + 0.5 * 10 ** -(_digits(printed) - 1)
        assert abs(found.total_variation - printed) < error
        assert error < max(0.2 * printed, 2e-3)


def _digits(value):
    return len(str(value).split(".")[1]) + 1


@pytest.mark.parametrize(
    ("format", "length", "distinct", "error"),
    [
        ("bf16", 512, 385, 1),
        ("bf16", 1024, 513, 2),
        ("bf16", 2048, 641, 4),
        ("bf16", 4096, 769, 8),
        ("bf16", 8192, 897, 16),
        ("fp16", 2048, 2048, 0),
        ("fp16", 4096, 3073, 1),
        ("fp16", 8192, 4097, 2),
    ],
)
def test_distinct_positions(format, length, distinct, error):
    found = blindness.position_error(1.0, length, format)
    assert (found.distinct, found.max_error) == (distinct, error)


def test_the_last_keys_share_few_biases():
    for exponent, groups in ((0.5, 7), (1, 9), (2, 9), (8, 9)):
        assert len(np.unique(blindness.rounded_bias(2.0**-exponent, 2048)[-64:])) == groups


@pytest.mark.parametrize(("head", "printed"), [(0, 0.1316), (7, 0.0631), (15, 0.0318), (31, 0.0079), (63, 0.0004)])
def test_the_falcon_recipe(head, printed):
    slope = alibi_slopes(64)[head]
    found = blindness.position_error(slope, 2048, recipe="falcon")
    assert found.total_variation == pytest.approx(printed, abs=5.1e-5)
    if head == 0:
        assert (found.distinct, found.resolution) == (601, 1.0)
        assert found.max_error == pytest.approx(8.62 / 8, abs=1e-3)
    # the plain loop, one key at a time, in real bfloat16
    half = ml_dtypes.bfloat16
    biases = [float(half(np.float32(half(slope)) * np.float32(half(j)))) for j in range(2048)]
    np.testing.assert_array_equal(blindness.rounded_bias(slope, 2048, recipe="falcon"), biases)


@pytest.mark.parametrize("format", ["bf16", "fp16"])
@pytest.mark.parametrize("length", [512, 1024, 2048, 4096])
def test_shifted_positions_are_the_same_only_on_paper(format, length):
    """[0..n] m against [-n..0] m, equal up to a constant of the row [vllm-project/vllm issue 1009]."""
    for slope in (0.5**0.5, 0.9):
        absolute = blindness.position_error(slope, length, format)
        relative = blindness.position_error(slope, length, format, recipe="relative")
        assert relative.total_variation < 1e-3
        assert absolute.total_variation > 20 * relative.total_variation
        assert absolute.resolution >= relative.resolution
    wide = blindness.position_error(0.5**0.5, length, "fp32")
    # float32 positions up to 2896 have an error of 2^-13
    assert wide.total_variation < 2e-4


def test_content_is_absorbed_from_a_position_on():
    assert blindness.resolution_onset(2**-0.5, 1.0) == 182
    assert blindness.resolution_onset(2**-8, 1.0) == 32768
    for position, unit in ((182, 1.0), (363, 2.0)):
        bias = blindness.rounded_bias(2**-0.5, position + 1)[-1]
        steps = np.unique((bias + np.arange(0, 8, 1 / 64)).astype(ml_dtypes.bfloat16).astype(float))
        assert np.diff(steps).min() == unit
        assert blindness.position_error(2**-0.5, position + 1).resolution == unit


def test_a_clamp_near_the_threshold_fails_after_division():
    """JAX on CPU returns as many exact zeros: 32645 and 11829 of 32768."""
    for exponent, zeros in ((0.5, 32645), (8, 11829)):
        answer = blindness.certify(Clamp(Alibi(2.0**-exponent), -87.0), FLUSHED, 32768)
        assert answer.verdict == BLIND
        assert 32768 - answer.blind_from[0] == zeros
        assert (
            blindness.certify(Clamp(Alibi(2.0**-exponent), -87.0), FLUSHED, 32768, normalised=False).verdict == VISIBLE
        )
    numerators = blindness.certify(Clamp(Alibi(0.5), -87.0), FLUSHED, 2048, normalised=False)
    assert numerators.slack == pytest.approx(0.3365, abs=5e-5)
    assert (
        blindness.certify(Clamp(Alibi(0.5), -87.0), FLUSHED, 2048, spread=0.34, normalised=False).verdict == UNDECIDED
    )


@given(
    kind=st.sampled_from(["alibi", "clamp", "buckets", "sandwich"]),
    slope=st.floats(0.02, 2.0),
    clamp=st.floats(-20.0, -1.0),
    spread=st.floats(0.0, 6.0),
    seed=st.integers(0, 2**32 - 1),
    normalised=st.booleans(),
)
def test_a_certificate_holds_for_rows_drawn_within_the_spread(kind, slope, clamp, spread, seed, normalised):
    table = np.random.default_rng(seed).uniform(clamp, slope, 16)
    made = {"alibi": Alibi(slope), "clamp": Clamp(Alibi(slope), clamp), "sandwich": Sandwich(slope, 32)}
    bias = made.get(kind) or T5Buckets(table, 40)
    threshold, length = tau("fp16"), 64
    answer = blindness.certify(bias, threshold, length, spread=spread, normalised=normalised)
    rng = np.random.default_rng(seed)
    ends = np.where(rng.random((20, length)) < 0.5, 0.0, spread)
    scores = np.concatenate([rng.uniform(0, spread, (20, length)), ends, np.full((1, length), 0.5 * spread)])
    logits = scores - bias.amount(np.arange(length))
    top = logits.max(axis=-1, keepdims=True)
    below = logits - top - (np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)) if normalised else 0)
    # 1e-12: the two sides add their logarithms in another order
    visible, blind = below > threshold - 1e-12, below <= threshold + 1e-12
    assert np.all(visible[:, : int(answer.visible_below[0])])
    if math.isfinite(answer.blind_from[0]):
        first = int(answer.blind_from[0])
        assert np.all(blind[:, first:] if kind in ("alibi", "clamp") else blind[:, first])
        assert answer.verdict == BLIND
    assert (answer.verdict == VISIBLE) == bool(answer.slack > 0) or abs(answer.slack) < 1e-12
    safe = safe_bias(bias, answer)
    if safe is not None:
        again = blindness.certify(safe, threshold, length, spread=spread, normalised=normalised)
        # for numerators the suggested clamp is the edge itself
        assert again.verdict == VISIBLE or (not normalised and abs(again.slack) < 1e-12)


def test_a_soft_cap_bounds_the_spread():
    for name, kind, largest in (("fp32", "normal", 43.67), ("bf16", "zero", 46.44), ("fp32", "zero", 51.99)):
        for cap, holds in ((largest - 0.01, True), (largest + 0.01, False)):
            answer = blindness.certify(Alibi(1e-9), tau(name, kind), 2, softcap=cap, normalised=False)
            assert (answer.verdict == VISIBLE) == holds
            assert (answer.safe_clamp is not None) == holds
    assert blindness.certify(Alibi(0.5), FLUSHED, 64, softcap=5.0, spread=3.0).spread == 3.0
    assert blindness.amplitude_is_safe(20.0, FLUSHED, spread=60.0, log_sum=7.0)
    assert not blindness.amplitude_is_safe(20.0, FLUSHED, spread=60.0, log_sum=7.4)


def test_every_published_figure_is_reproduced_by_its_convention():
    from critattn.blindness.errata import errata

    found = {one.name: one for one in errata()}
    assert all(one.reproduced for one in found.values())
    assert len(found) == 17
    values = {name: [reading.values for reading in one.others] for name, one in found.items()}
    assert values["bloom"] == [(131, 23601), (147, 26440), (132, 23778), (148, 26617)]
    assert values["falcon-rw"] == [(101, 23601), (762, 178865)]
    assert values["falcon-heads"] == [(91,)]
    assert values["mpt"][0] == (104, 22358)
    assert values["default-slopes"] == [(5723688,)]
    np.testing.assert_allclose(values["share-of-entries"], [[36.561], [28.486], [35.58], [35.47], [33.84]], atol=5e-3)
    np.testing.assert_allclose(values["share-of-one-head"], [[88.257], [93.945], [87.62]], atol=5e-3)
    np.testing.assert_allclose(values["explicit-log"][2], [24.98, 9.69], atol=5e-3)
    assert values["clamp"][0] == (32645,)


@pytest.mark.parametrize("name", families.names())
def test_every_family_can_be_computed(name):
    facts = families.get(name)
    assert facts.rule in ("press", "mpt", "ggml")
    assert facts.recipe in blindness.RECIPES
    assert len(alibi_slopes(facts.heads, facts.bias_max, rule=facts.rule)) == facts.heads
    assert facts.source
    assert (facts.scale == 1) != facts.scaled_bias


@pytest.mark.parametrize(
    "call",
    [
        lambda: blindness_distance(Alibi(0.5), 1.0),
        lambda: blindness_distance(Alibi(0.5), math.nan),
        lambda: blindness_distance(Alibi(0.5), FLUSHED, scale=0.0),
        lambda: blindness_distance(Alibi(0.5), FLUSHED, logit_gap=math.inf),
        lambda: blindness_distance(Alibi(0.5), FLUSHED, convention="ceil"),
        lambda: blindness.blind_fraction(-1.0, 10),
        lambda: blindness.blind_fraction(5.0, 0),
        lambda: blindness.blind_fraction(5.0, 10, over="heads"),
        lambda: blindness.counted_fraction(np.ones(3), over="heads"),
        lambda: blindness.certify(Alibi(0.5), FLUSHED, 0),
        lambda: blindness.certify(Alibi(0.5), FLUSHED, 64, spread=-1.0),
        lambda: blindness.certify(Alibi(0.5), FLUSHED, 64, softcap=0.0),
        lambda: blindness.position_error(0.0, 64),
        lambda: blindness.position_error(0.5, 1 << 25),
        lambda: blindness.position_error(0.5, 64, recipe="llama"),
        lambda: blindness.position_error(0.5, 64, rounding="twice"),
        lambda: blindness.resolution_onset(0.5, 0.3),
        lambda: blindness.flushed_mass(0.5, -1),
        lambda: blindness.flushed_mass(0, 1),
        lambda: blindness.flushed_mass(1, 1, 0),
        lambda: blindness.flushed_row(np.zeros(3), FLUSHED, pipeline="sideways"),
        lambda: blindness.blind_length(0.0, FLUSHED),
        lambda: families.get("bloom"),
    ],
)
def test_bad_input_is_one_line(call):
    with pytest.raises((DomainError, SpecError)) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_safe_clamp_counts_what_a_bias_raises():
    """A table that raises near keys by 6 nats makes the others that much weaker."""
    bias = T5Buckets(np.repeat([6.0, -40.0], 8), 40)
    for normalised in (False, True):
        answer = blindness.certify(bias, tau("fp16"), 64, spread=0.5, normalised=normalised)
        assert answer.verdict == BLIND
        # a thousandth inside the edge, which a numerator would touch
        safe = Clamp(bias, answer.safe_clamp + 1e-3)
        assert blindness.certify(safe, tau("fp16"), 64, spread=0.5, normalised=normalised).verdict == VISIBLE
    assert answer.safe_clamp == pytest.approx(tau("fp16") + 0.5 + 6 + math.log(64), rel=1e-13)


def test_a_clamp_below_the_threshold_hides_nothing_and_one_beyond_it_changes_nothing():
    assert blindness_distance(Clamp(Alibi(0.5), -20.0), FLUSHED)[0] == math.inf
    assert blindness.log10_distance(Clamp(Alibi(0.5), -20.0), FLUSHED)[0] == math.inf
    assert blindness_distance(Clamp(Alibi(0.5), -90.0), FLUSHED)[0] == blindness_distance(Alibi(0.5), FLUSHED)[0]
    assert np.isnan(blindness.log10_distance(Sandwich(1.0), FLUSHED)[0])


def test_normalised_fractions_are_those_counted_and_need_a_monotone_bias():
    bias = Alibi(np.array([0.02, 0.3]))
    logits = -np.array([0.02, 0.3])[:, None] * np.arange(400)
    blind = [logits[:, : n + 1] - np.log(np.exp(logits[:, : n + 1]).sum(axis=1))[:, None] for n in range(400)]
    marks = np.concatenate([row <= tau("e4m3") for row in blind], axis=1)
    assert blindness.normalised_fraction(bias, tau("e4m3"), 400) == pytest.approx(marks.mean(), abs=1e-12)
    last = blindness.normalised_fraction(bias, tau("e4m3"), 400, over="row")
    assert last == pytest.approx((blind[-1] <= tau("e4m3")).mean(), abs=1e-12)
    # 2000 equal keys have weights of 1/2000, which e4m3 rounds to 0: all entries of rows from 1024 keys on
    flat = blindness.normalised_fraction(Alibi(1e-20), tau("e4m3"), 2000)
    assert flat == pytest.approx(sum(range(1024, 2001)) / (2000 * 2001 / 2), abs=1e-12)
    for name, keys in (("e4m3", 2**10), ("e5m2", 2**17), ("fp16", 2**25)):
        found = [
            blindness_distance(Alibi(1e-30), tau(name), convention="normalised", length=n) for n in (keys, keys - 1)
        ]
        assert found[0] == 0 < keys <= found[1], name
    with pytest.raises(DomainError, match="monotone"):
        blindness.normalised_fraction(Sandwich(1.0), tau("e4m3"), 100_000)
    with pytest.raises(DomainError, match="length"):
        blindness.normalised_fraction(bias, tau("e4m3"), 0)
    with pytest.raises(SpecError, match="column"):
        blindness.normalised_fraction(bias, tau("e4m3"), 4, over="column")


@pytest.mark.parametrize(("slope", "length"), [(0.3, 7), (1e-9, 5000), (1e-20, 900), (5e-324, 2048)])
def test_the_sum_of_a_row_of_any_slope(slope, length):
    """The closed form loses no digits where the slope is tiny: ln Z is ln N less about m N/2."""
    direct = math.log(math.fsum(math.exp(-slope * distance) for distance in range(length)))
    assert blindness.log_partition(Alibi(slope), length=length) == pytest.approx(direct, rel=1e-13)
    assert blindness.log_partition(Alibi(5e-324), scale=1e-5) == math.inf
