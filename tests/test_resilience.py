"""Sweeps that are killed, cut short, damaged, doubled or starved of disk end with the bits of an undisturbed one."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from critattn import storage
from critattn.cli import main
from critattn.storage import Store
from critattn.sweeps import SweepSpec, evaluate, evaluation, layout_of

STUDY = """
observables = ["self_weight", "angle_ratio"]
[tokens]
kind = "near-simplex"
[axes]
n = {n}
d = 16
rho = [0.0, 0.5]
gamma = "0:4:9"
replicates = {replicates}
"""

# A process that imports once and forks a `critattn sweep` an attempt; arithmetic stands in for attention.
HARNESS = """
import json, os, random, signal, sys, time
import numpy as np
import xarray
from critattn import provenance
from critattn.cli import main
from critattn.cli import sweep
from critattn.sweeps import evaluation, layout_of

# no fork starts JAX or git
provenance.environment = lambda **how: {}

def quick(spec, unit):
    time.sleep(0.02)
    return np.random.default_rng(unit).normal(size=layout_of(spec).block_shape)

evaluation.evaluate = quick

def enter(folder):
    os.chdir(folder)
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)

def found(value):
    with open("found.json", "w") as file:
        json.dump(value, file)

def start(before="", *more):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        exec(before, {})
        main(["sweep", "tiny.toml", *more])
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stderr.flush()
        os._exit(code)

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def chunks():
    return sum(len(files) for _, _, files in os.walk("runs/tiny/estimates/c"))

def until(done, pid):
    while chunks() < done and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.005)
"""


KILLS = {
    "while the store is made": "storage._fill = lambda *rest: kill()",
    "before a chunk takes its name": """
real = pathlib.Path.replace
def replace(path, to):
    return kill() if "/c/0/0/1/" in str(path) and path.suffix == ".partial" else real(path, to)
pathlib.Path.replace = replace
""",
    "before the journal": "Store._note = lambda *rest: kill()",
    "in the middle of a line of the journal": """
def torn(store, record):
    with (store.path / storage.JOURNAL).open("ab") as file:
        file.write(b'\\\\n{"unit": [0,')
    kill()
Store._note = torn
""",
}
MOMENT = """
import os, pathlib, signal
from critattn import storage
from critattn.storage import Store
def kill(): os.kill(os.getpid(), signal.SIGKILL)
"""
SCENARIOS = {
    "killed": """
draw, killed = random.Random(7), []
for _ in range(3):
    pid = start()
    until(chunks() + 1, pid)
    time.sleep(draw.uniform(0, 0.1))
    os.kill(pid, signal.SIGKILL)
    killed.append((end(pid), chunks()))
found([*killed, (end(start()), end(start("", "--store", "other")))])
""",
    "bad moments": f"""
codes = [end(start({MOMENT!r} + moment, "--store", place)) for place, moment in {KILLS!r}.items()]
found([codes, [end(start("", "--store", place)) for place in {list(KILLS)!r}], end(start("", "--store", "other"))])
""",
    "two at once": """
both = [start(), start()]
found([*(end(pid) for pid in both), end(start("", "--store", "other"))])
""",
    "interrupted": """
pid = start()
until(3, pid)
os.kill(pid, signal.SIGINT)
found([end(pid), chunks(), end(start()), end(start("", "--store", "other"))])
""",
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    write_study()
    return tmp_path


def write_study(n=16, replicates=12, extra=""):
    with open("tiny.toml", "w") as file:
        file.write(extra + STUDY.format(n=n, replicates=replicates))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a scenario printed, its folder and its stderr; each runs once, in a process that imports once."""
    root = tmp_path_factory.mktemp("scenarios")

    @functools.cache
    def told_of(name):
        folder = root / name
        folder.mkdir()
        (folder / "tiny.toml").write_text(STUDY.format(n=16, replicates=12))
        code = f"{HARNESS}\nenter({str(folder)!r})\n{SCENARIOS[name]}\n"
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        environment.pop("CRITATTN_STORE", None)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
        )
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "found.json").read_text()), folder, (folder / "stderr").read_text()

    return told_of


