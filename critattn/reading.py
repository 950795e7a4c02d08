"""Reading files that may be damaged: whatever that provokes becomes one error of one line."""

import contextlib
import csv
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator

from safetensors import SafetensorError

from critattn.errors import CritattnError

UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OSError,
    SyntaxError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
    AttributeError,
    AssertionError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    csv.Error,
    SafetensorError,
)


@contextlib.contextmanager
def damage(kind: type[CritattnError], opening: str) -> Iterator[None]:
    """A block that reads a file: whatever damaged content provokes becomes one error of one line.

    Args:
        kind: the class of that error.
        opening: what stands before the reason: the file's name, and that it cannot be read.

    Raises:
        CritattnError: of that class, in place of every exception of `UNREADABLE`; errors of this package pass through.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except CritattnError:
        raise
    except UNREADABLE as error:
        raise kind(f"{opening}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """What an error says, on one line of at most 160 characters that any terminal encodes; its type if nothing."""
    said = " ".join(str(error).split())[:160] or type(error).__name__
    return said.encode("utf-8", "backslashreplace").decode("utf-8")
