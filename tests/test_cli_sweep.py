import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from critattn.cli import main
from critattn.storage import Store
from critattn.sweeps import evaluation, layout_of

OWN = ["sweep", "--n", "12", "--d", "8", "--rho", "0,0.5", "--gamma", "0:4:3"]
STUDY = """
kind = "sweep"
title = "A small study"
observables = ["self_weight"]
[tokens]
kind = "simplex"
[axes]
n = [8, 16]
d = "n"
rho = 0.5
gamma = "0:4:5"
[quick]
n = 8
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def faked(monkeypatch):
    calls = []

    def counted(spec, unit):
        calls.append(unit)
        return np.ones(layout_of(spec).block_shape)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    return calls


def run(*args, code=0, **how):
    result = CliRunner().invoke(main, [str(arg) for arg in args], **how)
    assert result.exit_code == code, result.output
    return result


def found(*args):
    return json.loads(run(*args, "--json").stdout)


def refused(*args, parts=(), code=2, **how):
    result = run(*args, code=code, **how)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line, line


def test_a_study_runs_and_resumes(place, faked):
    first = found("sweep", "mine.toml")
    assert (first["units"], first["units_reused"], first["store"]) == (2, 0, "runs/mine")
    assert first["observables"][0]["sizes"] == {"n": 2, "rho": 1, "gamma": 5}
    Store.open(place / "runs" / "mine").chunk_file((1, 0)).unlink()
    result = run("sweep", "mine.toml", "--json")
    assert json.loads(result.stdout)["units_reused"] == 1
    assert result.stderr == "mine: 1 of 2 units are there\n"
    assert faked == [(0, 0), (1, 0), (1, 0)]
    assert found("sweep", "mine.toml", "--fresh")["units_reused"] == 0
    assert len(faked) == 5


def test_it_says_how_to_see_the_results(place, faked):
    last = run("sweep", "mine.toml").stdout.splitlines()[-1]
    assert last == "See: critattn store show mine; thresholds: critattn threshold mine"
    last = run("sweep", "mine.toml", "--quick", "--store", "else where").stdout.splitlines()[-1]
    assert last.startswith("See: critattn store show mine-quick --store 'else where'; thresholds: critattn threshold")
    assert found("store", "show", "mine-quick", "--store", "else where")["units_missing"] == 0
    depth = [*OWN, "--layers", "2", "--observables", "cosine"]
    assert "threshold" not in run(*depth).stdout.splitlines()[-1]


def test_quick_and_store_choose_the_place(place, faked):
    assert found("sweep", "mine.toml", "--quick")["store"] == "runs/mine-quick"
    assert found("sweep", "mine.toml", "--store", "elsewhere")["store"] == "elsewhere/mine"
    assert len(faked) == 3


def test_the_environment_chooses_the_place(place, faked, monkeypatch):
    monkeypatch.setenv("CRITATTN_STORE", str(place / "env"))
    found("sweep", "mine.toml")
    assert (place / "env" / "mine" / "zarr.json").is_file()
    assert not (place / "runs").exists()


def test_a_sweep_of_ones_own(place):
    result = found(*OWN, "--observables", "self_weight,entropy", "--causal", "--seed", "4")
    spec = Store.open(result["store"]).spec
    assert spec["axes"]["rho"] == [0, 0.5]
    assert spec["axes"]["gamma"] == [0, 2, 4]
    assert spec["attention"]["mask"] == "causal"
    assert spec["seed"] == 4
    assert [item["name"] for item in result["observables"]] == ["self_weight", "entropy"]


def test_without_gamma_thresholds_are_searched(place):
    result = found("sweep", "--tokens", "simplex", "--n", "16", "--d", "n", "--rho", "0.5")
    assert result["mode"] == "threshold"
    assert result["observables"][0]["name"] == "half_weight"
    assert 1.5 < result["observables"][0]["min"] < 2.5


def test_a_global_option_overrides_the_study(place, faked):
    assert found("--dtype", "float32", "sweep", "mine.toml")["units"] == 2
    assert Store.open(place / "runs" / "mine").spec["dtype"] == "float32"
    refused("sweep", "mine.toml", parts=["different study", "dtype was", "float64"])


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["sweep"], ["STUDY"]),
        (["sweep", "order_parametres"], ["no study 'order_parametres'", "did you mean 'order_parameters'"]),
        (["sweep", "absent.toml"], ["absent.toml", "No such file"]),
        (["sweep", "mine.toml", "--gamma", "1"], ["--gamma", "mine.toml"]),
        (["sweep", "mine.toml", "--layers", "2"], ["--layers"]),
        ([*OWN, "--quick"], ["--quick"]),
        ([*OWN, "--gamma", "0:4"], ["--gamma = '0:4'", "start:stop:points"]),
        ([*OWN, "--gamma", "word"], ["--gamma = 'word'", "number"]),
        ([*OWN, "--law", "ssmax"], ["--law = 'ssmax'", "no coefficient gamma", "log-n"]),
        ([*OWN, "--law", "log-m"], ["--law = 'log-m'", "did you mean 'log-n'"]),
        ([*OWN, "--n", "0"], ["--n = '0'", ">= 1"]),
        ([*OWN, "--rho", "1.5"], ["--rho: 1.5", "[0, 1)"]),
        ([*OWN, "--tokens", "simplex"], ["--d: 8 at n = 12", "d >= 12"]),
        ([*OWN, "--tokens", "cube"], ["--tokens = 'cube'", "near-simplex"]),
        ([*OWN, "--observables", "self_wait"], ["'self_wait'", "self_weight"]),
        ([*OWN, "--replicates", "x"], ["--replicates", "'x'"]),
        ([*OWN, "--length", "long"], ["--length = 'long'"]),
        (["sweep", "--gamma", "1", "--n", "8", "--d", "4"], ["--rho: is missing"]),
        (["sweep", "--file", "absent.npy", "--gamma", "1"], ["absent.npy", "no such file"]),
        (["sweep", "mine.toml", "--store", "mine.toml"], ["cannot be written"]),
        (["store", "show", "absent"], ["no store 'absent'"]),
        (["store", "export", "absent", "x.nc"], ["no store 'absent'"]),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(place, args, parts, faked):
    refused(*args, parts=parts)
    assert faked == []
    assert [entry.name for entry in place.iterdir()] == ["mine.toml"]


def test_a_wrong_study_file_is_one_line(place):
    (place / "mine.toml").write_text(STUDY.replace("rho", "roh"))
    refused("sweep", "mine.toml", parts=["study 'mine'", "axes.roh: unknown key", "rho"])
    (place / "mine.toml").write_text("kind = ")
    refused("sweep", "mine.toml", parts=["is no TOML"])


def test_a_full_disk_is_exit_1_and_the_next_run_goes_on(place, faked, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_note", full)
        refused("sweep", "mine.toml", code=1, parts=["unit (0, 0)", "No space left"])
    assert found("sweep", "mine.toml")["units_reused"] == 1


def test_ctrl_c_keeps_the_unit_in_hand_and_says_how_to_go_on(place, monkeypatch):
    def interrupted(spec, unit):
        os.kill(os.getpid(), signal.SIGINT)
        return np.ones(layout_of(spec).block_shape)

    monkeypatch.setattr(evaluation, "evaluate", interrupted)
    result = run("sweep", "mine.toml", code=130)
    assert result.stderr.splitlines()[-1] == "Interrupted. To go on: critattn sweep mine.toml"
    assert len(Store.open(place / "runs" / "mine").missing_units()) == 1


def test_what_to_type_after_ctrl_c_names_all_that_was_given(place, monkeypatch):
    def interrupted(spec, unit):
        os.kill(os.getpid(), signal.SIGINT)
        return np.ones(layout_of(spec).block_shape)

    monkeypatch.setattr(evaluation, "evaluate", interrupted)
    options = ["--exact-grid", "--store", "else where", "--seed", "3", "--dtype", "float32"]
    result = run("sweep", "mine.toml", *options, code=130)
    assert result.stderr.splitlines()[-1] == (
        "Interrupted. To go on: critattn sweep mine.toml --exact-grid --store 'else where' --seed 3 --dtype float32"
    )


def test_ctrl_c_in_a_process_of_its_own(place):
    code = (
        "import time\n"
        "from critattn.cli import main\n"
        "from critattn.sweeps import evaluation\n"
        "real = evaluation.evaluate\n"
        "def slow(spec, unit):\n"
        "    print('computing', flush=True); time.sleep(0.5); return real(spec, unit)\n"
        "evaluation.evaluate = slow\n"
        "main(['sweep', 'mine.toml'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "To go on: critattn sweep mine.toml" in stderr
    assert "Traceback" not in stderr
    assert len(Store.open(place / "runs" / "mine").missing_units()) == 1


def test_store_list_show_export_delete(place, faked):
    run("sweep", "mine.toml")
    (place / "runs" / "other").mkdir()
    (info,) = found("store", "list")["stores"]
    assert (info["name"], info["units"], info["done"]) == ("mine", 2, 2)
    assert "mine" in run("store", "list").stdout
    shown = found("store", "show", "mine")
    assert shown["axes"]["gamma"] == [0, 1, 2, 3, 4]
    assert shown["units_missing"] == 0
    assert shown["made"]["versions"]["jaxlib"]
    assert "2 of 2" in run("store", "list").stdout
    run("store", "export", "mine", "out.csv")
    with (place / "out.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 2 * 5
    refused("store", "export", "mine", "out.xls", parts=[".nc or .csv"])
    refused("store", "delete", "mine", "--json", parts=["--yes"])
    assert "kept" in run("store", "delete", "mine", input="n\n").stdout
    assert found("store", "delete", "mine", "--yes") == {"schema_version": 1, "store": "mine", "deleted": True}
    assert found("store", "list")["stores"] == []
    assert "critattn sweep" in run("store", "list").stdout


def test_a_damaged_chunk_is_shown_and_named(place, faked):
    run("sweep", "mine.toml")
    file = Store.open(place / "runs" / "mine").chunk_file((1, 0))
    file.write_bytes(b"\0" * file.stat().st_size)
    shown = found("store", "show", "mine")
    assert shown["units_damaged"] == [[1, 0]]
    result = run("sweep", "mine.toml")
    assert f"{file.relative_to(place)} of mine is damaged" in result.stderr
    assert found("store", "show", "mine")["units_missing"] == 0


def test_studies():
    (study,) = [item for item in found("studies")["studies"] if item["name"] == "order_parameters"]
    assert study["kind"] == "sweep"
    assert study["units"] == 3
    assert study["error"] is None
    assert "order_parameters" in run("studies").stdout


def test_info(place):
    info = found("info")
    assert info["versions"]["python"]
    assert info["devices"]
    assert info["threads"] >= 1
    assert info["store"] == {"root": "runs", "stores": 0, "bytes": 0}
    assert "order_parameters" in info["rooms"]["simulations"]["names"]
    assert "jaxlib" in run("info").stdout
    assert not (place / "runs").exists()


@pytest.mark.parametrize("name", ["sweep", "studies", "info", "store"])
def test_help_has_an_example(name):
    assert f"Example: critattn {name}" in run(name, "--help").stdout
