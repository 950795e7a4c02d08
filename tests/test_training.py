"""Small decoders: fused attention against the package's own, stops and restarts, splits, prompts, refusals."""

import copy
import dataclasses
import errno
import functools
import hashlib
import json
import math
import operator
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from scipy import stats

from critattn import provenance
from critattn.errors import DomainError, SpecError, StoreError
from critattn.protocols import precision
from critattn.training import (
    batches,
    captions,
    checkpoints,
    corpus,
    evaluation,
    experiments,
    fused,
    layers,
    loop,
    model,
    presets,
    prompts,
    records,
    results,
    rotary,
    torch_twin,
    variants,
    weights,
)
from critattn.training.presets import PRESETS, Preset, Shape

SHAPE = Shape(layers=1, width=16, heads=2, hidden=24, length=16)
TINY = Preset(
    "tiny",
    dataclasses.replace(SHAPE, layers=2),
    steps=30,
    batch=4,
    learning_rate=3e-3,
    warmup=5,
    prompt_share=0.0,
    eval_blocks=4,
)
# one variant for each normaliser and first stage
FORMS = (
    "softmax-rope",
    "lssa",
    "lssar-p3",
    "sigmoid",
    "first-stage-exp-p3",
    "first-stage-sigmoid-l1",
    "first-stage-sigmoid-l1-p3",
    "first-stage-relu-l1",
    "first-stage-relu-l1-p15",
)


@pytest.fixture(scope="module")
def text():
    return corpus.load()


@functools.cache
def decoder(name, seed=0, shape=SHAPE):
    return model.make(variants.named(name), shape, seed)


def wide(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), tree)


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_has_the_weights_and_the_jacobian_of_its_normaliser(name):
    one = variants.named(name)
    layer = layers.attention_of(one, 2, 16)
    kernel = fused.kernel_of(layer.normaliser, bounded=one.cosines)
    rng = np.random.default_rng(5)
    scores, pulled = rng.standard_normal((2, 2, 16, 16))
    # cosines times log d log i at the most
    scores = np.tanh(scores) * 5

    @jax.jit
    def both(scores, pulled):
        context = layer.context(jnp.arange(16), 16, 8)
        where = layer.allowed(context)
        found, saved = fused.weights(kernel, jnp.where(where, scores, -jnp.inf))
        common = jnp.sum(found * pulled, axis=-1, keepdims=True)
        wanted = layer.normaliser(scores, context, where=where)
        parts = layer.normaliser.jacobian_parts(scores, context, where=where)
        # J^T y = g y - g (u . y) - B (c . y)
        back = parts.g * (pulled - jnp.sum(parts.u * pulled, axis=-1, keepdims=True))
        if parts.c is not None:
            back = back - parts.b * jnp.sum(parts.c * pulled, axis=-1, keepdims=True)
        return (found, fused.pull(kernel, saved, found, pulled, common)), (wanted, back)

    with precision("float64"):
        ours, theirs = both(jnp.asarray(scores), jnp.asarray(pulled))
    for one, other in zip(ours, theirs, strict=True):
        # 2^-53 over the smallest excess above a mean of a row, above 1e-3 here, with p = 15 and sums of 16
        np.testing.assert_allclose(one, other, atol=1e-10 * np.max(np.abs(other)))


def test_the_fused_layer_is_the_package_s_layer_forward_and_backward():
    made = decoder("alibi-c-e-l-s")
    with precision("float64"):
        one = wide(made)
        rng = np.random.default_rng(5)
        x, pulled = (jnp.asarray(rng.standard_normal((2 * 16, 16))) for _ in range(2))

        @jax.jit
        def both(block, x):
            found = []
            for generic in (False, True):
                out, back = jax.vjp(lambda block, x, g=generic: one.attend(block, x, 2, generic=g), block, x)
                found.append((out, back(pulled)))
            return found

        ours, theirs = both(one.blocks[0], x)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        # as above, for sums over rows and channels too
        np.testing.assert_allclose(mine, other, atol=1e-9 * max(1.0, np.max(np.abs(other))))


@pytest.mark.parametrize("p", [1.0, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.5, 1.5, 3.0))])
def test_keys_that_are_cut_off_have_no_slope_at_any_power(p):
    made = dataclasses.replace(decoder("lssa"), variant=variants.softplus_family("softplus", "softplus-l1", p))
    rng = np.random.default_rng(8)
    x, pulled = (jnp.asarray(rng.standard_normal((12, 16))) for _ in range(2))

    @jax.value_and_grad
    def mixed(x, generic):
        return jnp.sum(pulled * made.attend(made.blocks[0], x, 1, generic=generic))

    with precision("float64"):
        made = wide(made)
        x, pulled = (jnp.asarray(np.asarray(one), jnp.float64) for one in (x, pulled))
        ours, theirs = jax.jit(lambda x: (mixed(x, False), mixed(x, True)))(x)
        plain = dataclasses.replace(made, variant=dataclasses.replace(made.variant, cosines=False))
        q, k, v = (np.asarray(one[0]) for one in plain.queries_keys_values(made.blocks[0], x, 1))
    weighted = [oracle(q[head], k[head], p) for head in range(2)]
    # without a key that is cut off, 0^(p-1) does not come up
    assert all(np.any(np.tril(one == 0)[3:]) for one in weighted)
    out = np.concatenate([one @ v[head] for head, one in enumerate(weighted)], axis=-1) @ np.asarray(made.blocks[0].out)
    # 2^-53 over the smallest excess above a mean of a row, to the power 1/2 and of slope 1/sqrt at p = 1/2
    assert float(ours[0]) == pytest.approx(np.sum(np.asarray(pulled) * out), abs=1e-6)
    assert np.all(np.isfinite(ours[1]))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-9 * max(1.0, np.max(np.abs(other))))


