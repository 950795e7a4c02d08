"""Queries that differ from keys: negative common scores in simulation against exact roots, and what is refused."""

import dataclasses
import json

import jax
import numpy as np
import oracles
import pytest
from click.testing import CliRunner

import critattn as ca
from critattn import gradient, observables, thresholds, tokens
from critattn.attention import Attention
from critattn.biases import Shift
from critattn.cli import main
from critattn.comparison import compare, predict
from critattn.diagnosis import diagnose
from critattn.errors import DomainError, SpecError
from critattn.measurement import measure, row_values
from critattn.protocols import precision
from critattn.sweeps import SweepSpec, load_study, run_sweep, token_key
from critattn.sweeps.analysis import study_thresholds, threshold_spec
from critattn.theory import finite_dimension, softplus

# weights carry a few eps times the logits, at most some hundred nats here; a root as much relative to gamma
ROUND_OFF = 1e-9
LINEAR = 1e-12
OF_WEIGHTS = ["self_weight", "entropy", "participation_ratio", "largest_weight", "row_mass"]
# name for the oracle, normaliser, its parameter; the others are as they are on any scores
EVERY = [
    ("softplus-l1", ca.SoftplusL1(), 1.0),
    ("relu", ca.Relu(), 1.0),
    pytest.param("softmax", ca.Softmax(), 1.0, marks=pytest.mark.slow),
    pytest.param("sigmoid-l1", ca.SigmoidL1(2.0), 2.0, marks=pytest.mark.slow),
    pytest.param("hardmax", ca.Hardmax(), 1.0, marks=pytest.mark.slow),
    pytest.param("sigmoid", ca.Sigmoid(2.0), 2.0, marks=pytest.mark.slow),
    pytest.param("power", ca.Power(3.0), 3.0, marks=pytest.mark.slow),
    pytest.param("entmax", ca.Entmax(1.5), 1.5, marks=pytest.mark.slow),
    pytest.param("sparsemax", ca.Sparsemax(), 1.0, marks=pytest.mark.slow),
    pytest.param("relu-power over softplus-l1", ca.ReluPower(2.0), 2.0, marks=pytest.mark.slow),
]


def softplus_layer(gamma, bias=0.0):
    before = (Shift(bias),) if bias else ()
    return Attention(*before, ca.LogN(gamma), normaliser=ca.SoftplusL1())


