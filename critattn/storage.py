"""Results on disk: one zarr array `estimates` a store, one chunk a unit of work."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from critattn import provenance
from critattn.datasets import Layout, Unit, to_dataset
from critattn.errors import StoreError

ARRAY = "estimates"
# Within the array, where zarr does not look for members of the group.
JOURNAL = f"{ARRAY}/units.jsonl"
FORMAT = 1
# Hidden folders in which a store is made or deleted.
SCRATCH = ".critattn-scratch-"
# No write of a chunk lasts this long, not even on a slow network disk.
STALE_SECONDS = 3600.0
log = logging.getLogger(__name__)


def store_root() -> Path:
    """The folder that holds the stores: `CRITATTN_STORE`, by default `./runs`."""
    return Path(os.environ.get("CRITATTN_STORE") or "runs")


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: the same text for the same content on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def content_hash(value: Any) -> str:
    """sha256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """A results store that exists on disk.

    Attributes:
        path: its folder.
        name: the study or sweep.
        spec: what was asked for, JSON-ready.
        spec_hash: sha256 of the canonical JSON of the spec.
        layout: axes and observables of the array.
        made: environment in which the store was created.
        created: seconds since 1970.
    """

    path: Path
    name: str
    spec: Mapping[str, Any]
    spec_hash: str
    layout: Layout
    made: Mapping[str, Any]
    created: float

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Store":
        """Open an existing store.

        Raises:
            StoreError: where there is none, or one that cannot be read.
        """
        folder = Path(path)
        if not (folder / "zarr.json").is_file():
            raise StoreError(f"store {str(folder)!r}: there is no results store")
        try:
            kept = json.loads((folder / "zarr.json").read_text(encoding="utf-8"))["attributes"]["critattn"]
            return cls(folder, **{**_known(kept), "layout": Layout.from_json(kept["layout"])})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreError(f"store {str(folder)!r}: cannot be read: {_reason(error)}") from error

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, name: str, spec: Mapping[str, Any], layout: Layout) -> "Store":
        """Create a store, or open the one that is there with the same spec; nothing half-made is ever visible.

        What killed writers left unfinished is removed once it is an hour old: another process may be writing now.

        Raises:
            StoreError: where the folder cannot be written, or holds the data of a different spec.
        """
        folder = Path(path)
        kept = {
            "format": FORMAT,
            "name": name,
            "spec": json.loads(canonical_json(spec)),
            "spec_hash": content_hash(spec),
            "layout": layout.to_json(),
            "made": provenance.environment(),
            "created": time.time(),
        }
        check_writable(folder)
        _tidy(folder)
        if not (folder / "zarr.json").exists():
            _make(folder, layout, kept)
        store = cls.open(folder)
        store.check_same(kept["spec"])
        return store

    def check_same(self, spec: Mapping[str, Any]) -> None:
        """Refuse to mix data of two specs.

        Raises:
            StoreError: with the keys that differ, old and new.
        """
        if content_hash(spec) == self.spec_hash:
            return
        changed = [f"{key} was {_short(old)}, is {_short(new)}" for key, old, new in differences(self.spec, spec)]
        raise StoreError(
            f"store {str(self.path)!r} holds data of a different study: {'; '.join(changed[:6])}; "
            f"choose another --store, or delete it with: critattn store delete {self.path.name}"
        )

    def array(self, mode: Any = "r") -> zarr.Array:
        """The zarr array `estimates`."""
        # The setting is none of the array's metadata: each opening has to ask for it.
        return zarr.open_array(self.path / ARRAY, mode=mode).with_config({"write_empty_chunks": True})

    def chunk_file(self, unit: Unit) -> Path:
        """The file of a unit's chunk."""
        tail = ("0",) * (len(self.layout.block_axes) + 2)
        return self.path.joinpath(ARRAY, "c", *(str(index) for index in unit), *tail)

    def write_unit(
        self, unit: Unit, block: np.ndarray, *, seconds: float = 0.0, origin: Mapping[str, Any] | None = None
    ) -> None:
        """Write the chunk of a unit, whole or not at all, then a line in the journal.

        Args:
            unit: index along the unit axes.
            block: (*block axes, observables, statistics), float64; NaN where there is none.
            seconds: wall time that computing it took.
            origin: for a copy: the journal's record of the chunk that was copied.

        Raises:
            StoreError: where the disk is full or the store cannot be written.
        """
        if block.shape != self.layout.block_shape:
            raise StoreError(f"unit {unit}: block of shape {block.shape}; allowed: {self.layout.block_shape}")
        try:
            self.array("r+")[unit] = np.asarray(block, dtype=np.float64)
            known = {"seconds": seconds, "threads": provenance.threads(), **_who(), **(origin or {})}
            self._note({**known, "unit": list(unit)})
        except OSError as error:
            raise StoreError(f"store {str(self.path)!r}: unit {unit} was not written: {_reason(error)}") from error

    def _note(self, record: Mapping[str, Any]) -> None:
        # One append a record: a line torn by a kill spoils no other, as each begins with a newline.
        with (self.path / JOURNAL).open("ab", buffering=0) as journal:
            journal.write(b"\n" + canonical_json(record).encode())

    def journal(self) -> dict[Unit, dict[str, Any]]:
        """The last record of each unit: wall time in seconds, threads, jaxlib, host."""
        file = self.path / JOURNAL
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
        records = (record for line in lines if (record := _record(line)) is not None)
        return {tuple(record["unit"]): record for record in records}

    def read_unit(self, unit: Unit) -> np.ndarray | None:
        """The block of a unit; None where its chunk is missing or damaged."""
        return _read(self.array(), unit) if self.chunk_file(unit).exists() else None

    def damaged_units(self) -> list[Unit]:
        """Units whose chunk is there but does not hold: wrong checksum, cut short."""
        array = self.array()
        there = (unit for unit in self.layout.units() if self.chunk_file(unit).exists())
        return [unit for unit in there if _read(array, unit) is None]

    def missing_units(self) -> list[Unit]:
        """Units that have to be computed: no chunk, or a damaged one, which is named in the log."""
        damaged = set(self.damaged_units())
        for unit in sorted(damaged):
            log.warning("chunk %s of %s is damaged and counts as missing", self.chunk_file(unit), self.name)
        return [unit for unit in self.layout.units() if unit in damaged or not self.chunk_file(unit).exists()]

    def values(self) -> np.ndarray:
        """All estimates, (*unit axes, *block axes, observables, statistics); NaN where a unit is missing or damaged."""
        array = self.array()
        result = np.full(self.layout.shape, np.nan)
        for unit in self.layout.units():
            block = _read(array, unit)
            if block is not None:
                result[unit] = block
        return result

    def read(self) -> Any:
        """The results as an `xarray.Dataset`: a variable an observable, and `<name>_se` beside it."""
        attributes = {
            "name": self.name,
            "spec": canonical_json(self.spec),
            "spec_hash": self.spec_hash,
            "made": canonical_json(self.made),
            "units": len(list(self.layout.units())),
            "units_missing": len(self.missing_units()),
        }
        return to_dataset(self.layout, self.values(), attributes)


