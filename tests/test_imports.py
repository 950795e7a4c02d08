import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "critattn"
ROOMS = {"simulations", "figures", "proofs_check"}
RANKS = {
    "__init__": -1,
    "errors": 0,
    "formats": 0,
    "protocols": 0,
    "grids": 0,
    "interrupts": 0,
    "provenance": 0,
    "reading": 0,
    "tensorfiles": 1,
    "tokens": 1,
    "scaling": 1,
    "biases": 1,
    "normalisers": 1,
    "families": 1,
    "criticality": 1,
    "continuation": 1,
    "symbolic": 1,
    "symbolic_family": 1,
    "theory": 1,
    "attention": 2,
    "gradient": 3,
    "blocks": 3,
    "streaming": 3,
    "kernels": 3,
    "observables": 3,
    "measurement": 3,
    "layers": 3,
    "thresholds": 3,
    "curves": 3,
    "blindness": 3,
    "comparison": 4,
    "diagnosis": 4,
    "datasets": 4,
    "storage": 4,
    "plotting": 4,
    "rooms": 4,
    "tables": 4,
    "bench": 5,
    "sweeps": 5,
    "cluster": 5,
    "theorems": 5,
    "models": 5,
    "training": 5,
    "cli": 6,
    "__main__": 7,
}
# Within one rank a module imports another only as listed.
SIBLINGS = {
    "protocols": {"errors"},
    "grids": {"errors"},
    "reading": {"errors"},
    "formats": {"errors", "protocols"},
    "tokens": {"tensorfiles"},
    "symbolic_family": {"symbolic"},
    "observables": {"blocks", "gradient"},
    "kernels": {"blocks", "observables"},
    "measurement": {"blocks", "kernels", "gradient", "observables", "streaming"},
    "streaming": {"blocks", "observables"},
    "layers": {"gradient", "measurement"},
    "thresholds": {"gradient", "measurement", "observables"},
    "curves": {"measurement", "observables"},
    "storage": {"datasets"},
    "training": {"models", "sweeps"},
    "cluster": {"sweeps"},
    "bench": {"training"},
}
# What each module may not reach although its rank is lower.
FORBIDDEN = {"attention": {"theory", "criticality"}}
NO_JAX = (
    "theory",
    "theorems",
    "continuation",
    "errors",
    "grids",
    "reading",
    "tensorfiles",
    "criticality",
    "datasets",
    "storage",
    "rooms",
)


def module_name(file):
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def files():
    return sorted(file for file in PACKAGE.rglob("*.py") if "_bundled" not in file.parts)


def is_module(dotted):
    base = PACKAGE.parent.joinpath(*dotted.split("."))
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


def guarded(tree):
    """Nodes under `if TYPE_CHECKING`, which never run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (inner for child in node.body for inner in ast.walk(child))


def imports(source):
    """Dotted names of everything that a source imports at run time, however deep inside."""
    tree = ast.parse(source)
    skipped = set(guarded(tree))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the rank"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if node.module == "critattn" or is_module(inner) else node.module


def problems(module, source):
    unit = unit_of(module)
    for name in imports(source):
        top = name.split(".")[0]
        if top in ROOMS:
            yield f"{module} imports the leaf {name}"
        if top == "jax" and unit in NO_JAX:
            yield f"{module} imports jax"
        if top == "critattn" and unit != "__init__":
            yield from rank_problems(module, unit, unit_of(name))


def rank_problems(module, unit, target):
    if target in ("__init__", unit) or unit == "cli":
        return
    if target not in RANKS:
        yield f"{module} imports {target}, which has no rank"
    elif target in FORBIDDEN.get(unit, ()):
        yield f"{module} imports {target}, which it may not"
    elif RANKS[target] > RANKS[unit]:
        yield f"{module} (rank {RANKS[unit]}) imports {target} (rank {RANKS[target]})"
    elif RANKS[target] == RANKS[unit] and target not in SIBLINGS.get(unit, ()) and unit not in ("sweeps",):
        yield f"{module} imports its sibling {target}"


@pytest.mark.parametrize("file", files(), ids=module_name)
def test_a_module_imports_only_from_below(file):
    assert unit_of(module_name(file)) in RANKS
    assert list(problems(module_name(file), file.read_text())) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("critattn.tokens", "from critattn.attention import Attention"),
        ("critattn.tokens", "from critattn import attention"),
        ("critattn.tokens", "def f():\n    import critattn.storage"),
        ("critattn.scaling", "from critattn import normalisers"),
        ("critattn.theory.simplex", "import jax.numpy as jnp"),
        ("critattn.theory.simplex", "from critattn.protocols import Estimate\nfrom jax import jit"),
        ("critattn.theory.simplex", "from critattn import attention"),
        ("critattn.attention", "from critattn.theory import simplex"),
        ("critattn.attention", "from critattn import criticality"),
        ("critattn.storage", "from critattn.sweeps import SweepSpec"),
        ("critattn.cli.figures", "from figures import angle_ratio"),
        ("critattn.rooms", "import simulations"),
    ],
)
def test_the_rule_can_be_broken(module, source):
    assert list(problems(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("critattn.tokens", "from critattn.errors import DomainError\nfrom critattn import tensorfiles"),
        ("critattn.theory.depth", "from critattn.theory import simplex\nimport numpy, scipy"),
        ("critattn.cli.sweep", "from critattn.sweeps import SweepSpec"),
        ("critattn", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from critattn import tokens"),
    ],
)
def test_the_rule_lets_pass_what_is_right(module, source):
    assert list(problems(module, source)) == []


def test_theory_shares_no_code_with_what_it_checks():
    allowed = {"theory", "errors"}
    for file in sorted((PACKAGE / "theory").glob("*.py")):
        ours = {unit_of(name) for name in imports(file.read_text()) if name.split(".")[0] == "critattn"}
        assert ours - {"__init__"} <= allowed, file.name


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_leaves_never_import_each_other(room):
    folder = PACKAGE.parent / room
    leaves = sorted(folder.glob("*.py")) if folder.is_dir() else []
    names = {leaf.stem for leaf in leaves}
    for leaf in leaves:
        tops = {name.split(".")[0] for name in imports(leaf.read_text())}
        assert not tops & (ROOMS | names), leaf.name


HEAVY = {"jax", "matplotlib", "seaborn", "sympy", "zarr", "dask", "xarray", "numpy", "rich", "scipy"}


def loaded_by(code):
    line = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    return HEAVY & set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_by("import critattn") == set()


def test_theory_runs_without_jax():
    code = (
        "import critattn.theory.simplex as simplex, pkgutil, importlib, critattn.theory as theory\n"
        "for module in pkgutil.iter_modules(theory.__path__): importlib.import_module('critattn.theory.' + module.name)"
    )
    assert loaded_by(code) <= {"numpy", "scipy"}


def test_the_command_line_root_loads_only_click():
    assert loaded_by("import critattn.cli") == set()


def test_help_answers_at_once():
    code = "from critattn.cli import main; main()"
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - start)
        assert "reproduce" in done.stdout
    # 0.3 s on a quiet machine; three times that where others are at work.
    assert min(seconds) < 3 * 0.3
