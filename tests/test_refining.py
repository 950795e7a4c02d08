import json
import os
import signal

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from critattn.cli import main
from critattn.errors import SpecError
from critattn.storage import Store
from critattn.sweeps import SweepSpec, evaluation, layout_of, refine_sweep, refining, run_sweep

NOISE = 0.01


def table(**axes):
    made = {"n": [64], "d": [16], "rho": [0.0, 0.9], "replicates": 2, **axes}
    return {"observables": ["half_weight"], "tokens": {"kind": "near-simplex"}, "axes": made}


def spec_of(**axes):
    return SweepSpec.from_table(table(**axes))


def threshold(point):
    """A known threshold: 1/(1 - rho), later for small d, and none where d < 4."""
    n, d, rho = point["n"], point["d"], point["rho"]
    return np.nan if d < 4 else (1 + 4 / d + 1 / np.log(n)) / (1 - rho)


@pytest.fixture
def known(monkeypatch):
    """Let units be the known threshold, give or take a little for each draw; says at which points."""
    calls = []

    def evaluate(spec, unit):
        point = layout_of(spec).point(unit)
        calls.append(tuple(point.values()))
        block = np.full(layout_of(spec).block_shape, np.nan)
        block[..., 0] = threshold(point) * (1 + calls_noise(point))
        return block

    def calls_noise(point):
        return NOISE * (2 * point["replicate"] - 1) * evaluate.noise

    evaluate.noise = 0.0
    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    return calls, evaluate


