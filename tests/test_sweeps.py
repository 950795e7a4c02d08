import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import xarray as xr

from critattn import rooms
from critattn.errors import DomainError, SpecError, StoreError
from critattn.storage import Store
from critattn.sweeps import SweepSpec, evaluate, evaluation, layout_of, load_study, run_sweep, store_path, token_key
from critattn.theory import simplex


def table(**changes):
    made = {
        "kind": "sweep",
        "observables": ["self_weight", "entropy"],
        "tokens": {"kind": "near-simplex", "fix_common": True},
        "axes": {"n": [16, 32], "d": [8, 12], "rho": "0:0.5:2", "gamma": "0:4:5", "replicates": 2},
    }
    for key, value in changes.items():
        made[key] = {**made[key], **value} if isinstance(value, dict) and key in made else value
    return made


def spec_of(**changes):
    return SweepSpec.from_table(table(**changes))


def simplex_table(**axes):
    axes = {"n": [16], "d": "n", "rho": 0.5, "gamma": "0:4:5", **axes}
    return {"observables": ["self_weight"], "tokens": {"kind": "simplex"}, "axes": axes}


SMALL = {"n": 16, "d": 8, "rho": 0.5}


def refused(made, *parts, **how):
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_table(made, **how)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def drop(made, section, key):
    return {**made, section: {name: value for name, value in made[section].items() if name != key}}


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        (table(sede=1), ["sede: unknown key", "did you mean 'seed'"]),
        (table(tokens={"knid": 1}), ["tokens.knid: unknown key", "'kind'"]),
        (table(axes={"gama": 1}), ["axes.gama: unknown key", "'gamma'", "replicates"]),
        (table(quick={"beta": 1}), ["quick.beta: unknown key"]),
        (table(kind="swep"), ["kind = 'swep'", "sweep"]),
        (table(tokens={"kind": "simplx"}), ["tokens.kind = 'simplx'", "did you mean 'simplex'"]),
        (table(tokens={"fix_common": 1}), ["tokens.fix_common = 1", "true or false"]),
        (table(tokens={"kind": "simplex", "fix_common": True}), ["tokens.fix_common", "'near-simplex'", "'simplex'"]),
        (table(attention={"normaliser": "softmx"}), ["attention.normaliser = 'softmx'", "softmax"]),
        (table(attention={"mask": "none"}), ["attention.mask = 'none'", "causal"]),
        (table(attention={"layers": -1}), ["attention.layers = -1", ">= 0"]),
        (table(dtype="float16"), ["dtype = 'float16'", "float32"]),
        (table(seed=-1), ["seed = -1", ">= 0"]),
        (table(seed=True), ["seed = True"]),
        (table(observables=[]), ["observables = []"]),
        (table(observables=["self_wait"]), ["'self_wait' is unknown along gamma", "self_weight"]),
        (table(observables=["half_weight"]), ["'half_weight' is unknown along gamma"]),
        (table(axes={"n": 0}), ["axes.n = 0", ">= 1"]),
        (table(axes={"n": 1e300}), ["axes.n", "up to"]),
        (table(axes={"gamma": "0:4"}), ["axes.gamma = '0:4'", "start:stop:points"]),
        (table(axes={"gamma": "word"}), ["axes.gamma = 'word'"]),
        (table(axes={"gamma": [1, 1]}), ["axes.gamma", "once"]),
        (table(axes={"rho": 1.5}), ["axes.rho: 1.5", "[0, 1)"]),
        (table(axes={"rho": -0.1}), ["axes.rho: -0.1"]),
        (table(axes={"tau": 1}), ["axes.tau: is no axis of tokens.kind = 'near-simplex'"]),
        (table(axes={"replicates": 0}), ["axes.replicates = 0"]),
        (table(memory_bytes=10), ["memory_bytes = 10"]),
        (table(tokens=[1]), ["tokens", "table"]),
        (table(tokens={"path": "x.npy"}), ["tokens.path", "file"]),
        (drop(table(), "axes", "rho"), ["axes.rho: is missing"]),
        (drop(table(), "axes", "gamma"), ["'self_weight' is unknown without a gamma axis", "half_weight"]),
        ({"axes": {}}, ["observables: is missing"]),
        (simplex_table(d=12), ["axes.d: 12 at n = 16", "d >= 16"]),
        (simplex_table(rho=-0.1), ["axes.rho: -0.1 at n = 16", "-0.0666667"]),
        (simplex_table(replicates=3), ["axes.replicates = 3", "not random"]),
        ({"observables": ["entropy"], "tokens": {"kind": "file"}, "axes": {"gamma": 1}}, ["tokens.path: is missing"]),
    ],
)
def test_a_wrong_study_is_one_line(made, parts):
    refused(made, *parts)


