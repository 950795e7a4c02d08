"""Weights in GGUF files: the whole header is checked before any weight is touched; `gguf` dequantises."""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from critattn.errors import SpecError
from critattn.models.values import FLOATS, check_name, find, finite, label, one_line, shown
from critattn.tensorfiles import TensorInfo

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Every limit is several times what the largest published vocabulary (262,144 tokens) or model needs.
MAX_HEADER = 64 << 20
MAX_ELEMENTS = 1 << 22
MAX_ENTRIES = 1 << 16
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 16
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# One block of numbers at a time keeps what dequantising takes beside the tensor itself near 10 MB.
CHUNK = 1 << 18


class _Place(NamedTuple):
    info: TensorInfo
    type: Any
    block: int
    block_bytes: int
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.info.shape) // self.block * self.block_bytes


@dataclass(frozen=True, eq=False)
class GgufFile:
    """Weights in a GGUF file.

    Attributes:
        path: the file.
        tensors: header entries by name; shapes in numpy's order (the file lists them the other way round).
        places: where each tensor lies.
        metadata: the file's fields as plain Python values.
        kind: "gguf".
    """

    path: Path
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, Any] = field(repr=False)
    places: Mapping[str, _Place] = field(repr=False)
    kind: str = "gguf"

    def read(self, name: str) -> np.ndarray:
        """One tensor, dequantised to float32.

        Raises:
            SpecError: for an unknown name, a type of integers, one that `gguf` cannot dequantise, or a file cut
                since it was opened.
            DomainError: for NaN and infinities.
        """
        where = label(self.path)
        info = find(self.tensors, name, where)
        with one_line(self.path, "GGUF"):
            place = self.places[name]
            flat = np.empty(math.prod(info.shape), np.float32)
            with self.path.open("rb") as stream:
                stream.seek(place.offset)
                for start, numbers in _decoded(stream, place, where):
                    flat[start : start + numbers.size] = numbers
            return finite(flat.reshape(info.shape), name, where)


def open_gguf(path: Path) -> GgufFile:
    """Check the header of a GGUF file: magic, version, counts, names, types, shapes, offsets, overlaps.

    The format is [ggml-org/ggml, docs/gguf.md]; arrays of arrays, which no published model has, are refused.

    Raises:
        SpecError: for a header that is cut, malformed or beyond every sensible size, for tensors outside the
            file or on top of each other, for big-endian and split files, and where the package `gguf` is missing.
    """
    where = label(path)
    with one_line(path, "GGUF"), path.open("rb") as stream:
        cursor = _Cursor(stream, path.stat().st_size, where)
        tensor_count, field_count = _counts(cursor)
        metadata = _fields(cursor, field_count)
        places = _tensors(cursor, tensor_count)
        start = _data_start(cursor.position, metadata, where)
        placed = _placed(places, start, cursor.size, where)
    return GgufFile(path, {name: place.info for name, place in placed.items()}, metadata, placed)


class _Cursor:
    """Reads a header forward, never past the end of the file or a sensible length."""

    def __init__(self, stream: IO[bytes], size: int, where: str) -> None:
        self.stream, self.size, self.where = stream, size, where
        self.position = 0
        self.elements = 0

    def take(self, count: int) -> bytes:
        if count > min(self.size, MAX_HEADER) - self.position:
            raise SpecError(
                f"{self.where}: byte {self.position:,} of the header declares {_counted(count)} bytes more; "
                f"the file has {self.size:,}, and a header has up to {MAX_HEADER:,}"
            )
        block = self.stream.read(count)
        if len(block) != count:
            raise SpecError(f"{self.where}: ends at byte {self.position + len(block):,}, inside its header")
        self.position += count
        return block

    def number(self, code: str) -> Any:
        form = "<" + code
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8")

    def count_elements(self, count: int) -> None:
        self.elements += count
        if self.elements > MAX_ELEMENTS:
            raise SpecError(f"{self.where}: lists {_counted(count)} values; allowed: {MAX_ELEMENTS:,} in all")


