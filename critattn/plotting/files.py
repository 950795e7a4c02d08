"""Figures on disk: whole or not at all, the same bytes every time, with where they come from inside."""

import hashlib
import io
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.figure import Figure

from critattn.errors import SpecError, StoreError
from critattn.plotting.style import PNG_DPI, style

FORMATS = ("png", "svg", "pdf")
RASTER_DPI = 300


@dataclass(frozen=True)
class Provenance:
    """Where a figure comes from, written into its files.

    Attributes:
        command: the command that makes it again.
        data_sha256: digest of the data it shows (`fingerprint`).
        version: version of the package.
    """

    command: str
    data_sha256: str
    version: str

    def lines(self) -> tuple[str, ...]:
        """One line a fact, for people."""
        return (f"made by: {self.command}", f"data sha256: {self.data_sha256}", f"critattn {self.version}")


def provenance(command: str, data: xarray.Dataset) -> Provenance:
    """The provenance of a figure of this data, made by this command with the installed version."""
    try:
        version = metadata.version("critattn")
    except metadata.PackageNotFoundError:
        version = "0+checkout"
    return Provenance(command, fingerprint(data), version)


def fingerprint(data: xarray.Dataset) -> str:
    """SHA-256 of names, dimensions, types and values of a dataset's variables and coordinates, in sorted order.

    Attributes (wall times, versions, paths) do not enter: equal numbers have equal fingerprints.
    """
    digest = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        variable = data[name]
        values = np.ascontiguousarray(variable.values)
        head = f"{name}{variable.dims}{values.shape}{values.dtype.str}\n"
        digest.update(head.encode())
        digest.update(repr(values.tolist()).encode() if values.dtype == object else values.tobytes())
    return digest.hexdigest()


def parse_formats(text: str | Sequence[str]) -> tuple[str, ...]:
    """Formats of a comma-separated text or a sequence, without repetitions.

    Raises:
        SpecError: for an unknown format, or none.
    """
    given = text.split(",") if isinstance(text, str) else text
    formats = tuple(dict.fromkeys(item.strip().lower() for item in given))
    for item in formats:
        if item not in FORMATS:
            raise SpecError(f"format {item!r}: allowed: {', '.join(FORMATS)}")
    if not formats:
        raise SpecError(f"format: none given; allowed: {', '.join(FORMATS)}")
    return formats


def save(
    figure: Figure,
    base: str | os.PathLike[str],
    *,
    caption: str,
    provenance: Provenance,
    formats: Sequence[str] = FORMATS,
    title: str = "",
) -> tuple[Path, ...]:
    """Write `base.png`, `base.svg`, `base.pdf` and the caption `base.md`.

    Every file is rendered before the first is written, and each appears whole or not at all. Files carry the
    provenance and no time: the same figure gives the same bytes.

    Args:
        figure: what to write.
        base: path without suffix; its folder is made.
        caption: complete sentences for the figure's caption.
        provenance: command, data digest and version.
        formats: of png, svg, pdf.
        title: a few words.

    Returns:
        The files written, the caption last.

    Raises:
        SpecError: for an unknown format.
        StoreError: where the folder cannot be written.
    """
    base = Path(base)
    with style():
        files = {kind: _render(figure, kind, title, provenance) for kind in parse_formats(formats)}
    text = "\n".join([f"# {title or base.name}", "", caption, "", *(f"- {line}" for line in provenance.lines())])
    files["md"] = f"{text}\n".encode()
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        return tuple(_write(base.with_name(f"{base.name}.{kind}"), content) for kind, content in files.items())
    except OSError as error:
        raise StoreError(f"{base.parent}: cannot be written ({error.strerror or error})") from error


def _render(figure: Figure, kind: str, title: str, provenance: Provenance) -> bytes:
    buffer = io.BytesIO()
    dpi = PNG_DPI if kind == "png" else RASTER_DPI
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=_metadata(kind, title, provenance))
    return buffer.getvalue()


def _metadata(kind: str, title: str, provenance: Provenance) -> dict[str, Any]:
    facts = "; ".join(provenance.lines())
    creator = f"critattn {provenance.version}"
    return {
        "png": {"Title": title, "Description": facts, "Software": creator},
        "svg": {"Title": title, "Description": facts, "Creator": creator, "Date": None},
        "pdf": {"Title": title, "Subject": facts, "Creator": creator, "CreationDate": None},
    }[kind]


def _write(path: Path, content: bytes) -> Path:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