@dataclass(frozen=True)
class StoreInfo:
    """One line of `critattn store list`.

    Attributes:
        name: name of the folder.
        path: its path.
        units: units of work in the study.
        done: units that are there.
        bytes: size on disk.
        created: seconds since 1970.
        spec_hash: sha256 of the spec.
    """

    name: str
    path: str
    units: int
    done: int
    bytes: int
    created: float
    spec_hash: str

    @classmethod
    def of(cls, store: Store) -> "StoreInfo":
        """What a listing says about a store; chunks are counted, not verified."""
        units = list(store.layout.units())
        done = sum(store.chunk_file(unit).exists() for unit in units)
        size = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
        return cls(store.path.name, str(store.path), len(units), done, size, store.created, store.spec_hash)


def list_stores(root: str | os.PathLike[str] | None = None) -> list[StoreInfo]:
    """The stores below a root (`store_root()` by default), sorted by name; other folders are passed over."""
    return [StoreInfo.of(store) for store in _stores(Path(root) if root is not None else store_root())]


def find(name: str, root: str | os.PathLike[str] | None = None) -> Store:
    """A store by its name below the root, or by its path.

    Raises:
        StoreError: with the stores that exist.
    """
    folder = Path(root) if root is not None else store_root()
    for candidate in (folder / name, Path(name)):
        if name and (candidate / "zarr.json").is_file():
            return Store.open(candidate)
    known = ", ".join(store.path.name for store in _stores(folder)) or "none"
    raise StoreError(f"no store {name!r} in {str(folder)!r}; there is: {known}")


