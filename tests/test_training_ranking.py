"""Published tables beside results: names, areas, Spearman's correlation and its interval."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from critattn.errors import DomainError
from critattn.training import collected, experiments, presets, prompts, ranking, variants
from critattn.training.alike import alike
from critattn.training.layers import parts_of
from critattn.training.published import PUBLISHED

COLUMNS = {one.key: one for one in PUBLISHED}


def test_published_columns_are_of_variants_that_can_be_trained():
    known = variants.every_variant()
    for one in PUBLISHED:
        assert one.source.startswith("arXiv ")
        assert set(one.values) <= set(known)
        assert not set(one.others) & set(known)
        assert all(0 <= value <= 1 for value in one.values.values()) or one.quantity == "loss"
    assert len({one.key for one in PUBLISHED}) == len(PUBLISHED)
    of_alibi = [one for one in PUBLISHED if one.key.startswith("alibi")]
    # the published table has 20 rows
    assert {len(one.values) + len(one.others) for one in of_alibi} == {20}
    mitigations = {one.name for one in experiments.experiment("alibi_mitigations").variants}
    assert all(set(one.values) == mitigations for one in of_alibi)


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("loss-1T", "lssar-p3", 3.18),
        ("loss-2T", "sigmoid", 7.46),
        ("loss-4T", "lssa", 5.30),
        ("loss-8T", "softmax-rope", 6.28),
        ("loss-8T", "lssar-p15", 3.32),
        ("ablation-8T", "first-stage-exp-p15", 7.02),
        ("ablation-8T", "first-stage-sigmoid-l1-p15", 3.86),
        ("passkey-1T", "softmax-rope", 0.64),
        ("passkey-1T", "lssar-p15", 0.86),
        ("passkey-1.5T", "softmax-rope", 0.0),
        ("passkey-1.5T", "lssar-p15", 0.45),
        ("alibi-loss", "softmax-rope", 2.842),
        ("alibi-passkey-in", "alibi-c-s", 0.66),
        ("alibi-passkey-out", "alibi-log", 0.77),
        ("alibi-passkey-out", "alibi-e-s", 0.12),
        ("alibi-needle-in", "softmax-alibi", 0.68),
        ("alibi-needle-out", "alibi-c", 0.17),
        ("alibi-needle-out", "alibi-c-e", 0.05),
    ],
)
def test_published_numbers_are_those_of_the_papers(key, name, value):
    assert COLUMNS[key].values[name] == value


def test_published_places_say_what_is_compared():
    places = {key: COLUMNS[key].place for key in ("loss-8T", "passkey-1T", "passkey-1.5T", "alibi-passkey-in")}
    assert places == {
        "loss-8T": "loss at 8T",
        "passkey-1T": "passkey in windows of T",
        "passkey-1.5T": "passkey in windows of 1.5T",
        "alibi-passkey-in": "passkey, 0 to T",
    }
    assert COLUMNS["ablation-8T"].bounds == ("first-stage-relu-l1-p15",)
    assert (COLUMNS["loss-8T"].source, COLUMNS["alibi-loss"].source) == ("arXiv 2501.13428", "arXiv 2608.03994")


@pytest.mark.parametrize("count", [3, 5, 17])
def test_spearman_is_that_of_scipy(count):
    rng = np.random.default_rng(count)
    # whole numbers, so that there are ties
    one, other = rng.integers(0, count, (2, count)).tolist()
    found = ranking.spearman(one, other)
    assert found.value == pytest.approx(stats.spearmanr(one, other).statistic)
    assert -1 <= found.low <= found.value <= found.high <= 1
    reversed_order = ranking.spearman(one, [-value for value in other])
    assert (reversed_order.low, reversed_order.high) == (-found.high, -found.low)


def test_perfect_order_of_four_may_be_chance_and_of_five_is_not():
    # without correlation all n points are in order with probability 1/n!: 1/24 > 2.5 % > 1/120
    four, five = (ranking.spearman(range(n), range(n)) for n in (4, 5))
    assert four.low < 0 < five.low
    assert four.high == five.high == 1


def test_the_interval_of_many_points_is_that_of_fisher():
    count, observed = 60, 0.5
    # of a rank correlation [Bonett & Wright 2000]
    half = 1.96 * math.sqrt((1 + observed**2 / 2) / (count - 3))
    wanted = np.tanh(np.arctanh(observed) + np.array([-half, half]))
    apart = (1,) * count
    found = ranking.lower(observed, apart, apart), -ranking.lower(-observed, apart, apart)
    # both are approximations to order 1/n; 4000 samples put a quantile of 2.5 % within 0.01
    np.testing.assert_allclose(found, wanted, atol=0.03)


def test_the_largest_value_that_ties_leave_room_for_has_no_upper_end():
    mine, published = [2, 4, 3, 1, 5], [3.19, 3.19, 3.19, 3.18, 3.19]
    found = ranking.spearman(mine, published)
    best = max(stats.spearmanr(sorted(mine), np.roll(published, shift)).statistic for shift in range(5))
    assert found.value == pytest.approx(best) == pytest.approx(0.5**0.5)
    assert found.high == 1
    # one of 5 places is the lowest: by chance that has probability 1/5, far above 2.5 %
    assert found.low < 0
    exchanged = ranking.spearman(published, mine)
    assert (exchanged.low, exchanged.high) == (found.low, found.high)


def _samples(r, count, repetitions):
    """Gaussian copula: two arrays (repetitions, count), and the rank correlation of the population."""
    x, noise = np.random.default_rng(1).standard_normal((2, repetitions, count))
    return x, r * x + math.sqrt(1 - r * r) * noise, 6 / math.pi * math.asin(r / 2)


@pytest.mark.slow
def test_intervals_of_values_that_are_rounded_to_two_levels_cover_the_correlation():
    x, y, wanted = _samples(0.9, 8, 2000)
    pairs = [(one, other) for one, other in zip((x > 0).tolist(), (y > 0).tolist(), strict=True)]
    found = [ranking.spearman(*pair) for pair in pairs]
    there = [one for one in found if one.value is not None]
    # all on one side in one of the lists: less often than 4/2^8
    assert len(there) > 2000 * (1 - 4 / 2**8) - 4 * math.sqrt(2000 * 4 / 2**8)
    least = 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(there))
    assert np.mean([one.low <= wanted <= one.high for one in there]) >= least
    # as if all were apart: a perfect agreement of two levels would exclude what it cannot see
    apart = (1,) * 8
    ends = [
        (ranking.lower(round(one.value, 12), apart, apart), ranking.lower(round(-one.value, 12), apart, apart))
        for one in there
    ]
    assert np.mean([low <= wanted <= -other for low, other in ends]) < least


def _coverage(observed, wanted, ties, others):
    """Share of observed values whose interval covers; the ends grow with the value, so that two places are enough."""
    values = np.unique(observed)
    begin = np.searchsorted([-ranking.lower(-one, ties, others[::-1]) >= wanted for one in values], True)
    end = np.searchsorted([ranking.lower(one, ties, others) > wanted for one in values], True)
    return np.mean(np.isin(observed, values[begin:end]))


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.0, 0.5, 0.9])
def test_intervals_with_ties_cover_as_often_as_they_say(r):
    ties, others = (2, 4, 3, 3), (5, 4, 3)
    x, y, wanted = _samples(r, 12, 4000)
    tied = [
        np.repeat(range(len(one)), one)[stats.rankdata(two, axis=1).astype(int) - 1]
        for one, two in ((ties, x), (others, y))
    ]
    observed = np.round(stats.pearsonr(*(stats.rankdata(one, axis=1) for one in tied), axis=1).statistic, 12)
    # of this simulation, and of the two ends that are simulated with as many samples
    spread = math.sqrt((0.95 * 0.05 + 2 * 0.025 * 0.975) / 4000)
    found = _coverage(observed, wanted, ties, others)
    assert found >= 0.95 - 4 * spread
    # each end may be too wide by one value that the statistic takes
    atom = max(np.unique(observed, return_counts=True)[1]) / 4000
    assert found <= 0.95 + 4 * spread + 2 * atom


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [([1, 2], [1, 2], "fewer than 3 variants"), ([1, 2, 3], [0, 0, 0], "the same number")],
)
def test_what_has_no_correlation_says_why(one, other, reason):
    found = ranking.spearman(one, other)
    assert found[:3] == (None, None, None)
    assert reason in found.reason


def test_lists_that_do_not_fit_are_refused():
    with pytest.raises(DomainError, match="as long and finite"):
        ranking.spearman([1, 2, 3], [1, 2, math.nan])


def test_an_area_is_the_integral_of_the_lines_between_the_points():
    distances, accuracies = [40, 60, 100, 150, 300], [1.0, 0.9, 0.5, 0.2, 0.0]
    fine = np.linspace(40, 100, 600_001)
    wanted = np.mean(np.interp(fine, distances, accuracies))
    # from the first distance on; a mean of 600,001 points of a line has the ends' share of error, 1e-6
    assert collected.area(distances, accuracies, low=0, high=100) == pytest.approx(wanted, abs=1e-5)
    # 100 to 150 by hand, and 150 to 200 on the line from 0.2 to 0
    by_hand = (50 * (0.5 + 0.2) / 2 + 50 * (0.2 + 0.2 * 2 / 3) / 2) / 100
    assert collected.area(distances, accuracies, low=100, high=200) == pytest.approx(by_hand)
    assert math.isnan(collected.area(distances, accuracies, low=100, high=400))


@pytest.mark.parametrize("name", ["smoke", "small"])
def test_variants_are_alike_where_their_layers_agree_within_the_training_length(name):
    shape = presets.preset(name).shape
    study = experiments.experiment("alibi_mitigations").variants
    found = alike(study, shape)
    assert sorted(one for group in found for one in group) == sorted(one.name for one in study)
    of = {one: group for group in found for one in group}
    how = {"keys": shape.length, "dim": shape.width // shape.heads}
    parts = {one.name: parts_of(one, shape.heads, shape.length, **how) for one in study}
    for one in study:
        for other in study:
            mine, theirs = parts[one.name], parts[other.name]
            equal = mine.cap == theirs.cap and one.positions == other.positions
            equal = equal and np.array_equal(mine.bias, theirs.bias)
            assert (other.name in of[one.name]) == equal, (one.name, other.name)
    # slopes of a quarter at most: 32 nats at 128 positions do not reach a floor of -87
    assert of["alibi-c"] == ("softmax-alibi", "alibi-c")
    # explicit ones reach it at T/64
    assert of["alibi-c-e"] == ("alibi-c-e",)


def test_a_clamp_that_is_reached_within_the_training_length_is_another_attention():
    study = experiments.experiment("alibi_mitigations").variants
    # at the published length the slopes of ALiBi reach the floor: 1023 positions at a half and less
    groups = {one: group for group in alike(study, presets.PAPER) for one in group}
    assert groups["alibi-c"] == ("alibi-c",)
    assert groups["alibi-clamp-log"] == ("alibi-log", "alibi-clamp-log")
    stages = [variants.named(name) for name in ("lssa", "lssar-p3", "lssar-p15", "cosine-logn-low", "cosine-logn-high")]
    assert len(alike(tuple(stages), presets.SMALL)) == len(stages)


def _record(name, loss, accuracies, *, seed=0, corpus="aa", **more):
    """What a dataset reads of a record; accuracies of both kinds of prompt by distance."""
    config = {"variant": variants.named(name).to_json(), "seed": seed, "corpus": corpus}
    losses = [{"multiple": 1, "window": loss, "last": loss}]
    found = [
        {"kind": kind, "distance": distance, "accuracy": accuracy}
        for kind in prompts.KINDS
        for distance, accuracy in accuracies.items()
    ]
    norms = {"query_gradient_norm": [[1.0, 2.0]], "key_gradient_norm": [[3.0, 4.0]]}
    curves = {"step": [10], "loss": [3.0], "gradient_norm": [9.0], **norms}
    return {"config": config, "corpus": {}, "losses": losses, "retrieval": found, "curves": curves, **more}


@pytest.fixture
def study():
    names = ["softmax-alibi", "softmax-rope", "alibi-c", "alibi-log", "lssar-p15"]
    found = [
        _record(name, 2.0 + place / 8, {48: 1.0, 128: 0.5 - place / 8, 192: 0.0, 256: 0.0})
        for place, name in enumerate(names)
    ]
    found[0]["corpus"] = {"source": "a folder"}
    wanted = experiments.Experiment(
        "five",
        "Five",
        tuple(variants.named(name) for name in names),
        presets.preset("small"),
        measures=experiments.MEASURES,
    )
    return wanted, found


def test_replicates_of_one_attention_are_ranked_once(study):
    data = collected.dataset(*study)
    found = {one.published.key: one for one in ranking.rankings(data)}
    assert list(found["alibi-loss"].here) == ["softmax-alibi", "softmax-rope", "alibi-log"]
    assert found["alibi-loss"].left_out == {"alibi-c": "softmax-alibi"}
    assert found["alibi-loss"].pairs == 3
    assert ranking.left_out(list(found.values())) == {"alibi-c": "softmax-alibi"}
    without = collected.dataset(study[0], study[1][1:])
    found = {one.published.key: one for one in ranking.rankings(without)}
    # the first of a group that was measured
    assert list(found["alibi-loss"].here) == ["softmax-rope", "alibi-c", "alibi-log"]
    assert not found["alibi-loss"].left_out


def test_a_window_is_the_mean_over_distances_up_to_its_length(study):
    found = {one.published.key: one for one in ranking.rankings(collected.dataset(*study))}
    # of softmax-rope: 1 at 48, .375 at 128, 0 at 192, by trapezia
    rope = [(1 + 0.375) / 2, ((1 + 0.375) / 2 * 80 + 0.375 / 2 * 64) / 144]
    assert [found[key].here["softmax-rope"] for key in ("passkey-1T", "passkey-1.5T")] == pytest.approx(rope)


@pytest.mark.parametrize("kind", prompts.KINDS)
def test_keys_in_training_are_nearer_than_the_training_length(kind):
    rng = np.random.default_rng(5)
    text = np.zeros(1000, np.uint8)
    made = []
    for _ in range(2000):
        one = prompts.make(kind, rng, 129, text=text).tobytes()
        made.append(125 - one.index(one[-4:]))
    found = ranking.farthest(kind, 128)
    # 2000 draws over at most 80 distances and 11 cities leave the farthest out with probability below e^-2
    assert found - 4 <= max(made) <= found < 128
    if kind == "passkey":
        assert found == 129 - len(b"The pass key is ") - 4


def test_records_of_several_texts_are_collected_with_their_gradients(study):
    data = collected.dataset(*study)
    # the norms of two matrices of two layers
    assert data["attention_gradient_norm"].sel(variant="softmax-rope", seed=0, step=10) == pytest.approx(math.sqrt(30))
    assert np.isfinite(data["loss"].values).all()
    spec = json.loads(data.attrs["spec"])
    assert spec["sources"] == ["a folder", "the standard library of Python"]


def test_a_seed_counts_once(tmp_path):
    wanted = experiments.experiment("passkey").changed(seeds=[0, 1, 0])
    assert wanted.seeds == (0, 1)
    assert len(wanted.runs(Path(tmp_path))) == 2 * len(wanted.variants)


def test_means_pass_over_what_is_not_there():
    assert collected.over_seeds([1.0, math.nan, 3.0])[0::3] == (2.0, 2)
    one = collected.over_seeds([1.0, math.nan])
    assert (one.value, one.seeds) == (1.0, 1)
    assert math.isnan(one.low)
    assert collected.over_seeds([math.nan]).seeds == 0
