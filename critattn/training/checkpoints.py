"""The state of a run on disk: whole or not at all, and never of another run."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from critattn.errors import StoreError
from critattn.storage import canonical_json, differences

FORMAT = 1
HEADER = "header"


class State(NamedTuple):
    """Everything a run needs to go on.

    Attributes:
        trainable: model and optimiser, a pytree of arrays.
        step: steps done.
        curves: what was recorded of each step, arrays (step, ...).
        seconds: of work so far.
    """

    trainable: Any
    step: int
    curves: dict[str, np.ndarray]
    seconds: float


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write an npz file with a JSON header beside its place and rename it, so that what was there stays until then.

    Raises:
        StoreError: where the disk is full or the folder cannot be written; what was there is untouched.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    text = np.frombuffer(canonical_json(header).encode(), np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as file:
            np.savez(file, allow_pickle=False, **{HEADER: text, **arrays})
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{str(path)!r}: was not written: {reason}; what was there before is untouched") from error
    finally:
        scratch.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of an npz file of `write_arrays`.

    Raises:
        StoreError: where it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise StoreError(f"{str(path)!r}: cannot be read: {error}") from error
    return arrays, header


def check(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse the checkpoint of another configuration; none is none.

    Raises:
        StoreError: where it cannot be read, or is of another configuration, with what differs.
    """
    if not path.exists():
        return
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file[HEADER].tobytes())
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise StoreError(f"{str(path)!r}: cannot be read: {error}") from error
    _refuse_another(path, header, config)


def _refuse_another(path: Path, header: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    changed = differences(header.get("config"), json.loads(canonical_json(config)))
    if changed or header.get("format") != FORMAT:
        listed = "; ".join(f"{key} was {old!r}, is {new!r}" for key, old, new in changed[:6])
        raise StoreError(
            f"checkpoint {str(path)!r}: is of another configuration: {listed or 'its format'}; "
            "choose another folder, or delete it"
        )


def save(path: Path, state: State, config: Mapping[str, Any]) -> None:
    """Write the state of a run.

    Raises:
        StoreError: where it cannot be written.
    """
    leaves = jax.tree_util.tree_leaves(state.trainable)
    arrays = {f"leaf-{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    arrays |= {f"curve-{name}": values for name, values in state.curves.items()}
    header = {"format": FORMAT, "config": config, "step": state.step, "seconds": state.seconds}
    write_arrays(path, arrays, header)


def load(path: Path, like: Any, config: Mapping[str, Any]) -> State | None:
    """The state of a run; None where there is no checkpoint.

    Args:
        path: of the checkpoint.
        like: a pytree of the structure of model and optimiser.
        config: of the run that wants to go on.

    Raises:
        StoreError: where it cannot be read, or is of another configuration, with what differs.
    """
    if not path.exists():
        return None
    arrays, header = read_arrays(path)
    _refuse_another(path, header, config)
    treedef = jax.tree_util.tree_structure(like)
    leaves = [jax.numpy.asarray(arrays[f"leaf-{index}"]) for index in range(treedef.num_leaves)]
    curves = {name.removeprefix("curve-"): values for name, values in arrays.items() if name.startswith("curve-")}
    return State(treedef.unflatten(leaves), header["step"], curves, header["seconds"])
