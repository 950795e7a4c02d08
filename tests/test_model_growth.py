"""Growth with length, advice and intervention: known laws in, hand formulas and other routes beside."""

import math
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from critattn.errors import DomainError, SpecError
from critattn.models import growth_fits
from critattn.models.advice import advise, typical_curve
from critattn.models.advice_laws import format_effects
from critattn.models.growth import curves_of, grow, grow_heads
from critattn.models.growth_fits import FORMS
from critattn.models.intervention import sweep_scale
from critattn.protocols import RowContext

N = np.array([128, 256, 512, 1024, 2048])
LAWS = {
    "constant": [2.0],
    "proportional-log": [0.3],
    "proportional-sqrt-log": [0.9],
    "log": [-1.0, 0.6],
    "sqrt-log": [-4.0, 2.5],
    "power": [0.3, 0.4],
}


def curves(law, texts, rng, *, noise=0.1, level=0.2, slope=0.0):
    """A law with noise, a level and a slope of each text."""
    mean = FORMS[law].values(np.array(LAWS[law]), N)
    draw = rng.standard_normal((3, texts, 1))
    shared = level * draw[0] + slope * draw[1] * (np.log(N) - np.log(N).mean())
    return mean + shared + noise * rng.standard_normal((texts, N.size))


@pytest.fixture
def equal_weights(monkeypatch):
    monkeypatch.setattr(growth_fits, "PRIOR", 1e12)


@pytest.mark.parametrize("law", LAWS)
def test_a_law_without_noise_is_recovered_to_rounding_and_preferred(law):
    level = np.array([[0.0], [0.1], [-0.1]])
    exact = FORMS[law].values(np.array(LAWS[law]), N) + level
    found = grow(exact, N)
    # the texts cancel in the mean; conditioning of (1, log n) over the range is below 1e3
    np.testing.assert_allclose(found.fit(law).coefficients, LAWS[law], rtol=1e-9)
    assert found.best.form.name == law
    assert found.fit(law).aicc < min(one.aicc for one in found.fits if one.form.name != law)


def likelihood(at, form, y, weights):
    k = form.parameters
    cover = math.exp(at[k]) * np.diag(1 / weights) + math.exp(at[k + 1])
    return -np.sum(stats.multivariate_normal(form.values(at[:k], N), cover).logpdf(y))


@pytest.mark.parametrize("law", ["constant", "log", "power"])
def test_likelihood_and_criteria_against_a_numerical_maximum_of_the_normal_density(law):
    y = curves("log", 4, np.random.default_rng(3), noise=0.05, level=0.3)
    fit, form = grow(y, N).fit(law), FORMS[law]
    start = np.array([*fit.coefficients, math.log(0.01), math.log(0.1)])
    options = {"xatol": 1e-10, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000}
    weights = growth_fits._weights(y)
    best = optimize.minimize(likelihood, start, (form, y, weights), method="Nelder-Mead", options=options)
    # flat to second order at the maximum: 1e-5 in the parameters is 1e-10 in the likelihood
    assert fit.log_likelihood == pytest.approx(-best.fun, abs=1e-7)
    np.testing.assert_allclose(fit.coefficients, best.x[: form.parameters], rtol=1e-4)
    count, points = form.parameters + 2, y.size
    aic = 2 * best.fun + 2 * count
    assert fit.aicc == pytest.approx(aic + 2 * count * (count + 1) / (points - count - 1), abs=1e-6)
    assert fit.bic == pytest.approx(2 * best.fun + count * math.log(points), abs=1e-6)