def random_pair(n=70, d=9, seed=5):
    """Queries and keys of size 1 that have nothing to do with each other: scores that are not symmetric."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((n, d)) / np.sqrt(d) for _ in range(2))


@pytest.mark.parametrize(("n", "extra", "rho"), [(1, 1, -0.4), (2, 1, 0.0), (9, 1, -0.3), (12, 5, -0.95)])
def test_exact_scores_and_norms(n, extra, rho):
    made = tokens.opposed(n, n + extra, rho=rho)
    queries, keys = np.asarray(made.queries), np.asarray(made.keys)
    # sums of at most two products of numbers below 1
    np.testing.assert_allclose(queries @ keys.T, (1 + rho) * np.eye(n) + rho, atol=4e-16)
    for part in (queries, keys):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=4e-16)
    with precision("float64"):
        np.testing.assert_allclose(made.score_rows(np.arange(n)), queries @ keys.T, atol=4e-16)
    assert (made.n, made.d) == (n, n + extra)


def test_no_unit_vectors_have_a_larger_self_score():
    """The bound of (11.8) by brute force: the best self score of unit vectors with these other scores."""
    n = 6
    rho = -0.5
    bound = (n + 2 * (n - 1) * rho) / (n - 2)
    # equality: directions of a simplex that sums to zero, in place of orthogonal ones
    share = (bound + 1) / 2
    units = np.asarray(tokens.simplex(n, n - 1, rho=-1 / (n - 1)).vectors)
    queries = np.hstack([np.sqrt(share) * units, np.full((n, 1), np.sqrt(1 - share))])
    scores = queries @ (queries * np.array([1.0] * (n - 1) + [-1.0])).T
    np.testing.assert_allclose(scores, (bound - rho) * np.eye(n) + rho, atol=4e-15)
    assert bound == pytest.approx(1 + 2 * rho + 2 * (1 + rho) / (n - 2))

    # averaged over permutations of tokens, the Gram matrices of queries and of keys have an eigenvalue `head` on the
    # constant vector and one on the rest, n in sum; each is at least the size of that of the scores in its place
    head = np.linspace(0, n, 20001)
    rest = (n - head) / (n - 1)

    def attainable(own):
        return np.any((head >= abs(own + (n - 1) * rho)) & (rest >= abs(own - rho)))

    assert attainable(bound - 1e-3)
    assert not attainable(bound + 1e-3)


def test_random_directions_are_unit_and_scatter_as_stated():
    n, d, rho = 400, 26, -0.3
    made = tokens.near_opposed(3, n, d, rho=rho)
    queries, keys = np.asarray(made.queries), np.asarray(made.keys)
    scores = queries @ keys.T
    np.testing.assert_allclose(np.diag(scores), 1 + 2 * rho, rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, rtol=1e-14)
    off = scores[np.triu_indices(n, 1)]
    spread = (1 + rho) / np.sqrt(d - 1)
    # cosines of independent directions are uncorrelated over pairs; a variance scatters by less than sqrt(2/pairs)
    assert abs(off.mean() - rho) < 4 * spread / np.sqrt(off.size)
    assert abs(off.std() / spread - 1) < 4 / np.sqrt(2 * off.size)
    assert np.array_equal(np.asarray(tokens.near_opposed(3, n, d, rho=rho).keys), keys)
    assert not np.array_equal(np.asarray(tokens.near_opposed(4, n, d, rho=rho).keys), keys)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tokens.opposed(8, 9, rho=0.1), "rho = 0.1"),
        (lambda: tokens.opposed(8, 9, rho=-1.0), "rho = -1.0"),
        (lambda: tokens.opposed(8, 9, rho=float("nan")), "rho = nan"),
        (lambda: tokens.opposed(8, 8, rho=-0.1), "d = 8"),
        (lambda: tokens.near_opposed(0, 8, 1, rho=-0.1), "d = 1"),
        (lambda: tokens.near_opposed(0, 0, 4, rho=-0.1), "n = 0"),
        (lambda: tokens.from_queries_and_keys(np.ones((3, 2)), np.ones((4, 2))), "(4, 2)"),
        (lambda: tokens.from_queries_and_keys(np.ones(3), np.ones(3)), "(3,)"),
        (lambda: tokens.from_queries_and_keys(np.ones((3, 2)), np.full((3, 2), np.nan)), "keys"),
        (lambda: tokens.from_queries_and_keys(np.ones((3, 2)), np.ones((3, 2), complex)), "keys"),
    ],
)
def test_what_cannot_be_made(make, words):
    with pytest.raises(DomainError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize(("name", "normaliser", "parameter"), EVERY)
@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_normaliser_on_scores_that_are_not_symmetric(name, normaliser, parameter, causal):
    queries, keys = random_pair()
    n, gamma = len(queries), 1.3
    allowed = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
    weights = oracles.naive_weights(name, gamma * np.log(n) * (queries @ keys.T), allowed, parameter)
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    shares = np.where(weights.sum(axis=1, keepdims=True) > 0, shares, allowed / allowed.sum(axis=1, keepdims=True))
    logs = np.log(np.where(shares > 0, shares, 1))
    expected = {
        "self_weight": np.diag(weights).mean(),
        "entropy": -(shares * logs).sum(axis=1).mean(),
        "participation_ratio": (1 / (shares**2).sum(axis=1)).mean(),
        "largest_weight": weights.max(axis=1).mean(),
        "row_mass": weights.sum(axis=1).mean(),
    }
    layer = Attention(ca.LogN(gamma), normaliser=normaliser, mask=ca.Causal() if causal else None)
    # 70 rows in blocks of 64, the last of them filled up
    found = measure(layer, tokens.from_queries_and_keys(queries, keys), OF_WEIGHTS, memory_bytes=1_000_000)
    for key, value in expected.items():
        # logits of some tens of nats, and bisection in the oracle's entmax
        assert found[key].value == pytest.approx(value, rel=1e-8 if "max" in name else 1e-11, abs=1e-13), key


def test_rows_are_those_of_the_queries():
    queries, keys = random_pair()
    layer = Attention(ca.LogN(2.0))
    weights = oracles.naive_weights("softmax", 2 * np.log(70) * (queries @ keys.T), np.ones((70, 70), bool), 1.0)
    own = np.diag(weights)
    made = tokens.from_queries_and_keys(queries, keys)
    np.testing.assert_allclose(row_values(layer, made, "self_weight"), own, rtol=LINEAR)
    turned = tokens.from_queries_and_keys(keys, queries)
    assert not np.allclose(row_values(layer, turned, "self_weight"), own, rtol=1e-3)
    sampled = measure(layer, made, ["self_weight"], sample_rows=20, seed=1)["self_weight"]
    picked = row_values(layer, made, "self_weight", sample_rows=20, seed=1)
    assert sampled.value == pytest.approx(picked.mean())
    assert set(np.round(picked, 12)) <= set(np.round(own, 12))
    single = measure(layer, made, ["entropy"], dtype="float32")["entropy"].value
    assert single == pytest.approx(measure(layer, made, ["entropy"])["entropy"].value, rel=1e-5)


@pytest.mark.parametrize("rho", [-0.7, -0.02])
def test_weights_are_the_closed_forms(rho):
    n, gamma = 64, 2.1
    log_n, own = np.log(n), 1 + 2 * rho
    found = measure(softplus_layer(gamma), tokens.opposed(n, n + 1, rho=rho), OF_WEIGHTS)
    weight = softplus.self_weight(gamma, rho, log_n, self_score=own)
    assert found["self_weight"].value == pytest.approx(weight, rel=LINEAR)
    assert found["entropy"].value == pytest.approx(softplus.entropy(gamma, rho, log_n, self_score=own), rel=LINEAR)
    rest = softplus.cross_weight(gamma, rho, log_n, self_score=own)
    assert found["participation_ratio"].value == pytest.approx(1 / (weight**2 + (n - 1) * rest**2), rel=LINEAR)


@pytest.mark.parametrize(
    ("n", "rho", "bias"),
    [
        *((64, rho, bias) for rho, bias in [(-0.7, 0.0), (-0.05, 0.0), (-0.3, 0.2), (-0.3, 0.5), (-0.3, -0.2)]),
        (256, -0.3, 0.0),
        pytest.param(1024, -0.3, 0.0, marks=pytest.mark.slow),
        pytest.param(1024, -0.3, 0.5, marks=pytest.mark.slow),
    ],
)
def test_softplus_half_weight_is_the_root_of_theory(n, rho, bias):
    made, own = tokens.opposed(n, n + 1, rho=rho), 1 + 2 * rho
    located = thresholds.half_weight(made, lambda gamma: softplus_layer(gamma, bias))
    root = softplus.half_weight_gamma(rho, np.log(n), self_score=own, bias=bias)
    assert located.standard_error is None
    assert located.critical == pytest.approx(root, rel=ROUND_OFF)
    # the balance of (11.1), written down once more
    beta = root * np.log(n)
    assert np.logaddexp(0, beta * (own - bias)) == pytest.approx((n - 1) * np.logaddexp(0, beta * (rho - bias)))


@pytest.mark.parametrize(("n", "rho"), [(64, -0.7), (64, 0.0), pytest.param(1024, -0.1, marks=pytest.mark.slow)])
def test_softmax_sees_a_simplex_of_the_opposite_cosine(n, rho):
    located = thresholds.half_weight(tokens.opposed(n, n + 1, rho=rho))
    assert located.critical == pytest.approx(np.log(n - 1) / ((1 + rho) * np.log(n)), rel=ROUND_OFF)
    assert predict({"kind": "opposed", "n": n, "rho": rho}).value == pytest.approx(located.critical, rel=ROUND_OFF)


def test_row_roots_are_all_that_root():
    made = tokens.opposed(64, 65, rho=-0.3)
    root = softplus.half_weight_gamma(-0.3, np.log(64), self_score=0.4)
    np.testing.assert_allclose(thresholds.row_half_weights(made, softplus_layer), root, rtol=ROUND_OFF)
    names = ["median_half_weight", "row_disorder"]
    found = thresholds.measure_thresholds(softplus_layer, made, names)
    assert found["median_half_weight"].critical == pytest.approx(root, rel=ROUND_OFF)
    assert found["row_disorder"].critical == pytest.approx(0, abs=ROUND_OFF)


@pytest.mark.slow
def test_longer_queries_and_keys_have_any_self_score():
    """Self score 1 at rho = -.3 needs norms above 1; the root is 2.05035294578 at n = 1000."""
    n, rho = 1000, -0.3
    queries = np.hstack([np.sqrt(1 - rho) * np.eye(n), np.full((n, 1), np.sqrt(-rho))])
    keys = queries * np.append(np.ones(n), -1)
    located = thresholds.half_weight(tokens.from_queries_and_keys(queries, keys), softplus_layer)
    assert located.critical == pytest.approx(2.05035294578, abs=1e-11)
    assert located.critical == pytest.approx(softplus.half_weight_gamma(rho, np.log(n)), rel=ROUND_OFF)
    # unit vectors at that score have at most .4014
    assert (n + 2 * (n - 1) * rho) / (n - 2) < 0.4015


@pytest.mark.slow
def test_shifted_softplus_on_a_simplex():
    """Bias .5 above the common cosine .3: 3.24582340463 at n = 1000."""
    made = tokens.simplex(1000, 1000, rho=0.3)
    located = thresholds.half_weight(made, lambda gamma: softplus_layer(gamma, 0.5))
    assert located.critical == pytest.approx(3.24582340463, abs=1e-11)


def test_no_root_where_theory_has_none():
    made = tokens.opposed(64, 65, rho=-0.1)
    located = thresholds.half_weight(made, lambda gamma: softplus_layer(gamma, -0.2))
    prediction = predict({"kind": "opposed", "n": 64, "rho": -0.1, "normaliser": "softplus-l1", "bias": -0.2})
    assert located.critical is None
    assert prediction.value is None
    assert "no root" in prediction.reason


@pytest.mark.parametrize("rho", [-0.3, -0.6])
def test_limit_of_the_half_weight_point(rho):
    """1/min(-rho, 1 + rho): at best 2, at rho = -1/2."""
    expected = 1 / min(-rho, 1 + rho)
    assert softplus.critical_gamma(rho, self_score=1 + 2 * rho) == pytest.approx(expected)
    # corrections are of order log log n / log n: below 1 % only at log n = 1e4
    root = softplus.half_weight_gamma(rho, 1e4, self_score=1 + 2 * rho)
    assert root == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("p", [0.5, pytest.param(3.0, marks=pytest.mark.slow)])
def test_re_weighting_gives_the_identity(p):
    made = tokens.opposed(48, 49, rho=-0.3)
    layer = Attention(ca.LogN(1.0), normaliser=ca.ReluPower(p))
    assert measure(layer, made, ["self_weight"])["self_weight"].value == pytest.approx(1, rel=LINEAR)
    found = thresholds.half_weight_p(made, lambda p: Attention(ca.LogN(1.0), normaliser=ca.ReluPower(p)))
    prediction = predict({"kind": "opposed", "n": 48, "rho": -0.3, "quantity": "half_weight_p"})
    assert (found.critical, prediction.value) == (None, None)


def test_softmax_on_random_directions_against_the_sphere():
    n, d, rho = 256, 33, -0.3
    draws = [thresholds.half_weight(tokens.near_opposed(seed, n, d, rho=rho)).critical for seed in range(2)]
    where = {"kind": "near-opposed", "n": n, "d": d, "rho": rho}
    prediction = predict(where)
    assert prediction.value == pytest.approx(
        float(finite_dimension.half_weight_gamma(0.0, np.log(n), d - 1)) / (1 + rho), rel=1e-12
    )
    # an exact relation to tokens on the sphere: the same directions at gamma (1 + rho)
    sphere = thresholds.half_weight(tokens.near_simplex(0, n, d - 1, rho=0.0)).critical
    assert draws[0] == pytest.approx(sphere / (1 + rho), rel=ROUND_OFF)
    assert np.mean(draws) == pytest.approx(prediction.value, rel=prediction.error_class)


def test_softplus_on_random_directions_becomes_linear_attention():
    """(11.9): as gamma grows the self weight tends to a/(a + sum of positive other scores)."""
    n, d, rho = 64, 17, -0.1
    made = tokens.near_opposed(2, n, d, rho=rho)
    scores = np.asarray(made.queries) @ np.asarray(made.keys).T
    positive = np.maximum(scores, 0)
    limit = (np.diag(scores) / positive.sum(axis=1)).mean()
    # sp(z) - z_+ is below log 2 at each key: of order n/gamma in all
    found = measure(softplus_layer(1e6), made, ["self_weight"])["self_weight"].value
    assert found == pytest.approx(limit, rel=1e-4)
    assert limit < 0.5
    assert thresholds.half_weight(made, softplus_layer).critical is None
    assert predict({"kind": "near-opposed", "n": n, "d": d, "rho": rho, "normaliser": "softplus-l1"}).predictor is None


OTHERS = [name for name in observables.names() if observables.get(name).needs not in ("logits", "weights")]


@pytest.mark.parametrize("name", OTHERS)
def test_what_needs_one_set_of_tokens_is_refused(name):
    with pytest.raises(DomainError, match=rf"{name}: need tokens that are queries, keys and values"):
        measure(Attention(ca.LogN(1.0)), tokens.opposed(8, 9, rho=-0.2), [name])


@pytest.mark.parametrize(
    "ask",
    [
        lambda made, layer: ca.attention_step(layer, made),
        lambda made, layer: ca.iterate_layers(layer, made, 2, record=lambda state: state),
        lambda made, layer: ca.measure_layers(layer, made, ["cosine"], 2),
        lambda made, layer: gradient.frobenius_norm_squared(layer, made),
        lambda made, layer: gradient.query_profile(layer, made),
        lambda made, layer: gradient.operator_norm(layer, made),
        lambda made, layer: diagnose(made),
        lambda made, layer: thresholds.half_angle(made),
        lambda made, layer: thresholds.measure_thresholds(thresholds.log_n_softmax, made, ["effective_rho"]),
    ],
)
def test_functions_of_one_set_of_tokens_refuse(ask):
    with pytest.raises(DomainError) as caught:
        ask(tokens.opposed(8, 9, rho=-0.2), Attention(ca.LogN(1.0)))
    assert "\n" not in str(caught.value)
    assert "queries" in str(caught.value)


def test_numbers_beyond_the_dtype_are_refused():
    made = tokens.from_queries_and_keys(np.full((4, 2), 1e200), np.ones((4, 2)))
    with pytest.raises(DomainError, match="float32"):
        measure(Attention(ca.LogN(1.0)), made, ["self_weight"], dtype="float32")


AXES = {"n": 64, "d": 65, "rho": [-0.3, -0.1]}


def table(observables=("half_weight",), *, kind="opposed", attention=None, **axes):
    layer = {"normaliser": "softplus-l1"} if attention is None else attention
    return {
        "observables": list(observables),
        "tokens": {"kind": kind},
        "attention": layer,
        "axes": {**AXES, **axes},
    }


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        (table(rho=[-0.3, 0.1]), ["axes.rho", "0.1", "(-1, 0]"]),
        (table(rho=-1), ["axes.rho", "(-1, 0]"]),
        (table(d=64), ["axes.d", "64", "d >= 65"]),
        (table(d="n"), ["axes.d", "d >= 65"]),
        (table(kind="near-opposed", d=1), ["axes.d", "d >= 2"]),
        (table(tau=0.1), ["axes.tau"]),
        (table(replicates=2), ["axes.replicates"]),
        (table(["angle_ratio"], gamma=1), ["'angle_ratio'", "queries that differ from keys"]),
        (table(["gradient_norm"], gamma=1), ["'gradient_norm'", "queries that differ from keys"]),
        (table(["half_angle"]), ["'half_angle'", "queries that differ from keys"]),
        (table(["effective_rho"]), ["'effective_rho'", "queries that differ from keys"]),
        (table(["common_ratio"], kind="near-opposed"), ["'common_ratio'", "queries that differ from keys"]),
        (table(["cosine"], attention={"layers": 2}, gamma=1), ["attention.layers", "queries that differ from keys"]),
    ],
)
def test_specs_that_make_no_sense(made, parts):
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_table(made)
    for part in parts:
        assert part in str(caught.value)


def test_a_curve_is_the_closed_form_at_every_point():
    spec = SweepSpec.from_table(table(["self_weight", "entropy"], gamma="0:6:7"))
    data = run_sweep(spec)
    gamma, rho, n = (data[name].values for name in ("gamma", "rho", "n"))
    where = n[:, None, None], rho[None, :, None], gamma[None, None, :]
    for name, formula in (("self_weight", softplus.self_weight), ("entropy", softplus.entropy)):
        expected = formula(where[2], where[1], np.log(where[0]), self_score=1 + 2 * where[1])
        found = data[name].transpose("n", "d", "rho", "gamma").values[:, 0]
        np.testing.assert_allclose(found, expected, rtol=LINEAR)
    assert threshold_spec(spec).observables == ("half_weight",)
    assert {one.verdict for one in study_thresholds(spec)} == {"agrees"}


def test_thresholds_of_a_sweep_with_a_bias_and_with_softmax():
    for attention in ({"normaliser": "softplus-l1", "bias": 0.2}, {}):
        spec = SweepSpec.from_table(table(attention=attention))
        found = study_thresholds(spec)
        assert len(found) == 2
        for one in found:
            assert one.verdict == "agrees"
            assert one.error_class == 0.0
            assert abs(one.threshold.critical / one.predicted - 1) < ROUND_OFF
    wrong = dataclasses.replace(found[0].threshold, critical=found[0].predicted * (1 + 1e-8))
    assert compare(wrong, found[0].coordinates).verdict == "disagrees"


def test_other_layers_have_no_predictor():
    for changed in ({"normaliser": "sigmoid-l1"}, {"mask": "causal"}, {"quantity": "half_angle"}):
        found = predict({"kind": "opposed", "n": 16, "rho": -0.3, **changed})
        assert (found.value, found.predictor) == (None, None)
        assert found.reason
    low = predict({"kind": "near-opposed", "n": 16, "d": 2, "rho": -0.3})
    assert low.value is None


def test_random_directions_in_a_sweep():
    made = table(["self_weight"], kind="near-opposed", attention={}, d=9, gamma=[1, 2], replicates=2)
    axes = {"n": 64, "d": 9, "rho": -0.3, "replicates": 2}
    spec = SweepSpec.from_table(made)
    data = run_sweep(spec)
    for unit in ((0, 0, 0, 0), (0, 0, 1, 1)):
        drawn = tokens.near_opposed(token_key(spec, unit), 64, 9, rho=(-0.3, -0.1)[unit[2]])
        expected = measure(Attention(ca.LogN(2.0)), drawn, ["self_weight"])["self_weight"].value
        assert data["self_weight"].values[unit][-1] == pytest.approx(expected, rel=LINEAR)
    other = dataclasses.replace(spec, observables=("entropy",), axes=dataclasses.replace(spec.axes, gamma=(3.0,)))
    asked = ((spec, 1), (other, 1), (spec, 0))
    key, same, another = (jax.random.key_data(token_key(one, (0, 0, 0, draw))).tolist() for one, draw in asked)
    assert key == same != another
    assert threshold_spec(spec).observables == ("half_weight", "median_half_weight")
    (found,) = study_thresholds(SweepSpec.from_table({**made, "axes": axes, "observables": ["half_weight"]}))
    assert found.threshold.standard_error > 0
    assert "(11.9)" in found.predictor


@pytest.mark.slow
def test_the_study_agrees_with_theory():
    spec = load_study("negative_scores").spec(quick=True)
    smaller = dataclasses.replace(spec, axes=dataclasses.replace(spec.axes, n=(64,), d=(65,)))
    found = study_thresholds(smaller)
    assert len(found) == len(spec.axes.rho)
    for one in found:
        assert one.verdict == "agrees"
        assert one.predicted == softplus.half_weight_gamma(
            one.coordinates["rho"], np.log(64), self_score=1 + 2 * one.coordinates["rho"]
        )


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = ("--n", 64, "--d", 65, "--gamma", 2, "--json")
    layer = ("--normaliser", "softplus-l1")
    found = json.loads(run("measure", "--tokens", "opposed", "--rho", -0.3, *where, *layer).stdout)
    assert found["self_weight"] == pytest.approx(softplus.self_weight(2.0, -0.3, np.log(64), self_score=0.4))
    assert found["half_weight_gamma"] == pytest.approx(found["predicted_half_weight_gamma"], rel=ROUND_OFF)
    assert found["verdict"] == "agrees"
    assert found["angle_ratio"] is found["gradient_norm"] is found["effective_rho"] is None
    own = ("sweep", "--tokens", "opposed", "--rho=-0.3,-0.1", "--n", 64, "--d", 65, *layer, "--json")
    swept = json.loads(run(*own).stdout)
    records = json.loads(run("threshold", swept["store"], "--json").stdout)["thresholds"]
    assert [record["verdict"] for record in records] == ["agrees", "agrees"]
    assert records[0]["coordinates"]["normaliser"] == "softplus-l1"
    curve = json.loads(run(*own, "--gamma", "0:2:3").stdout)
    assert [one["name"] for one in curve["observables"]] == ["self_weight", "entropy", "participation_ratio"]


@pytest.mark.slow
def test_command_line_with_a_bias_and_with_random_directions():
    where = ("--rho", -0.3, "--n", 64, "--d", 65, "--gamma", 2, "--json")
    layer = ("--normaliser", "softplus-l1", "--bias", 0.2)
    assert json.loads(run("measure", "--tokens", "opposed", *where, *layer).stdout)["verdict"] == "agrees"
    found = json.loads(run("measure", "--tokens", "near-opposed", *where).stdout)
    assert found["predictor"] == "uniform sphere, opposed (11.9)"
    assert found["verdict"] in ("agrees", "within theory error")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("measure", "--tokens", "opposed", "--n", 8, "--d", 8, "--rho", -0.3, "--gamma", 1), ["d = 8", "d >= 9"]),
        (("measure", "--tokens", "opposed", "--n", 8, "--d", 9, "--rho", 0.3, "--gamma", 1), ["rho = 0.3", "(-1, 0]"]),
        (
            ("measure", "--tokens", "opposed", "--n", 8, "--d", 9, "--rho", -0.3, "--gamma", 1, "--operator-norm"),
            ["--operator-norm", "opposed"],
        ),
        (
            ("measure", "--tokens", "near-opposed", "--n", 8, "--d", 9, "--rho", -0.3, "--gamma", 1, "--no-normalise"),
            ["--no-normalise", "near-opposed"],
        ),
        (("sweep", "--tokens", "opposed", "--n", 8, "--d", 9, "--rho", 0.3, "--gamma", 1), ["--rho", "(-1, 0]"]),
        (
            ("sweep", "--tokens", "opposed", "--n", 8, "--d", 9, "--rho=-0.3", "--observables", "half_angle"),
            ["'half_angle'", "queries that differ from keys"],
        ),
    ],
)
def test_command_line_refuses_in_one_line(args, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*args, code=2)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line
