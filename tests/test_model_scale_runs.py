"""Losses and heads under factors on the logits: against plain loops, root finding, and a store that is resumed."""

import dataclasses

import numpy as np
import pytest
import tiny_models
from model_oracles import llama, next_token_losses
from scipy.optimize import brentq

from critattn.errors import DomainError, SpecError, StoreError
from critattn.models import scale_runs
from critattn.models.intervention import sweep_scale
from critattn.models.opening import opened
from critattn.models.scale_runs import ScalePlan, run_scale, scale_sweep
from critattn.models.texts import Text

PLAN = ScalePlan((16, 24), windows=1, rows=4, factors=(0.5, 2.0))
WORDS = (
    Text.of("one", "a test", "Every row of a softmax sums to one, and most rows have a favourite. " * 40),
    Text.of("two", "a test", "def half(weights): return [weight / 2 for weight in weights]\n" * 40),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return opened(str(tiny_models.write(tmp_path_factory.mktemp("models") / "tiny")))


@pytest.fixture(scope="module")
def data(model):
    return run_scale(*model, WORDS, PLAN)


def tokens(text, n):
    return np.frombuffer(text.content.encode()[:n], np.uint8).astype(int)


def multiplier(row):
    """The factor at which the largest weight of a row of logits is 1/2."""

    def excess(log_t):
        weights = np.exp(np.exp(log_t) * (row - row.max()))
        return 0.5 - weights.max() / weights.sum()

    return np.exp(brentq(excess, -10, 12, xtol=1e-12))


def test_losses_and_heads_against_loops_and_root_finding(data):
    assert data["factor"].values.tolist() == [0.5, 1.0, 2.0]
    weights = tiny_models.tensors()
    for text in WORDS:
        sequence = tokens(text, 24)
        for factor in data["factor"].values:
            final, logits = llama(weights, tiny_models.CONFIG, sequence, factor=factor)
            lost = next_token_losses(final, weights["model.embed_tokens.weight"], sequence)
            for n in (16, 24):
                here = data.sel(factor=factor, text=text.name, n=n).isel(window=0)
                # float32 sums through three layers at logits near 20: some hundred roundings of 6e-8 of their size
                assert here["loss"].item() == pytest.approx(lost[: n - 1].mean(), rel=1e-4)
                assert here["tail"].item() == pytest.approx(lost[n // 2 - 1 : n - 1].mean(), rel=1e-4)
                rows = logits[:, :, n - 4 : n, :n].reshape(-1, 4, n)
                critical = np.array([np.median([multiplier(row[np.isfinite(row)]) for row in head]) for head in rows])
                assert np.abs(critical - 1).min() > 1e-4
                assert here["beyond"].item() == np.mean(critical < 1)
                assert here["multiplier"].item() == pytest.approx(factor * np.median(critical), rel=1e-3)


def test_points_and_best_factors_are_those_of_the_sweep(model, data):
    found = scale_sweep(data)
    windows = {text.name: tokens(text, 24) for text in WORDS}
    expected = sweep_scale(model[0], windows, factors=PLAN.factors, lengths=PLAN.lengths)
    for one, other in zip(found.points, expected.points, strict=True):
        assert (one.factor, one.length) == (other.factor, other.length)
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-12)
        assert one.tail.value == pytest.approx(other.tail.value, rel=1e-12)
        assert one.beyond == pytest.approx(data["beyond"].sel(factor=one.factor, n=one.length).mean().item(), rel=1e-12)
    for one, other in zip(found.best, expected.best, strict=True):
        assert (one.factor, one.gain, one.reason) == (other.factor, other.gain, other.reason)
        at_one = data["multiplier"].sel(factor=1.0, n=one.length)
        assert one.half == pytest.approx(at_one.median().item(), rel=1e-12)


def test_a_law_of_the_sequence_runs_each_length_for_itself(model):
    plan = ScalePlan((16, 24), rows=4, factors=(1.0,), law="clex", parameters={"reference": 12.0})
    found = run_scale(*model, WORDS, plan)
    windows = {text.name: tokens(text, 24) for text in WORDS}
    expected = sweep_scale(
        model[0], windows, factors=(1.0,), lengths=(16, 24), law="clex", parameters={"reference": 12.0}
    )
    swept = scale_sweep(found)
    assert (swept.law, swept.parameters) == ("clex", {"reference": 12.0})
    for one, other in zip(swept.points, expected.points, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-12)


def test_what_is_missing_in_a_store_is_measured_again_with_the_same_bits(model, data, tmp_path, monkeypatch):
    store = tmp_path / "scale"
    run_scale(*model, WORDS, PLAN, store=store)
    lost = sorted((store / "estimates" / "c" / "2").rglob("*"))
    for chunk in lost:
        if chunk.is_file():
            chunk.unlink()
    measured = []
    real = scale_runs._measured

    def counted(model, plan, sequences, lengths, factor):
        measured.append((len(sequences), factor))
        return real(model, plan, sequences, lengths, factor)

    monkeypatch.setattr(scale_runs, "_measured", counted)
    told = []
    again = run_scale(*model, WORDS, PLAN, store=store, progress=lambda done, total: told.append((done, total)))
    assert measured == [(2, 2.0)]
    assert told == [(4, 6), (5, 6), (6, 6)]
    for name in data.data_vars:
        np.testing.assert_array_equal(again[name].values, data[name].values)
    with pytest.raises(StoreError, match="rows was 4, is 3"):
        run_scale(*model, WORDS, ScalePlan((16, 24), rows=3, factors=PLAN.factors), store=store)


@pytest.mark.parametrize(
    ("plan", "error", "match"),
    [
        (ScalePlan((16,), factors=(0.0,)), DomainError, "factor = 0.0"),
        (ScalePlan((8,)), SpecError, "length 8: allowed: 16"),
        (ScalePlan((16,), windows=0), SpecError, "windows 0"),
        (ScalePlan((16,), law="no-such"), SpecError, "no-such"),
        (ScalePlan((16,), parameters={"s": 1.0}), SpecError, "without a law"),
        (ScalePlan((4096,)), SpecError, "has 2[0-9]+ tokens, too short"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(model, plan, error, match):
    with pytest.raises(error, match=match) as caught:
        run_scale(*model, WORDS, plan)
    assert "\n" not in str(caught.value)


def test_an_encoder_has_no_loss_of_the_next_token(model):
    encoder = dataclasses.replace(model[0], config=dataclasses.replace(model[0].config, causal=False))
    with pytest.raises(SpecError, match="is an encoder"):
        run_scale(encoder, model[1], WORDS, PLAN)
