import dataclasses
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import pytest
from click.testing import CliRunner

from critattn import cluster
from critattn.cli import main
from critattn.errors import ClusterError, SpecError, StoreError
from critattn.storage import JOURNAL, Store
from critattn.sweeps import SweepSpec, run_sweep

STUDY = """
observables = ["self_weight"]
[tokens]
kind = "near-simplex"
[axes]
n = 512
d = 16
rho = 0.5
gamma = "0:4:9"
replicates = {replicates}
"""


def spec_of(replicates):
    axes = {"n": [512], "d": [16], "rho": 0.5, "gamma": "0:4:9", "replicates": replicates}
    return SweepSpec.from_table({"observables": ["self_weight"], "tokens": {"kind": "near-simplex"}, "axes": axes})


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_killed_in_mid_sweep_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, killed, seen = spec_of(40), [], []
    with cluster.executor("local", workers=2) as pool:

        def kill_one(done, total):
            seen.append(done)
            if done == 3:
                killed.append(list(Store.open("runs/shared").journal().values())[-1]["process"])
                os.kill(killed[0], signal.SIGKILL)

        # a path that means nothing in the folder of a worker
        data = run_sweep(spec, "runs/shared", executor=pool, progress=kill_one)
    assert seen == list(range(41))
    assert data.attrs["units_missing"] == 0
    kept = Store.open("runs/shared")
    # every line: a unit whose result died with its worker is computed, and noted, again
    lines = (kept.path / JOURNAL).read_text().split()
    writers = {json.loads(line)["process"] for line in lines}
    assert killed[0] in writers
    assert os.getpid() not in writers
    assert len(writers) >= 2
    # only what was under way is computed twice
    assert len(lines) <= 40 + 4
    serial = run_sweep(spec)
    np.testing.assert_allclose(data.self_weight, serial.self_weight, rtol=1e-12)


@pytest.mark.slow
def test_a_unit_that_kills_every_worker_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("critattn.sweeps.evaluation.evaluate", die)
    with (
        pytest.raises(ClusterError, match="4 workers died while computing it") as caught,
        cluster.executor("local", workers=2) as pool,
    ):
        run_sweep(spec_of(1), executor=pool)
    assert "\n" not in str(caught.value)


class Elsewhere(ThreadPoolExecutor):
    """Workers on a machine where the path of the store means another folder."""

    def __init__(self, folder):
        super().__init__(1)
        self.folder = folder

    def submit(self, function, /, spec, unit, store):
        return super().submit(function, spec, unit, dataclasses.replace(store, path=self.folder))


def test_workers_that_do_not_see_the_store(tmp_path):
    with (
        pytest.raises(StoreError, match=r"unit \(0, 0, 0, 0\) was not written") as caught,
        Elsewhere(tmp_path / "absent") as pool,
    ):
        run_sweep(spec_of(2), tmp_path / "s", executor=pool)
    assert "\n" not in str(caught.value)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with pytest.raises(StoreError, match="2 computed units are not there"), Elsewhere(tmp_path / "copy") as pool:
        run_sweep(spec_of(2), tmp_path / "t", executor=pool)


@pytest.mark.slow
def test_a_cluster_at_an_address_goes_on_afterwards(tmp_path):
    local = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=":0", scheduler_kwargs={"dashboard": False}
    )
    (tmp_path / "mine.toml").write_text(STUDY.format(replicates=2))
    with local:
        command = ["sweep", str(tmp_path / "mine.toml"), "--cluster", local.scheduler_address, "--json"]
        result = CliRunner().invoke(main, [*command, "--store", str(tmp_path / "runs")])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["units"] == 2
        # the cluster is another's and goes on
        with cluster.executor(local.scheduler_address) as pool:
            assert pool.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_keeps_what_is_there(tmp_path):
    (tmp_path / "mine.toml").write_text(STUDY.format(replicates=3000))
    command = [sys.executable, "-c", "from critattn.cli import main; main()", "sweep", "mine.toml"]
    with subprocess.Popen(
        [*command, "--cluster", "local"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        chunks = tmp_path / "runs" / "mine" / "estimates" / "c"
        while process.poll() is None and sum(file.is_file() for file in chunks.rglob("*")) < 5:
            time.sleep(0.05)
        # as a terminal does: to all processes of the group
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.splitlines()[-1] == "Interrupted. To go on: critattn sweep mine.toml --cluster local"
    assert "Traceback" not in stderr
    missing = len(Store.open(tmp_path / "runs" / "mine").missing_units())
    assert 0 < missing <= 2995
    assert Store.open(tmp_path / "runs" / "mine").damaged_units() == []


def refused(*args, code=2):
    result = CliRunner().invoke(main, ["sweep", *args])
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY.format(replicates=1))
    return tmp_path


def test_without_dask_the_extra_is_named(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'critattn[cluster]'" in refused("mine.toml", "--cluster", "local")
    with pytest.raises(SpecError), cluster.executor("local"):
        pass
    assert [path.name for path in study.iterdir()] == ["mine.toml"]


@pytest.mark.slow
def test_a_scheduler_that_is_not_there(study, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for wrong in (address, "nowhere", "tcp://nowhere.invalid:1", "xyz://a:1"):
        line = refused("mine.toml", "--cluster", wrong)
        assert f"cluster '{wrong}': cannot be reached" in line
        assert "local" in line
    assert [path.name for path in study.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["distributed", "distributed.client", "tornado.application"])
def test_logging_is_as_before(name):
    before = logging.getLogger(name).level
    with cluster._silence():
        assert logging.getLogger(name).level == logging.CRITICAL
    assert logging.getLogger(name).level == before
