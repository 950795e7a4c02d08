"""What README and docstrings point to exists, and the README's code runs."""

import json
import re
from pathlib import Path

import pytest

from critattn.cli import COMMANDS
from critattn.cli.bench import targets_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
THEORY = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
SOURCES = sorted(
    path for room in ("critattn", "figures", "notebooks", "proofs_check") for path in (ROOT / room).rglob("*.py")
)


def block(name):
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)\n```\n<!-- /{name} -->", README, re.DOTALL)
    assert found, name
    return found[1]


def test_equations_that_the_code_cites_are_stated():
    cited = {
        (number, source.name)
        for source in SOURCES
        for line in re.findall(r"docs/theory\.md ([^\]\n]*)", source.read_text(encoding="utf-8"))
        for number in re.findall(r"\((\d+\.\d+)\)", line)
    }
    assert len(cited) > 50
    missing = sorted((number, name) for number, name in cited if f"({number})" not in THEORY)
    assert not missing


def test_commands_of_the_readme_exist():
    named = set(re.findall(r"`critattn ([a-z]+)", README))
    assert {"reproduce", "measure", "sweep", "threshold", "solve", "figures"} <= named
    assert named <= set(COMMANDS)


def test_the_two_commands_are_there_and_ci_runs_the_second():
    assert block("main").endswith("critattn reproduce")
    assert block("tests").endswith("nox")
    assert "<!-- tests -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_five_lines_run(capsys):
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), {})
    assert "Threshold" in capsys.readouterr().out


def test_code_for_clusters_is_code():
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert "SLURMCluster(" in code
    compile(code, "README.md", "exec")


def test_the_table_of_targets_is_the_recorded_one():
    recorded = json.loads((ROOT / "benchmarks" / "bench.json").read_text(encoding="utf-8"))
    shown = re.search(r"<!-- targets -->\n(.*?)<!-- /targets -->", README, re.DOTALL)
    assert shown
    assert shown[1] == targets_table(recorded) == (ROOT / "benchmarks" / "targets.md").read_text(encoding="utf-8")
    assert not recorded["quick"]
    assert len(recorded["targets"]) == 12


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_nothing_is_left_to_do(word):
    texts = [*SOURCES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "noxfile.py", *ROOT.glob("docs/*.md")]
    assert [str(path) for path in texts if word in path.read_text(encoding="utf-8")] == []