def cli(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def swept(*args):
    return json.loads(cli("sweep", "tiny.toml", "--json", *args).stdout)


def chunk_bytes(folder):
    root = folder / "estimates" / "c"
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def assert_same_bits(folder, undisturbed):
    whole = {name: data for name, data in chunk_bytes(folder).items() if not name.endswith(".partial")}
    assert whole == chunk_bytes(undisturbed)
    assert Store.open(folder).missing_units() == []
    left, right = (Store.open(path).values() for path in (folder, undisturbed))
    assert np.array_equal(left, right, equal_nan=True)


def test_killed_at_three_instants_a_sweep_ends_with_the_same_bits(told):
    (*kills, last), folder, _ = told("killed")
    assert [code for code, _ in kills] == [-signal.SIGKILL] * 3
    done = [chunks for _, chunks in kills]
    assert 0 < done[0] < done[1] < done[2] < 24
    assert last == [0, 0]
    assert_same_bits(folder / "runs" / "tiny", folder / "other" / "tiny")


@pytest.mark.slow
def test_killed_at_twenty_instants_a_sweep_ends_with_the_same_bits(place):
    write_study(n=96, replicates=200)
    command = [sys.executable, "-c", "from critattn.cli import main; main()", "sweep", "tiny.toml"]
    rng = np.random.default_rng(20)
    folder = place / "runs" / "tiny" / "estimates" / "c"
    for delay in rng.uniform(0, 0.25, size=20):
        before = sum(file.is_file() for file in folder.rglob("*"))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while sum(file.is_file() for file in folder.rglob("*")) <= before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(delay)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    assert 20 <= len(chunk_bytes(folder.parents[1])) < 400
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert subprocess.run([*command, "--store", "other"], capture_output=True).returncode == 0
    assert_same_bits(place / "runs" / "tiny", place / "other" / "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILLS)
def test_killed_at_a_bad_moment(told, moment):
    (killed, resumed, undisturbed), folder, _ = told("bad moments")
    at = list(KILLS).index(moment)
    assert (killed[at], resumed[at], undisturbed) == (-signal.SIGKILL, 0, 0)
    assert_same_bits(folder / moment / "tiny", folder / "other" / "tiny")
    assert [path.name for path in (folder / "other").iterdir()] == ["tiny"]


def fill(place):
    cli("sweep", "tiny.toml")
    return Store.open(place / "runs" / "tiny")


@pytest.fixture
def faked(monkeypatch):
    calls = []

    def quick(spec, unit):
        calls.append(unit)
        return np.random.default_rng(unit).normal(size=layout_of(spec).block_shape)

    monkeypatch.setattr(evaluation, "evaluate", quick)
    return calls


def test_what_a_killed_write_left_is_removed_once_it_is_old(place, faked):
    store = fill(place)
    chunk = store.chunk_file((0, 0, 0, 0))
    left = [chunk.with_name(f"0.{name}.partial") for name in ("old", "young")]
    scratch = [place / "runs" / f"{storage.SCRATCH}{name}" for name in ("old", "young")]
    for file, folder in zip(left, scratch, strict=True):
        file.write_bytes(b"half")
        (folder / "tiny").mkdir(parents=True)
    for path in (left[0], scratch[0]):
        os.utime(path, (0, time.time() - storage.STALE_SECONDS - 1))
    assert swept()["units_reused"] == 24
    assert [path.exists() for path in (*left, *scratch)] == [False, True, False, True]
    assert [info.name for info in storage.list_stores(place / "runs")] == ["tiny"]


DAMAGES = {
    "a bit": lambda data, rng: flipped(data, rng, 1),
    "bytes": lambda data, rng: flipped(data, rng, 255),
    "cut": lambda data, rng: data[: rng.integers(len(data))],
    "zeros": lambda data, rng: bytes(len(data)),
    "longer": lambda data, rng: data + b"\0",
}


def flipped(data, rng, mask):
    changed = bytearray(data)
    for at in rng.integers(len(data), size=1 if mask == 1 else 7):
        changed[at] ^= mask
    return bytes(changed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_chunks_are_named_and_computed_again(place, faked, damage):
    store = fill(place)
    before, rng = chunk_bytes(store.path), np.random.default_rng(3)
    units = [(0, 0, 1, 4), (0, 0, 0, 11)]
    for unit in units:
        file = store.chunk_file(unit)
        file.write_bytes(DAMAGES[damage](file.read_bytes(), rng))
    faked.clear()
    result = cli("sweep", "tiny.toml")
    assert sorted(faked) == sorted(units)
    for unit in units:
        assert f"warning: chunk {store.chunk_file(unit).relative_to(place)} of tiny is damaged" in result.stderr
    assert chunk_bytes(store.path) == before


@pytest.mark.slow
def test_two_sweeps_on_one_store_at_once(told):
    codes, folder, _ = told("two at once")
    assert codes == [0, 0, 0]
    assert_same_bits(folder / "runs" / "tiny", folder / "other" / "tiny")


def test_what_another_process_wrote_meanwhile_is_not_computed_again(place, monkeypatch):
    calls = []

    def generous(spec, unit):
        calls.append(unit)
        store, block = Store.open("runs/tiny"), np.zeros(layout_of(spec).block_shape)
        for other in list(layout_of(spec).units())[:20]:
            store.write_unit(other, block)
        return block

    monkeypatch.setattr(evaluation, "evaluate", generous)
    assert swept()["units"] == 24
    assert len(calls) == 1 + 4


@pytest.mark.slow
def test_ctrl_c_keeps_the_unit_in_hand_and_says_how_to_go_on(told):
    (code, done, *rest), folder, stderr = told("interrupted")
    assert code == 130
    assert 3 <= done < 24
    assert rest == [0, 0]
    assert "Interrupted. To go on: critattn sweep tiny.toml\n" in stderr
    assert f"tiny: {done} of 24 units are there\n" in stderr
    assert "Traceback" not in stderr
    assert_same_bits(folder / "runs" / "tiny", folder / "other" / "tiny")


@contextlib.contextmanager
def tmpfs(folder, size):
    """A small disk of its own where this process may mount one, else None."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def rationed(limit):
    """Let writes of chunks fail once they come to more than `limit` bytes."""
    real, written = storage.zarr.storage._local._put, [0]

    def put(path, value, exclusive=False):
        written[0] += len(value) if "c" in path.parts else 0
        if written[0] > limit:
            raise OSError(28, os.strerror(28))
        return real(path, value, exclusive)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zarr.storage._local._put", put)
        yield


def check_full_disk(root, full, place):
    """Fill the disk in mid-sweep, make space, and go on."""
    with full():
        result = cli("sweep", "tiny.toml", "--store", root, code=1)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert "No space left on device" in line
    assert "unit (" in line
    assert result.stdout == ""
    kept = Store.open(root / "tiny")
    done = 24 - len(kept.missing_units())
    assert 0 < done < 24
    assert kept.damaged_units() == []
    assert swept("--store", root)["units_reused"] == done
    swept("--store", place / "other")
    assert_same_bits(root / "tiny", place / "other" / "tiny")


def test_a_store_that_fills_up(place, faked):
    check_full_disk(place / "full", lambda: rationed(4000), place)


def test_a_disk_that_fills_up(place, faked):
    folder = place / "disk"

    @contextlib.contextmanager
    def filled():
        # room for the store's metadata and a dozen chunks, a page each
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(free - 20 * 4096))
        yield
        ballast.unlink()

    with tmpfs(folder, "1m") as mounted:
        check_full_disk(folder, filled if mounted else lambda: rationed(4000), place)


def test_a_changed_study_refuses_to_mix_and_says_what_differs(place, faked):
    store = fill(place)
    before = chunk_bytes(store.path)
    write_study(n=32, extra="seed = 3\nmemory_bytes = 4000000\n")
    result = cli("sweep", "tiny.toml", code=2)
    (line,) = result.stderr.splitlines()
    for part in ("different study", "axes.n was [16], is [32]", "seed was 0, is 3", "memory_bytes was"):
        assert part in line
    assert "rho" not in line
    assert chunk_bytes(store.path) == before


def spec_of(**changes):
    axes = {"n": [200], "d": [16], "rho": 0.5, "gamma": "0:4:5", "replicates": 2}
    tokens = {"kind": "near-simplex"}
    made = {"observables": ["self_weight", "angle_ratio"], "tokens": tokens, "axes": axes}
    return SweepSpec.from_table({**made, **changes})


def test_a_unit_has_the_same_bits_alone_and_in_a_wider_sweep():
    wider = {"n": [64, 200], "d": [4, 16], "rho": [0.2, 0.5], "gamma": "0:4:5", "replicates": 3}
    alone, within = evaluate(spec_of(), (0, 0, 0, 1)), evaluate(spec_of(axes=wider), (1, 1, 1, 1))
    assert np.array_equal(alone, within, equal_nan=True)


def test_the_memory_budget_changes_no_digit_that_counts_and_is_part_of_the_study():
    wide, narrow = spec_of(), spec_of(memory_bytes=1_000_000)
    assert wide.hash != narrow.hash
    np.testing.assert_allclose(evaluate(wide, (0, 0, 0, 0)), evaluate(narrow, (0, 0, 0, 0)), rtol=1e-12, atol=1e-14)
