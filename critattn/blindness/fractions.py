"""Which share of the entries of a row or of a matrix is invisible."""

from typing import Literal

import numpy as np

from critattn.biases import DistanceBias
from critattn.blindness.distances import ROUNDING
from critattn.errors import DomainError, SpecError

Over = Literal["row", "matrix", "square"]
OVER = ("row", "matrix", "square")
LONGEST = 1 << 22


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


def normalised_fraction(
    bias: DistanceBias,
    threshold: float,
    length: int,
    *,
    over: Over = "matrix",
    logit_gap: float = 0.0,
    scale: float = 1.0,
) -> float:
    """Mean over the heads of the share of weights that are zero after division, each row by its own sum.

    A row is blind from the least d with `e - s b(d) - ln Z_i <= tau`. In the causal matrix row i has i + 1 keys, so Z_i
    grows along the rows and no one distance holds for all of them; in the `square` of an encoder both sides enter Z_i
    [derived, docs/theory.md (15.4)].

    Args:
        bias: that falls with the distance, or stays.
        threshold: tau < 0, in nats.
        length: N.
        over: row (the last one), matrix or square.
        logit_gap: e, what the key's logit has above that of the query's own, in nats.
        scale: s, what multiplies the bias.

    Returns:
        The share, in [0, 1].

    Raises:
        DomainError: for a length out of range, or a bias that is not monotone.
        SpecError: for another `over`.
    """
    if over not in OVER:
        raise SpecError(f"over {over!r} is unknown; known: {', '.join(OVER)}")
    if not 1 <= length <= LONGEST:
        raise DomainError.of("length", length, f"from 1 to {LONGEST}")
    distances = np.arange(length, dtype=np.float64)
    shares = []
    for one in bias.heads():
        with np.errstate(over="ignore"):
            amounts = scale * np.broadcast_to(np.asarray(one.amount(distances), dtype=np.float64), distances.shape)
        if not np.all(amounts[1:] >= amounts[:-1]):
            raise DomainError(f"{type(one).__name__}: is not monotone; allowed: a bias that falls with the distance")
        shares.append(_share_of_weights(amounts, logit_gap - threshold, over))
    return float(np.mean(shares))


def _share_of_weights(amounts: np.ndarray, needed: float, over: Over) -> float:
    length = len(amounts)
    sums = np.cumsum(np.exp(-amounts))
    rows = slice(length - 1, None) if over == "row" else slice(None)
    # of a square row the key at distance 0 counts on neither side a second time
    totals = sums + sums[::-1] - 1 if over == "square" else sums
    # rounding is relative to what is subtracted: N equal keys are blind at ln N = |tau| itself
    first = np.searchsorted(amounts, np.maximum(0.0, needed * (1 - ROUNDING) - np.log(totals[rows])))
    keys = np.arange(1, length + 1)
    before = np.maximum(0, keys[rows] - first)
    if over != "square":
        return float(before.sum() / keys[rows].sum())
    after = np.maximum(0, keys[::-1] - np.maximum(first, 1))
    return float((before + after).sum() / length**2)
