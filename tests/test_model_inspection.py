import dataclasses
import json
import math
import signal

import jax
import model_oracles as oracles
import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.optimize import brentq
from scipy.stats import t as student
from test_model_families import BERT, BOUND, LLAMA, config_of, drawn

from critattn.errors import SpecError, StoreError
from critattn.models import forward, inspection, tokenise
from critattn.models.head_table import is_multiplier
from critattn.models.inspection import Plan, head_table, identity, inspect, layout, observables
from critattn.models.predictions import predicted_multipliers
from critattn.models.texts import Text
from critattn.protocols import Estimate
from critattn.storage import Store

LENGTHS, ROWS = (16, 24), 8
MULTIPLIER = "critical_multiplier"
DECODER = {**LLAMA, "vocab_size": 300}
ENCODER = {**BERT, "vocab_size": 300, "num_attention_heads": 4, "max_position_embeddings": 24}
PLAIN = tokenise.of_bytes(256)
FRAMED = dataclasses.replace(PLAIN, before=(257,), after=(258, 259))
PLAN = Plan(LENGTHS, windows=2, rows=99, probes=0)
TEXTS = tuple(
    Text.of(name, "made", "".join(np.random.default_rng(seed).choice(list("abcdefghij \n"), 70)))
    for seed, name in enumerate(("one", "two"))
)


def saved(folder, values):
    folder.mkdir()
    arrays = drawn(config_of(values))
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values))
    return forward.load(folder), arrays


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("models") / "decoder", DECODER)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("models") / "encoder", ENCODER)


@pytest.fixture(scope="module")
def whole(decoder):
    return inspect(decoder[0], PLAIN, TEXTS, PLAN)


@pytest.fixture
def asked(monkeypatch):
    """The sequences of every forward pass, none of which is run."""
    calls = []
    monkeypatch.setattr(forward, "run", lambda model, given, **how: calls.append([one.tolist() for one in given]))
    return calls


def same(one, other):
    return set(one.data_vars) == set(other.data_vars) and all(
        np.array_equal(one[name].values, other[name].values, equal_nan=True) for name in one.data_vars
    )


def read_row(logits):
    """Statistics of a row of float64 logits without masked keys, and by how much t_c moves with them."""
    logits = np.sort(logits)[::-1]
    gaps, p = logits[0] - logits[1:], np.exp(logits - logits[0])
    p = p / p.sum()
    t = brentq(lambda t: np.exp(-t * gaps).sum() - 1, 0, math.log(len(gaps)) / gaps[0] + 1, xtol=1e-14, rtol=1e-14)
    shares = np.exp(-t * gaps)
    # the derivative of the odds by t is the mean gap, that by the logits at most t for each of two
    return {
        "critical_multiplier": t,
        "slack": 2 * t * BOUND / (shares @ gaps / shares.sum()),
        "spread": logits.std(),
        "top_gap": gaps[0],
        "gap": logits[0] - math.log(np.mean(np.exp(logits[1:]))),
        "entropy": -(p @ np.log(p)),
        "participation_ratio": 1 / (p @ p),
        "largest_weight": p[0],
        "jacobian_norm": np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1],
    }


def read_rows(logits, rows, drop):
    """Of logits (n, n) of one head with -inf where masked: (rows,) by name."""
    found = [read_row(logits[row, drop:][np.isfinite(logits[row, drop:])]) for row in rows]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def cosines(tokens):
    units = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    pairs = [units[i] @ units[j] for i in range(len(units)) for j in range(len(units)) if i != j]
    return np.mean(pairs)