def test_akaike_weights_and_differences_by_hand():
    rng, between = np.random.default_rng(0), 0
    for _ in range(12):
        found = grow(curves("log", 5, rng), N, resamples=2)
        scores = np.array([one.aicc for one in found.fits])
        assert np.all(np.diff(scores) >= 0)
        share = np.exp(-(scores - scores[0]) / 2)
        np.testing.assert_allclose([one.weight for one in found.fits], share / share.sum(), rtol=1e-12)
        np.testing.assert_allclose([one.difference for one in found.fits], scores - scores[0], atol=1e-12)
        assert found.plausible == tuple(one.form.name for one in found.fits if one.difference < 2)
        between += sum(2 <= one.difference < 4 for one in found.fits)
    # some forms lie just beyond the limit, or it would not be seen
    assert between


def test_the_interval_of_a_mean_is_students_over_texts_not_over_points(equal_weights):
    y = curves("constant", 3, np.random.default_rng(1), noise=0.01, level=1.0)
    fit = grow(y, N).fit("constant")
    own = y.mean(axis=1)
    expected = stats.t.interval(0.95, 2, own.mean(), stats.sem(own))
    np.testing.assert_allclose(fit.intervals[0], expected, rtol=1e-9)


def test_slope_of_one_text_each_gives_the_interval_of_the_slope(equal_weights):
    y = curves("log", 4, np.random.default_rng(2), slope=0.1)
    fit = grow(y, N).fit("log")
    slopes = np.array([np.polyfit(np.log(N), row, 1)[0] for row in y])
    np.testing.assert_allclose(fit.coefficients[1], slopes.mean(), rtol=1e-9)
    np.testing.assert_allclose(fit.intervals[1], stats.t.interval(0.95, 3, slopes.mean(), stats.sem(slopes)), rtol=1e-9)


def test_texts_left_out_are_fitted_with_weights_of_their_own():
    y = curves("log", 5, np.random.default_rng(9))
    y[:, 3] *= np.linspace(0.8, 1.2, 5)
    left_out = grow(y, N, forms=("log",)).best.left_out
    for text in range(5):
        alone = grow(np.delete(y, text, axis=0), N, forms=("log",)).best.coefficients
        # a form with a constant does not depend on the variance of the level, up to rounding
        np.testing.assert_allclose(left_out[text], alone, rtol=1e-8)


def coverage(law, texts, repetitions, **options):
    """Shares of intervals of the last coefficient, and of predictions at four times the longest, that hold."""
    rng, hits = np.random.default_rng(texts), np.zeros(2)
    truth = FORMS[law].values(np.array(LAWS[law]), [4 * N[-1]])[0]
    for seed in range(repetitions):
        found = grow(curves(law, texts, rng, slope=0.05), N, forms=(law,), seed=seed, **options)
        low, high = found.best.intervals[-1]
        ahead = found.predict(4 * N[-1])
        hits += (low <= LAWS[law][-1] <= high, ahead.low <= truth <= ahead.high)
    return hits / repetitions


def lowest(repetitions):
    return 0.95 - 4 * math.sqrt(0.95 * 0.05 / repetitions)


@pytest.mark.parametrize(("law", "texts"), [("log", 3), ("log", 6), ("power", 4)])
def test_students_intervals_cover(law, texts):
    assert np.all(coverage(law, texts, 200, resamples=2) >= lowest(200))


def test_the_bootstrap_covers_with_twelve_texts_and_not_with_three():
    assert np.all(coverage("log", 12, 200, method="bootstrap", resamples=200) >= lowest(200))
    # 3 texts have 10 distinct draws, whose extremes are texts repeated: about 0.7 of the intervals hold
    assert np.all(coverage("log", 3, 200, method="bootstrap", resamples=200) < lowest(200))


@pytest.mark.slow
@pytest.mark.parametrize(("law", "texts"), [("log", 3), ("sqrt-log", 6), ("power", 5), ("log", 12)])
def test_intervals_cover_over_many_repetitions(law, texts):
    assert np.all(coverage(law, texts, 1000, resamples=600) >= lowest(1000))