def changes(values):
    values = np.asarray(values)
    return np.abs(np.diff(values)) / np.maximum(values[1:], values[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [0.3, 0.1])
def test_neighbours_in_rho_differ_by_less_than_the_tolerance(tmp_path, known, tolerance):
    done = refine_sweep(spec_of(), tmp_path / "s", tolerance=tolerance)
    assert done.converged
    assert done.reason == ""
    values = done.data.half_weight.mean("replicate").squeeze().values
    assert changes(values).max() <= tolerance
    assert done.largest_change == pytest.approx(changes(values).max())
    rho = done.data.rho.values
    assert list(rho) == sorted(rho)
    assert done.points == rho.size
    # where 1/(1-rho) is steep the points are dense, and no coarser pair would have done
    steps = np.diff(rho)
    assert steps[0] > 2 * steps[-1]
    assert changes(values).max() > tolerance / 4


def test_n_and_d_are_bisected_geometrically_to_whole_numbers(tmp_path, known):
    done = refine_sweep(spec_of(n=[16, 4096], d=[4, 1024], rho=0.0), tmp_path / "s", tolerance=0.1)
    assert done.converged
    d, n = (done.data[name].values for name in ("d", "n"))
    assert 64 in d
    assert d.dtype.kind == n.dtype.kind == "i"
    ratios = d[1:] / d[:-1]
    assert ratios[0] < ratios[-1]
    for axis in (0, 1):
        grid = done.data.half_weight.mean("replicate").squeeze().transpose("n", "d").values
        assert np.max(np.abs(np.diff(grid, axis=axis)) / np.maximum(*halves(grid, axis))) <= 0.1


def halves(grid, axis):
    size = grid.shape[axis]
    return np.take(grid, range(1, size), axis), np.take(grid, range(size - 1), axis)


def test_neighbouring_whole_numbers_are_not_bisected(tmp_path, known):
    done = refine_sweep(spec_of(d=[2, 64], rho=0.0), tmp_path / "s", tolerance=0.5)
    # the threshold appears between d = 3 and 4: as near as whole numbers come
    assert {3, 4} <= set(done.data.d.values.tolist())
    assert done.converged
    assert done.largest_change == 1
    assert done.reason.endswith("the threshold changes by 1 between d = 3 and 4")


def test_the_number_of_points_is_bounded_and_said(tmp_path, known):
    done = refine_sweep(spec_of(), tmp_path / "s", tolerance=0.001, max_points=9)
    assert done.points <= 9
    assert done.points >= 8
    assert not done.converged
    assert "no more points allowed" in done.reason
    assert "between rho = " in done.reason


def test_what_fits_already_is_left_alone(tmp_path, known):
    done = refine_sweep(spec_of(rho=[0.0, 0.1]), tmp_path / "s", tolerance=0.2)
    assert (done.rounds, done.points, done.store) == (0, 2, tmp_path / "s")


def test_noise_is_not_refined(tmp_path, known):
    _, evaluate = known
    spec = spec_of(rho=[0.5, 0.505])
    assert refine_sweep(spec, tmp_path / "exact", tolerance=0.005).rounds > 0
    evaluate.noise = 1.0
    assert refine_sweep(spec, tmp_path / "noisy", tolerance=0.005).rounds == 0


@pytest.mark.slow
def test_every_point_is_computed_once_and_a_second_run_computes_nothing(tmp_path, known):
    calls, _ = known
    first = refine_sweep(spec_of(d=[4, 64]), tmp_path / "s", tolerance=0.4)
    assert first.rounds >= 2
    assert len(calls) == len(set(calls)) == 2 * first.points
    again = refine_sweep(spec_of(d=[4, 64]), tmp_path / "s", tolerance=0.4)
    assert len(calls) == 2 * first.points
    xr.testing.assert_identical(first.data, again.data)
    finer = refine_sweep(spec_of(d=[4, 64]), tmp_path / "s", tolerance=0.25)
    assert len(calls) == len(set(calls)) == 2 * finer.points
    assert set(first.data.rho.values) <= set(finer.data.rho.values)


def test_copies_say_where_they_come_from(tmp_path, known):
    done = refine_sweep(spec_of(), tmp_path / "s", tolerance=0.3)
    journal = Store.open(done.store).journal().values()
    assert {record.get("copied_from", "computed")[:9] for record in journal} == {"computed", "s", "s-refined"[:9]}


def test_nothing_is_taken_from_another_study(tmp_path, known):
    calls, _ = known
    refine_sweep(spec_of(), tmp_path / "s", tolerance=0.3)
    count = len(calls)
    other = SweepSpec.from_table({**table(rho=[0.0, 0.45, 0.9]), "seed": 1})
    assert refining.reuse(other, tmp_path / "t", [Store.open(tmp_path / "s")]) == 0
    more = spec_of(rho=[0.0, 0.2, 0.9], replicates=3)
    assert refining.reuse(more, tmp_path / "u", [Store.open(tmp_path / "s")]) == 4
    run_sweep(more, tmp_path / "u")
    assert len(calls) == count + 5


def test_a_damaged_chunk_is_not_copied(tmp_path, known):
    calls, _ = known
    run_sweep(spec_of(), tmp_path / "s")
    store = Store.open(tmp_path / "s")
    store.chunk_file((0, 0, 1, 0)).write_bytes(b"nothing")
    assert store.read_unit((0, 0, 1, 0)) is None
    assert refining.reuse(spec_of(rho=[0.0, 0.45, 0.9]), tmp_path / "t", [store]) == 3


@pytest.mark.parametrize(
    ("spec", "how", "parts"),
    [
        (spec_of(), {"tolerance": 0.0}, ["refine = 0", "(0, 1)"]),
        (spec_of(), {"tolerance": 1.5}, ["refine = 1.5"]),
        (spec_of(), {"tolerance": 0.1, "max_points": 0}, ["refine-max = 0"]),
        (spec_of(rho=0.5), {"tolerance": 0.1}, ["at least two points", "n, d, rho, tau"]),
        (
            SweepSpec.from_table({**table(gamma="0:4:5"), "observables": ["self_weight"]}),
            {"tolerance": 0.1},
            ["without a gamma axis", "half_weight"],
        ),
        (
            SweepSpec.from_table({**table(), "observables": ["common_ratio"]}),
            {"tolerance": 0.1},
            ["one of the observables half_weight"],
        ),
    ],
)
def test_what_cannot_be_refined_is_refused_at_once(tmp_path, known, spec, how, parts):
    with pytest.raises(SpecError) as caught:
        refine_sweep(spec, tmp_path / "s", **how)
    for part in parts:
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


OWN = ["sweep", "--n", "64", "--d", "16", "--rho", "0,0.9", "--replicates", "2"]


def cli(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_refines_and_shows_where_the_results_are(place, known):
    found = json.loads(cli(*OWN, "--refine", "0.3", "--json").stdout)
    refinement = found["refinement"]
    assert refinement["converged"]
    assert refinement["points"] == found["observables"][0]["sizes"]["rho"]
    assert found["store"].rpartition("-")[0].endswith("-refined")
    assert found["units"] == 2 * refinement["points"]
    text = cli(*OWN, "--refine", "0.3").stdout
    name = found["store"].removeprefix("runs/")
    assert f"refined in {refinement['rounds']} rounds to {refinement['points']} points" in text
    assert f"See: critattn store show {name}; thresholds: critattn threshold {name}" in text
    assert json.loads(cli("store", "show", name, "--json").stdout)["units_missing"] == 0
    assert json.loads(cli(*OWN, "--json").stdout)["refinement"] is None


def test_the_command_stops_at_the_most_points(place, known):
    text = cli(*OWN, "--refine", "0.001", "--refine-max", "5").stdout
    assert "5 points: no more points allowed" in text


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--refine", "2"], "--refine = 2"),
        (["--refine-max", "9"], "--refine-max needs --refine"),
        (["--refine", "0.1", "--refine-max", "0"], "--refine-max = 0"),
        (["--refine", "0.1", "--fresh"], "--fresh"),
        (["--refine", "0.1", "--gamma", "0:4:5"], "gamma axis"),
        (["--refine", "x"], "--refine"),
    ],
)
def test_wrong_options_are_one_line(place, known, more, part):
    (line,) = cli(*OWN, *more, code=2).stderr.splitlines()
    assert part in line
    assert list(place.iterdir()) == []