def test_random_scores_have_no_tokens():
    made = {"tokens": {"kind": "random-scores"}, "axes": {"n": 16, "rho": 0, "tau": 0.5, "gamma": 1}}
    refused({**made, "observables": ["angle_ratio"]}, "'angle_ratio' needs tokens")
    refused({**made, "observables": ["cosine"], "attention": {"layers": 2}}, "attention.layers")
    assert SweepSpec.from_table({**made, "observables": ["entropy"]}).mode == "curve"


def test_forms_of_an_axis_are_the_same_study():
    first = spec_of(axes={"gamma": "0:4:5", "n": "16,32"})
    second = spec_of(axes={"gamma": [0, 1, 2, 3, 4.0], "n": [16, 32]})
    assert first.canonical() == second.canonical()
    assert first.hash == second.hash
    assert spec_of(axes={"gamma": "0:4:6"}).hash != first.hash


def test_titles_are_no_part_of_the_identity():
    assert spec_of(title="one", description="two").hash == spec_of().hash
    for changes in ({"seed": 1}, {"dtype": "float32"}, {"memory_bytes": 2_000_000}, {"attention": {"mask": "causal"}}):
        assert spec_of(**changes).hash != spec_of().hash


def test_quick_replaces_axes():
    made = table(quick={"n": 8, "gamma": 1})
    assert SweepSpec.from_table(made).axes.n == (16, 32)
    quick = SweepSpec.from_table(made, quick=True)
    assert quick.axes.n == (8,)
    assert quick.axes.gamma == (1.0,)
    assert quick.axes.rho == (0.0, 0.5)


def test_the_layout():
    layout = layout_of(spec_of())
    assert layout.dims == ["n", "d", "rho", "replicate", "gamma", "observable", "statistic"]
    assert layout.shape == (2, 2, 2, 2, 5, 2, 2)
    assert layout.point((1, 0, 1, 1)) == {"n": 32, "d": 8, "rho": 0.5, "replicate": 1}
    square = layout_of(SweepSpec.from_table(simplex_table(n=[16, 32])))
    assert square.dims[:2] == ["n", "rho"]
    assert square.point((1, 0)) == {"n": 32, "rho": 0.5, "d": 32}


def key_data(spec, unit):
    return tuple(np.asarray(jax.random.key_data(token_key(spec, unit))).tolist())


def test_token_keys_depend_on_the_tokens_alone():
    base = key_data(spec_of(), (0, 0, 1, 0))
    same = [
        {"axes": {"gamma": "0:9:50"}},
        {"dtype": "float32"},
        {"observables": ["largest_weight"]},
        {"attention": {"mask": "causal", "identity_weight": 1.0}},
        {"memory_bytes": 3_000_000},
        {"axes": {"n": [16, 128, 256]}},
    ]
    other = [{"seed": 1}, {"tokens": {"unit_norm": False}}, {"tokens": {"fix_common": False}}, {"axes": {"n": [17]}}]
    assert all(key_data(spec_of(**changes), (0, 0, 1, 0)) == base for changes in same)
    assert all(key_data(spec_of(**changes), (0, 0, 1, 0)) != base for changes in other)
    units = list(layout_of(spec_of()).units())
    assert len({key_data(spec_of(), unit) for unit in units}) == len(units)


def test_token_keys_are_the_same_on_every_machine():
    assert key_data(spec_of(), (0, 0, 0, 0)) == KNOWN_KEY


KNOWN_KEY = (3689991347, 3512970590)


def fake(spec, unit):
    shape = layout_of(spec).block_shape
    block = np.zeros(shape)
    block[..., 0] = sum(10**power * index for power, index in enumerate(unit))
    block[..., 1] = np.nan
    return block


@pytest.fixture
def faked(monkeypatch):
    calls = []

    def counted(spec, unit):
        calls.append(unit)
        return fake(spec, unit)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    return calls


