"""Published tables beside results: names, areas, Spearman's correlation and its interval."""

import math

import numpy as np
import pytest
from scipy import stats

from critattn.errors import DomainError
from critattn.training import collected, experiments, ranking, variants
from critattn.training.published import PUBLISHED


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
    found = ranking.lower(observed, count), -ranking.lower(-observed, count)
    # both are approximations to order 1/n; 4000 samples put a quantile of 2.5 % within 0.01
    np.testing.assert_allclose(found, wanted, atol=0.03)


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


def test_means_pass_over_what_is_not_there():
    assert collected.over_seeds([1.0, math.nan, 3.0])[0::3] == (2.0, 2)
    one = collected.over_seeds([1.0, math.nan])
    assert (one.value, one.seeds) == (1.0, 1)
    assert math.isnan(one.low)
    assert collected.over_seeds([math.nan]).seeds == 0