def windows_of(text, room):
    """Two windows of a text of one byte a token: its begin and its end."""
    tokens = [ord(letter) for letter in text.content]
    return tokens[:room], tokens[-room:]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_values_are_those_of_plain_loops(kind, request, whole):
    model, arrays = request.getfixturevalue(kind)
    framing, oracle, values = {
        "decoder": (PLAIN, oracles.llama, DECODER),
        "encoder": (FRAMED, oracles.bert, ENCODER),
    }[kind]
    # of the encoder one length, to compile less
    lengths = LENGTHS if kind == "decoder" else LENGTHS[1:]
    plan = dataclasses.replace(PLAN, lengths=lengths, rows=ROWS)
    data = whole if kind == "decoder" else inspect(model, framing, TEXTS, plan)
    found = {name: array.values for name, array in data.data_vars.items()}
    before, after = list(framing.before), list(framing.after)
    assert data.sizes == {"text": 2, "window": 2, "n": len(lengths), "layer": 2, "head": 4, "sink": 2}
    assert data["text"].values.tolist() == ["one", "two"]
    for text, window, place in np.ndindex(2, 2, len(lengths)):
        n, room = lengths[place], LENGTHS[-1] - len(before) - len(after)
        cut = windows_of(TEXTS[text], room)[window][room - (n - len(before) - len(after)) :]
        tokens = np.array(before + cut + after)
        assert len(tokens) == n
        # the last rows that are no special tokens
        rows = range(n - len(after) - ROWS, n - len(after))
        _, logits = oracle(arrays, values, tokens)
        for layer, head, drop in np.ndindex(2, 4, 2):
            at = (text, window, place, layer, head, drop)
            expected = read_rows(logits[layer, head], rows, drop)
            slack = expected.pop("slack").max()
            for name, numbers in expected.items():
                # where logits move by BOUND, 1/sum p^2 moves by 4 BOUND of itself, the others by less than 1 + itself
                bound = slack + 1e-5 * numbers.max() if name == MULTIPLIER else 4 * BOUND * (1 + numbers.max())
                assert abs(found[name][at] - np.median(numbers)) <= bound, (at, name)
                blocks = [np.median(part) for part in np.array_split(numbers, 4)]
                # half a deviation of four moves by less than the one of them that moves most
                assert abs(found[f"{name}_se"][at] - np.std(blocks, ddof=1) / 2) <= bound, (at, name)
            share = np.exp(logits[layer, head, rows, 0] - np.logaddexp.reduce(logits[layer, head, rows], axis=1))
            assert found["sink_mass"][at] == pytest.approx(np.median(share), abs=4 * BOUND)


def test_predictions_and_shares_of_formats_are_read_of_the_same_rows(decoder, whole):
    _, arrays = decoder
    tokens = np.array(windows_of(TEXTS[1], 24)[1])
    _, logits = oracles.llama(arrays, DECODER, tokens)
    rows = logits[1][:, -ROWS:]
    made = predicted_multipliers(rows[:, :, 1:])
    here = whole.isel(text=1, window=1, n=1, layer=1, sink=1)
    for name, values in made.items():
        # heights of order 1 move by 1e-4 of themselves at most, and predictions with them
        assert np.allclose(here[f"predicted_{name}"], np.median(values, axis=-1), rtol=1e-3)
    there = np.isfinite(rows)
    lost = there & (rows.max(axis=-1, keepdims=True) - rows > 8 * math.log(2))
    shares = np.median(lost.sum(axis=-1) / there.sum(axis=-1), axis=-1)
    assert np.allclose(whole.isel(text=1, window=1, n=1, layer=1, sink=0)["absorption_bf16"], shares)