def test_the_bootstrap_of_a_mean_is_that_of_drawn_texts(equal_weights):
    y = curves("constant", 12, np.random.default_rng(8), noise=0.01, level=1.0)
    fit = grow(y, N, resamples=4000).fit("constant")
    own, rng = y.mean(axis=1), np.random.default_rng(99)
    means = own[rng.integers(0, 12, (4000, 12))].mean(axis=1)
    tail = stats.norm.cdf(stats.t.ppf(0.025, 11) * math.sqrt(12 / 11))
    # two samples of 4000 draws: the standard error of a quantile q(p) is sqrt(p(1-p)/4000)/density, 4 sigma of both
    error = math.sqrt(tail * (1 - tail) / 4000) / stats.norm.pdf(stats.norm.ppf(tail)) * means.std()
    np.testing.assert_allclose(fit.intervals[0], np.quantile(means, [tail, 1 - tail]), atol=4 * math.sqrt(2) * error)
    np.testing.assert_allclose(fit.intervals[0], np.quantile(fit.resampled, [tail, 1 - tail]), rtol=1e-12)
    np.testing.assert_array_equal(fit.intervals, fit.bootstrapped)


def test_the_method_follows_the_number_of_texts():
    rng = np.random.default_rng(4)
    assert grow(curves("log", 3, rng), N).method == "student"
    assert grow(curves("log", 12, rng), N).method == "bootstrap"


@pytest.mark.parametrize("law", ["constant", "log", "power"])
def test_a_law_with_noise_is_plausible_as_often_as_the_criterion_says(law):
    rng, kept, repetitions = np.random.default_rng(7), 0, 40
    for _ in range(repetitions):
        found = grow(curves(law, 6, rng, noise=0.03), N, forms=("constant", "log", "power"), resamples=2)
        kept += law in found.plausible
    # another form is 2 or more below the true one with probability at most P(chi2_1 > 4) = 0.046, times 2 others
    least = 1 - 2 * 0.046
    assert kept >= repetitions * least - 4 * math.sqrt(repetitions * least * (1 - least))


def test_steep_growth_is_told_apart_and_flat_noise_is_not():
    rng = np.random.default_rng(5)
    steep = grow(curves("power", 6, rng, noise=0.02), N)
    assert steep.plausible == ("power",)
    assert "a n^b, " in steep.sentence
    assert "in AICc" in steep.sentence
    flat = grow(curves("log", 3, rng, noise=0.5), N)
    assert len(flat.plausible) > 1
    assert "not distinguishable" in flat.sentence
    assert steep.fit("constant").difference > 10


def test_a_prediction_spans_the_forms_that_contain_the_preferred_one():
    found = grow(curves("proportional-log", 5, np.random.default_rng(11), noise=0.02), N, resamples=50)
    ahead = found.predict(8192)
    assert "proportional-log" in found.plausible
    assert {"proportional-log", "log"} <= ahead.by_form.keys()
    assert ahead.low == min(low for _, low, _ in ahead.by_form.values())
    assert ahead.high == max(high for _, _, high in ahead.by_form.values())
    assert ahead.low <= ahead.value <= ahead.high
    ratio = found.evaluate(lambda form, at: form.values(at, [2048])[..., 0] / form.values(at, [128])[..., 0])
    # the one coefficient cancels: the interval is that of the form with two
    low, high = ratio.by_form["proportional-log"][1:]
    assert high - low < 1e-9
    assert ratio.high - ratio.low > 1e-3


def test_noisy_lengths_weigh_less():
    rng = np.random.default_rng(6)
    y = curves("log", 40, rng, noise=0.05)
    y[:, 2] += rng.standard_normal(40)
    weights = growth_fits._weights(y)
    assert weights.argmin() == 2
    assert weights.mean() == pytest.approx(1)


def test_one_text_has_no_interval_and_says_why():
    found = grow(curves("log", 1, np.random.default_rng(0)), N)
    assert found.best.intervals is None
    assert found.predict(4096).low is None
    assert "one text" in found.reason
    # least squares of one curve, whatever the weights
    np.testing.assert_allclose(found.fit("log").coefficients[::-1], np.polyfit(np.log(N), found.means, 1), rtol=1e-9)


