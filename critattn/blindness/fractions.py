"""Which share of the entries of a row or of a matrix is invisible."""

from typing import Literal

import numpy as np

from critattn.errors import DomainError, SpecError

Over = Literal["row", "matrix", "square"]
OVER = ("row", "matrix", "square")


def blind_fraction(distances: np.ndarray | float, length: int, *, over: Over = "row", continuum: bool = False) -> float:
    """Mean over the heads of the share of entries at distance delta_h or more [docs/theory.md (15.9)-(15.11)].

    `row`: the last query of N keys, `(N - delta)/N`. `matrix`: the causal triangle with its diagonal,
    `(N - delta)(N - delta + 1)/(N (N + 1))`. `square`: the full matrix of an encoder, `(N - delta)(N - delta + 1)/N^2`.
    The two differ: at delta = 124 and N = 2048 the row has .939 and the triangle .883.

    Args:
        distances: blindness distances, (heads,), infinity where nothing is blind.
        length: N, at least 1.
        over: row, matrix or square.
        continuum: `1 - delta/N` or its square instead, the limit of large N.

    Returns:
        The share, in [0, 1].

    Raises:
        DomainError: for a length below 1 or a negative distance.
        SpecError: for another `over`.
    """
    if over not in OVER:
        raise SpecError(f"over {over!r} is unknown; known: {', '.join(OVER)}")
    if not length >= 1:
        raise DomainError.of("length", length, "at least 1")
    found = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    if np.isnan(found).any() or (found < 0).any():
        raise DomainError(f"distances = {found.tolist()[:8]}: must be at least 0")
    hidden = np.maximum(length - np.minimum(found, length), 0.0)
    if continuum:
        share = (hidden / length) ** (1 if over == "row" else 2)
    elif over == "row":
        share = hidden / length
    elif over == "matrix":
        share = (hidden / length) * ((hidden + 1) / (length + 1.0))
    else:
        # delta = 0 counts the diagonal once, not on both sides
        share = np.where(found == 0, 1.0, (hidden / length) * ((hidden + 1) / length))
    return float(np.mean(share))


def counted_fraction(blind: np.ndarray, *, over: Over = "row") -> float:
    """The share of a row or matrix whose distances d = 0..N-1 are blind as marked, for a bias that is not monotone.

    Args:
        blind: (N,) or (heads, N) booleans by distance.
        over: row, matrix or square, as in `blind_fraction`.

    Returns:
        The share, in [0, 1].

    Raises:
        SpecError: for another `over`.
    """
    if over not in OVER:
        raise SpecError(f"over {over!r} is unknown; known: {', '.join(OVER)}")
    marks = np.atleast_2d(np.asarray(blind, dtype=bool))
    size = marks.shape[-1]
    entries = np.ones(size) if over == "row" else size - np.arange(size, dtype=np.float64)
    if over == "square":
        entries[1:] *= 2
    return float(np.mean(marks @ entries / entries.sum()))
