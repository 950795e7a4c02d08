"""Texts that are at hand without a network, and windows of their tokens; protein sequences for protein models."""

import difflib
import hashlib
import io
import os
import platform
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from critattn.errors import DomainError, SpecError

MAX_BYTES = 2**28
# Shorter licences (MIT, BSD) have no window of 1024 tokens.
MIN_LICENCE = 8_000
# Four times what English and code have: a stretch of so many holds enough tokens.
CHARACTERS_PER_TOKEN = 16
DEBIAN_LICENCES = Path("/usr/share/common-licenses")
# The variable regions of two antibody drugs, as in the Protein Data Bank entries 1N8Z and 3WD5.
PROTEINS = {
    "trastuzumab VH": (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
    ),
    "trastuzumab VL": (
        "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"
    ),
    "adalimumab VH": (
        "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS"
    ),
}


@dataclass(frozen=True)
class Text:
    """A text and where it comes from.

    Attributes:
        name: `topics`, `stdlib`, `licence`, the name of a protein, or of a file.
        source: where its characters lie, for a person.
        sha256: of its UTF-8 bytes with newlines as a single line feed; Python's own texts differ between versions.
        content: the characters.
    """

    name: str
    source: str
    sha256: str
    content: str

    @classmethod
    def of(cls, name: str, source: str, content: str) -> "Text":
        """The text of these characters, with its checksum; characters that are no Unicode become question marks."""
        return cls(name, source, hashlib.sha256(content.encode("utf-8", "replace")).hexdigest(), content)


def texts(names: Sequence[str | os.PathLike[str]] | None = None) -> tuple[Text, ...]:
    """Texts by name or path.

    Args:
        names: among `topics` (Python's own reference, English prose and code), `stdlib` (the modules at the top of
            Python's library), `licence` (a long licence), or paths of UTF-8 files; by default those three.

    Raises:
        SpecError: for an unknown name, a text that this Python lacks, and files that are empty, too large or no UTF-8.
    """
    return tuple(_found(name) for name in (TEXTS if names is None else names))


def proteins() -> tuple[Text, ...]:
    """Variable regions of antibody drugs, for models of protein sequences: 107 to 121 amino acids each."""
    source = "variable region of an antibody drug, Protein Data Bank 1N8Z or 3WD5"
    return tuple(Text.of(name, source, content) for name, content in PROTEINS.items())