def test_long_sequences_in_blocks_are_those_in_one(monkeypatch):
    made = decoder("lssar-p3")
    tokens = jnp.asarray(np.random.default_rng(6).integers(0, 256, (2, 16)))
    whole = jax.jit(lambda: made(tokens))()
    monkeypatch.setattr(fused, "BLOCK", 6)
    # float32 sums in another order, amplified by p over the smallest excess of a row's largest weight
    np.testing.assert_allclose(jax.jit(lambda: made(tokens))(), whole, atol=2e-4)


def test_every_other_normaliser_trains_through_the_package_s_layer():
    one = dataclasses.replace(variants.named("softmax-nope"), normaliser="relu")
    made = model.make(one, SHAPE, 0)
    windows = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 9)))
    gradient = jax.jit(jax.grad(lambda made: jnp.mean(model.losses(made, windows))))(made)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    assert np.max(np.abs(gradient.blocks[0].qkv[:, :16])) > 0


def oracle(q, k, p):
    """LSSAR of one head in plain loops [Gao 2025]: softplus of log d log i times a cosine, L1, ReLU^p, L1."""
    n, d = q.shape
    found = np.zeros((n, n))
    for i in range(n):
        scores = [q[i] @ k[j] / np.linalg.norm(q[i]) / np.linalg.norm(k[j]) for j in range(i + 1)]
        a = np.log1p(np.exp(np.log(d) * np.log(i + 1) * np.array(scores)))
        a /= a.sum()
        if p is not None:
            a = np.maximum(a * (i + 1) - (0 if i < 3 else 1), 0) ** p
            a /= a.sum()
        found[i, : i + 1] = a
    return found


@pytest.mark.parametrize(("name", "p"), [("lssa", None), ("lssar-p3", 3), ("lssar-p15", 15)])
def test_the_softplus_layers_are_the_published_ones(name, p):
    made = decoder(name)
    plain = dataclasses.replace(made, variant=dataclasses.replace(made.variant, cosines=False))
    x = jnp.asarray(np.random.default_rng(1).standard_normal((16, 16)), jnp.float32)
    q, k, v = (np.asarray(one[0], float) for one in plain.queries_keys_values(made.blocks[0], x, 1))
    mixed = np.concatenate([oracle(q[h], k[h], p) @ v[h] for h in range(2)], axis=-1)
    # float32, amplified by p over the smallest excess of a row's largest weight
    found = jax.jit(lambda x: made.attend(made.blocks[0], x, 1))(x)
    np.testing.assert_allclose(found, mixed @ made.blocks[0].out, atol=2e-4)


def test_rotary_positions_are_a_turn_in_the_complex_plane():
    vectors = np.random.default_rng(2).standard_normal((7, 8))
    found = np.asarray(rotary.rotate(jnp.asarray(vectors), rotary.angles(jnp.arange(7), 8)))
    for position in range(7):
        for pair in range(4):
            turn = np.exp(1j * position * 10_000 ** (-2 * pair / 8))
            turned = (vectors[position, pair] + 1j * vectors[position, pair + 4]) * turn
            # float32 angles up to 6 radians carry 6 x 2^-24
            np.testing.assert_allclose(found[position, [pair, pair + 4]], [turned.real, turned.imag], atol=1e-5)


@pytest.mark.parametrize("name", ["alibi-log", "lssar-p15"])
def test_later_bytes_change_no_earlier_logit(name):
    made = jax.jit(decoder(name).__call__)
    tokens = np.random.default_rng(3).integers(0, 256, (1, 12))
    changed = tokens.copy()
    changed[:, 8:] = (changed[:, 8:] + 1) % 256
    one, other = made(jnp.asarray(tokens)), made(jnp.asarray(changed))
    assert np.array_equal(one[:, :8], other[:, :8])
    assert not np.array_equal(one[:, 8:], other[:, 8:])