def _counted(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "over 10^15"


def _counts(cursor: _Cursor) -> tuple[int, int]:
    where = cursor.where
    if cursor.take(4) != MAGIC:
        raise SpecError(f"{where}: is not a GGUF file: does not start with the letters GGUF")
    version = cursor.number("I")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        order = " (a big-endian file)" if swapped in VERSIONS else ""
        raise SpecError(f"{where}: GGUF version {version}{order}; allowed: 2 and 3, little-endian")
    tensors, fields = cursor.number("Q"), cursor.number("Q")
    if max(tensors, fields) > MAX_ENTRIES:
        raise SpecError(
            f"{where}: declares {_counted(tensors)} tensors and {_counted(fields)} fields; allowed: {MAX_ENTRIES:,}"
        )
    return tensors, fields


def _fields(cursor: _Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text()
        check_name(key, cursor.where)
        if key in found:
            raise SpecError(f"{cursor.where}: has the field {shown(key)} twice; allowed: once")
        found[key] = _value(cursor, cursor.number("I"), key)
    return found


def _value(cursor: _Cursor, code: int, key: str) -> Any:
    if code == STRING:
        return cursor.text()
    if code in SCALARS:
        return cursor.number(SCALARS[code])
    if code != ARRAY:
        raise SpecError(f"{cursor.where}: field {shown(key)} has type {code}; allowed: 0 to 12")
    inner, count = cursor.number("I"), cursor.number("Q")
    cursor.count_elements(count)
    if inner == STRING:
        return [cursor.text() for _ in range(count)]
    if inner not in SCALARS:
        raise SpecError(f"{cursor.where}: field {shown(key)} is an array of type {inner}; allowed: numbers and strings")
    size = struct.calcsize("<" + SCALARS[inner])
    return np.frombuffer(cursor.take(count * size), "<" + SCALARS[inner]).tolist()


def _tensors(cursor: _Cursor, count: int) -> list[_Place]:
    found: dict[str, _Place] = {}
    for _ in range(count):
        name = cursor.text()
        check_name(name, cursor.where)
        if name in found:
            raise SpecError(f"{cursor.where}: names {shown(name)} twice; allowed: once")
        found[name] = _entry(cursor, name)
    return list(found.values())


def _entry(cursor: _Cursor, name: str) -> _Place:
    dimensions = cursor.number("I")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise SpecError(f"{cursor.where}: {shown(name)} has {dimensions} dimensions; allowed: 1 to {MAX_DIMENSIONS}")
    sizes = [cursor.number("Q") for _ in range(dimensions)]
    code, offset = cursor.number("I"), cursor.number("Q")
    if min(sizes) < 1:
        raise SpecError(f"{cursor.where}: {shown(name)} has shape {tuple(sizes)}; allowed: sizes of at least 1")
    type_, block, block_bytes = _type(code, name, cursor.where)
    if sizes[0] % block:
        raise SpecError(
            f"{cursor.where}: {shown(name)} of type {type_.name} has rows of {sizes[0]}; allowed: multiples of {block}"
        )
    return _Place(TensorInfo(name, tuple(reversed(sizes)), type_.name), type_, block, block_bytes, offset)


def _type(code: int, name: str, where: str) -> tuple[Any, int, int]:
    gguf = _gguf()
    try:
        type_ = gguf.GGMLQuantizationType(code)
        return type_, *gguf.GGML_QUANT_SIZES[type_]
    except (ValueError, KeyError):
        raise SpecError(f"{where}: {shown(name)} has type {code}, unknown to the installed gguf package") from None


def _gguf() -> Any:
    try:
        import gguf
    except ImportError:
        raise SpecError("reading a GGUF file needs the package gguf: pip install 'critattn[models]'") from None
    return gguf


def _data_start(position: int, metadata: Mapping[str, Any], where: str) -> tuple[int, int]:
    alignment = metadata.get("general.alignment", 32)
    power = isinstance(alignment, int) and 0 < alignment <= MAX_ALIGNMENT and alignment.bit_count() == 1
    if not power:
        shown_value = str(alignment)[:40]
        raise SpecError(f"{where}: general.alignment = {shown_value!r}; allowed: powers of two up to {MAX_ALIGNMENT}")
    parts = metadata.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise SpecError(f"{where}: is one of {parts} parts of a split model; join them first (gguf-split --merge)")
    return -(-position // alignment) * alignment, alignment


def _placed(places: list[_Place], start: tuple[int, int], size: int, where: str) -> dict[str, _Place]:
    first, alignment = start
    moved = [place._replace(offset=first + place.offset) for place in places]
    for place in moved:
        if place.offset % alignment:
            raise SpecError(f"{where}: {shown(place.info.name)} does not start at a multiple of {alignment} bytes")
        if place.offset + place.size > size:
            raise SpecError(
                f"{where}: {shown(place.info.name)} takes {_counted(place.size)} bytes from byte "
                f"{_counted(place.offset)}; the file has {size:,}"
            )
    ordered = sorted(moved, key=lambda place: place.offset)
    for one, two in itertools.pairwise(ordered):
        if one.offset + one.size > two.offset:
            raise SpecError(f"{where}: {shown(one.info.name)} and {shown(two.info.name)} overlap; allowed: apart")
    return {place.info.name: place for place in moved}


def _decoded(stream: IO[bytes], place: _Place, where: str) -> Iterator[tuple[int, np.ndarray]]:
    blocks = math.prod(place.info.shape) // place.block
    step = max(1, CHUNK // place.block)
    for first in range(0, blocks, step):
        count = min(step, blocks - first) * place.block_bytes
        raw = stream.read(count)
        if len(raw) != count:
            raise SpecError(f"{where}: ends inside {shown(place.info.name)}: the file has changed")
        yield first * place.block, _numbers(raw, place, where)


def _numbers(raw: bytes, place: _Place, where: str) -> np.ndarray:
    dtype = place.info.dtype
    if dtype in FLOATS:
        return np.frombuffer(raw, FLOATS[dtype])
    if dtype.startswith("I") and place.block == 1:
        raise SpecError(f"{where}: {shown(place.info.name)} has dtype {dtype}; allowed: floats and quantised floats")
    # As one long row: blocks are independent of each other, and gguf works row by row.
    try:
        return _gguf().dequantize(np.frombuffer(raw, np.uint8).reshape(1, -1), place.type).ravel()
    except NotImplementedError:
        raise SpecError(f"{where}: {shown(place.info.name)} has type {dtype}, which gguf cannot dequantise") from None