def read(path: str | os.PathLike[str]) -> Text:
    """The text of a UTF-8 file; newlines become a single line feed, a byte-order mark goes.

    Raises:
        SpecError: for no such file, an empty one, one above 2^28 bytes, or one that is no UTF-8.
    """
    file = Path(path)
    if not file.is_file():
        raise SpecError(f"text {str(file)!r}: {'is no file' if file.exists() else 'no such file'}")
    if file.stat().st_size > MAX_BYTES:
        raise SpecError(f"text {str(file)!r}: has {file.stat().st_size:,} bytes; allowed: {MAX_BYTES:,} at most")
    try:
        content = io.TextIOWrapper(io.BytesIO(file.read_bytes()), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise SpecError(f"text {str(file)!r}: is no UTF-8 (byte {error.start}: {error.reason})") from None
    if not content.strip():
        raise SpecError(f"text {str(file)!r}: is empty; allowed: at least one word")
    return Text.of(file.name, str(file), content)


def windows(tokens: np.ndarray, length: int, count: int = 1, *, name: str = "text") -> tuple[np.ndarray, ...]:
    """Disjoint windows spread evenly over a sequence of tokens: the first begins it, the last of several ends it.

    Args:
        tokens: (n,) integers.
        length: tokens of a window, at least 1.
        count: windows, at least 1.
        name: what the error calls the text.

    Returns:
        `count` arrays (length,), in the order of the text; window i starts at floor(i (n - length) / (count - 1)), so
        two of them are n / count - length tokens apart or more.

    Raises:
        DomainError: for a length or count below 1.
        SpecError: for fewer than length x count tokens.
    """
    for label, value in (("length", length), ("count", count)):
        if value < 1:
            raise DomainError.of(label, value, "a whole number >= 1")
    total = len(tokens)
    if total < length * count:
        wanted = f"{length} tokens" if count == 1 else f"{count} disjoint windows of {length} tokens"
        raise SpecError(f"{name}: has {total} tokens, too short for {wanted}; choose a longer text or a smaller length")
    starts = [index * (total - length) // max(count - 1, 1) for index in range(count)]
    return tuple(np.asarray(tokens[start : start + length]) for start in starts)


def excerpts(encode: Callable[[str], np.ndarray], text: Text, length: int, count: int = 1) -> tuple[np.ndarray, ...]:
    """Disjoint windows of a text's tokens, spread over it like `windows`; of a long text only stretches are encoded.

    The first begins with the text, the others each with a line. For several lengths take the longest, and the first
    tokens of these windows for the others: length and content are then not confounded.

    Args:
        encode: characters to tokens (n,).
        text: the text.
        length: tokens of a window, at least 1.
        count: windows, at least 1.

    Returns:
        `count` arrays (length,).

    Raises:
        DomainError: for a length or count below 1.
        SpecError: for a text with too few tokens.
    """
    size = CHARACTERS_PER_TOKEN * length
    if length >= 1 and count >= 1 and len(text.content) >= 2 * count * size:
        stretches = [encode(stretch) for stretch in _stretches(text.content, size, count)]
        if all(len(tokens) > length for tokens in stretches):
            return tuple(tokens[:length] for tokens in stretches)
    return windows(encode(text.content), length, count, name=f"text {text.name!r}")


def _stretches(content: str, size: int, count: int) -> Iterator[str]:
    """Stretches of `size` characters, disjoint for texts of 2 count size or more, that begin with a line."""
    for index in range(count):
        start = index * (len(content) - size) // max(count - 1, 1)
        line = content.rfind("\n", start - size // 2, start) + 1 if start else 0
        yield content[line or start : (line or start) + size]


def _found(name: str | os.PathLike[str]) -> Text:
    if isinstance(name, str) and name in TEXTS:
        return TEXTS[name]()
    if Path(name).exists() or Path(name).suffix or len(Path(name).parts) > 1:
        return read(name)
    close = difflib.get_close_matches(str(name), TEXTS, n=1)
    known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(TEXTS)}, or the path of a UTF-8 file"
    raise SpecError(f"text {str(name)!r}: no such text; {known}")


def _topics() -> Text:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise SpecError("text 'topics': this Python has no pydoc_data.topics; choose another --text") from None
    content = "\n\n".join(topics[key] for key in sorted(topics))
    return Text.of("topics", f"pydoc_data.topics of Python {platform.python_version()}", content)


def _stdlib() -> Text:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"))
    if not files:
        raise SpecError(f"text 'stdlib': no Python sources in {folder}; choose another --text")
    return Text.of(
        "stdlib", f"{len(files)} modules in {folder}, Python {platform.python_version()}", "\n".join(_sources(files))
    )


def _sources(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        with tokenize.open(file) as stream:
            yield stream.read()


def _licence() -> Text:
    for source, content in _licences():
        if len(content) >= MIN_LICENCE:
            return Text.of("licence", source, content)
    raise SpecError("text 'licence': no long licence found with Python or its packages; choose another --text")


def _licences() -> Iterator[tuple[str, str]]:
    """The longest licence of a Debian system, Python's own, and Apache-2.0 with jax, which this package depends on."""
    folders = (sysconfig.get_paths()["stdlib"], sys.base_prefix)
    files = [DEBIAN_LICENCES / "GPL-3", *(Path(folder) / "LICENSE.txt" for folder in folders)]
    yield from ((str(file), file.read_text(encoding="utf-8", errors="replace")) for file in files if file.is_file())
    for package in ("jax", "numpy"):
        yield from _packaged(package)


def _packaged(package: str) -> Iterator[tuple[str, str]]:
    try:
        listed = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return
    for entry in sorted(listed):
        file = Path(str(entry.locate()))
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")) and file.is_file():
            yield f"{entry} of {package}", file.read_text(encoding="utf-8", errors="replace")


TEXTS: dict[str, Callable[[], Text]] = {"topics": _topics, "stdlib": _stdlib, "licence": _licence}
