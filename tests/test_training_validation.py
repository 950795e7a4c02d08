"""Trained decoders under `inspect`, and theory against their heads: own normalisers, gradients, blind heads."""

import dataclasses
import functools
import json
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats
from scipy.optimize import brentq

from critattn import biases, normalisers, scaling
from critattn.attention import Attention, Causal
from critattn.cli import inspect_lines, main
from critattn.errors import SpecError, StoreError
from critattn.models import forward, loss, opening, own_weights
from critattn.models.probes import row_statistics
from critattn.models.scale_runs import ScalePlan
from critattn.protocols import precision
from critattn.training import inspected, localisation, validation, variants, weights
from critattn.training.model import losses, make
from critattn.training.presets import Shape
from critattn.training.variants import FREE_ROWS

SHAPE = Shape(layers=1, width=16, heads=2, hidden=24, length=32)
N = 32
SLOW = pytest.mark.slow
LOG_N = pytest.param("cosine-logn-high", "gamma", marks=SLOW)
OTHERS = [pytest.param(name, marks=SLOW) for name in ("lssar-p3", "ssmax", "sigmoid")]


@functools.cache
def decoder(name, layers=1):
    """A random start, sharper than at training's, with factors of the heads that differ."""
    made = make(variants.named(name), dataclasses.replace(SHAPE, layers=layers), 0)
    made = eqx.tree_at(lambda one: [block.qkv for block in one.blocks], made, [3 * block.qkv for block in made.blocks])
    if made.variant.learned_gain:
        gains = [block.gain * jnp.asarray([0.5, 2.0]) for block in made.blocks]
        made = eqx.tree_at(lambda one: [block.gain for block in one.blocks], made, gains)
    return made


@functools.cache
def trained(name):
    return inspected.Trained.from_decoder(weights.rounded(decoder(name)), inspected.Path(f"{name}.npz"), {})


def sequences():
    return [one.astype(np.int32) for one in np.random.default_rng(1).integers(32, 127, (3, N))]


@pytest.fixture(scope="module")
def tokens():
    return sequences()


@jax.jit
def plain(made, tokens):
    """Output of a decoder through the package's own layer."""
    return made(tokens, generic=True)


@jax.jit
def both_weights(normaliser, logits, context, where):
    """The logarithms, and the weights themselves."""
    return own_weights.log_weights(normaliser, logits, context, where), normaliser(logits, context, where=where)


# a learned factor, every kind of bias and cap, cosines with rotation and re-weighting, weights of a free sum
@pytest.mark.parametrize(
    "name", [pytest.param("ssmax", marks=SLOW), "alibi-c-e-l-s", "lssar-p3", pytest.param("sigmoid", marks=SLOW)]
)
def test_the_model_that_is_inspected_is_the_decoder(name, tokens, tmp_path):
    weights.save(tmp_path / "one.npz", decoder(name, layers=2), {"seed": 0})
    model, encoder = inspected.opened(str(tmp_path / "one.npz"))
    (final,) = forward.run(model, tokens[:1])
    wanted = np.asarray(plain(weights.load(tmp_path / "one.npz")[0], tokens[0][None]))[0]
    # float32, two layers, logits of order 10
    np.testing.assert_allclose(loss.predictions(model, final), wanted, atol=2e-4 * np.abs(wanted).max())
    assert encoder.encode("ä").tolist() == [0xC3, 0xA4]
    assert model.header["seed"] == 0
    assert model.usual_lengths == (16, 32, 64, 128)


LAYERS = {
    "softmax": {},
    "softplus-l1": {},
    "sigmoid": {},
    "sigmoid-l1": {},
    "power": {"p": 2.0},
    "relu-power": {"p": 3.0, "offset_free_rows": FREE_ROWS},
    "entmax": {},
}