def test_rho_is_the_mean_of_all_pairs(decoder, whole):
    model, arrays = decoder
    tokens = windows_of(TEXTS[0], 24)[1]
    hidden = arrays["model.embed_tokens.weight"][tokens].astype(np.float64)
    normed = oracles.rms_norm(hidden, arrays["model.layers.0.input_layernorm.weight"].astype(np.float64), 1e-5)
    views = []
    forward.run(model, [np.array(tokens)], visit=lambda _, view: views.append(view))
    group = model.config.group
    for drop in (0, 1):
        here = whole.isel(text=0, window=1, n=1, sink=drop)
        for head in range(4):
            streams = {"hidden": hidden, "input": normed}
            # a key head serves the query heads of its group
            streams["queries"] = np.asarray(views[0].queries[head], np.float64)
            streams["keys"] = np.asarray(views[0].keys[head // group], np.float64)
            for name, stream in streams.items():
                kept = stream[drop:]
                found = here.isel(layer=0, head=head)
                assert float(found[f"rho_{name}"]) == pytest.approx(cosines(kept), abs=1e-6)
                assert float(found[f"rho_{name}_centred"]) == pytest.approx(cosines(kept - kept.mean(axis=0)), abs=1e-5)
                assert math.isnan(found[f"rho_{name}_se"])
        deeper = np.asarray(views[1].hidden, np.float64)[drop:]
        assert np.allclose(here.isel(layer=1)["rho_hidden"], cosines(deeper), atol=1e-6)


def test_gradient_norms_are_those_of_the_whole_jacobian(decoder):
    model, _ = decoder
    plan = Plan((16,), windows=1, probes=64)
    data = inspect(model, PLAIN, TEXTS[:1], plan).isel(text=0, window=0, n=0)
    views, whole_jacobian = [], jax.jit(lambda head_map, x: jax.jacrev(head_map)(x))
    forward.run(model, [np.array(windows_of(TEXTS[0], 16)[0])], visit=lambda _, view: views.append(view))
    for layer, head in np.ndindex(2, 4):
        x = views[layer].attention_input
        jacobian = np.asarray(whole_jacobian(views[layer].head_map(head), x), np.float64)
        found = data.isel(layer=layer, head=head)
        error = float(found["gradient_norm_se"][0])
        assert error > 0
        # 5 standard errors of 64 probes: 5e-6 of Student with 63 degrees, eight times
        assert abs(float(found["gradient_norm"][0]) - (jacobian**2).sum() / x.size) < 5 * error
        assert np.isnan(found["gradient_norm"][1])


def test_heads_and_layers_share_what_is_compiled_of_their_maps(decoder):
    views = []
    forward.run(decoder[0], [np.array(windows_of(TEXTS[0], 16)[0])], visit=lambda _, view: views.append(view))
    maps = [view.head_map(head) for view in views for head in range(4)]
    # compiled functions are looked up by the structure and the shapes of their arguments
    assert len({jax.tree_util.tree_structure(one) for one in maps}) == 1
    assert len({tuple(np.shape(leaf) for leaf in jax.tree_util.tree_leaves(one)) for one in maps}) == 1


def test_probes_differ_between_windows_and_repeat_for_the_same_tokens(decoder, monkeypatch):
    model, _ = decoder
    plan, keys = dataclasses.replace(PLAN, probes=2, layers=(1,)), []

    def noted(head_map, inputs, key, *, probes):
        keys[-1].append(tuple(jax.random.key_data(key).tolist()))
        return Estimate(0.0, 0.0)

    monkeypatch.setattr(inspection, "gradient_norm", noted)
    for texts, one in ((TEXTS, plan), (TEXTS[::-1], plan), (TEXTS, dataclasses.replace(plan, seed=1))):
        keys.append([])
        data = inspect(model, PLAIN, texts, one)
        # of an estimate without spread the error is 0, not missing
        assert np.all(data["gradient_norm_se"].isel(sink=0).values == 0)
    assert len(set(keys[0])) == len(keys[0]) == 2 * 2 * 2 * 4
    assert set(keys[0]) == set(keys[1])
    assert not set(keys[0]) & set(keys[2])


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_lengths_end_with_the_same_tokens_in_their_frame(kind, request, asked):
    model, _ = request.getfixturevalue(kind)
    framing = PLAIN if kind == "decoder" else FRAMED
    inspect(model, framing, TEXTS, PLAN)
    before, after = list(framing.before), list(framing.after)
    assert len(asked) == 4
    for (short, long), text in zip(asked, np.repeat([0, 1], 2), strict=True):
        assert (len(short), len(long)) == LENGTHS
        for one in (short, long):
            assert one[: len(before)] == before
            assert one[len(one) - len(after) :] == after
        bare = [one[len(before) : len(one) - len(after)] for one in (short, long)]
        assert bare[1][-len(bare[0]) :] == bare[0]
        assert bytes(bare[1]).decode() in TEXTS[text].content


def test_a_store_is_what_memory_holds_and_is_not_computed_again(decoder, whole, tmp_path, monkeypatch):
    model, _ = decoder
    told = []
    data = inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept", progress=lambda *pair: told.append(pair))
    assert same(data, whole)
    assert data.attrs["units_missing"] == 0
    assert told == [(done, 8) for done in range(9)]
    journal = Store.open(tmp_path / "kept").journal()
    assert all(record["seconds"] > 0 for record in journal.values())
    monkeypatch.delattr(forward, "run")
    assert same(inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept"), whole)


def test_what_an_exception_cost_is_computed_and_nothing_else(decoder, whole, tmp_path, monkeypatch):
    model, _ = decoder
    calls, before = [], forward.run

    def run(given, sequences, **how):
        calls.append([len(one) for one in sequences])
        if len(calls) == 3:
            raise MemoryError("in the third window")
        return before(given, sequences, **how)

    monkeypatch.setattr(forward, "run", run)
    with pytest.raises(MemoryError):
        inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept")
    kept = Store.open(tmp_path / "kept")
    assert kept.missing_units() == [(1, window, n) for window in (0, 1) for n in (0, 1)]
    kept.chunk_file((0, 1, 1)).unlink()
    calls[:] = [[]] * 3
    told = []
    data = inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept", progress=lambda *pair: told.append(pair))
    assert calls[3:] == [[24], [16, 24], [16, 24]]
    assert told[0] == (3, 8)
    assert same(data, whole)


def test_ctrl_c_keeps_the_window_in_hand(decoder, whole, tmp_path, monkeypatch):
    model, _ = decoder
    calls, before, handler = [], forward.run, signal.getsignal(signal.SIGINT)

    def run(given, sequences, **how):
        calls.append(sequences)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return before(given, sequences, **how)

    monkeypatch.setattr(forward, "run", run)
    with pytest.raises(KeyboardInterrupt):
        inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept")
    assert signal.getsignal(signal.SIGINT) is handler
    assert [unit[0] for unit in Store.open(tmp_path / "kept").missing_units()] == [1] * 4
    assert same(inspect(model, PLAIN, TEXTS, PLAN, store=tmp_path / "kept"), whole)
    assert len(calls) == 4


def test_a_store_of_something_else_is_refused(decoder, tmp_path):
    model, _ = decoder
    plan = Plan((16,), windows=1, rows=8, layers=(0,), probes=0)
    inspect(model, PLAIN, TEXTS[:1], plan, store=tmp_path / "kept")
    config = dataclasses.replace(model.config, rope=dataclasses.replace(model.config.rope, theta=5.0))
    shifted = dataclasses.replace(PLAIN, to_tokens=lambda text: [ord(letter) + 1 for letter in text])
    for given, tokens, chosen, other, word in (
        (model, PLAIN, TEXTS[:1], dataclasses.replace(plan, rows=5), "rows was 8, is 5"),
        (model, PLAIN, TEXTS[:1], dataclasses.replace(plan, probes=2), "probes was 0, is 2"),
        (model, PLAIN, TEXTS[1:], plan, "texts was"),
        (model, shifted, TEXTS[:1], plan, "texts was"),
        (dataclasses.replace(model, config=config), PLAIN, TEXTS[:1], plan, "config.rope.theta was 100.0, is 5.0"),
    ):
        with pytest.raises(StoreError, match=word) as caught:
            inspect(given, tokens, chosen, other, store=tmp_path / "kept")
        assert "\n" not in str(caught.value)


def test_identity_is_json_and_knows_the_weights(decoder, encoder):
    both = [identity(model, PLAN.checked(model), TEXTS) for model, _ in (decoder, encoder)]
    assert json.loads(json.dumps(both))[0]["weights"] != both[1]["weights"]
    assert both[0]["layers"] == [0, 1]
    assert [sorted(text) for text in both[0]["texts"]] == [["name", "sha256"]] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": ()}, r"lengths \[\]: allowed: different whole numbers, ascending"),
        ({"lengths": (24, 16)}, r"lengths \[24, 16\]: allowed"),
        ({"lengths": (16, 16)}, r"lengths \[16, 16\]: allowed"),
        ({"lengths": (16.5,)}, r"lengths \[16.5\]: allowed"),
        ({"lengths": (15,)}, "length 15: allowed: 16 to 24"),
        ({"lengths": (16, 25)}, "length 25: allowed: 16 to 24, the model's positions"),
        ({"layers": (0, 2)}, r"layers \[0, 2\]: allowed: different numbers from 0 to 1"),
        ({"layers": (-1,)}, r"layers \[-1\]: allowed"),
        ({"layers": (1, 1)}, r"layers \[1, 1\]: allowed"),
        ({"layers": (0.5,)}, r"layers \[0.5\]: allowed"),
        ({"windows": 0}, "windows 0: allowed: at least 1"),
        ({"rows": 0}, "rows 0: allowed: at least 1"),
        ({"probes": 1}, "probes 1: allowed: 0, or 2 and more"),
        ({"probes": -2}, "probes -2: allowed: 0, or 2 and more"),
    ],
)
def test_plans_that_the_model_does_not_allow(encoder, change, message, tmp_path):
    with pytest.raises(SpecError, match=f"^{message}") as caught:
        inspect(encoder[0], FRAMED, TEXTS, dataclasses.replace(PLAN, **change), store=tmp_path / "kept")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "kept").exists()


