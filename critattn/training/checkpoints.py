"""The state of a run on disk: whole or not at all, and never of another run."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from critattn.errors import StoreError
from critattn.reading import damage, reason
from critattn.storage import canonical_json, differences

FORMAT = 1
HEADER = "header"
# what is recorded of each step
CURVES = ("loss", "gradient_norm", "query_gradient_norm", "key_gradient_norm")


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
        why = error.strerror or reason(error)
        raise StoreError(f"{str(path)!r}: was not written: {why}; what was there before is untouched") from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def readable(path: Path) -> contextlib.AbstractContextManager[None]:
    """A block that reads a file: whatever damaged content raises becomes one line.

    Raises:
        StoreError: in place of what NumPy, zipfile, zlib or JSON raise; errors of this package pass through.
    """
    return damage(StoreError, f"{str(path)!r}: cannot be read")


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of an npz file of `write_arrays`.

    Raises:
        StoreError: where it cannot be read: cut off, changed, or another kind of file.
    """
    with _opened(path) as file:
        arrays = {name: file[name] for name in file.files}
        return arrays, _header(path, arrays.pop(HEADER))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    # np.load leaves a file that it cannot read open
    with readable(path), path.open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise StoreError(f"{str(path)!r}: cannot be read: holds a single array; allowed: an npz file of a run")
        with file:
            yield file


def _header(path: Path, text: np.ndarray) -> dict[str, Any]:
    found = json.loads(text.tobytes())
    if not isinstance(found, dict):
        raise StoreError(f"{str(path)!r}: cannot be read: its header is no table")
    return found


def lacking(path: Path, header: Mapping[str, Any], keys: Mapping[str, type | tuple[type, ...]]) -> None:
    """Refuse a header without one of the keys, or with another type there.

    Raises:
        StoreError: with the first key that is missing.
    """
    for key, kind in keys.items():
        if not isinstance(header.get(key), kind):
            raise StoreError(f"{str(path)!r}: cannot be read: its header has no {key!r}")


def check(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse the checkpoint of another configuration; none is none.

    Raises:
        StoreError: where it cannot be read, or is of another configuration, with what differs.
    """
    if not path.exists():
        return
    with _opened(path) as file:
        header = _header(path, file[HEADER])
    _refuse_another(path, header, config)


def _refuse_another(path: Path, header: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    lacking(path, header, {"format": (int, str), "config": dict, "step": int, "seconds": (int, float)})
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
        StoreError: where it cannot be read, is of another configuration, with what differs, or has other arrays
            than that configuration has.
    """
    if not path.exists():
        return None
    arrays, header = read_arrays(path)
    _refuse_another(path, header, config)
    leaves, treedef = jax.tree_util.tree_flatten(like)
    wanted = {f"leaf-{index}": (leaf.shape, leaf.dtype) for index, leaf in enumerate(leaves)}
    kept = {name: arrays.pop(name) for name in wanted if name in arrays}
    curves = {name.removeprefix("curve-"): values for name, values in arrays.items()}
    steps = dict.fromkeys(CURVES if header["step"] else (), header["step"])
    if {name: (one.shape, one.dtype) for name, one in kept.items()} != wanted or _lengths(curves) != steps:
        raise StoreError(
            f"checkpoint {str(path)!r}: its arrays are not those of its configuration; delete it to begin again"
        )
    state = treedef.unflatten([jax.numpy.asarray(kept[name]) for name in wanted])
    return State(state, header["step"], curves, header["seconds"])


def _lengths(curves: Mapping[str, np.ndarray]) -> dict[str, int]:
    return {name: values.shape[0] if values.ndim else -1 for name, values in curves.items()}