@pytest.mark.parametrize("name", LAYERS)
def test_log_weights_are_those_of_the_normaliser(name):
    normaliser = normalisers.get(name, **LAYERS[name])
    with precision("float64"):
        context = Attention(mask=Causal()).context(jnp.arange(12), 12, 8)
        where = Causal().allowed(context.query_positions, context.key_positions)
        logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 12, 12)) * 2)
        logs, wanted = (np.asarray(one) for one in both_weights(normaliser, logits, context, where))
    found = np.where(where, np.exp(logs - logs.max(axis=-1, keepdims=True, where=np.asarray(where), initial=-1e9)), 0)
    shares = [one / one.sum(axis=-1, keepdims=True) for one in (found, wanted)]
    # rounding of logarithms up to 30, times p
    np.testing.assert_allclose(*shares, atol=1e-13)


def test_small_weights_of_a_high_power_keep_their_logarithm():
    logits = jnp.asarray([[8.0, 4.0, 0.01, 0.011, 0.012]], jnp.float32)
    context = Attention().context(jnp.arange(1), 5, 8)
    layer = normalisers.get("relu-power", p=200.0)
    logs, made = (np.asarray(one)[0] for one in both_weights(layer, logits, context, jnp.ones((1, 5), bool)))
    assert made[1] == 0
    phi = np.log1p(np.exp(np.asarray(logits[0], float)))
    excess = phi - phi.mean()
    assert logs[1] - logs[0] == pytest.approx(200 * math.log(excess[1] / excess[0]), rel=1e-4)
    assert np.isneginf(logs[2:]).all()