@pytest.mark.parametrize("letters", ["", "C", "E", "L", "CE", "EL", "CELS"])
def test_the_bias_is_that_of_the_formulas(letters):
    heads, length, keys = 4, 16, 64
    found = np.asarray(layers.parts_of(variants.alibi(letters), heads, length, keys=keys, dim=8).bias)
    wanted = np.full((heads, keys, keys), -np.inf)
    for head in range(heads):
        # T/64 ... 4T in equal ratios, and 2^-8h/H of the ALiBi paper
        distance = length / 64 * 256 ** (head / 3)
        grown = math.log1p(distance) if "L" in letters else distance
        slope = 126 * math.log(2) / grown if "E" in letters else 2 ** (-8 * (head + 1) / heads)
        for i in range(keys):
            for j in range(i + 1):
                value = -slope * (math.log1p(i - j) if "L" in letters else i - j)
                wanted[head, i, j] = max(value, -87.0) if "C" in letters else value
    # float32 numbers up to 87 x 4 x 64
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_variants_are_data():
    every = variants.every_variant()
    assert len(variants.main_variants()) == 12
    assert len({one.name for one in variants.mitigations()}) == 15
    for name, one in every.items():
        assert variants.Variant.from_json(one.to_json()) == one
        assert name == one.name
    assert len({hash(one) for one in every.values()}) == len(every)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: variants.named("softmux"), SpecError),
        (lambda: variants.alibi("CX"), SpecError),
        (lambda: variants.Variant("x", positions="rope", clamp=-3.0), SpecError),
        (lambda: variants.Variant("x", positions="alibi", clamp=3.0), DomainError),
        (lambda: variants.Variant("x", law="lawless"), SpecError),
        (lambda: variants.Variant.from_json({"name": "x", "heads": 3}), SpecError),
        (lambda: dataclasses.replace(TINY, prompt_share=1.0), DomainError),
        (lambda: loop.start(variants.named("lssa"), TINY, -1), DomainError),
        (lambda: decoder("lssa", shape=dataclasses.replace(SHAPE, heads=3)), SpecError),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_the_start_depends_on_the_seed_and_not_on_the_variant():
    one, other, third = decoder("softmax-rope"), decoder("lssar-p15"), decoder("lssa", seed=1)
    assert np.array_equal(one.blocks[0].down, other.blocks[0].down)
    assert not np.array_equal(one.blocks[0].down, third.blocks[0].down)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


class Killed(BaseException):
    pass


def test_a_stopped_run_ends_with_the_bits_of_an_undisturbed_one(text, tmp_path):
    def stop(progress):
        if progress.step == 20:
            raise Killed

    variant, file = variants.named("ssmax"), tmp_path / "state.npz"
    whole = loop.train(variant, TINY, text)
    with pytest.raises(Killed):
        loop.train(variant, TINY, text, checkpoint=file, progress=stop, checkpoint_seconds=0)
    assert checkpoints.read_arrays(file)[1]["step"] == 10
    seen = []
    again = loop.train(variant, TINY, text, checkpoint=file, progress=lambda one: seen.append(one.step))
    assert seen == [20, 30]
    assert all(np.array_equal(a, b) for a, b in zip(leaves(whole.model), leaves(again.model), strict=True))
    assert all(np.array_equal(whole.curves[name], again.curves[name]) for name in whole.curves)
    assert whole.curves["query_gradient_norm"].shape == (30, 2)
    with pytest.raises(StoreError, match="seed was 0, is 1"):
        loop.train(variant, TINY, text, seed=1, checkpoint=file)
    with pytest.raises(StoreError, match="learning_rate was"):
        loop.train(variant, dataclasses.replace(TINY, learning_rate=1e-3), text, checkpoint=file)
    assert set(whole.curves) == set(checkpoints.CURVES)
    assert_arrays_of_another_model_are_refused(file, whole, loop.config(variant, TINY, 0, text))


def assert_arrays_of_another_model_are_refused(file, trained, made):
    like = (trained.model, loop.optimiser(TINY).init(trained.model))
    arrays, header = checkpoints.read_arrays(file)
    changes = (
        {"leaf-3": None},
        {"leaf-999": np.zeros(3, np.float32)},
        {"leaf-0": arrays["leaf-0"][:-1]},
        {"leaf-0": arrays["leaf-0"].astype(np.float64)},
        {"curve-loss": None},
        {"curve-loss": arrays["curve-loss"][:-1]},
    )
    for change in changes:
        spoilt = {name: one for name, one in {**arrays, **change}.items() if one is not None}
        checkpoints.write_arrays(file, spoilt, header)
        with pytest.raises(StoreError, match="its arrays are not those of its configuration"):
            checkpoints.load(file, like, made)
    for key in ("config", "format", "step", "seconds"):
        checkpoints.write_arrays(file, arrays, {name: one for name, one in header.items() if name != key})
        with pytest.raises(StoreError, match=f"its header has no '{key}'"):
            checkpoints.load(file, like, made)
        with pytest.raises(StoreError, match=f"its header has no '{key}'"):
            checkpoints.check(file, made)


@pytest.mark.slow
def test_slow_steps_are_kept_one_by_one_with_the_same_bits(text, monkeypatch):
    def followed(seconds):
        monkeypatch.setattr(loop, "SLOW_SECONDS", seconds)
        seen = []
        made = loop.train(variants.named("ssmax"), TINY, text, progress=lambda one: seen.append(one.step))
        return seen, made

    # no step is faster than that, and the first one compiles
    slow, one = followed(-1.0)
    fast, other = followed(math.inf)
    assert (slow, fast) == ([*range(2, 31)], [10, 20, 30])
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one.model), leaves(other.model), strict=True))
    assert all(np.array_equal(one.curves[name], other.curves[name]) for name in checkpoints.CURVES)