def test_rotary_positions_have_no_last_one(decoder):
    plan = Plan(lengths=(np.int64(64),), layers=(1,)).checked(decoder[0])
    assert plan == Plan(lengths=(64,), rows=16, layers=(1,))
    assert type(plan.lengths[0]) is int


def test_a_text_too_short_is_refused_before_anything_is_read(decoder, tmp_path, asked):
    short = Text.of("short", "made", "a" * 47)
    for chosen, message in (
        ((TEXTS[0], short), "text 'short': has 47 tokens, too short for 2 disjoint windows of 24 tokens"),
        ((), "texts: there is none"),
    ):
        with pytest.raises(SpecError, match=message):
            inspect(decoder[0], PLAIN, chosen, PLAN, store=tmp_path / "kept")
    assert asked == []
    assert not (tmp_path / "kept").exists()


def test_some_layers_are_those_of_all(decoder, whole):
    data = inspect(decoder[0], PLAIN, TEXTS, dataclasses.replace(PLAN, layers=(1,)))
    assert data["layer"].values.tolist() == [1]
    assert same(data, whole.isel(layer=[1]))
    records = head_table(data).records()
    assert {record["layer"] for record in records} == {1}
    assert {record["layer"] for record in head_table(whole).records()} == {0, 1}


def test_a_table_holds_means_over_texts(whole):
    table = head_table(whole)
    assert (table.texts, table.lengths, table.layers, table.between) == (("one", "two"), LENGTHS, (0, 1), "texts")
    assert table.statistics == observables(PLAN)
    # of two windows the median is the mean; t_c is averaged as 1/t_c
    arithmetic = [place for place, name in enumerate(table.statistics) if not is_multiplier(name)]
    t_c = whole["critical_multiplier"].transpose("n", "layer", "head", "sink", "text", "window").values
    place = table.statistics.index("critical_multiplier")
    assert np.allclose(table.values[place], 1 / (1 / t_c).mean(axis=(-2, -1)), rtol=1e-12, equal_nan=True)
    table = dataclasses.replace(
        table,
        statistics=tuple(table.statistics[place] for place in arithmetic),
        values=table.values[arithmetic],
        high=table.high[arithmetic],
    )
    pairs = np.stack([whole[name].values for name in table.statistics])
    numbers = np.moveaxis(pairs[:, :, 0] / 2 + pairs[:, :, 1] / 2, 1, 0)
    there = np.isfinite(numbers).all(axis=0)
    assert there.mean() > 0.9
    one, other = numbers[:, there]
    assert np.allclose(table.values[there], (one + other) / 2, rtol=1e-12, atol=1e-15)
    half = np.abs(one - other) / 2 * student.ppf(0.975, 1)
    assert np.allclose(table.high[there] - table.values[there], half, rtol=1e-6, atol=1e-12)
    alone = head_table(whole.isel(text=[0]))
    assert alone.between == "row blocks"
    windows = whole["spread"].isel(text=0).values
    assert np.allclose(alone.errors[0], windows.std(axis=0, ddof=1) / math.sqrt(2))


def test_a_window_that_is_missing_is_left_out_of_the_table(decoder, whole, tmp_path):
    inspect(decoder[0], PLAIN, TEXTS, PLAN, store=tmp_path / "kept")
    kept = Store.open(tmp_path / "kept")
    kept.chunk_file((0, 1, 0)).unlink()
    table = head_table(kept.read())
    alone = whole["spread"].isel(window=0, n=0).values
    alone[1] = whole["spread"].isel(text=1, n=0).values.mean(axis=0)
    assert np.allclose(table.values[0, 0], alone.mean(axis=0))
    assert np.all(table.found[0, 0] == 0.75)


def test_the_layout_names_its_axes(decoder):
    shape = layout(decoder[0], PLAN.checked(decoder[0]), TEXTS)
    assert shape.block_shape == (2, 4, 2, len(observables(PLAN)), 2)
    assert "gradient_norm" not in observables(PLAN)
    assert observables(Plan())[-1] == "gradient_norm"
    units = {column.name: column.unit for column in shape.observables}
    assert {name for name, unit in units.items() if unit} == {"spread", "top_gap", "gap", "entropy"}
