"""Slopes of heads from a file that a person or a program wrote."""

import json
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from critattn.biases import check_slopes
from critattn.errors import DomainError, SpecError

LARGEST_FILE = 4_000_000
MAGIC = b"\x93NUMPY"


def read_slopes(name: str) -> np.ndarray:
    """The slopes in a file: a .json list, a .npy vector, or numbers between commas, spaces and lines (.csv, .txt).

    A first line of words and lines that begin with # are left out.

    Returns:
        (heads,) float64, finite and above 0.

    Raises:
        SpecError: for a file that cannot be read or understood, or slopes that are none.
    """
    path = Path(name)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"--slopes {name}: is larger than {LARGEST_FILE // 1_000_000} MB")
        found = _binary(path) if path.suffix.lower() == ".npy" else _text(path)
        return check_slopes(_numbers(found))
    except OSError as error:
        raise SpecError(f"--slopes {name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"--slopes {name}: is no text; allowed: .txt, .csv, .json or .npy") from None
    except DomainError as error:
        raise SpecError(f"--slopes {name}: {error}") from None
    except RecursionError:
        raise SpecError(f"--slopes {name}: is nested too deeply; allowed: one number for each head") from None
    except (ValueError, TypeError, OverflowError) as error:
        said = " ".join(str(error).split())[:120]
        raise SpecError(f"--slopes {name}: {said}; allowed: one number for each head") from None


def _numbers(found: Any) -> np.ndarray:
    """The content as float64; truth values, words and complex numbers are no slopes."""
    # as objects first: numpy makes 1.0 of the True in [true, 0.5]
    array = np.asarray(found, dtype=object)
    if not array.size:
        raise ValueError("holds no slopes")
    wrong = next((one for one in array.ravel().tolist() if isinstance(one, bool) or not isinstance(one, Real)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r:.40} is not a number")
    return array.astype(np.float64)


def _binary(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        if file.read(6) != MAGIC:
            raise ValueError("is not a readable .npy file")
    found = np.load(path, allow_pickle=False)
    return found.ravel() if isinstance(found, np.ndarray) and found.ndim == 2 and 1 in found.shape else found


def _text(path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".json":
        content = json.loads(text)
        return content["slopes"] if isinstance(content, dict) and "slopes" in content else content
    rows = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if rows and not any(map(_is_number, _cells(rows[0]))):
        rows = rows[1:]
    return [float(cell) for row in rows for cell in _cells(row)]


def _cells(line: str) -> list[str]:
    return line.replace(",", " ").replace(";", " ").split()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
