"""ALiBi slopes: the rules against each other and against the words of their sources."""

import numpy as np
import pytest

from critattn.biases import RULES, alibi_slopes, check_slopes, robust_slopes
from critattn.errors import DomainError, SpecError


def recursive(heads):
    """The recursion that the ALiBi authors publish, in the plainest arithmetic."""
    if heads & (heads - 1) == 0:
        first = 2.0 ** (-(2.0 ** -(np.log2(heads) - 3)))
        return [first * first**i for i in range(heads)]
    below = 2 ** int(np.floor(np.log2(heads)))
    return recursive(below) + recursive(2 * below)[0::2][: heads - below]


@pytest.mark.parametrize("heads", range(1, 129))
def test_the_rules_of_press_mpt_and_ggml_agree(heads):
    press = alibi_slopes(heads)
    # the largest slope is below 1, so that 5e-16 is a few rounding units
    for rule in ("mpt", "ggml"):
        np.testing.assert_allclose(alibi_slopes(heads, rule=rule), press, rtol=0, atol=5e-16)
    # heads repeated products of a rounded base: half a unit each
    np.testing.assert_allclose(recursive(heads), press, rtol=heads * 2.3e-16)


def test_printed_slopes():
    twelve = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    np.testing.assert_allclose(alibi_slopes(12)[:8], twelve, rtol=0)
    np.testing.assert_allclose(alibi_slopes(12)[8:], [0.70710678, 0.35355339, 0.17677670, 0.08838835], atol=5e-9)
    np.testing.assert_allclose(alibi_slopes(9), [*twelve, 2**-0.5], rtol=1e-15)
    naive = [0.540030, 0.291632, 0.157490, 0.085049, 0.045929, 0.024803, 0.013394, 0.007233, 0.003906]
    np.testing.assert_allclose(alibi_slopes(9, rule="naive"), naive, atol=5e-7)


@pytest.mark.parametrize("heads", [9, 12, 40, 71, 112])
def test_head_counts_that_are_no_power_of_two_are_not_naive(heads):
    slopes = alibi_slopes(heads)
    assert slopes.min() == 2**-8
    assert not np.all(np.diff(slopes) < 0)
    assert len(np.unique(slopes)) == heads
    assert np.abs(np.sort(slopes)[::-1] - alibi_slopes(heads, rule="naive")).max() > 0.005


def test_bias_max_is_the_exponent_of_the_last_slope():
    for rule in RULES:
        np.testing.assert_allclose(alibi_slopes(32, 16.0, rule=rule)[-1], 2**-16, rtol=1e-14)


@pytest.mark.parametrize(
    ("heads", "bias_max"), [(0, 8), (-1, 8), (1.5, 8), (True, 8), (16, 0), (16, np.nan), (16, 1e4)]
)
def test_what_makes_no_slopes(heads, bias_max):
    with pytest.raises(DomainError, match="heads|bias_max"):
        alibi_slopes(heads, bias_max)


def test_unknown_rule_lists_the_known():
    with pytest.raises(SpecError, match="press, mpt, ggml, naive"):
        alibi_slopes(16, rule="geometric")


@pytest.mark.parametrize("bad", [[0.5, 0.0], [-0.5], [np.nan], [np.inf], [], [[0.5, 0.25]]])
def test_slopes_are_finite_and_positive(bad):
    with pytest.raises(DomainError, match="slopes"):
        check_slopes(bad)


def test_robust_slopes():
    wanted = np.array([128.0, 512.0])
    np.testing.assert_allclose(robust_slopes(wanted, -87.0) * wanted, 87.0, rtol=1e-15)
    np.testing.assert_allclose(np.expm1(87.0 / robust_slopes(wanted, -87.0, log_distance=True)), wanted, rtol=1e-13)
    for distances, threshold in (([0.0], -87.0), ([np.inf], -87.0), ([1.0], 0.0), ([1.0], -np.inf)):
        with pytest.raises(DomainError, match="distances|threshold"):
            robust_slopes(distances, threshold)
