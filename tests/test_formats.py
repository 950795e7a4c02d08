"""Number formats: stated thresholds, the libraries here against them, and zeros predicted against real casts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critattn import formats
from critattn.attention import Attention
from critattn.errors import DomainError, SpecError
from critattn.formats import grid, measured, operations
from critattn.formats.emulation import exponentials, lost, rounded, zero_limit
from critattn.normalisers import Softmax

NAMES = formats.names()
# The published table, to its six decimals.
STATED = """
fp32 24 -87.336545 -103.278930 -103.972077 88.722839 88.722839 -16.635532
bf16 8 -87.336545 -92.188575 -92.881722 88.718925 88.720884 -5.545177
fp16 11 -9.704061 -16.635532 -17.328680 11.089866 11.090111 -7.624619
e4m3fn 4 -4.158883 -6.238325 -6.931472 6.104793 - -2.772589
e4m3 4 -4.158883 -6.238325 -6.931472 5.480639 5.513429 -2.772589
e5m2 3 -9.704061 -11.090355 -11.783502 10.956823 11.025816 -2.079442
e4m3fnuz 4 -4.852030 -6.931472 -7.624619 5.480639 - -2.772589
e5m2fnuz 3 -10.397208 -11.783502 -12.476649 10.956823 - -2.079442
"""


@pytest.mark.parametrize("line", STATED.strip().splitlines())
def test_the_stated_table_to_its_digits(line):
    name, bits, normal, subnormal, zero, overflow, over, absorption = line.split()
    form = formats.get(name)
    found = form.thresholds()
    assert form.significand_bits == int(bits)
    stated = (normal, subnormal, zero, overflow, absorption)
    own = (found.normal, found.subnormal, found.zero, found.overflow, found.absorption)
    assert [f"{value:.6f}" for value in own] == list(stated)
    assert (found.overflow_rounded is None) == (over == "-")
    if over != "-":
        assert f"{found.overflow_rounded:.6f}" == over


@pytest.mark.parametrize("name", NAMES)
def test_thresholds_are_where_the_casts_change(name):
    """Each threshold by the cast of ml_dtypes or numpy, from numbers just above and just below."""
    form = formats.get(name)
    q, tiny = form.smallest, math.ldexp(1.0, form.least_exponent)

    def real(x):
        return float(np.array(x, np.float64).astype(form.dtype))

    assert real(q) == q
    # ml_dtypes casts float64 by way of float32, whose subnormals are 2^16 times finer than those of bf16
    assert real(q / 2) == 0 < real(q / 2 * (1 + 2.0**-15)) == q
    assert real(tiny - q) == tiny - q
    assert real(form.largest) == form.largest
    step = math.ldexp(1.0, -form.significand_bits)
    assert real(1 + step) == 1 < real(1 + 1.01 * step)
    with np.errstate(over="ignore"):
        over = form.thresholds().overflow_rounded
        assert math.isfinite(real(form.largest * (1 + 1e-9)))
        assert over is None or real(math.exp(over) * (1 + 1e-9)) == math.inf


def test_names_of_formats():
    assert formats.get(" BFloat16 ").name == "bf16"
    with pytest.raises(SpecError, match=r"did you mean 'e4m3fnuz'"):
        formats.get("e4m3fnzu")


# the grid of a format


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fp32"])
def test_the_input_grid_against_all_numbers_of_the_format(name):
    form = formats.get(name)
    values = np.arange(1 << (8 * form.dtype.itemsize)).astype(grid.unsigned(form.dtype)).view(form.dtype)
    with np.errstate(invalid="ignore"):
        values = values.astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    codes = np.arange(grid.largest_code(form) + 1)
    assert np.array_equal(grid.magnitudes(form, codes).astype(float), values[values >= 0])
    for x in (*(form.thresholds().of(kind) for kind in formats.KINDS), -1.0, -math.pi, -0.75):
        assert grid.at_or_below(form, x) == values[values <= x].max()


def test_the_input_grid_of_float32():
    for x in (-103.97207708399179, -87.33654475055310, -1.0):
        below = grid.at_or_below(formats.get("fp32"), x)
        assert below <= x < float(np.nextafter(np.float32(below), np.float32(0)))


@pytest.mark.parametrize("name", ["fp32", "fp16", "e5m2"])
def test_the_search_finds_the_first(name):
    form = formats.get(name)
    top = grid.largest_code(form)
    for code in (0, 1, 77, top // 3, top - 1, top):
        found = grid.first(form, lambda x, code=code: grid.bits(x) >= code)
        assert found == (code, True)
    assert grid.first(form, lambda x: np.zeros(len(x), bool)) == (None, True)
    assert grid.first(form, lambda x: (grid.bits(x) >= top // 5) & (grid.bits(x) < top // 2)) == (top // 5, False)


# what the libraries here do


# Compiling JAX for one more 8-bit format takes a second; the others are alike.
CHOSEN = ("fp32", "bf16", "fp16", "e4m3fn")


def made(backend, names=CHOSEN):
    return {(one.operation, one.format): one for one in formats.measure_backend(backend, names)}


@pytest.fixture(scope="module", params=operations.available())
def results(request):
    return made(request.param)


@pytest.mark.slow
def test_every_format_on_jax():
    found = made("jax", NAMES)
    for form in map(formats.get, NAMES):
        assert found["exp", form.name].kind in ("zero", "normal")


def test_every_first_zero_shows_the_threshold_of_its_class(results):
    """A class is no pinned number: it says where the zero must lie, and what the numbers above it are."""
    found = [one for one in results.values() if one.first_zero is not None]
    # a softmax of JAX in a format without infinity starts its maximum from NaN: what comes out differs between runs
    found = [one for one in found if one.operation != "softmax" or formats.get(one.format).has_infinity]
    assert len(found) > 5
    for one in found:
        form, stated = formats.get(one.format), formats.get(one.format).thresholds()
        assert one.monotone, one
        assert one.last_nonzero == -float(np.nextafter(np.array(-one.first_zero, form.dtype), np.array(0, form.dtype)))
        if one.kind == "own":
            # no kernel is more exact than the format
            assert one.first_zero >= grid.at_or_below(form, stated.zero)
            continue
        tau = stated.of(one.kind)
        assert one.first_zero <= tau + measured.EXP_ERROR
        flushing = math.log(1 - 2.0**-form.significand_bits) if one.kind == "normal" else 0
        assert one.last_nonzero > tau - measured.EXP_ERROR + flushing
        assert one.subnormals == (one.kind == "zero")


def test_exponentials_overflow_where_stated(results):
    """The first input at which exp is not finite: the next number of the format at or above ln(X + ulp/2)."""
    for one in results.values():
        if not one.operation.startswith("exp") or one.first_zero is None:
            assert one.first_overflow is None
            continue
        form, stated = formats.get(one.format), formats.get(one.format).thresholds()
        below = float(np.nextafter(np.array(one.first_overflow, form.dtype), np.array(0, form.dtype)))
        # a format without infinity may saturate or not, but not before its largest number
        limit = stated.overflow if stated.overflow_rounded is None else stated.overflow_rounded
        assert one.first_overflow >= limit - measured.EXP_ERROR
        step = math.log1p(math.ldexp(1.0, -form.significand_bits)) if stated.overflow_rounded is None else 0
        assert below < limit + step + measured.EXP_ERROR


def test_numpy_keeps_subnormals_and_all_formats_are_measured():
    found = made("numpy", NAMES)
    assert {name for _, name in found} == set(NAMES)
    assert {one.kind for one in found.values()} == {"zero"}


def test_float32_bisection_agrees_with_a_scan_around_it():
    operation = operations.operations("numpy")[0]
    zero = measured.measure(operation, "fp32").first_zero
    around = np.array(zero, np.float32).view(np.uint32) + np.arange(-500, 500).astype(np.uint32)
    values = operation.run(around.view(np.float32))
    assert np.array_equal(values == 0, np.arange(-500, 500) >= 0)


def kernel(threshold):
    """An exponential with a threshold of its own."""

    def run(x):
        return np.where(x.astype(float) <= threshold, 0, np.exp(x)).astype(x.dtype)

    return operations.Operation("numpy", "exp", True, run)


@pytest.mark.parametrize(
    ("name", "threshold", "kind"),
    [
        ("fp32", -86.9899746, "own"),
        ("fp32", -87.3365475, "normal"),
        ("bf16", -87.4, "normal"),
        ("bf16", -80.0, "own"),
        ("fp16", -9.7041, "normal"),
        ("fp16", -16.0, "own"),
        ("e4m3", -4.2, "normal"),
        ("e5m2", -9.8, "normal"),
    ],
)
def test_classes_of_kernels_with_known_thresholds(name, threshold, kind):
    found = measured.measure(kernel(threshold), name)
    assert found.kind == kind
    assert found.first_zero == grid.at_or_below(formats.get(name), threshold)
    assert found.subnormals == (threshold < formats.get(name).thresholds().normal and kind == "own")


def test_what_gives_no_numbers_is_said():
    broken = operations.Operation("numpy", "exp", True, lambda x: np.full_like(x, np.nan))
    assert "NaN" in measured.measure(broken, "fp16").note
    shape = operations.Operation("numpy", "exp", True, lambda x: x[:1])
    assert "shape" in measured.measure(shape, "fp16").note
    never = operations.Operation("numpy", "exp", True, lambda x: np.ones_like(x))
    found = measured.measure(never, "fp16")
    assert (found.first_zero, found.kind, found.first_overflow) == (None, None, None)
    ragged = operations.Operation("numpy", "exp", True, lambda x: np.where(x == -3, 0, np.exp(x)).astype(x.dtype))
    found = measured.measure(ragged, "fp16")
    assert (found.monotone, found.kind) == (False, "own")
    assert "not every x below" in found.note


def test_flushing_of_the_thread_is_measured_anew():
    """Torch can make its thread flush, numpy's exponential with it; torch's other threads may not follow."""
    if "torch" not in operations.available():
        return
    torch = operations.importlib.import_module("torch")
    before = made("numpy")
    assert not measured.thread_flushes()
    assert torch.set_flush_denormal(True)
    try:
        assert measured.thread_flushes()
        flushed = made("numpy", ("fp32", "bf16", "fp16"))
    finally:
        torch.set_flush_denormal(False)
    assert {one.kind for (_, name), one in flushed.items() if name != "fp16"} == {"normal"}
    assert not any(one.subnormals for (_, name), one in flushed.items() if name != "fp16")
    # its subnormals are normal numbers of float32
    assert flushed["exp", "fp16"].kind == "zero"
    assert made("numpy") == before


def test_backends_are_named():
    with pytest.raises(SpecError, match="did you mean 'torch'"):
        formats.measure_backend("troch")
    with pytest.raises(SpecError, match="bf16"):
        formats.measure_backend("numpy", ("bf61",))


def test_a_backend_that_is_missing_is_left_out(monkeypatch):
    real = operations.importlib.util.find_spec
    monkeypatch.setattr(operations.importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    assert operations.available() == ("numpy", "jax")
    with pytest.raises(SpecError, match="torch' is not installed"):
        operations.operations("torch")


# the emulated pipeline


def drawn(name, rng, rows=300, keys=400):
    """Logits over the whole range of a format, with ties at its thresholds and totals at and near whole numbers."""
    form = formats.get(name)
    depth = -form.thresholds().zero
    logits = -rng.uniform(0, 1.15 * depth, (rows, keys))
    deep = rng.random((rows, keys)) < 0.5
    logits[deep] = (-depth + rng.uniform(-1, 4, (rows, keys)))[deep]
    # k q (1 + small), half-steps included, below 2, 3, ... equal maxima: k/Z is at 1/2 or next to it
    halves = rng.integers(1, 40, (rows, keys)) / 2
    ties = np.log(halves) - depth + math.log(2) + rng.choice([0, 0, 1e-7, -1e-7], (rows, keys))
    at_ties = rng.random((rows, keys)) < 0.3
    logits[at_ties] = ties[at_ties]
    for row, count in enumerate(rng.integers(1, 17, rows)):
        logits[row, :count] = 0
    logits[: rows // 10, keys // 2 :] = -np.inf
    logits[0] = -np.inf
    return rng.permuted(logits, axis=1) + rng.normal(0, 3, (rows, 1)).round(1)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_predicted_zeros_are_those_of_the_real_casts(name, flush):
    """120,000 entries without one exception: float64 arithmetic on one side, casts and divisions on the other."""
    logits = drawn(name, np.random.default_rng(7))
    real, found = formats.emulate(logits, name, flush=flush), formats.zeros(logits, name, flush=flush)
    assert logits.size >= 10**5
    assert np.array_equal(real.numerators, found.numerators)
    assert np.array_equal(real.weights == 0, found.zero)
    assert np.array_equal(real.numerators == 0, found.numerator_zero)
    lost_by_division = found.zero & ~found.numerator_zero
    assert lost_by_division.sum() > 100
    assert (~found.zero).sum() > 1000
    assert not real.weights[0].any()


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_lost_quotients_at_and_beside_every_tie(name, flush):
    """Numerators k q over the float32 totals nearest to where k/Z is a tie: 2 k, or k over half a step below 2^e."""
    form, rng = formats.get(name), np.random.default_rng(5)
    bits = form.significand_bits
    wide = form.least_exponent == -126
    # in bf16 the quotient is a float32 subnormal; where float32 flushes too, its least normal number is the limit
    limit = 2.0 ** (bits - 1) - 0.5 * (not wide) if flush else 0.5 + 2.0**-17 * (name == "bf16")
    far = 2 ** np.arange(6, 12)
    steps = np.concatenate([np.arange(-40, 41), far, -far])
    whole = rng.integers(1, 2**bits, 400) * 2.0 ** rng.integers(0, 6, 400) * (2.0 ** (bits - 1) if flush else 1)
    numerators = np.concatenate([whole, [2.0**bits - 1, 2.0**bits]]) * form.smallest
    middle = (numerators / form.smallest / limit).astype(np.float32)
    totals = (middle.view(np.uint32)[:, None] + steps).astype(np.uint32).view(np.float32)
    with np.errstate(under="ignore"):
        quotients = numerators.astype(np.float32)[:, None] / totals
        if flush:
            quotients = np.where(quotients < np.float32(2.0**-126), 0, quotients)
        weights = quotients.astype(form.dtype).astype(np.float64)
    real = weights < (math.ldexp(1.0, form.least_exponent) if flush else form.smallest)
    assert 0.2 < real.mean() < 0.8
    assert np.array_equal(lost(numerators[:, None], totals.astype(float), form, flush=flush), real)


@pytest.mark.parametrize("name", NAMES)
def test_another_order_of_the_sum_changes_only_what_is_marked(name):
    logits = drawn(name, np.random.default_rng(8))
    found, real = formats.zeros(logits, name), formats.emulate(logits, name)
    for order in (slice(None), slice(None, None, -1)):
        total = np.add.accumulate(real.numerators[:, order], axis=1, dtype=np.float32)[:, -1:]
        quotients = real.numerators / np.where(total > 0, total, 1)
        with np.errstate(under="ignore"):
            zero = quotients.astype(formats.get(name).dtype).astype(np.float32) == 0
        assert not ((zero != found.zero) & ~found.order_matters).any()


def test_the_rule_for_bf16_is_not_one_half():
    """The quotient is rounded to a float32 subnormal first: k/Z in (1/2, 1/2 + 2^-17] is lost, just above is not."""
    slack = {name: zero_limit(formats.get(name))[0] / formats.get(name).smallest - 0.5 for name in NAMES}
    assert slack["bf16"] == 2.0**-17
    assert slack["fp32"] == 0
    assert all(0 < slack[name] < 2.0**-24 for name in NAMES if name not in ("fp32", "bf16"))
    q, z = np.float32(2.0**-133), np.float32(2)
    for total, gone in ((z * np.float32(1 - 2.0**-17), True), (z * np.float32(1 - 2.0**-15), False)):
        assert 1 / float(total) > 0.5
        assert (float((q / total).astype("bfloat16")) == 0) == gone


@given(st.integers(0, 2**31 - 1), st.sampled_from(NAMES))
def test_rounding_without_casts(code, name):
    code %= int(np.array(1, np.float32).view(np.uint32)) + 1
    value = np.array([code], np.uint32).view(np.float32)
    with np.errstate(under="ignore"):
        real = value.astype(formats.get(name).dtype).astype(np.float64)
    assert rounded(value.astype(np.float64), formats.get(name)) == real


@pytest.mark.parametrize("name", NAMES)
def test_numerators_vanish_at_the_stated_threshold(name):
    """From the logits alone: exp(x) is 0 iff x <= tau, but for the error of a float32 exponential, 2^-17 in x."""
    form = formats.get(name)
    tau = form.thresholds().zero
    x = np.concatenate([np.linspace(2 * tau, 0, 2000), tau + np.array([-1, 1]) * 2.0**-16])
    found = formats.zeros(np.stack([np.zeros_like(x), x], axis=1), name)
    assert np.array_equal(found.numerator_zero[:, 1], x <= tau)
    flushed = formats.zeros(np.stack([np.zeros_like(x), x], axis=1), name, flush=True)
    normal = form.thresholds().normal
    # halfway below the least normal number a result still rounds up to it
    clear = (x < normal - 2.0**-form.significand_bits * 1.1) | (x > normal)
    assert np.array_equal(flushed.numerator_zero[clear, 1], (x <= normal)[clear])


@pytest.mark.parametrize("bad", [[np.nan, 0.0], [np.inf, 0.0], [], 1.0])
def test_what_is_no_row_is_refused(bad):
    for function in (formats.emulate, formats.zeros, formats.leaking, formats.lost_mass):
        with pytest.raises(DomainError, match="logits"):
            function(np.array(bad), "fp16")


# losses


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3", "e5m2"])
def test_masses_of_redistribution_and_leak(name, flush):
    rng = np.random.default_rng(3)
    logits = rng.uniform(1.2 * formats.get(name).thresholds().zero, 0, (50, 200))
    exact = formats.exact_weights(logits)
    zero = formats.zeros(logits, name, flush=flush).zero
    mass = formats.lost_mass(logits, name, flush=flush)
    spread, leak = formats.redistributed(exact, zero), formats.leaked(exact, zero)
    # 200 terms in float64
    close = {"rtol": 1e-12, "atol": 200 * 2.0**-53}
    np.testing.assert_allclose(np.abs(spread - exact).sum(axis=1) / 2, mass, **close)
    np.testing.assert_allclose(spread.sum(axis=1), 1, **close)
    np.testing.assert_allclose(leak.sum(axis=1), 1 - mass, **close)
    np.testing.assert_allclose(np.abs(leak - exact).sum(axis=1) / 2, mass / 2, **close)
    for loss in (formats.leaking(logits, name, flush=flush), formats.redistributing(logits, name, flush=flush)):
        assert (loss.flushed > 0).all()
        assert (loss.flushed_mass <= loss.mass_bound).all()
    np.testing.assert_allclose(loss.flushed_mass, mass, rtol=1e-12)


def test_real_casts_leak_and_their_rounding_dominates():
    """A row of fp16 weights: what is lost is F to within the rounding 2^-p of the kept weights and their steps q/2."""
    logits = -np.linspace(0, 25, 4000)[None]
    loss = formats.leaking(logits, "fp16")
    assert 0 < loss.flushed_mass[0] < 4000 * 2.0**-25
    assert abs(loss.row_sum[0] - (1 - loss.flushed_mass[0])) < 2.0**-11 + 4000 * 2.0**-25
    assert loss.total_variation[0] > loss.flushed_mass[0]


def test_two_roundings_lose_more_than_one():
    """Two maxima and a key at 1.4 q: the weight .7 q, which one rounding keeps."""
    logits = np.array([[0, 0, math.log(1.4) + formats.get("fp16").thresholds().subnormal]])
    assert formats.zeros(logits, "fp16").zero.tolist() == [[False, False, True]]
    loss = formats.redistributing(logits, "fp16")
    assert loss.flushed_mass[0] == pytest.approx(0.7 * 2.0**-24, rel=1e-6)
    assert math.exp(formats.get("fp16").thresholds().zero) < loss.flushed_mass[0] <= loss.mass_bound[0]
    assert formats.leaking(logits, "fp16").flushed[0] == 0


@pytest.mark.parametrize("flush", [False, True])
def test_total_blindness_by_the_cast_of_one_over_n(flush):
    assert [formats.blind_count(name) for name in ("fp16", "e4m3", "e5m2")] == [2**25, 1024, 131072]
    for name in NAMES[2:]:
        form, count = formats.get(name), formats.blind_count(name, flush=flush)
        least = math.ldexp(1.0, form.least_exponent) if flush else form.smallest
        shares = (1 / np.array([count - 1, count], np.float64)).astype(form.dtype).astype(np.float64)
        assert [share < least for share in shares] == [False, True]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_equal_logits_goes_blind(name):
    if formats.blind_count(name) > 200_000:
        return
    count = formats.blind_count(name)
    assert formats.zeros(np.zeros(count), name).zero.all()
    assert not formats.zeros(np.zeros(count - 1), name).zero.any()
    assert not formats.emulate(np.zeros(count), name).weights.any()
    # the numerators themselves are 1
    assert (formats.emulate(np.zeros(count), name).numerators == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_absorption_by_addition(name):
    """1 + exp(-gap) by the cast, which goes by way of float32: 1e-3 of half a step of bf16 is 8 of its steps."""
    form = formats.get(name)
    gaps = -form.thresholds().absorption + np.array([-1, -0.1, -1e-3, 1e-3, 0.1, 1])
    one, small = np.ones(6, form.dtype), np.exp(-gaps)
    summed = (one.astype(np.float64) + small).astype(form.dtype)
    assert np.array_equal(formats.absorbed(gaps, name), summed == one)
    assert formats.absorbed(-form.thresholds().absorption, name)
    assert np.array(1 + math.ldexp(1.0, -form.significand_bits)).astype(form.dtype) == 1


# masks


@pytest.mark.parametrize("name", NAMES)
def test_masks_of_the_least_number(name):
    form, facts = formats.get(name), formats.mask_facts(name)
    step = math.ldexp(1.0, math.frexp(form.largest)[1] - form.significand_bits)
    odd = int(form.largest / step) % 2 == 1
    assert odd == (name != "e4m3fn")
    # the tie goes to the even neighbour: away from an odd largest number, back to an even one
    assert facts.kept == (step / 2 if not odd else -_above(form, step / 2))
    assert facts.spoiling == (-step / 2 if odd else _below(form, -step / 2))
    assert facts.spoilt == facts.twice == ("-inf" if form.has_infinity else "nan")


def _above(form, x):
    return -float(np.nextafter(np.array(x, form.dtype), np.array(0, form.dtype)))


def _below(form, x):
    return -float(grid.magnitudes(form, grid.bits(np.array([x], form.dtype)) + 1)[0])


def test_the_mask_of_float16_in_jax():
    """-65504 + x = -inf iff x <= -16, over all biases, and a row of -inf gives NaN."""
    x = -grid.magnitudes(formats.get("fp16"), np.arange(grid.largest_code(formats.get("fp16")) + 1))
    added = np.asarray(jnp.float16(-65504) + jnp.asarray(x))
    assert np.array_equal(added == -np.inf, x <= -16)
    assert jnp.isnan(jax.nn.softmax(jnp.full(4, -jnp.inf))).all()


class Documents:
    """The first row sees no key, the second two, the others all."""

    def allowed(self, query_positions, key_positions):
        return key_positions[None, :] < jnp.asarray([0, 2, 4, 4])[query_positions][:, None]

    def keys_seen(self, query_positions, total_keys):
        return jnp.asarray([0, 2, 4, 4])[query_positions]


@pytest.mark.parametrize("name", NAMES)
def test_attention_gives_defined_weights_in_every_format(name):
    """Masked by booleans, whatever stands in the masked places; by finfo.min plus a bias, where that is a number."""
    form = formats.get(name)
    bias = -np.array([0, 1, 4, 64.0])
    with np.errstate(all="ignore"):
        scores = np.full((4, 4), -form.largest)
        scores[1, :2] = scores[2:] = 0
        spoilt = scores.astype(form.dtype) + np.multiply(bias, form.largest / 8).astype(form.dtype)
    spoilt[1, :2], spoilt[2:] = 0, np.array([[0], [-1]]).astype(form.dtype)
    layer = Attention(mask=Documents())
    rows = layer.context(jnp.arange(4), 4, 4)
    weights = np.asarray(jax.jit(lambda scores: layer.weights(scores, rows))(spoilt)).astype(float)
    assert weights.tolist() == [[0] * 4, [0.5, 0.5, 0, 0], [0.25] * 4, [0.25] * 4]
    if form.has_infinity:
        assert (spoilt[0].astype(float) == -np.inf).sum() == 3
        spoilt[1] = -np.inf
        plain = np.asarray(jax.jit(lambda scores: Softmax()(scores, rows))(spoilt)).astype(float)
        assert plain.tolist() == [[1, 0, 0, 0], [0] * 4, [0.25] * 4, [0.25] * 4]


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_a_fully_masked_row_forgets_its_bias(name):
    """finfo.min absorbs every bias below half its step, so that the row is uniform, not shaped by the bias."""
    form = formats.get(name)
    row = np.array(-form.largest, form.dtype) + (-np.arange(4.0)).astype(form.dtype)
    assert formats.emulate(row.astype(np.float64), name).weights.tolist() == [0.25] * 4
    assert exponentials(row.astype(np.float64)).tolist() == [1] * 4
