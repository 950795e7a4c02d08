"""Laws in numbers: factor, beta and gamma at given rows, and conformance vectors with the rows that tell laws apart."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from critattn.scaling.catalogue import entry as entry_of
from critattn.scaling.entries import Entry
from critattn.scaling.lengths import Lengths, base_scale

COMMON = (0, 1, 2, 3, 9, 99, 511, 1023, 1024, 1025, 2047, 2048, 4095, 4096, 8190, 8191, 8192)
LONG = (16_383, 16_384, 32_766, 32_767, 65_535, 131_071, 262_143, 999_999)
# slot, place in the document, keys seen, keys in all: packed twice, windowed, and the first rows of a long sequence
SPECIAL = ((12_287, 4095, 4096, 16_384), (20_000, 10_000, 10_001, 32_768), (20_000, 20_000, 4096, 32_768))
PREFILL = ((99, 99, 100, 8192), (999, 999, 1000, 8192))
DIFFERENT = 1e-12


class Values(NamedTuple):
    """A law at some rows, (rows,) float64 each; NaN where not defined.

    Attributes:
        factor: m.
        beta: m x base.
        gamma: beta |q||k| / ln n with n the keys that the row sees; NaN at n = 1.
    """

    factor: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray


def evaluate(
    law: Entry, lengths: Lengths, *, parameters: Mapping[str, Any] | None = None, qk_norm: float | None = None
) -> Values:
    """Factor, inverse temperature and coefficient of log n of a law.

    Args:
        law: of the catalogue.
        lengths: float64, on the host.
        parameters: parameters to change.
        qk_norm: |q||k|; by default d, or 1 for laws on L2-normalised q and k.

    Raises:
        SpecError: for a law that is no factor per row, or an unknown parameter.
        DomainError: for a parameter out of range.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        factor = np.array(law.factor(lengths, parameters), dtype=np.float64)
        counted = law.counting
        if law.largest_n is not None and counted is not None:
            factor[lengths.count(counted) > law.largest_n] = np.nan
        beta = factor * base_scale(law.base, lengths.dim)
        norm = law.default_qk_norm(lengths.dim) if qk_norm is None else qk_norm
        log_n = np.log(lengths.keys_seen)
        gamma = beta * norm / np.where(log_n > 0, log_n, np.nan)
    return Values(factor, beta, gamma)


def conformance_rows(law: Entry, dim: float = 64.0) -> Lengths:
    """The rows of a conformance vector: plain, at the law's own steps, packed, windowed, and of a long sequence."""
    top = np.inf if law.largest_n is None else law.largest_n
    plain = sorted(p for p in {*COMMON, *LONG, *law.rows} if p < top)
    slots, own, seen, total = (
        np.asarray([*([p + add for p in plain]), *extra], dtype=np.float64)
        for add, extra in zip((0, 0, 1, 1), zip(*SPECIAL, *PREFILL, strict=True), strict=True)
    )
    return Lengths(slots, own, seen, total, dim)


def look_alikes(law: Entry, lengths: Lengths, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """For each law that is easily taken for this one: its factor, and the positions where the two differ."""
    own = evaluate(law, lengths, parameters=parameters).factor
    found = []
    for name, alike in law.look_alikes.items():
        other = evaluate(entry_of(name), lengths, parameters=alike).factor
        apart = ~np.isclose(own, other, rtol=DIFFERENT, atol=DIFFERENT)
        where = [index for index in range(own.size) if apart[index]]
        found.append(
            {
                "law": name,
                "parameters": {**entry_of(name).parameters, **alike},
                "factor": other.tolist(),
                "differs_at": lengths.slots[where].tolist(),
                "differing_rows": where,
            }
        )
    return found