def test_a_run_computes_what_is_missing(tmp_path, faked):
    spec, seen = spec_of(), []
    first = run_sweep(spec, tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    assert len(faked) == 16
    assert seen == [(done, 16) for done in range(17)]
    again = run_sweep(spec, tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    assert len(faked) == 16
    assert seen[17:] == [(16, 16)]
    xr.testing.assert_identical(first, again)
    run_sweep(spec, tmp_path / "s", resume=False)
    assert len(faked) == 32


def test_a_damaged_chunk_is_computed_again(tmp_path, faked):
    first = run_sweep(spec_of(), tmp_path / "s")
    file = Store.open(tmp_path / "s").chunk_file((1, 0, 1, 0))
    file.write_bytes(file.read_bytes()[:-3])
    again = run_sweep(spec_of(), tmp_path / "s")
    assert faked[16:] == [(1, 0, 1, 0)]
    xr.testing.assert_identical(first, again)


def test_memory_store_and_executor_agree(tmp_path, faked):
    spec = spec_of()
    memory = run_sweep(spec)
    with ThreadPoolExecutor(2) as pool:
        pooled = run_sweep(spec, tmp_path / "s", executor=pool)
        pooled_memory = run_sweep(spec, executor=pool)
    alone = run_sweep(spec, tmp_path / "t")
    assert len(faked) == 64
    for other in (pooled, pooled_memory, alone):
        xr.testing.assert_equal(memory, other)
    assert memory.entropy.sel(n=32, d=8, rho=0.5, replicate=1, gamma=3.0) == 1101


def test_a_changed_study_does_not_mix(tmp_path, faked):
    run_sweep(spec_of(), tmp_path / "s")
    with pytest.raises(StoreError, match="seed was 0, is 1"):
        run_sweep(spec_of(seed=1), tmp_path / "s")
    assert len(faked) == 16


def test_an_unwritable_store_is_refused_before_computing(tmp_path, faked):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be"):
        run_sweep(spec_of(), tmp_path / "file" / "s")
    assert faked == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_an_error_keeps_what_was_written(tmp_path, monkeypatch):
    def failing(spec, unit):
        if unit == (0, 1, 0, 0):
            raise DomainError("no such tokens")
        return fake(spec, unit)

    monkeypatch.setattr(evaluation, "evaluate", failing)
    with pytest.raises(DomainError):
        run_sweep(spec_of(), tmp_path / "s")
    assert len(Store.open(tmp_path / "s").missing_units()) == 12


def test_ctrl_c_keeps_the_unit_in_hand(tmp_path, monkeypatch):
    def interrupted(spec, unit):
        if unit == (0, 0, 0, 1):
            os.kill(os.getpid(), signal.SIGINT)
        return fake(spec, unit)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(evaluation, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec_of(), tmp_path / "s")
    assert signal.getsignal(signal.SIGINT) is before
    assert (0, 0, 0, 1) not in Store.open(tmp_path / "s").missing_units()
    assert len(Store.open(tmp_path / "s").missing_units()) == 14
    monkeypatch.setattr(evaluation, "evaluate", fake)
    assert run_sweep(spec_of(), tmp_path / "s").attrs["units_missing"] == 0


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    made = table(axes={**SMALL, "replicates": 6})
    code = (
        "import os, signal, sys\n"
        "from critattn.sweeps import SweepSpec, run_sweep\n"
        f"spec = SweepSpec.from_table({made!r})\n"
        "kill = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 2 else None\n"
        "run_sweep(spec, sys.argv[1], progress=kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(Store.open(tmp_path / "s").missing_units()) == 4
    resumed, undisturbed = (run_sweep(SweepSpec.from_table(made), tmp_path / name) for name in "st")
    assert np.array_equal(Store.open(tmp_path / "s").values(), Store.open(tmp_path / "t").values(), equal_nan=True)
    xr.testing.assert_equal(resumed, undisturbed)


def test_a_curve_agrees_with_the_closed_form():
    spec = SweepSpec.from_table(simplex_table(n=[16, 64], gamma="0:4:9"))
    data = run_sweep(spec)
    for n in (16, 64):
        expected = simplex.self_weight(data.gamma.values, 0.5, np.log(n))
        np.testing.assert_allclose(data.self_weight.sel(n=n, rho=0.5), expected, rtol=1e-12)
    assert data.d.values.tolist() == [16, 64]
    assert np.isnan(data.self_weight_se).all()
    assert data.self_weight.attrs["long_name"] == "mean self weight"


def test_float32_agrees_with_float64():
    high, low = (run_sweep(spec_of(dtype=dtype, axes=SMALL)) for dtype in ("float64", "float32"))
    np.testing.assert_allclose(low.self_weight, high.self_weight, rtol=1e-5)
    assert not np.array_equal(low.self_weight, high.self_weight)


def test_depth():
    axes = {**SMALL, "gamma": [0.5, 3.0]}
    made = table(observables=["cosine", "token_norm"], attention={"layers": 3}, axes=axes)
    data = run_sweep(SweepSpec.from_table(made))
    assert data.cosine.dims == ("n", "d", "rho", "replicate", "gamma", "layer")
    assert data.layer.values.tolist() == [0, 1, 2, 3]
    start = data.cosine.isel(layer=0)
    assert np.array_equal(start.sel(gamma=0.5), start.sel(gamma=3.0))
    assert (data.cosine.isel(layer=3).sel(gamma=0.5) > start.sel(gamma=0.5)).all()


def test_thresholds():
    made = drop(simplex_table(n=[64]), "axes", "gamma") | {"observables": ["half_weight", "half_angle"]}
    spec = SweepSpec.from_table(made)
    assert spec.mode == "threshold"
    data = run_sweep(spec)
    expected = simplex.half_weight_gamma(0.5, np.log(64))
    np.testing.assert_allclose(data.half_weight.sel(n=64, rho=0.5), expected, rtol=1e-9)


def test_a_threshold_that_is_not_there_is_nan():
    made = drop(simplex_table(n=[4], rho=0.9), "axes", "gamma") | {"observables": ["half_weight", "common_ratio"]}
    data = run_sweep(SweepSpec.from_table(made))
    assert np.isnan(data.common_ratio).all()
    assert np.isfinite(data.half_weight).all()


def test_random_scores():
    made = {
        "observables": ["self_weight"],
        "tokens": {"kind": "random-scores"},
        "axes": {"n": 64, "rho": 0, "tau": [0.0, 0.5], "gamma": [0, 2], "replicates": 2},
    }
    data = run_sweep(SweepSpec.from_table(made))
    assert data.self_weight.dims == ("n", "rho", "tau", "replicate", "gamma")
    expected = simplex.self_weight(2.0, 0.0, np.log(64))
    np.testing.assert_allclose(data.self_weight.sel(tau=0, gamma=2), expected, rtol=1e-12)
    assert (data.self_weight.sel(tau=0.5, gamma=2) < expected).all()


def test_a_token_file(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(20, 6))
    np.save(tmp_path / "tokens.npy", vectors)
    made = {
        "observables": ["self_weight"],
        "tokens": {"kind": "file", "path": str(tmp_path / "tokens.npy"), "rows": "4:16"},
        "axes": {"gamma": "0:4:3"},
    }
    spec = SweepSpec.from_table(made)
    data = run_sweep(spec, tmp_path / "s")
    assert data.self_weight.dims == ("gamma",)
    assert (int(data.n), int(data.d)) == (12, 6)
    assert data.self_weight[0] == pytest.approx(1 / 12)
    np.save(tmp_path / "tokens.npy", 2 * vectors + 1)
    with pytest.raises(StoreError, match="tokens.sha256"):
        run_sweep(spec, tmp_path / "s")


def test_evaluate_is_a_pure_function():
    spec = spec_of()
    assert np.array_equal(evaluate(spec, (1, 1, 1, 1)), evaluate(spec, (1, 1, 1, 1)), equal_nan=True)


@pytest.mark.parametrize("name", rooms.names("simulations"))
def test_every_study_is_understood(name):
    study = load_study(name)
    assert study.title
    if study.kind == "sweep":
        for quick in (False, True):
            assert SweepSpec.from_table(study.table, quick=quick).observables


def test_a_study_in_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'observables = ["entropy"]\n[tokens]\nkind = "simplex"\n[axes]\nn = 8\nd = "n"\nrho = 0\ngamm = 1\n'
    )
    study = load_study(str(file))
    assert study.name == "mine"
    with pytest.raises(SpecError, match="study 'mine': axes.gamm: unknown key"):
        study.spec()
    with pytest.raises(SpecError, match="No such file"):
        load_study(str(tmp_path / "absent.toml"))


def test_quick_runs_have_a_store_of_their_own(monkeypatch):
    monkeypatch.setenv("CRITATTN_STORE", "/data")
    assert str(store_path("collapse")) == "/data/collapse"
    assert str(store_path("collapse", quick=True, root="/tmp")) == "/tmp/collapse-quick"