def test_an_interrupted_refinement_goes_on_to_the_same_data(place, known, monkeypatch):
    calls, evaluate = known
    text = 'observables = ["half_weight"]\n[tokens]\nkind = "near-simplex"\n[axes]\nn = 64\nd = 16\nrho = [0.0, 0.9]\n'
    (place / "mine.toml").write_text(text)

    def interrupted(spec, unit):
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(spec, unit)

    monkeypatch.setattr(evaluation, "evaluate", interrupted)
    stderr = cli("sweep", "mine.toml", "--refine", "0.2", code=130).stderr
    assert stderr.splitlines()[-1] == "Interrupted. To go on: critattn sweep mine.toml --refine 0.2"
    assert len(calls) == 5
    resumed = json.loads(cli("sweep", "mine.toml", "--refine", "0.2", "--json").stdout)
    assert len(calls) == len(set(calls)) == resumed["refinement"]["points"]
    other = json.loads(cli("sweep", "mine.toml", "--refine", "0.2", "--store", "other", "--json").stdout)
    assert resumed["spec_hash"] == other["spec_hash"]
    left, right = (Store.open(one["store"]).values() for one in (resumed, other))
    assert np.array_equal(left, right, equal_nan=True)


@pytest.mark.slow
def test_a_real_threshold_is_refined_and_reused_bit_for_bit(tmp_path):
    axes = {"n": [32], "d": [8, 64], "rho": [0.5], "replicates": 2}
    made = {"observables": ["half_weight"], "tokens": {"kind": "near-simplex", "fix_common": True}, "axes": axes}
    done = refine_sweep(SweepSpec.from_table(made), tmp_path / "s", tolerance=0.03, max_points=3)
    assert done.rounds == 1
    assert done.data.d.values.tolist() == [8, 23, 64]
    means = done.data.half_weight.mean("replicate").squeeze().values
    assert (np.diff(means) < 0).all()
    direct = run_sweep(done.spec)
    assert np.array_equal(direct.half_weight, done.data.half_weight)
