"""Arrays from `.npy`, `.npz`, `.csv` and `.safetensors`; headers are checked before memory is taken."""

import contextlib
import difflib
import itertools
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from safetensors import safe_open

from critattn.errors import DomainError, SpecError
from critattn.reading import damage

MAX_LISTED = 10
# Deflate shrinks zeros 1032 times at most: a member that claims more is lying.
MAX_DEFLATE_RATIO = 1032
SAFETENSORS_FLOATS = {"F64", "F32", "F16", "BF16"}
Rows = str | Sequence[int] | None


@dataclass(frozen=True)
class TensorInfo:
    """What a header says about one array.

    Attributes:
        name: its name in the file; empty where the format holds a single unnamed array.
        shape: its shape.
        dtype: its element type, as the format spells it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int


class _Format(NamedTuple):
    describe: Callable[[Path], list[TensorInfo]]
    read: Callable[[Path, TensorInfo, slice], np.ndarray]


def load_array(path: str | os.PathLike[str], *, tensor: str | None = None, rows: Rows = None) -> np.ndarray:
    """Read rows of one two-dimensional array, and nothing else, into memory.

    Args:
        path: a `.npy`, `.npz`, `.csv` (one line of column names is skipped) or `.safetensors` file.
        tensor: which array of an `.npz` or `.safetensors` file; may be left out where one is two-dimensional.
        rows: `"start:stop"` or `(start, stop)`, 0 <= start < stop <= number of rows; all rows by default.

    Returns:
        (rows, columns), finite; float32 and float64 keep their type, 16-bit floats become float32, integers
        float64.

    Raises:
        SpecError: for a file that cannot be understood, an unknown tensor or rows that are not there.
        DomainError: for NaN and infinities.
    """
    file, form = _open(path)
    with _one_line(file):
        chosen = _choose(form.describe(file), tensor, file.name)
        window = _window(rows, chosen, file.name)
        return _checked(form.read(file, chosen, window), file.name)


def describe(path: str | os.PathLike[str]) -> tuple[TensorInfo, ...]:
    """The arrays of a file, from headers alone (a `.csv` file is counted line by line).

    Raises:
        SpecError: for a file that cannot be understood.
    """
    file, form = _open(path)
    with _one_line(file):
        return tuple(form.describe(file))


def _open(path: str | os.PathLike[str]) -> tuple[Path, _Format]:
    file = Path(path)
    form = FORMATS.get(file.suffix.lower())
    if form is None:
        raise SpecError(f"{os.fspath(path)!r}: unknown file type {file.suffix!r}; allowed: {', '.join(FORMATS)}")
    if not file.is_file():
        raise SpecError(f"{file}: {'is not a file' if file.exists() else 'no such file'}")
    if file.stat().st_size == 0:
        raise SpecError(f"{file.name}: is empty; allowed: a 2-D array with at least one row")
    return file, form


def _one_line(file: Path) -> contextlib.AbstractContextManager[None]:
    return damage(SpecError, f"{file.name}: is not a readable {file.suffix} file")


def _choose(infos: list[TensorInfo], tensor: str | None, file: str) -> TensorInfo:
    matrices = [info for info in infos if len(info.shape) == 2]
    if tensor is not None:
        return _named(infos, tensor, file)
    if len(infos) == 1 and not matrices:
        raise SpecError(f"{file}: has shape {infos[0].shape}; allowed: a 2-D array (n, d)")
    if len(matrices) != 1:
        names = [info.name for info in matrices]
        raise SpecError(f"{file}: has {len(names)} 2-D arrays; choose one by tensor name: {_listed(names)}")
    return matrices[0]


def _named(infos: list[TensorInfo], tensor: str, file: str) -> TensorInfo:
    names = {info.name: info for info in infos}
    if list(names) == [""]:
        raise SpecError(f"{file}: holds one unnamed array; a tensor name is for .npz and .safetensors files")
    if tensor not in names:
        close = difflib.get_close_matches(tensor, names, n=3) or list(names)
        raise SpecError(f"{file}: no tensor {tensor!r}; there is {_listed(close)}")
    if len(names[tensor].shape) != 2:
        raise SpecError(f"{file}: {tensor!r} has shape {names[tensor].shape}; allowed: a 2-D array (n, d)")
    return names[tensor]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(name[:80] for name in names[:MAX_LISTED]) + more if names else "none"


def _window(rows: Rows, info: TensorInfo, file: str) -> slice:
    total = info.shape[0]
    if 0 in info.shape:
        raise SpecError(f"{file}: has shape {info.shape}; allowed: at least one row and one column")
    start, stop = (0, total) if rows is None else _bounds(rows, file)
    if not 0 <= start < stop <= total:
        raise SpecError(f"{file}: rows {start}:{stop} of {total}; allowed: 0 <= start < stop <= {total}")
    return slice(start, stop)


def _bounds(rows: str | Sequence[int], file: str) -> tuple[int, int]:
    parts = rows.split(":") if isinstance(rows, str) else rows
    try:
        start, stop = (int(part) for part in parts)
    except (TypeError, ValueError):
        raise SpecError(f"{file}: rows {rows!r}; allowed: start:stop, such as 1996:3020") from None
    return start, stop


def _checked(array: np.ndarray, file: str) -> np.ndarray:
    array = np.ascontiguousarray(array, dtype=_widened(array.dtype))
    bad = np.count_nonzero(~np.isfinite(array))
    if bad:
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise DomainError(f"{file}: {bad} entries are NaN or infinite (first in row {row}); allowed: finite numbers")
    return array


def _widened(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if dtype.kind in "iu" or dtype.itemsize == 8 else np.float32)


def _check_dtype(dtype: np.dtype, file: str, name: str) -> None:
    real = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize <= 8)
    if dtype.hasobject or dtype.names or not real:
        where = f"{file}: {name!r}" if name else file
        raise SpecError(f"{where} has dtype {str(dtype)[:60]}; allowed: real numbers of 16, 32 or 64 bits")


def _npy_header(stream: IO[bytes], file: str) -> _Header:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise SpecError(f"{file}: .npy version {version}; allowed: (1, 0) and (2, 0)")
    first = version == (1, 0)
    reader = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(stream)
    if any(isinstance(size, bool) or size < 0 for size in shape):
        raise SpecError(f"{file}: header declares shape {shape}; allowed: sizes >= 0")
    return _Header(shape, fortran, dtype, stream.tell())


def _check_size(header: _Header, total: int, file: str) -> None:
    declared = math.prod(header.shape) * header.dtype.itemsize
    found = total - header.offset
    if declared != found:
        raise SpecError(
            f"{file}: header declares shape {str(header.shape)[:60]} of {header.dtype} "
            f"({_bytes(declared)} bytes), but {_bytes(found)} bytes follow"
        )


def _bytes(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "over 10^15"


def _open_npy(path: Path) -> _Header:
    with path.open("rb") as stream:
        header = _npy_header(stream, path.name)
    if not header.dtype.hasobject:
        _check_size(header, path.stat().st_size, path.name)
    return header


def _describe_npy(path: Path) -> list[TensorInfo]:
    header = _open_npy(path)
    return [TensorInfo("", header.shape, str(header.dtype))]


def _read_npy(path: Path, info: TensorInfo, rows: slice) -> np.ndarray:
    header = _open_npy(path)
    _check_dtype(header.dtype, path.name, "")
    order = "F" if header.fortran else "C"
    mapped = np.memmap(path, header.dtype, "r", header.offset, header.shape, order)
    return np.array(mapped[rows])


def _member_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: str) -> _Header:
    where = f"{file}: {member.filename[:80]!r}"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SpecError(f"{where} has compression method {member.compress_type}; allowed: stored and deflated")
    if member.file_size > MAX_DEFLATE_RATIO * min(member.compress_size, _size(archive)) + 1024:
        raise SpecError(f"{where} declares {_bytes(member.file_size)} bytes, more than its compressed data can hold")
    with archive.open(member) as stream:
        header = _npy_header(stream, where)
    if not header.dtype.hasobject:
        _check_size(header, member.file_size, where)
    return header


def _size(archive: zipfile.ZipFile) -> int:
    return os.stat(str(archive.filename)).st_size


def _describe_npz(path: Path) -> list[TensorInfo]:
    found = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                header = _member_header(archive, member, path.name)
                found.append(TensorInfo(member.filename.removesuffix(".npy"), header.shape, str(header.dtype)))
    if not found:
        raise SpecError(f"{path.name}: holds no arrays; allowed: an archive of .npy members")
    return found


def _read_npz(path: Path, info: TensorInfo, rows: slice) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{info.name}.npy")
        header = _member_header(archive, member, path.name)
        _check_dtype(header.dtype, path.name, info.name)
        with archive.open(member) as stream:
            return _read_stream(stream, header, rows)


def _read_stream(stream: IO[bytes], header: _Header, rows: slice) -> np.ndarray:
    count, width = header.shape
    _skip(stream, header.offset)
    if header.fortran:
        whole = _take(stream, count * width * header.dtype.itemsize)
        stream.read(1)
        return np.array(np.frombuffer(whole, header.dtype).reshape((count, width), order="F")[rows])
    row_bytes = width * header.dtype.itemsize
    _skip(stream, rows.start * row_bytes)
    block = _take(stream, (rows.stop - rows.start) * row_bytes)
    # The checksum of a member is compared when its end is met, which a read past the last row brings about.
    if rows.stop == count:
        stream.read(1)
    return np.frombuffer(block, header.dtype).reshape(-1, width)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        block = stream.read(min(count, 1 << 20))
        if not block:
            raise EOFError("data end too early")
        count -= len(block)


def _take(stream: IO[bytes], count: int) -> bytes:
    block = stream.read(count)
    if len(block) != count:
        raise EOFError(f"{len(block)} bytes where the header declares {count}")
    return block


def _lines(stream: IO[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _is_names(line: str) -> bool:
    return any(not _is_number(cell) for cell in line.split(","))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_rows(stream: IO[str], file: str) -> Iterator[str]:
    lines = _lines(stream)
    first = next(lines, None)
    if first is None:
        raise SpecError(f"{file}: is empty; allowed: at least one row of numbers")
    columns = first[1].count(",") + 1
    rows = lines if _is_names(first[1]) else itertools.chain([first], lines)
    for number, line in rows:
        found = line.count(",") + 1
        if found != columns:
            raise SpecError(
                f"{file}: ragged: line {number} has {found} columns, line {first[0]} has {columns}; "
                "allowed: the same number in every line"
            )
        yield line


def _open_csv(path: Path) -> IO[str]:
    return path.open(encoding="utf-8-sig", newline=None)


def _describe_csv(path: Path) -> list[TensorInfo]:
    columns = count = 0
    with _open_csv(path) as stream:
        for line in _csv_rows(stream, path.name):
            columns = columns or line.count(",") + 1
            count += 1
    return [TensorInfo("", (count, columns), "text")]


def _read_csv(path: Path, info: TensorInfo, rows: slice) -> np.ndarray:
    with _open_csv(path) as stream:
        chosen = itertools.islice(_csv_rows(stream, path.name), rows.start, rows.stop)
        return np.loadtxt(chosen, delimiter=",", comments=None, ndmin=2, dtype=np.float64)


def _describe_safetensors(path: Path) -> list[TensorInfo]:
    with safe_open(path, framework="numpy") as file:
        names = file.keys()
        slices = {name: file.get_slice(name) for name in names}
        return [TensorInfo(name, tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()]


def _read_safetensors(path: Path, info: TensorInfo, rows: slice) -> np.ndarray:
    if info.dtype not in SAFETENSORS_FLOATS:
        allowed = ", ".join(sorted(SAFETENSORS_FLOATS))
        raise SpecError(f"{path.name}: {info.name!r} has dtype {info.dtype}; allowed: {allowed}")
    with safe_open(path, framework="numpy") as file:
        part: Any = file.get_slice(info.name)
        return np.array(part[rows.start : rows.stop])


FORMATS = {
    ".npy": _Format(_describe_npy, _read_npy),
    ".npz": _Format(_describe_npz, _read_npz),
    ".csv": _Format(_describe_csv, _read_csv),
    ".safetensors": _Format(_describe_safetensors, _read_safetensors),
}