def test_two_lengths_cannot_tell_forms_of_two_coefficients_apart():
    found = grow(curves("log", 4, np.random.default_rng(0))[:, :2], N[:2])
    two = {one.form.name: one.aicc for one in found.fits if one.form.parameters == 2}
    assert max(two.values()) - min(two.values()) < 1e-6
    few = grow(curves("log", 1, np.random.default_rng(0))[:, :2], N[:2])
    assert few.best.aicc is None
    assert "too few" in few.reason
    assert len(few.plausible) == len(FORMS)
    assert "no form preferred" in few.sentence


def test_texts_with_a_missing_length_are_left_out_and_none_left_is_said():
    y = curves("log", 4, np.random.default_rng(0))
    y[1, 4] = np.nan
    found = grow(y, N)
    assert (found.texts, found.dropped) == (3, 1)
    np.testing.assert_array_equal(found.means, np.delete(y, 1, axis=0).mean(axis=0))
    y[:, 2] = np.inf
    none = grow(y, N)
    assert none.best is None
    assert "no text" in none.reason
    assert "not fitted" in none.sentence
    with pytest.raises(DomainError, match="was not fitted"):
        none.predict(100)


def test_lengths_may_come_in_any_order():
    y = curves("log", 3, np.random.default_rng(0))
    one, two = grow(y, N), grow(y[:, ::-1], N[::-1])
    assert one.best.aicc == two.best.aicc


