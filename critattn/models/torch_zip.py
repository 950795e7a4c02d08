"""Weights in torch's zip files (torch 1.6 and later), read without torch and without running what they say."""

import itertools
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from critattn.errors import SpecError
from critattn.models import torch_pickle
from critattn.models.torch_pickle import Strided
from critattn.models.values import FLOATS, check_name, find, finite, label, one_line, shown
from critattn.tensorfiles import TensorInfo

MAX_PICKLE = 16 << 20
# Members take at least 46 bytes there: this is 170,000 tensors of the usual name.
MAX_DIRECTORY = 16 << 20
END, END_64, LOCATOR_64 = b"PK\5\6", b"PK\6\6", b"PK\6\7"
BLOCK = 1 << 20
# Where training scripts keep the state_dict in a checkpoint.
INNER = ("state_dict", "model_state_dict", "model", "module")
OLD = "is no zip archive: torch before 1.6 wrote such files; allowed: load it in torch and save its state_dict anew"


@dataclass(frozen=True, eq=False)
class TorchZip:
    """Weights in a zip archive of torch.

    Attributes:
        path: the file.
        tensors: header entries by name.
        views: which storage each tensor is a view of.
        root: the folder inside the archive.
        kind: "torch".
        metadata: empty.
    """

    path: Path
    tensors: Mapping[str, TensorInfo]
    views: Mapping[str, Strided] = field(repr=False)
    root: str = field(repr=False)
    kind: str = "torch"
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32.

        Raises:
            SpecError: for an unknown name, a type other than F64, F32, F16 and BF16, a wrong checksum, or a file
                that has changed since it was opened.
            DomainError: for NaN and infinities.
        """
        where = label(self.path)
        info = find(self.tensors, name, where)
        if info.dtype not in FLOATS:
            raise SpecError(f"{where}: {shown(name)} has dtype {info.dtype}; allowed: {', '.join(FLOATS)}")
        with one_line(self.path, "torch"), zipfile.ZipFile(self.path) as archive:
            view = self.views[name]
            member = archive.getinfo(f"{self.root}/data/{view.storage.key}")
            _check_storage(member, view, where)
            with archive.open(member) as stream:
                flat = _span(stream, view)
            strides = [stride * flat.itemsize for stride in view.strides]
            array = np.lib.stride_tricks.as_strided(flat, view.shape, strides)
            return finite(array, name, where)


def open_torch(path: Path) -> TorchZip:
    """Check the archive and its pickle; nothing the pickle names is looked up or called, and torch is not needed.

    The file holds a state_dict, or a checkpoint with one under "state_dict", "model_state_dict", "model" or
    "module".

    Raises:
        SpecError: for files of torch before 1.6, compressed or encrypted members, sizes that do not fit, names or
            opcodes that no state_dict needs, tensors outside their storage, and files without tensors.
    """
    where = label(path)
    with one_line(path, "torch"):
        _check_directory(path, where)
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path, where)
            root = _root(members, where)
            _check_order(archive, members.get(f"{root}/byteorder"), where)
            state = torch_pickle.load(archive.read(members[f"{root}/data.pkl"]), where)
        views = _views(state, where)
        for name, view in views.items():
            check_name(name, where)
            member = members.get(f"{root}/data/{view.storage.key}")
            if member is None:
                raise SpecError(f"{where}: {shown(name)} lies in data/{shown(view.storage.key)}, which is not there")
            _check_storage(member, view, where)
    tensors = {name: TensorInfo(name, view.shape, view.storage.dtype) for name, view in views.items()}
    return TorchZip(path, tensors, views, root)


def _check_directory(path: Path, where: str) -> None:
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(4)
        stream.seek(max(0, size - 22 - 20 - 56))
        tail = stream.read()
    if start != b"PK\3\4":
        raise SpecError(f"{where}: {OLD}")
    if len(tail) < 98 or tail[-22:-18] != END:
        raise SpecError(f"{where}: does not end as a zip archive: it is cut, or something follows it")
    (directory,) = struct.unpack("<I", tail[-10:-6])
    if tail[56:60] == LOCATOR_64:
        (found,) = struct.unpack("<Q", tail[64:72])
        if tail[:4] != END_64 or found != size - 98:
            raise SpecError(f"{where}: the end of its zip archive contradicts itself")
        (directory,) = struct.unpack("<Q", tail[40:48])
    if directory > min(size, MAX_DIRECTORY):
        raise SpecError(f"{where}: its zip directory declares {directory:,} bytes; allowed: up to {MAX_DIRECTORY:,}")


def _members(archive: zipfile.ZipFile, path: Path, where: str) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = shown(member.filename)
        if member.filename.endswith("/constants.pkl"):
            raise SpecError(f"{where}: is a TorchScript program; allowed: a state_dict")
        if member.filename in found:
            raise SpecError(f"{where}: has the member {name} twice; allowed: once")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise SpecError(f"{where}: {name} is compressed or encrypted; allowed: stored as it is, as torch does")
        if member.file_size != member.compress_size:
            raise SpecError(f"{where}: {name} declares two sizes, {member.compress_size:,} and {member.file_size:,}")
        found[member.filename] = member
    if sum(member.file_size for member in found.values()) > path.stat().st_size:
        raise SpecError(f"{where}: its members declare more bytes than the file has")
    return found


def _root(members: Mapping[str, zipfile.ZipInfo], where: str) -> str:
    roots = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(roots) != 1:
        raise SpecError(f"{where}: has {len(roots)} members */data.pkl; allowed: one, as torch.save writes it")
    (root,) = roots
    size = members[f"{root}/data.pkl"].file_size
    if size > MAX_PICKLE:
        raise SpecError(f"{where}: data.pkl has {size:,} bytes; allowed: up to {MAX_PICKLE:,}")
    return root


def _check_order(archive: zipfile.ZipFile, member: zipfile.ZipInfo | None, where: str) -> None:
    if member is not None and (member.file_size > 16 or archive.read(member).strip() != b"little"):
        raise SpecError(f"{where}: is not little-endian by its member byteorder; allowed: little")


def _views(state: Any, where: str) -> dict[str, Strided]:
    tables = [state, *(state.get(key) for key in INNER)] if isinstance(state, dict) else []
    for table in tables:
        entries = table.items() if isinstance(table, dict) else ()
        views = {name: value for name, value in entries if isinstance(name, str) and isinstance(value, Strided)}
        if views:
            return views
    raise SpecError(f"{where}: holds no tensors by name; allowed: a state_dict, alone or under {', '.join(INNER)}")


def _check_storage(member: zipfile.ZipInfo, view: Strided, where: str) -> None:
    declared = view.storage.count * view.storage.itemsize
    if member.file_size != declared:
        raise SpecError(
            f"{where}: {shown(member.filename)} has {member.file_size:,} bytes, its pickle says {declared:,}"
        )


def _span(stream: IO[bytes], view: Strided) -> np.ndarray:
    dtype = FLOATS[view.storage.dtype]
    flat = np.empty(view.span, dtype)
    for _ in _blocks(stream, view.offset * dtype.itemsize):
        pass
    filled = flat.view(np.uint8)
    at = 0
    # With the last byte of a member, zipfile compares its checksum.
    for block in _blocks(stream, filled.size):
        filled[at : at + len(block)] = np.frombuffer(block, np.uint8)
        at += len(block)
    return flat


def _blocks(stream: IO[bytes], count: int) -> Iterator[bytes]:
    for start in itertools.count(0, BLOCK):
        if start >= count:
            return
        block = stream.read(min(BLOCK, count - start))
        if len(block) != min(BLOCK, count - start):
            raise EOFError("data end too early")
        yield block
