"""What the readers of model files share: errors of one line, and the way to finite float32 numbers."""

import contextlib
import difflib
import itertools
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from critattn.errors import DomainError, SpecError
from critattn.reading import damage
from critattn.tensorfiles import TensorInfo

FLOATS = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype("<f8"),
}
# Published models keep to 150 characters; a name of megabytes is no name and would make every message slow.
MAX_NAME = 1024
MAX_COMPARED = 2000
MAX_DIMENSIONS = 8


def label(path: Path) -> str:
    """The name of a file as it can stand in a message of one line."""
    return path.name if path.name.isprintable() and len(path.name) <= 255 else shown(path.name)


def shown(name: str) -> str:
    """A tensor name, quoted, escaped and cut to 80 characters."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def one_line(path: Path, kind: str) -> contextlib.AbstractContextManager[None]:
    """Turn whatever a broken file provokes inside the block into a SpecError of one line.

    Raises:
        SpecError: in place of every exception that a malformed file can cause; CritattnError passes unchanged.
    """
    return damage(SpecError, f"{label(path)}: is not a readable {kind} file")


def check_name(name: str, file: str) -> None:
    """Refuse a name that is empty, longer than 1024 characters, or cannot be printed on one line.

    Raises:
        SpecError: for such a name.
    """
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise SpecError(
            f"{file}: a name has {len(name):,} characters: {shown(name)}; allowed: 1 to {MAX_NAME} that can be printed"
        )


def find(tensors: Mapping[str, TensorInfo], name: str, file: str) -> TensorInfo:
    """The header entry of a tensor.

    Raises:
        SpecError: where the file has no such tensor; the message lists the names most alike.
    """
    if name not in tensors:
        names = list(itertools.islice(tensors, MAX_COMPARED))
        close = difflib.get_close_matches(name, names, n=3) or names[:3]
        there = ", ".join(shown(other) for other in close) or "none"
        raise SpecError(f"{file}: no tensor {shown(name)}; there is {there}")
    return tensors[name]


def finite(array: np.ndarray, name: str, file: str) -> np.ndarray:
    """The array as float32 in C order, without a copy where it is that already.

    Args:
        array: of any shape and any float type.
        name: the tensor's name, for the message.
        file: the file's name, for the message.

    Returns:
        float32 of the same shape.

    Raises:
        DomainError: for NaN, infinities and numbers beyond float32.
    """
    with np.errstate(all="ignore"):
        array = np.asarray(array, dtype=np.float32, order="C")
        # The two ends tell it without a mask as large as the tensor.
        sound = array.size == 0 or bool(np.isfinite(array.min()) and np.isfinite(array.max()))
    if not sound:
        bad = int(np.count_nonzero(~np.isfinite(array)))
        raise DomainError(f"{file}: {shown(name)} has {bad} entries that are NaN or infinite; allowed: finite numbers")
    return array