def delete(store: Store) -> None:
    """Delete a store from disk: it stops being a store first, so that a kill leaves no half of one.

    Raises:
        StoreError: where it cannot be deleted.
    """
    try:
        grave = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=store.path.parent))
        store.path.rename(grave / store.path.name)
        shutil.rmtree(grave)
    except OSError as error:
        raise StoreError(f"store {str(store.path)!r}: cannot be deleted: {_reason(error)}") from error


def check_writable(folder: Path) -> None:
    """Try to write next to or in a store before anything is computed; leaves nothing behind.

    Raises:
        StoreError: where it fails, with the reason of the operating system.
    """
    place = folder if folder.is_dir() else folder.parent
    if place.exists() and not place.is_dir():
        raise StoreError(f"store {str(folder)!r}: cannot be written: {str(place)!r} is a file, not a folder")
    made = [parent for parent in (place, *place.parents) if not parent.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        for parent in made:
            if parent.is_dir():
                parent.rmdir()
        raise StoreError(f"store {str(folder)!r}: cannot be written: {_reason(error)}") from error


def differences(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves in which two JSON-ready values differ, as (dotted key, old, new); None stands for absent."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [] if canonical_json(old) == canonical_json(new) else [(key, old, new)]
    found = []
    for name in sorted({*old, *new}):
        found += differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
    return found


def _make(folder: Path, layout: Layout, kept: Mapping[str, Any]) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder.parent) as scratch:
            _fill(Path(scratch) / folder.name, layout, kept)
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
            (Path(scratch) / folder.name).rename(folder)
    except OSError as error:
        # Another process may have been faster: then its store is there and is opened.
        if not (folder / "zarr.json").exists():
            raise StoreError(f"store {str(folder)!r}: cannot be written: {_reason(error)}") from error


def _tidy(folder: Path) -> None:
    oldest = time.time() - STALE_SECONDS
    for left in (*folder.rglob("*.partial"), *folder.parent.glob(f"{SCRATCH}*")):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < oldest:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _fill(folder: Path, layout: Layout, kept: Mapping[str, Any]) -> None:
    group = zarr.create_group(folder, attributes={"critattn": dict(kept)})
    group.create_array(
        ARRAY,
        shape=layout.shape,
        chunks=layout.chunk_shape,
        dtype="float64",
        fill_value=float("nan"),
        compressors=[Crc32cCodec()],
        dimension_names=layout.dims,
        config={"write_empty_chunks": True},
    )
    for name, (dims, values) in layout.numeric_coordinates().items():
        group.create_array(name, data=values, dimension_names=dims)


def _read(array: zarr.Array, unit: Unit) -> np.ndarray | None:
    try:
        return np.asarray(array[unit])
    except (ValueError, RuntimeError, OSError, LookupError, TypeError):
        return None


def _stores(root: Path) -> Iterator[Store]:
    for file in sorted(root.glob("*/zarr.json")):
        try:
            yield Store.open(file.parent)
        except StoreError as error:
            log.warning("%s", error)


def _known(kept: Mapping[str, Any]) -> dict[str, Any]:
    if kept["format"] != FORMAT:
        raise ValueError(f"format {kept['format']!r} is not {FORMAT}")
    names = {field.name for field in dataclasses.fields(Store)} - {"path"}
    return {name: kept[name] for name in names}


def _who() -> dict[str, Any]:
    return {
        "jaxlib": provenance.versions().get("jaxlib"),
        "process": os.getpid(),
        "at": round(time.time(), 3),
    }


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        return record if isinstance(record["unit"], list) else None
    except (ValueError, LookupError, TypeError):
        return None


def _short(value: Any) -> str:
    text = "absent" if value is None else canonical_json(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(reason.split()) or type(error).__name__
