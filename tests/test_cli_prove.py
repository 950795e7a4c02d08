"""`critattn prove`: its table and JSON, its exit codes, and that a wrong closed form does not pass."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from critattn import rooms
from critattn.cli import main
from critattn.theory import entmax, simplex

ROOT = Path(__file__).parent.parent
KEYS = ("name", "source", "grade", "holds", "mutants_refuted", "mutants_total", "seconds")
BROKEN = """
from critattn.theorems import Grade, Mutant, Statement, Theorem, positive

def certified(claim):
    yield positive("touches 0", lambda x: (3 * x - 1) ** 2 + claim.room, {"x": (-1, 1)}, budget=5)

THEOREM = Theorem(name="touching", statement=Statement("w", "l"), hypotheses=(), source="[]", grade=Grade.BOUND,
    claim={"room": 0}, certified=certified,
    mutants=(Mutant("a", {"room": -1}, ""), Mutant("b", {"room": -2}, "")))
"""


def prove(*words):
    return CliRunner().invoke(main, ["prove", "--workers", "1", *words])


def test_json_has_its_keys():
    done = prove("simplex_weights", "contraction", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["theorems"]] == ["simplex_weights", "contraction"]
    for one in found["theorems"]:
        assert set(KEYS) <= set(one)
        assert one["holds"] is True
        assert one["mutants_refuted"] == one["mutants_total"] >= 2
    assert any("rho" in domain or "delta in [" in domain for domain in found["theorems"][1]["domains"])


def test_the_table_and_the_argument():
    done = prove("--explain", "simplex_weights")
    assert done.exit_code == 0, done.output
    for part in (
        "mutants refuted",
        "simplex_weights",
        "identity",
        "holds",
        "Hypothesis: n >= 2",
        "at the step:",
        "1 of 1",
    ):
        assert part in done.stdout
    steps = json.loads(prove("--explain", "contraction", "--json").stdout)["theorems"][0]
    assert all(step["verdict"] == "holds" for step in steps["steps"])
    assert all(one["refuted"] and one["step"]["verdict"] == "fails" for one in steps["mutants"])


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_reports(tmp_path, suffix):
    file = tmp_path / f"report{suffix}"
    assert prove("contraction", "--report", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")
    assert "contraction" in text
    assert "critattn prove contraction" in text
    assert "margin at least" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["contracton"], "did you mean 'contraction'"),
        (["--explain", "simplex_wieghts"], "did you mean 'simplex_weights'"),
        (["--report", "report.txt"], "must end in .md or .html"),
        (["--report", "no/such/folder/report.md"], "in a folder that exists"),
    ],
)
def test_wrong_input_is_exit_2(words, said):
    done = prove(*words)
    assert done.exit_code == 2
    assert said in done.stderr


PLANTS = {
    "half weight at the limit": (simplex, "half_weight_gamma", lambda rho, log_n: 1 / (1 - rho), "simplex_weights"),
    "one part in 1e11": (simplex, "self_weight", None, "simplex_weights"),
    "angle ratio doubled": (simplex, "angle_ratio", lambda *point, **update: 2.0, "contraction"),
    "entmax off": (entmax, "identity_beta", lambda rho, alpha: 1 / (alpha * (1 - rho)), "entmax_beta"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_closed_form_is_noticed(monkeypatch, plant):
    module, name, wrong, theorem = PLANTS[plant]
    right = getattr(module, name)
    monkeypatch.setattr(module, name, wrong or (lambda *point, **more: right(*point, **more) * (1 + 1e-11)))
    done = prove(theorem, "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["theorems"]
    assert found["holds"] is False
    assert found["verdict"] == "fails"
    assert f"theory.{module.__name__.rsplit('.', 1)[1]}.{name}" in found["reason"]


def test_a_wrong_closed_form_in_a_copy_of_the_package(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    for room in ("critattn", "proofs_check"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=ignored)
    file = tmp_path / "critattn" / "theory" / "simplex.py"
    right = "root = log_others(log_n) / ((1 - np.asarray(rho, dtype=float)) * log_n)"
    source = file.read_text(encoding="utf-8")
    assert source.count(right) == 1

    file.write_text(source.replace(right, right.replace("log_others(log_n)", "log_n")), encoding="utf-8")
    command = [sys.executable, "-c", "from critattn.cli import main; main()", "prove", "simplex_weights", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    (found,) = json.loads(done.stdout)["theorems"]
    assert (done.returncode, found["holds"]) == (1, False)
    assert "theory.simplex.half_weight_gamma" in found["reason"]


def test_undecided_is_exit_1_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "__file__", str(tmp_path / "critattn" / "rooms.py"))
    (tmp_path / "proofs_check").mkdir()
    (tmp_path / "proofs_check" / "touching.py").write_text(BROKEN)
    done = prove("--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["theorems"]
    assert (found["verdict"], found["holds"]) == ("undecided", False)
    assert "undecided" in prove().stdout


@pytest.mark.slow
def test_the_whole_set_and_the_quick_one_are_in_time():
    for words, limit in (((), 300), (("--quick",), 60)):
        start = time.perf_counter()
        done = CliRunner().invoke(main, ["prove", "--workers", "2", "--json", *words])
        assert done.exit_code == 0, done.output
        assert time.perf_counter() - start < limit