@pytest.mark.parametrize(
    ("values", "lengths", "options", "match"),
    [
        (np.ones((2, 1)), [128], {}, "one length has no growth"),
        (np.ones((2, 2)), [128, 128], {}, "distinct"),
        (np.ones((2, 2)), [1, 128], {}, "above 1"),
        (np.ones((2, 3)), [64, 128], {}, r"\(texts, m\)"),
        (np.ones((0, 2)), [64, 128], {}, "at least one text"),
        (np.ones((2, 2)), [64, 128], {"level": 1.0}, "level"),
        (np.ones((2, 2)), [64, 128], {"method": "guess"}, "student"),
        (np.ones((2, 2)), [64, 128], {"resamples": 1}, "resamples"),
        (np.ones((2, 2)), [64, 128], {"forms": ("cubic",)}, "known"),
        (np.ones((2, 2)), [64, 128], {"forms": ()}, "none given"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_line(values, lengths, options, match):
    with pytest.raises((DomainError, SpecError), match=match) as caught:
        grow(values, lengths, **options)
    assert "\n" not in str(caught.value)


def test_identical_texts_and_zeros_do_not_fail():
    assert grow(np.ones((3, 5)), N).best.form.name == "constant"
    assert grow(np.zeros((3, 5)), N).best.coefficients[0] == 0


def test_heads_layers_and_model():
    rng = np.random.default_rng(0)
    y = np.stack([np.stack([curves("log", 3, rng) for _ in range(3)]) for _ in range(2)])
    y[1, 2, :, 3] = np.nan
    found = grow_heads(y, N, resamples=20)
    assert found.heads[1][2].best is None
    np.testing.assert_allclose(found.layers[1].means, np.nanmedian(y[1], axis=0).mean(axis=0))
    np.testing.assert_allclose(found.model.means, np.nanmedian(y.reshape(6, 3, 5), axis=0).mean(axis=0))
    assert found.heads[0][1].quantity == "t_c of layer 0 head 1"
    with pytest.raises(DomainError, match="layers, heads, texts, lengths"):
        grow_heads(y[0], N)


def test_curves_of_a_table_put_texts_and_lengths_last():
    by_text = np.arange(2 * 3 * 5 * 4 * 6 * 2.0).reshape(2, 3, 5, 4, 6, 2)
    table = SimpleNamespace(
        by_text=by_text, lengths=tuple(N), at=lambda name, n, sink: (2, 0, 0, 0, int(sink == "dropped"))
    )
    found = curves_of(table, "critical_multiplier", sink="dropped")
    assert found.shape == (4, 6, 2, 5)
    assert found[3, 1, 0, 4] == by_text[0, 2, 4, 3, 1, 1]


def one_key_rows(rng, heads, texts, *, lengths=N, factor=lambda n: 1.0, noise=0.01):
    """t_c of rows with one logit g above n - 1 equal ones, times a law: t g m(n) = log(n - 1) at half the weight."""
    gap = np.exp(rng.normal(0.8, 0.3, (heads, 1, 1)) + 0.05 * rng.standard_normal((heads, texts, 1)))
    spread = np.exp(noise * rng.standard_normal((heads, texts, len(lengths))))
    m = np.array([factor(n) for n in lengths])
    return np.log(np.asarray(lengths) - 1.0) / (gap * spread * m)


def advised(critical, lengths=N, **options):
    return advise(critical, lengths, **{"train_length": 2048, "target_length": 16384, **options})


def test_a_constant_gap_asks_for_the_ratio_of_logarithms():
    found = advised(one_key_rows(np.random.default_rng(0), 24, 4))
    exact = math.log(16383) / math.log(2047)
    assert found.law == "rerope"
    assert found.parameters == {"reference": 2048.0}
    assert found.factor == pytest.approx(math.log(16384) / math.log(2048), rel=1e-12)
    assert found.interval[0] <= exact <= found.interval[1]
    assert found.wanted == pytest.approx(exact, rel=0.01)
    assert found.no_change is False
    assert found.growing == 1.0
    assert found.falling == 0.0
    assert found.mark == "heuristic"
    assert "heuristic" in found.reasons[-1]
    assert any("outside the interval" in one for one in found.reasons)
    assert any("8 times the longest" in one for one in found.reasons)


@pytest.mark.parametrize(
    ("name", "factor", "lengths"),
    [
        ("ssmax", lambda n: 0.43 * math.log(n), N),
        ("rerope", lambda n: max(1.0, math.log(n) / math.log(2048)), np.array([2048, 4096, 8192, 16384])),
    ],
)
def test_a_model_that_has_the_law_needs_no_change(name, factor, lengths):
    critical = one_key_rows(np.random.default_rng(1), 24, 4, factor=factor, lengths=lengths)
    found = advised(critical, lengths, present=name)
    assert (found.law, found.factor, found.no_change) == ("constant", 1.0, True)
    assert found.interval[0] <= 1 <= found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.1
    assert any("no change (m = 1) lies inside" in one for one in found.reasons)
    assert any(name in one for one in found.reasons)


def test_the_law_of_a_square_root_and_a_falling_one():
    rng = np.random.default_rng(2)
    root = np.exp(0.1 * rng.standard_normal((24, 4, 1)) + 0.01 * rng.standard_normal((24, 4, 5))) * np.sqrt(np.log(N))
    found = advised(root)
    assert found.law == "uniception-sqrt"
    assert found.factor == pytest.approx(math.sqrt(math.log(16384) / math.log(2048)), rel=1e-12)
    falling = advised(1 / root**2)
    assert falling.factor < 1
    assert falling.falling == 1.0
    assert falling.no_change is False


def test_noise_of_three_texts_leaves_no_change_and_a_logarithm_both_possible():
    rng = np.random.default_rng(3)
    shared = np.exp(0.15 * rng.standard_normal((1, 3, 5)))
    found = advised(one_key_rows(rng, 24, 3) * shared)
    assert found.no_change is True
    assert found.law == "constant"
    assert found.interval[0] < math.log(16384) / math.log(2048) < found.interval[1]
    assert any("do not tell it from" in one and "rerope" in one for one in found.reasons)


def test_candidates_have_the_factors_of_the_catalogue_and_of_the_formulas():
    found = advised(one_key_rows(np.random.default_rng(0), 8, 3))
    factor = {one.law: one.factor for one in found.candidates}
    assert factor["yarn"] == pytest.approx((0.1 * math.log(8) + 1) ** 2, rel=1e-12)
    assert factor["longrope"] == pytest.approx(1 + math.log(8) / math.log(2048), rel=1e-12)
    slope = next(one.parameters["a"] for one in found.candidates if one.law == "inkling")
    assert factor["inkling"] == pytest.approx(1 + slope * math.log(8), rel=1e-12)
    assert factor["ssmax"] == pytest.approx(factor["rerope"], rel=1e-12)
    assert "trained" not in found.reasons[0]
    assert not any(one.within for one in found.candidates if one.law == "yarn")


def test_an_encoder_is_offered_laws_of_the_sequence_only():
    found = advised(one_key_rows(np.random.default_rng(0), 24, 4), causal=False)
    assert found.law == "clex"
    affine = next(one for one in found.candidates if one.law == "ssmax")
    assert affine.factor == pytest.approx(1 + affine.parameters["s"] * math.log(8), rel=1e-12)
    assert not {"rerope", "inkling", "llama-4", "beam"} & {one.law for one in found.candidates}


def test_one_text_gives_a_factor_without_an_interval():
    found = advised(one_key_rows(np.random.default_rng(0), 24, 1))
    assert found.interval is None
    assert found.no_change is None
    assert found.growing is None
    assert found.law == "rerope"
    assert any("one text" in one for one in found.reasons)


def test_heads_without_a_threshold_are_left_out_and_none_at_all_is_said():
    critical = one_key_rows(np.random.default_rng(0), 6, 3)
    critical[2] = np.nan
    critical[4] = np.inf
    found = advised(critical)
    assert (found.heads, found.left_out) == (4, 2)
    nothing = advised(np.full((2, 3, 5), np.nan))
    assert nothing.law is None
    assert nothing.factor is None
    assert "no advice: none of 2 heads" in nothing.reasons[0]


def test_the_typical_head_is_the_median_of_growth_not_of_level():
    shape = np.array([1.0, 1.2, 1.4, 1.6, 1.8])
    levels = np.array([1.0, 5.0, 100.0])[:, None, None]
    found = typical_curve(np.ones((3, 2, 5)) * levels * shape)
    np.testing.assert_allclose(found, np.broadcast_to(5 * shape, (2, 5)), rtol=1e-12)


@pytest.mark.parametrize(
    ("critical", "options", "match"),
    [
        (np.ones((3, 5)), {}, "heads, texts, lengths"),
        (np.ones((2, 3, 5)), {"target_length": 2048}, "train < target"),
        (np.ones((2, 3, 5)), {"train_length": 1}, "train < target"),
        (np.ones((2, 3, 4)), {}, "values, lengths"),
    ],
)
def test_advice_refuses_in_one_line(critical, options, match):
    with pytest.raises(DomainError, match=match):
        advised(critical, **options)


def test_format_effects_against_real_casts_and_counted_gaps():
    gaps = np.array([0.0, 5.0, 14.0, 18.0, np.inf])
    effect = {one.format: one for one in format_effects(1.3, gaps)}["fp16"]
    assert np.float16(math.exp(-effect.gap * (1 + 1e-9))) == 0 < np.float16(math.exp(-effect.gap * (1 - 1e-9)))
    assert effect.gap_after == pytest.approx(effect.gap / 1.3)
    assert (effect.lost, effect.lost_after) == (1 / 4, 2 / 4)
    assert all(one.lost is None for one in format_effects(1.3))


class StandIn:
    """A model whose loss is level + c (log t - log t_best)^2 + 1/(1 + token), known for each text."""

    def __init__(self, best, *, level=None, curvature=0.3, causal=True):
        self.config = SimpleNamespace(causal=causal)
        self.best = np.asarray(best)
        self.level = np.linspace(1, 9, self.best.size) if level is None else level
        self.curvature = curvature
        self.calls = []

    def measure(self, model, sequences, *, transforms, logit_factor):
        assert model is self
        self.calls.append((len(sequences[0]), logit_factor, transforms))
        misses = self.curvature * np.log(logit_factor / self.best) ** 2
        return [
            level + miss + 1 / (1.0 + np.arange(one.size - 1))
            for level, miss, one in zip(self.level, misses, sequences, strict=True)
        ]


def swept(model, tokens=64, **options):
    windows = {f"text {index}": np.arange(tokens) for index in range(model.best.size)}
    return sweep_scale(model, windows, measure=model.measure, **options)


def test_the_sweep_finds_the_best_scale_and_its_interval_over_texts():
    best = np.array([1.1, 1.25, 1.3, 1.2])
    model = StandIn(best)
    found = swept(model, factors=(0.7, 0.85, 1, 1.1, 1.2, 1.35, 1.7)).best[0]
    # a parabola in log t through three points is the loss itself
    assert found.factor == pytest.approx(np.exp(np.log(best).mean()), rel=1e-9)
    ends = np.exp(stats.t.interval(0.95, 3, np.log(best).mean(), stats.sem(np.log(best))))
    np.testing.assert_allclose((found.low, found.high), ends, rtol=1e-9)
    gains = 0.3 * (np.log(best) ** 2 - np.log(1.2 / best) ** 2)
    assert found.gain.value == pytest.approx(gains.mean(), rel=1e-9)
    assert found.low < found.factor < found.high
    assert found.reason == ""


def test_differences_are_paired_and_levels_of_texts_drop_out():
    model = StandIn([1.2, 1.2, 1.2])
    point = swept(model, factors=(0.5, 2.0), lengths=(16, 64)).at(2.0, 16)
    expected = 0.3 * (math.log(2 / 1.2) ** 2 - math.log(1.2) ** 2)
    np.testing.assert_allclose(
        (point.difference.low, point.difference.value, point.difference.high), expected, rtol=1e-9
    )
    assert point.loss.high - point.loss.low > 10
    token = 1 / (1.0 + np.arange(15))
    plain = model.level + 0.3 * math.log(2 / 1.2) ** 2
    np.testing.assert_allclose(point.losses, plain + token.mean(), rtol=1e-12)
    assert point.tail.value == pytest.approx(plain.mean() + token[7:].mean(), rel=1e-12)
    assert point.perplexity.value == pytest.approx(math.exp(point.loss.value), rel=1e-12)


def test_one_run_a_factor_serves_every_length_unless_the_law_counts_the_sequence():
    model = StandIn([1.0, 1.0])
    found = swept(model, factors=(2.0,), lengths=(16, 32, 64), law="rerope", parameters={"reference": 32.0})
    assert [(tokens, t) for tokens, t, _ in model.calls] == [(64, 1.0), (64, 2.0)]
    assert len(found.points) == 6
    assert found.law == "rerope"
    model.calls.clear()
    swept(model, factors=(1.0,), lengths=(16, 32, 64), law="clex", parameters={"reference": 32.0})
    assert [tokens for tokens, _, _ in model.calls] == [16, 32, 64]
    model.config.rope = SimpleNamespace(kind="dynamic")
    model.calls.clear()
    swept(model, factors=(1.0,), lengths=(16, 64))
    assert [tokens for tokens, _, _ in model.calls] == [16, 64]


def test_the_law_reaches_the_model_as_its_factor_alone():
    model = StandIn([1.0])
    swept(model, factors=(1.0,), law="rerope", parameters={"reference": 32.0})
    ((_, _, (law,)),) = model.calls
    rows = jnp.arange(64)
    beta = np.asarray(law.beta(RowContext(rows, rows, rows + 1, 64, 16)))
    expected = np.maximum(1, np.log(np.arange(1, 65)) / math.log(32))
    # float32 logarithms
    np.testing.assert_allclose(beta, expected, rtol=1e-6)


def test_the_share_of_heads_beyond_critical_stands_beside_the_loss():
    critical = {64: np.array([[0.5, 1.5], [3.0, np.nan]])}
    found = swept(StandIn([1.0, 1.1]), factors=(0.5, 2.0), lengths=(32, 64), critical=critical)
    assert [found.at(t, 64).beyond for t in (0.5, 1.0, 2.0)] == [0.0, 0.25, 0.5]
    assert found.at(1.0, 32).beyond is None
    assert [one.half for one in found.best] == [None, 2.25]


def test_a_least_loss_at_the_end_of_the_range_and_a_single_text_are_said():
    end = swept(StandIn([5.0, 5.0]), factors=(1.0, 2.0)).best[0]
    assert end.factor is None
    assert "end of the factors, t = 2" in end.reason
    assert end.gain.value > 0
    single = swept(StandIn([1.2])).best[0]
    assert single.factor == pytest.approx(1.2, rel=1e-9)
    assert single.low is None
    assert "one text" in single.reason
    split = swept(StandIn([0.3, 1.3, 1.6], level=np.ones(3)), factors=(0.8, 1.0, 1.3)).best[0]
    assert split.factor is None or (split.low is None and "without one of the texts" in split.reason)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"factors": (0.0,)}, "factor = 0.0"),
        ({"factors": (math.inf,)}, "positive and finite"),
        ({"lengths": (3,)}, "from 4"),
        ({"lengths": (65,)}, "64 tokens"),
        ({"law": "no-such-law"}, "unknown"),
        ({"law": "lssa"}, "base scale 1;"),
        ({"law": "qassmax"}, "no factor per row"),
        ({"parameters": {"s": 1.0}}, "without a law"),
    ],
)
def test_the_sweep_refuses_in_one_line(options, match):
    with pytest.raises((DomainError, SpecError), match=match) as caught:
        swept(StandIn([1.0, 1.0]), **options)
    assert "\n" not in str(caught.value)