@pytest.mark.slow
def test_the_gradient_of_a_batch_in_passes_is_that_in_one(text, monkeypatch):
    shape = dataclasses.replace(SHAPE, length=80)
    preset = dataclasses.replace(TINY, shape=shape, batch=6, prompt_share=0.5, answer_weight=16.0)
    windows = jnp.asarray(batches.batch(text, preset, 0, 0).astype(np.int32))
    made = decoder("softmax-nope", shape=shape)
    assert loop.passes(preset) == 1
    whole = jax.jit(loop.loss_and_gradient, static_argnums=2)(made, windows, preset)
    # at most 2 of 6 sequences a pass, of which three have answers of weight 16; and less than one
    for most, count in ((160, 3), (79, 6)):
        monkeypatch.setattr(loop, "PASS_BYTES", most)
        assert loop.passes(preset) == count
        found = jax.jit(lambda made, windows: loop.loss_and_gradient(made, windows, preset))(made, windows)
        for one, other in zip(leaves(found), leaves(whole), strict=True):
            # sums of 480 terms of float32 in another order, 480 x 2^-24 of the largest
            np.testing.assert_allclose(one, other, atol=3e-5 * np.max(np.abs(other)))


def test_a_pass_has_at_most_its_bytes_and_the_small_presets_have_one():
    assert {name: loop.passes(one) for name, one in PRESETS.items()} == {
        "smoke": 1,
        "small": 1,
        "small-text": 1,
        "paper": 32,
    }
    # a prime batch has no divisor but itself
    assert loop.passes(dataclasses.replace(PRESETS["paper"], batch=17)) == 17


@pytest.mark.parametrize(("spoilt", "said"), [(False, "uniform guess"), (True, "not finite")])
def test_a_diverging_run_stops_and_keeps_its_checkpoint(text, tmp_path, spoilt, said):
    variant, file = variants.named("softmax-nope"), tmp_path / "state.npz"
    wild = dataclasses.replace(TINY, shape=SHAPE, learning_rate=5.0, warmup=0)
    state = loop.start(variant, wild, 0)
    made, memory = state.trainable
    spoiled = dataclasses.replace(made, embedding=jnp.full_like(made.embedding, jnp.nan)) if spoilt else made
    checkpoints.save(file, state._replace(trainable=(spoiled, memory)), loop.config(variant, wild, 0, text))
    kept = file.read_bytes()
    with pytest.raises(loop.Diverged, match=said):
        loop.train(variant, wild, text, checkpoint=file, checkpoint_seconds=math.inf)
    assert file.read_bytes() == kept


def test_a_full_disk_is_said_and_loses_nothing(tmp_path, monkeypatch):
    file = tmp_path / "state.npz"
    checkpoints.write_arrays(file, {"x": np.arange(3)}, {"step": 1})

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        checkpoints.write_arrays(file, {"x": np.arange(4)}, {"step": 2})
    assert [one.name for one in tmp_path.iterdir()] == ["state.npz"]
    arrays, header = checkpoints.read_arrays(file)
    assert arrays["x"].size == 3
    assert header == {"step": 1}