@pytest.mark.slow
def test_the_multiplier_of_log_weights_is_the_critical_power_over_p():
    rng, p = np.random.default_rng(3), 3.0
    with precision("float64"):
        context = Attention().context(jnp.arange(6), 40, 8)
        logits, everywhere = jnp.asarray(rng.normal(size=(1, 6, 40))), jnp.ones((6, 40), bool)
        layer = normalisers.get("relu-power", p=p)
        logs, _ = both_weights(layer, logits, context, everywhere)
        found = np.asarray(row_statistics(logs, everywhere, formats=())["critical_multiplier"])[0] * p

    def excess(row, power):
        """Largest weight above a half, by the definition of the layer [arXiv 2501.13428]."""
        phi = np.logaddexp(0, row)
        y = np.maximum(len(row) * phi / phi.sum() - 1, 0) ** power
        return y.max() / y.sum() - 0.5

    wanted = [brentq(functools.partial(excess, row), 1e-2, 1e2, xtol=1e-12) for row in np.asarray(logits)[0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def share_at(model, tokens, normaliser_of, factor, layer):
    """Means over rows of the largest weight of each head, by the normaliser itself."""
    kept = []

    def visit(_, view):
        rows = jnp.arange(N - 8, N)
        context, where = model.attention.context(rows, N, 8), view.allowed(rows)
        _, made = both_weights(normaliser_of(model.attention.normaliser), view.logits(rows) * factor, context, where)
        kept.append(np.asarray(made).max(axis=-1))

    forward.run(model, tokens, visit=visit, layers=[layer])
    return np.mean(kept, axis=(0, 2))


@functools.cache
def points_of(name):
    return localisation.read_heads(trained(name), sequences(), rows=8)


@pytest.mark.parametrize(
    ("name", "control"), [("lssar-p3", "p"), pytest.param("cosine-logn-high", "gamma", marks=SLOW)]
)
def test_measured_values_leave_half_of_the_weight_to_one_key(name, control, tokens):
    model, points = trained(name), points_of(name)
    assert {(one.layer, one.head) for one in points} == {(0, head) for head in range(2)}
    assert {one.control for one in points} == {control}
    value = 3.0 if control == "p" else math.log(32)
    for one in points:
        # gamma is read off the logits, which are float32
        assert one.value == pytest.approx(value, rel=1e-5)
        assert 0 < one.measured < math.inf
        if control == "p":
            found = share_at(model, tokens, lambda n, p=one.measured: dataclasses.replace(n, p=p), 1.0, one.layer)
        else:
            found = share_at(model, tokens, lambda n: n, one.measured / one.value, one.layer)
        # float32 scores, a slope of the share of order 1 in the logarithm of the control
        assert found[one.head] == pytest.approx(0.5, abs=1e-4)
        assert (one.largest > 0.5) == (one.value > one.measured)
        assert -1 <= one.rho < one.top <= 1 + 1e-6


def near_simplex(n, d, rho, *, sequences=4, heads=2, rows=64):
    """What is read of heads whose queries are their keys: L2-normalised tokens around a common vector."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(sequences, heads, n, d)) / math.sqrt(d)
    common = rng.normal(size=(sequences, heads, 1, d))
    common /= np.linalg.norm(common, axis=-1, keepdims=True)
    x = math.sqrt(rho) * common + math.sqrt(1 - rho) * noise
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    scores = x[:, :, n - rows :] @ np.swapaxes(x, -1, -2)
    return localisation.Read(scores, np.ones_like(scores), np.full((sequences, heads), rho))


def test_random_tokens_localise_where_theory_says():
    """Tokens of the published kind: their critical p is known from simulation, 2.506 at n = 256, d = 64, rho = .3."""
    read = near_simplex(256, 64, 0.3)
    reweighted = Attention(
        scaling.law("lssa"), normaliser=normalisers.get("relu-power", stage_one="softplus-l1"), mask=Causal()
    )
    points = localisation.head_points(reweighted, 0, read, 64)
    plain = Attention(scaling.law("log-n", gamma=2.0, length="row"), mask=Causal())
    others = localisation.head_points(plain, 0, read, 64)
    for one in points:
        # 256 rows of a head; that simulation has 1 % of error and the last rows see 12 % fewer keys: 2 % in p
        assert one.measured_own == pytest.approx(2.506, rel=0.05)
        assert one.predicted["tokens"] == pytest.approx(one.measured_own, rel=0.05)
        # the largest weight is the own one, or larger
        assert one.measured <= one.measured_own
        # a single Gaussian for all rows and its typical row, against a mean over rows
        assert one.predicted["needle"] == pytest.approx(one.measured, rel=0.2)
    for one in others:
        assert one.value == pytest.approx(2.0, rel=1e-9)
        assert one.rho == pytest.approx(0.3, abs=0.05)
        assert one.predicted["limit"] == pytest.approx(1 / (1 - one.rho), rel=1e-12)
        # rho of four draws of a common vector of 64 coordinates, 2 % of itself
        assert one.predicted["finite_dimension"] == pytest.approx(one.measured_own, rel=0.03)
    verdicts = {one.prediction: one for one in validation.agreement(points)}
    assert verdicts["tokens"].sides == 1
    assert verdicts["tokens"].favourable
    assert verdicts["tokens"].control == "p"


def test_softplus_on_positive_cosines_never_localises():
    """At rho > 0 the ratio of two softplus is below 1/rho: no gamma leaves half to one key [docs/theory.md (11.2)]."""
    layer = Attention(scaling.law("lssa"), normaliser=normalisers.get("softplus-l1"), mask=Causal())
    points = localisation.head_points(layer, 0, near_simplex(128, 64, 0.5, sequences=2, rows=16), 64)
    assert all(one.measured_own == math.inf and one.predicted["simplex"] == math.inf for one in points)
    (found,) = [one for one in validation.agreement(points, own=True) if one.prediction == "simplex"]
    assert (found.never, found.never_predicted, found.sides) == (2, 2, 1.0)
    # an infinite value that is foretold is met, although it has no relative error
    assert (found.met, found.favourable, math.isnan(found.agreement.median)) == (1.0, True, True)
    wrong = [dataclasses.replace(one, predicted={"simplex": 2.0}) for one in points]
    (verdict,) = validation.agreement(wrong, own=True)
    assert (verdict.met, verdict.favourable) == (0.0, False)


def test_gamma_turns_the_scores_and_leaves_the_bias():
    """A head with ALiBi at its measured gamma, by the definition of the layer."""
    read = near_simplex(64, 32, 0.2, sequences=2, rows=8)
    slopes = np.array([0.05, 0.3])
    layer = Attention(scaling.law("log-n", gamma=2.0, length="row"), biases.Alibi(slopes), mask=Causal())
    rows = np.arange(56, 64)
    distance = rows[:, None] - np.arange(64)
    points = localisation.head_points(layer, 0, read, 32)
    for one in points:
        logits = one.measured * np.log(rows + 1)[:, None] * read.scores[:, one.head] - slopes[one.head] * distance
        masses = np.exp(np.where(distance >= 0, logits, -np.inf))
        largest = (masses / masses.sum(axis=-1, keepdims=True)).max(axis=-1)
        # bisected to 1e-10 in the logarithm
        assert largest.mean() == pytest.approx(0.5, abs=1e-8)
    # a cap far above all scores changes nothing: the tail by bisection is the tail in closed form
    plain = Attention(scaling.law("log-n", gamma=2.0, length="row"), mask=Causal())
    capped, low = (Attention(plain.transforms[0], scaling.SoftCap(cap), mask=Causal()) for cap in (1e7, 40.0))
    tails = [
        np.array([one.predicted["tail"] for one in localisation.head_points(made, 0, read, 32)])
        for made in (plain, capped, low)
    ]
    # 20 halvings of a factor of 10^(1/6), and the cap's cubic term (20/1e7)^2
    np.testing.assert_allclose(*tails[:2], rtol=1e-6)
    # a low cap flattens all scores at large factors, but not before: the least factor is found, a little higher, as the
    # cap takes l^2/(3 40^2) of the largest logits l < 20
    assert np.all((tails[2] > tails[0]) & (tails[2] < tails[0] / (1 - 20**2 / (3 * 40**2))))


def test_a_head_without_queries_is_local_at_no_gamma_unless_its_bias_makes_it_so():
    read = near_simplex(64, 32, 0.2, sequences=2, rows=8)
    silent = read._replace(scores=0 * read.scores, norms=0 * read.norms)
    layer = Attention(
        scaling.law("log-n", gamma=2.0, length="row"), biases.Alibi(np.array([0.05, 20.0])), mask=Causal()
    )
    flat, steep = localisation.head_points(layer, 0, silent, 32)
    assert (flat.value, flat.measured, flat.measured_own) == (0, math.inf, math.inf)
    assert (steep.value, steep.measured, steep.measured_own) == (0, 0, 0)


def test_heads_of_different_kinds_are_not_compared(tokens):
    points = points_of("lssar-p3")
    strange = dataclasses.replace(points[0], control="gamma")
    with pytest.raises(SpecError, match="one kind of layer"):
        validation.agreement([*points, strange])
    with pytest.raises(SpecError, match="one length"):
        localisation.read_heads(trained("lssar-p3"), [tokens[0], tokens[1][:20]])
    with pytest.raises(SpecError, match="rows 17"):
        localisation.read_heads(trained("lssar-p3"), tokens, rows=17)


def record(gamma, seed, share, steps=40):
    """A run whose query and key gradients are this share of all, two layers each."""
    total = np.linspace(2.0, 1.0, steps)
    each = (share * total / 2)[:, None] * np.ones(2)
    curves = {"query_gradient_norm": each, "key_gradient_norm": each, "gradient_norm": total, "loss": total}
    one = variants.cosine_log_n(gamma).to_json()
    kept = {name: values.tolist() for name, values in curves.items()}
    return {"config": {"variant": one, "seed": seed}, "curves": kept}


def test_a_collapse_of_gradients_is_measured_over_seeds():
    shares = {0: (0.01, 0.4), 1: (0.012, 0.5), 2: (0.009, 0.45)}
    gammas = (1.0, 3.5)
    runs = [record(gammas[place], seed, pair[place]) for seed, pair in shares.items() for place in range(2)]
    runs.append({**runs[0], "config": {**runs[0]["config"], "variant": variants.named("lssa").to_json()}})
    found = validation.gradient_collapse(runs)
    logs = np.log([low / high for low, high in shares.values()])
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert found.ratio == pytest.approx(math.exp(logs.mean()), rel=1e-9)
    assert (found.low, found.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))
    assert found.collapsed is True
    assert [row.gamma for row in found.rows] == [1.0, 3.5]
    assert [row.seeds for row in found.rows] == [3, 3]
    assert found.rows[1].share == pytest.approx(stats.gmean([high for _, high in shares.values()]), rel=1e-9)
    # the geometric mean of the totals of the last quarter, times the share
    assert found.norm_ratio == pytest.approx(found.ratio, rel=1e-9)
    kept = [record(gamma, seed, 0.3 + 0.01 * seed) for seed in range(3) for gamma in (1.0, 3.5)]
    assert validation.gradient_collapse(kept).collapsed is False
    alone = validation.gradient_collapse(runs[:2])
    assert (alone.seeds, alone.low, alone.collapsed) == (1, None, None)
    # gammas of one seed stand in the rows, and leave the comparison to those of three
    wider = validation.gradient_collapse([*runs, record(0.5, 0, 0.3), record(5.0, 0, 0.3)])
    assert [row.seeds for row in wider.rows] == [1, 3, 3, 1]
    assert (wider.below, wider.above, wider.ratio, wider.seeds) == (1.0, 3.5, found.ratio, 3)
    assert wider.proportional == pytest.approx(1 / 3.5)
    with pytest.raises(SpecError, match="two gammas"):
        validation.gradient_collapse(runs[:1])
    with pytest.raises(SpecError, match="two gammas"):
        validation.gradient_collapse([runs[0], runs[3]])


def test_blind_heads_get_no_gradient(tokens):
    """Slopes at explicit distances T/64 and 4T: the first head sees nothing but the query, the other everything."""
    model = trained("alibi-e")
    found = validation.blind_heads(model, tokens, rows=N)
    assert len(found) == 2 * 2 * 2
    first, second = (one for one in found if (one.format, one.underflow) == ("fp32", "flushed"))
    assert (first.starved, first.predicted, first.first, first.always) == (True, 1.0, 1, 1)
    # all pairs but the diagonal
    assert first.share == first.predicted_share == pytest.approx(1 - 2 / (N + 1), rel=1e-12)
    assert not second.starved
    assert second.share <= 0.5
    made = weights.rounded(decoder("alibi-e"))
    windows = jnp.asarray(np.stack(tokens))
    gradient = jax.jit(jax.grad(lambda one: jnp.mean(losses(one, windows, generic=True))))(made)
    for block in gradient.blocks:
        q, k, v = np.split(np.asarray(block.qkv), 3, axis=1)
        assert not np.concatenate([q[:, :8], k[:, :8]]).any()
        assert all(part.any() for part in (v[:, :8], q[:, 8:], k[:, 8:]))


def test_blind_pairs_are_those_of_the_scores(tokens):
    """A second way: scores of the decoder's own forward pass, slopes of the ALiBi paper, numpy."""
    model, made = trained("softmax-alibi"), weights.rounded(decoder("softmax-alibi"))
    found = validation.blind_heads(model, tokens, rows=N, number_formats=["fp16"])
    distance = np.arange(N)[:, None] - np.arange(N)[None, :]
    # two heads: 2^-4 and 2^-8
    slopes = np.array([2.0**-4, 2.0**-8])
    for layer, (q, k, _) in enumerate(jax.jit(type(made).heads)(made, jnp.asarray(np.stack(tokens)))):
        logits = np.einsum("bhtd,bhsd->bhts", np.asarray(q, float), np.asarray(k, float)) / math.sqrt(8)
        logits = np.where(distance >= 0, logits - slopes[:, None, None] * distance, -np.inf)
        gaps = logits.max(axis=-1, keepdims=True) - logits
        blind = np.isfinite(gaps) & (gaps >= 25 * math.log(2))
        for one in found:
            if one.layer == layer and one.underflow == "nearest":
                # a pair at the threshold may fall on either side by rounding
                assert one.share == pytest.approx(blind[:, one.head].sum() / (3 * N * (N + 1) / 2), abs=1e-3)
                assert one.slope == slopes[one.head]
                assert one.predicted == math.ceil(25 * math.log(2) / slopes[one.head])
    assert any(one.share > 0 for one in found)
    # fp16 keeps less than the float32 of these weights
    assert all(one.zeros <= one.share for one in found)
    with pytest.raises(SpecError, match="has no bias"):
        validation.blind_heads(trained("lssar-p3"), tokens)


def test_the_summary_counts_blind_pairs_at_every_length(tokens):
    found = validation.summary(trained("softmax-alibi"), tokens, rows=8, longer=[[np.tile(tokens[0], 2)]])
    assert [one["length"] for one in found["blind"]] == [32] * 8 + [64] * 8
    assert (found["control"], len(found["heads"]), found["training_length"]) == ("gamma", 2, 32)
    said = "\n".join(line for line in inspect_lines.trained_lines(found) if isinstance(line, str))
    shares = [one["share"] for one in found["blind"] if (one["format"], one["underflow"]) == ("fp32", "flushed")]
    for n, (first, second) in zip((32, 64), (shares[:2], shares[2:]), strict=True):
        assert f"weight 0 in float32 at n = {n}: {(first + second) / 2:.1%} of the pairs" in said
    assert "predicted gamma, tail: median error" in said


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    folder = tmp_path / "recorded"
    for name in ("small/lssar-p3-seed1", "small/lssar-p3-seed0", "softmax-alibi"):
        weights.save(folder / f"{name}.npz", decoder(name.split("/")[-1].split("-seed")[0]), {})
    monkeypatch.setattr(opening, "RECORDED", folder)
    return folder


def test_names_of_recorded_decoders(recorded, tmp_path):
    assert opening.located("trained:lssar-p3") == recorded / "small" / "lssar-p3-seed0.npz"
    assert opening.located("trained:lssar-p3-seed1") == recorded / "small" / "lssar-p3-seed1.npz"
    assert opening.located("trained:softmax-alibi") == recorded / "softmax-alibi.npz"
    assert opening.recorded() == ("lssar-p3", "softmax-alibi")
    with pytest.raises(SpecError, match=r"recorded: lssar-p3, softmax-alibi; critattn train ssmax trains one"):
        opening.located("trained:ssmax")
    with pytest.raises(SpecError, match=r"critattn\.training\.inspected\.opened"):
        opening.opened("trained:lssar-p3")
    (tmp_path / "other.npz").write_bytes(b"PK")
    with pytest.raises(StoreError, match="cannot be read"):
        inspected.opened(str(tmp_path / "other.npz"))
    with pytest.raises(SpecError, match="makes weights by relu-power"):
        ScalePlan(lengths=(16,)).checked(trained("lssar-p3"))


def test_only_decoders_need_the_packages_that_train(recorded, monkeypatch):
    for name in ("equinox", "critattn.training.weights", "critattn.training.inspected"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(main, ["inspect", "trained:lssar-p3"])
    assert result.exit_code == 2
    assert "a decoder trained here needs equinox: pip install 'critattn[training]'" in result.stderr
    other = CliRunner().invoke(main, ["inspect", "nosuchmodel"])
    assert other.exit_code == 2
    assert "nosuchmodel" in other.stderr


def test_inspect_of_a_recorded_decoder(recorded, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(chr(97 + (7 * i * i + i // 5) % 26) for i in range(4000)), encoding="utf-8")
    plan = ["--text", str(text), "--length", "32", "--windows", "1", "--rows", "8", "--gradient-probes", "0"]
    command = ["inspect", "trained:lssar-p3", *plan, "--store", str(tmp_path / "runs"), "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    own = found["trained"]
    assert (own["normaliser"], own["control"], own["length"], found["family"]) == ("relu-power", "p", 32, "critattn")
    assert {one["prediction"] for one in own["agreement"]} == {"needle", "tokens"}
    for one, head in zip(found["head_table"], own["heads"], strict=True):
        assert (one["layer"], one["head"]) == (head["layer"], head["head"])
        # of the median row, and of the mean over the same rows
        assert (one["largest_weight"] > 0.5) == (one["critical_multiplier"] < 1)
        assert (head["largest"] > 0.5) == (head["value"] > head["measured"])
    words = CliRunner().invoke(main, command[:-1])
    assert words.exit_code == 0, words.output
    assert "own normaliser relu-power" in words.output
    refused = CliRunner().invoke(main, [*command, "--sweep-scale"])
    assert refused.exit_code == 2
    assert "makes weights by relu-power" in refused.output


@pytest.mark.slow
def test_few_rows_are_enough_for_an_inspection(recorded, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(chr(97 + (7 * i * i + i // 5) % 26) for i in range(4000)), encoding="utf-8")
    plan = ["--text", str(text), "--length", "32", "--windows", "1", "--rows", "2", "--gradient-probes", "0"]
    result = CliRunner().invoke(main, ["inspect", "trained:lssar-p3", *plan, "--store", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