def test_by_default_the_forward_pass_and_the_loss_of_the_package_are_used(monkeypatch):
    model = StandIn([1.0, 1.3])
    seen = {}

    def run(given, sequences, *, transforms, logit_factor):
        seen["run"] = (given, len(sequences), transforms)
        return [logit_factor] * len(sequences)

    def losses(given, finals, sequences):
        return model.measure(given, sequences, transforms=(), logit_factor=finals[0])

    monkeypatch.setitem(sys.modules, "critattn.models.forward", SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "critattn.models.loss", SimpleNamespace(losses=losses))
    windows = {"a": np.arange(32), "b": np.arange(32)}
    found = sweep_scale(model, windows, factors=(0.8, 1.0, 1.4))
    assert seen["run"] == (model, 2, ())
    expected = sweep_scale(model, windows, factors=(0.8, 1.0, 1.4), measure=model.measure)
    np.testing.assert_array_equal([one.losses for one in found.points], [one.losses for one in expected.points])


def test_an_interval_beyond_the_largest_float_is_infinite():
    point = swept(StandIn([1.0, 1.0], level=np.array([0.0, 400.0])), factors=(1.0,)).at(1.0, 64)
    assert math.isinf(point.perplexity.high)
    assert point.perplexity.low == 0


def test_the_sweep_refuses_encoders_no_texts_and_losses_of_another_length():
    with pytest.raises(DomainError, match="not causal"):
        swept(StandIn([1.0], causal=False))
    with pytest.raises(DomainError, match="at least one text"):
        sweep_scale(StandIn([1.0]), {})
    with pytest.raises(DomainError, match="1 vectors of 63 tokens"):
        sweep_scale(StandIn([1.0]), {"a": np.arange(64)}, measure=lambda *_, **__: [np.ones(64)])
    with pytest.raises(DomainError, match="one of those measured"):
        swept(StandIn([1.0])).at(9.0, 64)
