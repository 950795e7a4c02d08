"""Text to train on that every Python has: the sources of its standard library and its language reference."""

import hashlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from critattn.errors import SpecError

HELD_OUT = 0.1
# between two documents
SEPARATOR = b"\0"
LEAST_BYTES = 10_000
LIBRARY = "the standard library of Python"


@dataclass(frozen=True)
class Corpus:
    """Documents as bytes, split by document.

    Attributes:
        train: uint8, the documents trained on, each followed by a zero byte.
        held_out: uint8, the others.
        train_names: their names, sorted.
        held_out_names: likewise.
        sha256: of all names and contents.
        source: the standard library of which Python, or the name of the folder, without its path.
    """

    train: np.ndarray
    held_out: np.ndarray
    train_names: tuple[str, ...]
    held_out_names: tuple[str, ...]
    sha256: str
    source: str

    def summary(self) -> dict[str, object]:
        """What a record says of the corpus."""
        return {
            "source": self.source,
            "sha256": self.sha256,
            "train_bytes": int(self.train.size),
            "held_out_bytes": int(self.held_out.size),
            "documents": len(self.train_names) + len(self.held_out_names),
            "held_out_documents": len(self.held_out_names),
        }


def is_held_out(name: str, share: float = HELD_OUT) -> bool:
    """Whether a document is held out: sha256 of its name, read as a number in [0, 1), is in the last share."""
    return int(hashlib.sha256(_bytes(name)).hexdigest()[:16], 16) >= (1 - share) * 16**16


def _bytes(name: str) -> bytes:
    """UTF-8; of a file's name that is none, the bytes that it has on disk."""
    return name.encode("utf-8", "surrogateescape")


def load(folder: str | os.PathLike[str] | None = None) -> Corpus:
    """The corpus of this Python, or of the `*.py` files in a folder; what is no regular file is passed over.

    Args:
        folder: by default the top level of the standard library, and the topics of `pydoc_data` beside it.

    Raises:
        SpecError: where the folder is none, or there is too little text: some distributions ship Python without its
            sources.
    """
    if folder is not None:
        _check_folder(folder)
    place = Path(sysconfig.get_paths()["stdlib"] if folder is None else folder)
    documents = dict(sorted([*_sources(place), *(_topics() if folder is None else ())]))
    split = {False: [], True: []}
    for name in documents:
        split[is_held_out(name)].append(name)
    train, held = (_joined(documents, split[which]) for which in (False, True))
    if min(train.size, held.size) < LEAST_BYTES:
        raise SpecError(
            f"corpus {str(place)!r}: has {train.size} bytes of Python source to train on and {held.size} held out; "
            f"allowed: at least {LEAST_BYTES} each (a Python with its sources, or a folder of *.py files)"
        )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = f"{LIBRARY} {version}" if folder is None else place.resolve().name
    return Corpus(train, held, tuple(split[False]), tuple(split[True]), _hash(documents), source or str(place))


def _check_folder(folder: str | os.PathLike[str]) -> None:
    allowed = "allowed: a folder of *.py files"
    if not os.fspath(folder):
        raise SpecError(f"corpus {folder!r}: names no folder; {allowed}")
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "is missing"
        raise SpecError(f"corpus {str(folder)!r}: {what}; {allowed}")


def _sources(place: Path) -> Iterator[tuple[str, bytes]]:
    try:
        # an editor's lock is a link to nowhere
        yield from ((file.name, file.read_bytes()) for file in sorted(place.glob("*.py")) if file.is_file())
    except OSError as error:
        raise SpecError(f"corpus {str(place)!r}: cannot be read: {error.strerror}") from error


def _topics() -> Iterator[tuple[str, bytes]]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    yield from ((f"pydoc_data.topics/{name}", text.encode()) for name, text in topics.items())


def _joined(documents: dict[str, bytes], names: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(documents[name] + SEPARATOR for name in names), np.uint8)


def _hash(documents: dict[str, bytes]) -> str:
    found = hashlib.sha256()
    for name, content in documents.items():
        found.update(_bytes(name) + SEPARATOR + len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


def unigram_entropy(text: np.ndarray) -> float:
    """`-sum_b f_b log f_b` of the frequencies of bytes, nats a byte: the loss of a model that knows no context."""
    counts = np.bincount(text, minlength=256)
    frequencies = counts[counts > 0] / text.size
    return float(-np.sum(frequencies * np.log(frequencies)))
