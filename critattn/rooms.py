"""Finding the three rooms of leaves, `simulations`, `figures` and `proofs_check`, and loading one by name."""

import difflib
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

from critattn.errors import SpecError

SUFFIXES = {"simulations": ".toml", "figures": ".py", "proofs_check": ".py"}
NOUNS = {"simulations": "study", "figures": "figure", "proofs_check": "theorem"}


def folder(room: str) -> Path:
    """The folder of a room: `critattn/_bundled/<room>` of a wheel, else the sibling folder of the checkout.

    Raises:
        SpecError: for an unknown room.
    """
    _suffix(room)
    bundled = Path(__file__).parent / "_bundled" / room
    return bundled if bundled.is_dir() else Path(__file__).parents[1] / room


def names(room: str) -> tuple[str, ...]:
    """Names of the leaves of a room, sorted; empty where the room has no tenant yet.

    Raises:
        SpecError: for an unknown room.
    """
    suffix = _suffix(room)
    leaves = (leaf for leaf in folder(room).glob(f"*{suffix}") if leaf.is_file())
    return tuple(sorted(leaf.stem for leaf in leaves if not leaf.name.startswith(("_", "."))))


def path(room: str, name: str) -> Path:
    """The file of a leaf.

    Raises:
        SpecError: for an unknown name, with what exists and the closest match.
    """
    known = names(room)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"no {NOUNS[room]} {name[:80]!r}; {hint}there is {', '.join(known) or 'nothing yet'}")
    return folder(room) / f"{name}{_suffix(room)}"


def load(room: str, name: str) -> Any:
    """A leaf: the module of a `.py` file, run afresh, or the parsed table of a `.toml` file.

    Raises:
        SpecError: for an unknown name, or a `.toml` file that is no TOML.
    """
    leaf = path(room, name)
    return load_toml(leaf) if leaf.suffix == ".toml" else _run(leaf, f"critattn_{room}_{name}")


def load_toml(file: Path) -> dict[str, Any]:
    """The parsed table of a TOML file.

    Raises:
        SpecError: for a file that cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise SpecError(f"{file}: is no TOML: {' '.join(str(error).split())}") from error


def _suffix(room: str) -> str:
    if room not in SUFFIXES:
        raise SpecError(f"room {room!r}: allowed: {', '.join(SUFFIXES)}")
    return SUFFIXES[room]


def _run(leaf: Path, module_name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, leaf)
    if spec is None or spec.loader is None:
        raise SpecError(f"{leaf}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of a leaf look their module up here.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
