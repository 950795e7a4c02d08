"""Tables: named, quick, the same twice, and equal to the theory that they tabulate."""

import math
import time

import numpy as np
import pytest

from critattn import formats, plotting, scaling, tables
from critattn.errors import SpecError
from critattn.theory import entmax, relu_power, simplex, softplus


@pytest.mark.parametrize("name", tables.names())
def test_a_table_is_named_and_the_same_twice(name):
    begun = time.process_time()
    first = tables.make(name)
    # 1.2 s at most on a quiet machine
    assert time.process_time() - begun < 6
    assert first.attrs["table"] == name
    assert first.attrs["title"].endswith(".")
    assert "numpy" in first.attrs["environment"]
    assert plotting.fingerprint(first) == plotting.fingerprint(tables.make(name))


def test_an_unknown_table_is_named_with_the_closest_one():
    with pytest.raises(SpecError, match="'famly'; did you mean 'family'. there is blind_heads, blind_matrix, family"):
        tables.make("famly")


def test_what_data_of_a_figure_name():
    assert tables.named("table:family") == "family"
    assert tables.named("study:depth") is None


def test_laws_have_their_own_gamma_and_cross_the_line_where_they_should():
    data = tables.make("scaling_laws")
    constant, n = data["gamma"].sel(law="constant"), data["n"]
    np.testing.assert_allclose(constant, 8 / np.log(n), rtol=1e-14)
    np.testing.assert_allclose(data["gamma"].sel(law="lssa"), math.log(64), rtol=1e-14)
    for rho in data["rho"].values:
        below = n.values[(constant < data["critical_gamma"].sel(rho=rho)).values][0]
        (crossing,) = scaling.crossings(scaling.entry("constant"), rho, 64.0)
        assert 1 < below / crossing.n < 1.02
    assert np.isfinite(data["gamma"]).all()


def test_the_family_localises_where_its_members_say():
    data = tables.make("family")
    rho = data["rho"].item()
    ends = data["limit"].isel(point=-1)
    localised = {str(name) for name in data["member"].values if ends.sel(member=name) > 0.5}
    assert localised == {"softmax", "power", "entmax", "sparsemax", "relu-power", "hardmax"}
    window = data["limit"].sel(member="sigmoid-2-log-n")
    inside = data["control"].sel(member="sigmoid-2-log-n").values[window.values > 0.5]
    assert 1 / (1 - rho) < inside.min() < 1 / (1 - rho) + 0.03
    assert 1 / rho - 0.03 < inside.max() < 1 / rho
    for name in ("softplus-l1", "sigmoid", "relu"):
        weights = data["self_weight"].sel(member=name)
        assert (weights * data["n"] <= 1 / rho + 1e-9).all()
    bound = entmax.identity_beta(rho, alpha=2.0)
    sparse = data.sel(member="sparsemax")
    assert (sparse["self_weight"].values[:, sparse["control"].values >= bound] == 1).all()


def test_entropies_go_to_their_limits():
    data = tables.make("softplus_entropy")
    last = data.isel(n=-1)
    assert last["softplus"].item() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(last["deficit"], last["deficit_limit"], rtol=1e-3)
    assert last["deficit_limit"].sel(rho_softplus=0.3).item() == pytest.approx(1.679909347753, abs=1e-11)
    assert data["softmax_limit"].values.tolist() == [1.0, 0.5, 0.0]
    assert last["softmax"].values == pytest.approx([1, 0.5, 0], abs=0.03)
    n = data["n"].values[100]
    expected = softplus.entropy(math.log(64), 0.3, math.log(n)) / math.log(n)
    assert data["softplus"].values[100] == pytest.approx(expected)
    assert data["gamma"].values[1] == simplex.critical_gamma(0.3)


@pytest.mark.slow
def test_weights_against_p_are_those_of_theory_and_cross_one_half_at_the_critical_p():
    data = tables.make("relu_power_weights")
    for n in (256.0, 8192.0):
        expected = relu_power.self_weight(data["p"].values, 0.3, math.log(n), 64)
        np.testing.assert_allclose(data["self_weight"].sel(n=n), expected, atol=1e-4)
    assert data["critical_p"].sel(n=1024.0).item() == pytest.approx(3.4753, abs=2e-4)
    at_critical = relu_power.self_weight(data["critical_p"].values, 0.3, np.log(data["n"].values), 64)
    np.testing.assert_allclose(at_critical, 0.5, atol=1e-4)
    assert data["hard_limit"].item() == 1
    assert (np.diff(data["self_weight"], axis=1) > 0).all()


def test_blind_heads_have_the_distances_of_their_slopes():
    data = tables.make("blind_heads")
    assert list(data["slope"].values) == [2.0 ** (-k / 2) for k in range(1, 17)]
    for name, ends in {"fp32": (148, 26617), "bf16": (132, 23778), "fp16": (25, 4437), "e4m3": (10, 1775)}.items():
        found = data["blindness_distance"].sel(format=name).values
        assert (found[0], found[-1]) == ends
        counted = [np.tril(np.subtract.outer(np.arange(2048), np.arange(2048)) >= found[0]).sum() / (2048 * 2049 / 2)]
        assert data["blind_fraction"].sel(format=name).values[0] == pytest.approx(counted[0], rel=1e-12)


def test_the_blind_matrix_counts_heads_whose_numerator_rounds_to_zero():
    """Against the casts themselves, where no product of slope and distance is a tie."""
    data = tables.make("blind_matrix")
    query, key = data["query"].values[:, None], data["key"].values
    distance = query - key
    slopes = tables.make("blind_heads")["slope"].values
    for name in data["format"].values:
        with np.errstate(under="ignore"):
            numerators = np.exp(-slopes[:, None, None] * np.maximum(distance, 0))
        blind = numerators <= formats.get(str(name)).smallest / 2
        found = data["blind_share"].sel(format=name).values
        np.testing.assert_array_equal(found[distance >= 0], blind.mean(axis=0)[distance >= 0])
        assert np.isnan(found[distance < 0]).all()


def test_positions_round_as_published():
    data = tables.make("position_rounding")["total_variation"]
    bf16 = data.sel(recipe="+m j, bf16")
    for head, n, printed in ((0, 1024, 0.230), (0, 2048, 0.386), (0, 4096, 0.608), (3, 2048, 0.188), (7, 2048, 0.063)):
        assert bf16.sel(head=head, n=n).item() == pytest.approx(printed, abs=5.1e-4)
    assert bf16.sel(head=15, n=2048).item() == pytest.approx(0.0039, abs=5.1e-5)
    assert (data.sel(recipe="-m(i-j), bf16") < 2e-3).all()


def test_measured_thresholds_lie_where_their_class_says():
    data = tables.make("format_thresholds")
    assert {"numpy exp", "jax softmax"} <= set(data["operation"].values)
    for name in data["format"].values:
        one = data.sel(format=name)
        for zero, kind in zip(one["first_zero"].values, one["kind"].values, strict=True):
            if kind in formats.KINDS:
                # one step of the format at that size
                assert abs(zero - one[str(kind)].item()) <= abs(zero) * 2.0 ** (
                    1 - formats.get(str(name)).significand_bits
                )
