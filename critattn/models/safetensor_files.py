"""Weights in .safetensors files: a single one, or the shards that a model.safetensors.index.json lists."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from critattn.errors import SpecError
from critattn.models.values import FLOATS, MAX_DIMENSIONS, check_name, find, finite, label, one_line, shown
from critattn.tensorfiles import TensorInfo, describe

INDEX = ".safetensors.index.json"
# 150,000 entries; the largest published files keep to a tenth.
MAX_HEADER = 16 << 20


@dataclass(frozen=True, eq=False)
class SafetensorFiles:
    """Weights in one .safetensors file or in the shards of an index.

    Attributes:
        path: the file, or the index.
        tensors: header entries by name.
        files: which file holds a tensor.
        kind: "safetensors".
        metadata: empty.
    """

    path: Path
    tensors: Mapping[str, TensorInfo]
    files: Mapping[str, Path] = field(repr=False)
    kind: str = "safetensors"
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32.

        Raises:
            SpecError: for an unknown name or a type other than F64, F32, F16 and BF16.
            DomainError: for NaN and infinities.
        """
        where = label(self.path)
        info = find(self.tensors, name, where)
        if info.dtype not in FLOATS:
            raise SpecError(f"{where}: {shown(name)} has dtype {info.dtype}; allowed: {', '.join(FLOATS)}")
        with one_line(self.files[name], "safetensors"), safe_open(self.files[name], framework="numpy") as opened:
            array = opened.get_tensor(name)
        if array.shape != info.shape:
            raise SpecError(f"{where}: {shown(name)} has shape {array.shape}, was {info.shape}: the file has changed")
        return finite(array, name, where)


def open_safetensors(path: Path) -> SafetensorFiles:
    """Check the header of one .safetensors file and list its tensors.

    Raises:
        SpecError: for a header that is cut, malformed, over 16 MiB or names a tensor twice.
    """
    with one_line(path, "safetensors"):
        header = _header(path)
        tensors = {info.name: info for info in describe(path)}
        _parsed(header, label(path))
        for name, info in tensors.items():
            check_name(name, label(path))
            if len(info.shape) > MAX_DIMENSIONS:
                axes = f"{len(info.shape):,} dimensions"
                raise SpecError(f"{label(path)}: {shown(name)} has {axes}; allowed: up to {MAX_DIMENSIONS}")
    return SafetensorFiles(path, tensors, dict.fromkeys(tensors, path))


def open_index(path: Path) -> SafetensorFiles:
    """Check an index and the headers of every shard it lists.

    Raises:
        SpecError: for an index that is no JSON of that form, points outside its folder, or lists shards or
            tensors that are not there.
    """
    with one_line(path, "index"):
        weight_map = _weight_map(path)
        shards = {shard: open_safetensors(_shard(path, shard)) for shard in sorted(set(weight_map.values()))}
        missing = [name for name, shard in weight_map.items() if name not in shards[shard].tensors]
        if missing:
            shard = shown(weight_map[missing[0]])
            raise SpecError(f"{label(path)}: {shown(missing[0])} is not in {shard}, the shard listed for it")
        tensors = {name: shards[shard].tensors[name] for name, shard in weight_map.items()}
        return SafetensorFiles(path, tensors, {name: shards[shard].path for name, shard in weight_map.items()})


def _header(path: Path) -> bytes:
    with path.open("rb") as stream:
        length = stream.read(8)
        (size,) = struct.unpack("<Q", length) if len(length) == 8 else (0,)
        room = path.stat().st_size - 8
        if not 0 < size <= min(room, MAX_HEADER):
            raise SpecError(
                f"{label(path)}: declares a header of {size:,} bytes; "
                f"allowed: 1 to {MAX_HEADER:,}, and the file has {max(room, 0):,}"
            )
        return stream.read(size)


def _parsed(text: bytes, file: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise SpecError(f"{file}: names {shown(twice)} twice; allowed: once")
        return found

    return json.loads(text.decode("utf-8"), object_pairs_hook=once)


def _weight_map(path: Path) -> dict[str, str]:
    if path.stat().st_size > MAX_HEADER:
        raise SpecError(f"{label(path)}: has {path.stat().st_size:,} bytes; allowed: up to {MAX_HEADER:,}")
    index = _parsed(path.read_bytes(), label(path))
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise SpecError(f'{label(path)}: has no "weight_map"; allowed: an object of tensor names and file names')
    for name, shard in weight_map.items():
        check_name(name, label(path))
        if not isinstance(shard, str):
            raise SpecError(f"{label(path)}: {shown(name)} has no file name in weight_map")
    return weight_map


def _shard(path: Path, shard: str) -> Path:
    plain = shard.isprintable() and not set(shard) & set('/\\:"') and shard.endswith(".safetensors")
    if not plain:
        raise SpecError(f"{label(path)}: lists the file {shown(shard)}; allowed: *.safetensors beside the index")
    file = path.parent / shard
    if not file.is_file():
        raise SpecError(f"{label(path)}: lists {shown(shard)}, which is not beside it")
    return file
