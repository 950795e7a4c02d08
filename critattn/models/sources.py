"""One way into every file of weights: names and shapes first, then one tensor at a time."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from critattn.errors import SpecError
from critattn.models.gguf_files import open_gguf
from critattn.models.safetensor_files import INDEX, open_index, open_safetensors
from critattn.models.torch_zip import open_torch
from critattn.models.values import label, one_line
from critattn.tensorfiles import TensorInfo

KINDS = f"*.safetensors, *{INDEX}, *.gguf, and *.bin, *.pt or *.pth of torch 1.6 or later"
WANTED = f"model.safetensors, one *{INDEX}, one *.safetensors, one *.gguf or pytorch_model.bin"


class TensorSource(Protocol):
    """A file of weights whose header has been read and checked."""

    @property
    def path(self) -> Path:
        """The file (of a sharded model: its index)."""
        ...

    @property
    def kind(self) -> str:
        """One of "safetensors", "gguf" and "torch"."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Header entries by name: shapes are (out, in) in numpy's order, types spelled F32, BF16, I64, Q4_1, ..."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields of a GGUF file as plain Python values; empty for the other kinds."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One tensor, dequantised: float32 of the shape in its header entry.

        Raises:
            SpecError: for a name the file lacks, a type that is not read, or a file that has changed since.
            DomainError: for NaN and infinities.
        """
        ...


def open_source(path: str | os.PathLike[str]) -> TensorSource:
    """Open a file of weights, or the one that a model's folder holds, and check its header; no weights are read.

    Args:
        path: a .safetensors file, the index of a sharded model, a .gguf file, a torch file; or a folder, where
            model.safetensors comes first, then an index, a single .safetensors, a single .gguf, and
            pytorch_model.bin.

    Raises:
        SpecError: for a path that is not there, a kind that is not read, or a file that is malformed or empty.
    """
    place = Path(path)
    with one_line(place, "model"):
        file = _file_of(place) if place.is_dir() else place
        if not file.is_file():
            raise SpecError(f"{os.fspath(path)!r}: {'is not a file' if file.exists() else 'no such file or folder'}")
        source = _reader(file)(file)
        if not source.tensors:
            raise SpecError(f"{label(file)}: holds no tensors; allowed: a file of weights")
        return source


def files_of(source: TensorSource) -> tuple[Path, ...]:
    """The files that hold a model's weights, sorted: one, or the shards of an index."""
    return tuple(sorted(set(getattr(source, "files", {}).values()))) or (source.path,)


def _reader(file: Path) -> Callable[[Path], TensorSource]:
    name = file.name.lower()
    if name.endswith(INDEX):
        return open_index
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise SpecError(f"{label(file)}: is not a file of weights by its name; allowed: {KINDS}")
    return reader


def _file_of(folder: Path) -> Path:
    for pattern in ("model.safetensors", f"*{INDEX}", "*.safetensors", "*.gguf", "pytorch_model.bin"):
        found = sorted(entry for entry in folder.glob(pattern) if entry.is_file())
        if len(found) > 1:
            names = ", ".join(label(file) for file in found[:4]) + (", ..." if len(found) > 4 else "")
            raise SpecError(f"{str(folder)!r}: holds {len(found)} files {pattern} ({names}); name one of them")
        if found:
            return found[0]
    if (folder / "pytorch_model.bin.index.json").is_file():
        raise SpecError(f"{str(folder)!r}: holds sharded torch files, which are not read; allowed: {WANTED}")
    raise SpecError(f"{str(folder)!r}: holds no weights; looked for {WANTED}")


READERS: dict[str, Callable[[Path], TensorSource]] = {
    ".safetensors": open_safetensors,
    ".gguf": open_gguf,
    ".bin": open_torch,
    ".pt": open_torch,
    ".pth": open_torch,
}