def damaged(whole):
    """Contents of a file that was cut off or changed, and files of another kind."""
    yield from (whole[: len(whole) // 2], whole[:-1], whole[:3], b"")
    # the magic number of the first member, the middle of the largest array, and the end of the directory
    yield from (flipped(whole, place) for place in (0, len(whole) // 2, len(whole) - 20))
    yield from (b"\x93NUMPY", b"no archive", b"PK\x03\x04 and then nothing")


def flipped(whole, place):
    return whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]


def test_a_damaged_checkpoint_is_said(text, tmp_path):
    variant, file = variants.named("lssa"), tmp_path / "state.npz"
    made = loop.config(variant, TINY, 0, text)
    checkpoints.save(file, loop.start(variant, TINY, 0), made)
    for content in damaged(file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(StoreError, match=r"^'.*state\.npz': cannot be read: .") as caught:
            loop.train(variant, TINY, text, checkpoint=file)
        assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_header_is_said_before_the_first_step(tmp_path):
    file = tmp_path / "state.npz"
    checkpoints.write_arrays(file, {}, {"format": 1})
    whole = file.read_bytes()
    for content in (*damaged(whole), flipped(whole, whole.index(b'{"format"')), array_of_one(tmp_path)):
        file.write_bytes(content)
        with pytest.raises(StoreError, match="cannot be read"):
            checkpoints.check(file, {})
    checkpoints.check(tmp_path / "nowhere.npz", {})
    checkpoints.write_arrays(file, {}, [])
    with pytest.raises(StoreError, match="its header is no table"):
        checkpoints.check(file, {})


def array_of_one(folder):
    np.save(folder / "one.npy", np.arange(3))
    return (folder / "one.npy").read_bytes()


def test_damaged_weights_are_said(tmp_path):
    file = tmp_path / "weights.npz"
    weights.save(file, decoder("lssa"), {})
    whole = file.read_bytes()
    arrays, header = checkpoints.read_arrays(file)
    file.write_bytes(array_of_one(tmp_path))
    with pytest.raises(StoreError, match="holds a single array"):
        weights.load(file)
    for content in damaged(whole):
        file.write_bytes(content)
        with pytest.raises(StoreError, match=r"weights\.npz': cannot be read"):
            weights.load(file)
    headers = (
        ({"shape": None}, "its header has no 'shape'"),
        ({"variant": "lssa"}, "its header has no 'variant'"),
        ({"shape": {**header["shape"], "rooms": 3}}, "states no model: .*rooms"),
        ({"shape": {**header["shape"], "heads": 3}}, "states no model: width = 16"),
        ({"variant": {**header["variant"], "floor": 3}}, "states no model: variant: has no field 'floor'"),
        ({"shape": {**header["shape"], "width": 32}}, "its arrays are not those"),
    )
    for change, said in headers:
        checkpoints.write_arrays(file, arrays, {**header, **change})
        with pytest.raises(StoreError, match=said):
            weights.load(file)
    checkpoints.write_arrays(file, {**arrays, "embedding": np.full((256, 16), "a")}, header)
    with pytest.raises(StoreError, match="cannot be read"):
        weights.load(file)


@pytest.mark.parametrize("write", [results.write, lambda path, header: checkpoints.write_arrays(path, {}, header)])
def test_a_file_in_place_of_a_folder_is_said(tmp_path, write):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="was not written"):
        write(tmp_path / "taken" / "one.json", {})


LOSS = {"multiple": 1, "length": 16, "window": 2.0, "last": 1.9}
RECORD = {
    "format": 1,
    "config": {"variant": {"name": "lssa"}, "preset": {}, "seed": 0, "corpus": ""},
    "corpus": {},
    "curves": {
        "step": [10, 20],
        "loss": [3.0, 2.5],
        "gradient_norm": [1.0, 1],
        "query_gradient_norm": [[0.5, 0.1], [0.25, 0.1]],
        "key_gradient_norm": [[0.5, 0.1], [0.25, 0.1]],
    },
    "losses": [LOSS],
    "retrieval": [{"kind": "needle", "distance": 8, "accuracy": 0.5, "right": 1, "prompts": 2, "interval": [0.0, 1.0]}],
    "rounded_loss": {},
    "parameters": 1,
    "seconds": 1.0,
}


def test_what_is_no_record_is_refused_in_one_line(tmp_path):
    file = tmp_path / "tiny" / "lssa-seed0.json"
    results.write(file, RECORD)
    assert results.read_all(tmp_path, "tiny") == [RECORD]
    wrong = [
        (json.dumps(RECORD)[:-3], "delimiter"),
        ("[]", "it is a list"),
        ("null", "it is a NoneType"),
        (json.dumps({**RECORD, "format": 99}), "format 99; allowed: 1"),
        (json.dumps({**RECORD, "losses": {}}), "it has losses = {}; allowed: a list of tables"),
        (json.dumps({**RECORD, "losses": [LOSS, {**LOSS, "window": 1}, {"multiple": 1}]}), r"no losses\[2\]\.length"),
        (json.dumps({**RECORD, "losses": [3]}), r"losses = \[3\]; allowed: a list of tables"),
        (
            json.dumps({**RECORD, "config": {**RECORD["config"], "seed": "0"}}),
            r"config\.seed = '0'; allowed: a whole number",
        ),
        (json.dumps({**RECORD, "config": {**RECORD["config"], "variant": {}}}), r"no config\.variant\.name"),
        (json.dumps({key: RECORD[key] for key in RECORD if key != "format"}), "format None"),
    ]
    wrong += [
        (json.dumps({key: RECORD[key] for key in RECORD if key != lost}), f"no {lost}")
        for lost in RECORD
        if lost != "format"
    ]
    for content, said in wrong:
        file.write_text(content)
        with pytest.raises(StoreError, match=rf"^record '.*lssa-seed0\.json': cannot be read: .*{said}") as caught:
            results.read_all(tmp_path, "tiny")
        assert len(str(caught.value).splitlines()) == 1


DAMAGE = [
    (("losses", 0, "window"), "x", "losses[0].window = 'x'; allowed: a finite number or null"),
    (("losses", 0, "last"), True, "losses[0].last = True; allowed: a finite number or null"),
    (("losses", 0, "multiple"), None, "losses[0].multiple = None; allowed: a whole number"),
    (("losses", 0, "multiple"), "a", "losses[0].multiple = 'a'; allowed: a whole number"),
    (("losses", 0, "multiple"), 1.5, "losses[0].multiple = 1.5; allowed: a whole number"),
    (("retrieval", 0, "distance"), "far", "retrieval[0].distance = 'far'; allowed: a whole number"),
    (("retrieval", 0, "kind"), "zebra", "retrieval[0].kind = 'zebra'; allowed: passkey or needle"),
    (("retrieval", 0, "accuracy"), [], "retrieval[0].accuracy = []; allowed: a finite number or null"),
    (("retrieval", 0, "interval"), 5, "retrieval[0].interval = 5; allowed: two finite numbers"),
    (("retrieval", 0, "interval"), [0.5], "retrieval[0].interval = [0.5]; allowed: two finite numbers"),
    (("retrieval", 0, "right"), -1, "retrieval[0].right = -1; allowed: a whole number"),
    (("seconds",), math.nan, "seconds = nan; allowed: a finite number"),
    (("seconds",), 10**400, "...; allowed: a finite number"),
    (("parameters",), True, "parameters = True; allowed: a whole number"),
    (("curves", "loss"), [], "curves.loss = []; allowed: a list of finite numbers, not empty"),
    (("curves", "loss"), [3.0, None], "curves.loss = [3.0, None]; allowed: a list of finite numbers"),
    (("curves", "loss"), [3.0, 2.0, 1.0], "3 values in curves.loss; allowed: 2, as in curves.step"),
    (("curves", "step"), [None, 20], "curves.step = [None, 20]; allowed: a list of whole numbers"),
    (("curves", "gradient_norm"), [math.inf, 1], "curves.gradient_norm = [inf, 1]; allowed: a list of finite numbers"),
    (("curves", "key_gradient_norm"), [0.5, 0.1], "key_gradient_norm = [0.5, 0.1]; allowed: a list of lists"),
    (("curves", "key_gradient_norm"), [[1.0], [1.0]], "a row of 1 values in curves.key_gradient_norm; allowed: 2"),
    (("curves", "query_gradient_norm"), [[1.0], [1.0, 2.0]], "a row of 2 values in curves.query_gradient_norm"),
    (("config", "preset", "clip"), [math.nan], "config.preset.clip[0] = nan; allowed: a finite number"),
    (("config", "variant"), "lssa", "config.variant = 'lssa'; allowed: a table"),
]


@pytest.mark.parametrize(("path", "value", "said"), DAMAGE)
def test_inner_damage_of_a_record_is_named(tmp_path, path, value, said):
    damaged = copy.deepcopy(RECORD)
    *outer, key = path
    functools.reduce(operator.getitem, outer, damaged)[key] = value
    file = tmp_path / "tiny" / "lssa-seed0.json"
    file.parent.mkdir()
    # as it is, not with the nulls that a record is written with
    file.write_text(json.dumps(damaged), encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        results.read(file)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"record {str(file)!r}: cannot be read: it has ")
    assert said in line


def test_a_null_of_a_record_is_passed_over(tmp_path):
    for seed, window in enumerate((2.0, math.nan, 3.0)):
        results.write(
            tmp_path / "tiny" / f"lssa-seed{seed}.json",
            {**RECORD, "losses": [{**LOSS, "window": window, "last": math.nan if seed else 1.0}]},
        )
    rows = {row.quantity: row for row in results.table(results.read_all(tmp_path, "tiny"))}
    wanted = stats.ttest_1samp([2.0, 3.0], 0).confidence_interval()
    assert (rows["loss"].mean, rows["loss"].seeds) == (2.5, 2)
    assert (rows["loss"].low, rows["loss"].high) == pytest.approx(tuple(wanted))
    assert (rows["last_loss"].mean, rows["last_loss"].low, rows["last_loss"].seeds) == (1.0, None, 1)
    mean, low, high = results.interval([math.nan])
    assert math.isnan(mean)
    assert (low, high) == (None, None)


def test_a_record_states_the_commit_before_the_first_step(text, tmp_path, monkeypatch):
    commits = ["before"]
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": commits[-1], "changed": False})
    monkeypatch.setattr(records, "evaluate", lambda *rest: evaluation.Evaluation([], []))
    monkeypatch.setattr(records, "length_losses", lambda *rest, **more: [evaluation.LengthLoss(1, 16, 0, 0, 0, 0)])
    monkeypatch.setattr(records, "_rounded_loss", lambda *rest: {})
    run = results.Run(tmp_path, variants.named("ssmax"), TINY, 0)
    found = records.perform(run, text, progress=lambda one: commits.append("while it trains"))
    assert len(commits) == 4
    assert found["environment"]["git"]["commit"] == "before"
    assert found["corpus"]["source"].startswith("the standard library of Python 3.")


def test_documents_are_split_by_a_hash_of_their_names(text):
    assert not set(text.train_names) & set(text.held_out_names)
    for names, held in ((text.train_names, False), (text.held_out_names, True)):
        for name in names:
            share = int(hashlib.sha256(name.encode()).hexdigest(), 16) / 2**256
            assert (share >= 0.9) == held
    assert text.sha256 == corpus.load().sha256
    # every document ends with a zero byte; Python's sources hold none
    assert np.sum(text.held_out == 0) == len(text.held_out_names)


def test_the_hash_of_a_corpus_covers_its_content(tmp_path):
    def write(tail):
        for name in (f"module{number}.py" for number in range(12)):
            (tmp_path / name).write_text(f"# {name}\n" * 2000 + tail)

    write("")
    before = corpus.load(tmp_path)
    write("\n")
    assert corpus.load(tmp_path).sha256 != before.sha256


def test_what_is_no_file_is_passed_over(tmp_path):
    folder = tmp_path / "of a person" / "mine"
    folder.mkdir(parents=True)
    for name in (f"module{number}.py" for number in range(12)):
        (folder / name).write_text(f"# {name}\n" * 2000)
    before = corpus.load(folder)
    (folder / ".#module0.py").symlink_to("nobody@nowhere.1")
    (folder / "package.py").mkdir()
    again = corpus.load(folder)
    assert again.sha256 == before.sha256
    assert again.summary()["source"] == "mine"


def described(**setting):
    preset = PRESETS["small"].to_json()
    spec = json.dumps({"study": "x", "preset": preset, "corpora": ["1"], **setting})
    return captions.trained_sentence(xarray.Dataset(attrs={"spec": spec}))


def test_a_caption_says_which_texts_were_trained_on(text):
    assert described().endswith("on the sources of the standard library of Python and the topics of its help.")
    here = described(sources=[text.source])
    assert f"the sources of {text.source} and the topics of its help." in here
    both = described(sources=["mine", text.source], corpora=["1", "2"])
    assert "on the *.py files of a folder 'mine' and the sources of the standard library of Python 3." in both
    assert both.endswith("The runs are of 2 different texts; differences between them may be those of the texts.")


def test_a_missing_corpus_is_said(tmp_path):
    (tmp_path / "one.py").write_text("")
    with pytest.raises(SpecError, match=r"0 bytes of Python source .* at least 10000"):
        corpus.load(tmp_path)
    for folder, said in ((tmp_path / "nowhere", "is missing"), (tmp_path / "one.py", "is a file"), ("", "no folder")):
        with pytest.raises(SpecError, match=rf"^corpus '.*': (names )?{said}; allowed: a folder of \*\.py files$"):
            corpus.load(folder)


def test_a_name_that_is_no_unicode_counts_as_its_bytes(tmp_path):
    for number in range(12):
        (tmp_path / f"module{number}.py").write_text(f"# {number}\n" * 5000)
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.py"
    with open(odd, "wb") as file:
        file.write(b"# odd\n")
    found = corpus.load(tmp_path)
    contents = {os.fsencode(path.name): path.read_bytes() for path in tmp_path.iterdir()}
    wanted = hashlib.sha256()
    for name in sorted(contents, key=os.fsdecode):
        wanted.update(name + b"\0" + len(contents[name]).to_bytes(8, "big") + contents[name])
    assert b"\xff\xfe.py" in contents
    assert found.sha256 == wanted.hexdigest()


def test_steps_and_seeds_have_bounds(tmp_path):
    most = presets.MOST_STEPS
    assert PRESETS["smoke"].with_steps(most).steps == most
    with pytest.raises(DomainError, match=rf"^steps = {most + 1}: must be at most {most}$"):
        PRESETS["smoke"].with_steps(most + 1)
    # as the option --seed of every command
    for seed in (2**63, -1):
        with pytest.raises(DomainError, match=rf"^seed = {seed}: must be a whole number from 0 to {2**63 - 1}$"):
            loop.start(variants.named("lssa"), TINY, seed)
    study = tmp_path / "large.toml"
    study.write_text(f'kind = "training"\nvariants = ["lssa"]\nseeds = [{2**63 - 1}]\n')
    assert experiments.experiment(str(study)).seeds == (2**63 - 1,)
    study.write_text(f'kind = "training"\nvariants = ["lssa"]\nseeds = [{2**63}]\n')
    with pytest.raises(SpecError, match=rf"seeds = {2**63}; allowed: a whole number from 0 to {2**63 - 1}$"):
        experiments.experiment(str(study))


def test_a_batch_is_a_function_of_seed_and_step(text):
    preset = PRESETS["small"]
    one = batches.batch(text, preset, 0, 7)
    assert one.shape == (32, 129)
    assert np.array_equal(one, batches.batch(text, preset, 0, 7))
    assert not np.array_equal(one, batches.batch(text, preset, 0, 8))
    assert not np.array_equal(one, batches.batch(text, preset, 1, 7))
    asked = [b"pass key" in row.tobytes() or b"magic number" in row.tobytes() for row in one]
    assert all(asked[16:])
    assert not all(asked[:16])
    with pytest.raises(SpecError, match="at least 129"):
        batches.windows(text.held_out[:100], np.random.default_rng(0), 1, 129)


@pytest.mark.parametrize("kind", prompts.KINDS)
@pytest.mark.parametrize(("length", "distance"), [(129, 80), (129, None), (300, 250)])
def test_a_prompt_states_its_key_at_the_distance_and_ends_with_it(text, kind, length, distance):
    rng = np.random.default_rng(4)
    found = prompts.make(kind, rng, length, text=text.held_out, distance=distance).tobytes()
    assert len(found) == length
    key = found[-4:]
    assert key.isdigit()
    begins = [at for at in range(length - 4) if found[at : at + 4] == key and found[at - 4 : at] == b" is "]
    assert len(begins) == 1
    assert distance is None or length - 4 - begins[0] == distance
    with pytest.raises(DomainError, match="must be from"):
        prompts.make(kind, rng, length, text=text.held_out, distance=length)


def test_every_length_scores_the_same_bytes(text):
    made = decoder("softmax-nope")
    # without the output of attention the next byte depends on the last one alone
    blind = dataclasses.replace(
        made, blocks=tuple(dataclasses.replace(block, out=jnp.zeros_like(block.out)) for block in made.blocks)
    )
    found = evaluation.length_losses(blind, text.held_out, count=3, multiples=(1, 2, 4), longest=4)
    assert [one.length for one in found] == [16, 32, 64]
    for one in found[1:]:
        # sums of float32 losses of about 6 nats
        assert one.window == pytest.approx(found[0].window, abs=1e-5)
        assert one.last == pytest.approx(found[0].last, abs=1e-5)
    places = evaluation.blocks(text.held_out, 64, 3)
    scored = jax.jit(model.losses)(blind, jnp.asarray(places.astype(np.int32)))
    assert found[0].window == pytest.approx(float(np.mean(scored)), abs=1e-5)
    assert found[2].last == pytest.approx(float(np.mean(scored[:, -16:])), abs=1e-5)
    with pytest.raises(SpecError, match="at least 65"):
        evaluation.length_losses(blind, text.held_out[:64], count=3, multiples=(1, 2, 4), longest=4)


def test_intervals_are_those_of_scipy():
    for right, count in ((0, 8), (3, 8), (64, 64)):
        wanted = stats.binomtest(right, count).proportion_ci(method="wilson")
        assert evaluation.wilson(right, count) == pytest.approx((wanted.low, wanted.high), abs=1e-6)
    values = [1.5, 1.7, 1.4]
    wanted = stats.ttest_1samp(values, 0).confidence_interval()
    assert results.interval(values)[1:] == pytest.approx((wanted.low, wanted.high))
    assert results.interval([2.0]) == (2.0, None, None)


def test_weights_come_back_as_float16_with_their_header(tmp_path):
    made, file = decoder("ssmax"), tmp_path / "weights.npz"
    weights.save(file, made, {"command": "none", "seed": 3})
    again, header = weights.load(file)
    assert (header["command"], header["seed"]) == ("none", 3)
    assert (again.variant, again.shape) == (made.variant, made.shape)
    for before, after in zip(leaves(made), leaves(again), strict=True):
        assert after.dtype == np.float32
        assert np.array_equal(before.astype(np.float16).astype(np.float32), after)
    assert "blocks.0.gain" in weights.names(made)
    checkpoints.write_arrays(file, {}, {"format": "another"})
    with pytest.raises(StoreError, match="another"):
        weights.load(file)


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_torch(text):
    preset = dataclasses.replace(PRESETS["smoke"], batch=2)
    windows = batches.batch(text, preset, 0, 0)
    made = decoder("softmax-rope", shape=preset.shape)
    value, gradient = jax.jit(
        jax.value_and_grad(lambda made: jnp.mean(model.losses(made, jnp.asarray(windows.astype(np.int32)))))
    )(made)
    times = torch_twin.step_times(preset, repeats=1)
    assert (times is not None) == torch_twin.HAS_TORCH
    if torch_twin.HAS_TORCH:
        twin = torch_twin.Twin(made)
        loss = twin.loss(windows)
        loss.backward()
        # float32 sums of 192 losses of 6 nats
        assert float(loss.detach()) == pytest.approx(float(value), rel=1e-5)
        for name, ours in weights.names(gradient).items():
            theirs = twin.weights[name].grad.numpy()
            # 2^-24 of the largest entry, for sums of 192 terms in another order
            np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.max(np.abs(theirs)))


@pytest.mark.slow
def test_smoke_learns_more_than_the_frequencies_of_bytes(text, tmp_path):
    preset = PRESETS["smoke"]
    run = results.Run(tmp_path, variants.named("softmax-rope"), preset, 0)
    found = records.perform(run, text, command="here")
    entropy = corpus.unigram_entropy(text.held_out)
    assert found["losses"][0]["window"] < entropy
    # rounding to 11 bits moves each weight by 2^-12 of itself at most
    assert abs(found["rounded_loss"]["float16"] - found["rounded_loss"]["float32"]) < 1e-2
    assert not run.file(".checkpoint.npz").exists()
    assert records.perform(run, text) == results.read(run.file(".json"))
    assert records.perform_all([run, run], text, share=(1, 2)) == []
    with pytest.raises(StoreError, match="preset.steps was 120, is 121"):
        records.perform(dataclasses.replace(run, preset=dataclasses.replace(preset, steps=121)), text)
    rows = results.table(results.read_all(tmp_path, "smoke"))
    assert {row.quantity for row in rows} == {"loss", "last_loss", "passkey", "needle"}
    made, header = weights.load(run.file(".npz"))
    assert header["config_hash"] == found["config_hash"]
    again = evaluation.length_losses(made, text.held_out, count=preset.eval_blocks, multiples=(1,))
    assert again[0].window == pytest.approx(found["rounded_loss"]["float16"], abs=1e-6)
