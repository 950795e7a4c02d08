"""Laws of the catalogue that an advice may name, held against a wanted factor, and what a factor does to formats."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from critattn.formats.stated import get
from critattn.scaling.catalogue import entry
from critattn.scaling.fits import fitted
from critattn.scaling.lengths import Lengths

ROUNDING = 1e-9
FORMATS = ("bf16", "fp16", "fp32")
CONSTANT = "a constant: rows that training has seen change too"
UNCLAMPED = "below the training length it is under 1: rows that training has seen change too"
SEQUENCE = "one factor for all rows, by the length of the sequence"


@dataclass(frozen=True)
class Candidate:
    """A law of the catalogue held against the factor that keeps the operating point.

    Attributes:
        law: its name in the catalogue.
        parameters: those that differ from the catalogue's defaults.
        fitted: how many of them come from the fit; the others follow from the training and the target length.
        factor: m at the target length.
        mismatch: root mean square of log(m/m_wanted) over rows from the training to the target length, even in log n.
        within: m lies inside the interval at every one of these rows; None without an interval.
        note: what has to be known of it; "" where nothing has.
    """

    law: str
    parameters: dict[str, float]
    fitted: int
    factor: float
    mismatch: float
    within: bool | None
    note: str = ""

    @property
    def words(self) -> str:
        """The law with its parameters and its factor."""
        given = ", ".join(f"{name} = {value:.6g}" for name, value in self.parameters.items())
        return f"{self.law}{f' ({given})' if given else ''}, m = {self.factor:.4g}"


class Wanted(NamedTuple):
    """The factor that keeps the operating point at rows from the training to the target length.

    Attributes:
        rows: (m,) lengths; the first is the training length, the last the target.
        value: (m,) factors.
        low: (m,) lower ends of their intervals; None for a single text.
        high: (m,) upper ends.
    """

    rows: np.ndarray
    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None

    @property
    def at_target(self) -> tuple[float, float] | None:
        """The interval at the target length; None for a single text."""
        return None if self.low is None or self.high is None else (float(self.low[-1]), float(self.high[-1]))


class _Offer(NamedTuple):
    law: str
    parameters: dict[str, float]
    fitted: int = 0
    note: str = ""


def candidates(wanted: Wanted, *, causal: bool, dim: float) -> tuple[Candidate, ...]:
    """Laws in the order of preference: inside the interval everywhere, with few fitted parameters, then by mismatch.

    Laws outside the interval, and all where there is none, go by mismatch in steps of 1 %, then by parameters.

    Args:
        wanted: the factor to be met.
        causal: rows see as many keys as their place; else every row sees all keys.
        dim: head dimension.
    """
    lengths = Lengths.plain(wanted.rows - 1, dim, keys_seen=wanted.rows, total_keys=wanted.rows)
    offers = _causal(wanted, lengths) if causal else _bidirectional(wanted)
    held = [_held(one, wanted, lengths) for one in offers]

    def key(one: Candidate) -> tuple[float, ...]:
        apart = round(one.mismatch, 9)
        return (0, one.fitted, apart) if one.within else (1, round(apart, 2), one.fitted, apart)

    return tuple(sorted(held, key=key))


def _slope(x: np.ndarray, wanted: Wanted) -> float:
    """Least squares of m = 1 + a x."""
    return float(x @ (wanted.value - 1) / (x @ x)) if np.any(x) else 0.0


def _causal(wanted: Wanted, lengths: Lengths) -> Iterator[_Offer]:
    start, end = float(wanted.rows[0]), float(wanted.rows[-1])
    yield _Offer("constant", {})
    yield _Offer("rerope", {"reference": start})
    yield _Offer("ssmax", {"s": 1 / math.log(start)}, note=UNCLAMPED)
    yield _Offer("uniception-sqrt", {"gain": 1.0, "reference": start}, note=f"{SEQUENCE}; {UNCLAMPED}")
    a = _slope(np.log(wanted.rows / start), wanted)
    yield _Offer("inkling", {"a": a, "reference": start}, 1, "its source scales the relative-position bias too")
    steps = np.log1p(np.floor(wanted.rows / start))
    yield _Offer("llama-4", {"a": _slope(steps, wanted), "interval": start}, 1, "a step, also at the training length")
    for found in fitted(entry("beam"), lengths, wanted.value):
        yield _Offer("beam", found, 2, "no clamp: above 1 at rows that training has seen")
    yield from _stretched(start, end)


def _bidirectional(wanted: Wanted) -> Iterator[_Offer]:
    start, end = float(wanted.rows[0]), float(wanted.rows[-1])
    yield _Offer("constant", {})
    yield _Offer("clex", {"reference": start}, note=UNCLAMPED)
    yield _Offer("ssmax-tabicl", {"s": 1 / math.log(start)}, note=UNCLAMPED)
    yield _Offer("uniception-sqrt", {"gain": 1.0, "reference": start}, note=UNCLAMPED)
    a = _slope(np.log(wanted.rows / start), wanted)
    yield _Offer("ssmax", {"s": a, "b": 1 - a * math.log(start)}, 1, UNCLAMPED if a > 0 else "")
    yield from _stretched(start, end)


def _stretched(start: float, end: float) -> Iterator[_Offer]:
    yield _Offer("yarn", {"stretch": end / start}, note=f"{CONSTANT}; it acts on rotated channels only")
    yield _Offer("longrope", {"stretch": end / start, "original_length": start}, note=CONSTANT)


def _held(offer: _Offer, wanted: Wanted, lengths: Lengths) -> Candidate:
    m = np.asarray(entry(offer.law).factor(lengths, offer.parameters), float)
    apart = float(np.sqrt(np.mean(np.log(m / wanted.value) ** 2)))
    within = None
    if wanted.low is not None and wanted.high is not None:
        slack = ROUNDING * wanted.value
        within = bool(np.all((m >= wanted.low - slack) & (m <= wanted.high + slack)))
    return Candidate(offer.law, offer.parameters, offer.fitted, float(m[-1]), apart, within, offer.note)


@dataclass(frozen=True)
class FormatEffect:
    """What a factor on the logits does to small weights in a number format.

    Attributes:
        format: its name.
        gap: nats below the largest logit from which on a weight rounds to zero.
        gap_after: the same in terms of the present logits, once they are multiplied by the factor.
        lost: share of the gaps given that reach `gap`; None where none were given.
        lost_after: share that reach `gap_after`.
    """

    format: str
    gap: float
    gap_after: float
    lost: float | None
    lost_after: float | None

    @property
    def words(self) -> str:
        """The effect as a sentence."""
        now = f"in {self.format} a weight is zero from {self.gap:.4g} nats below the largest logit on"
        moved = f"with the factor from {self.gap_after:.4g} of the present nats on"
        if self.lost is None or self.lost_after is None:
            return f"{now}, {moved}"
        return f"{now} ({self.lost:.2%} of the keys), {moved} ({self.lost_after:.2%})"


def format_effects(factor: float, gaps: ArrayLike | None = None) -> tuple[FormatEffect, ...]:
    """Underflow of exp(logit - max) in bf16, fp16 and fp32, before and after a factor on the logits.

    Args:
        factor: m, positive.
        gaps: gaps max - logit of present rows, of any shape, in nats; NaN and infinite ones (masked keys) are ignored.
    """
    given = None if gaps is None else np.asarray(gaps, float)
    known = None if given is None else given[np.isfinite(given)]
    effects = []
    for name in FORMATS:
        gap = -get(name).thresholds().zero
        shares = (None, None)
        if known is not None and known.size:
            shares = (float(np.mean(known >= gap)), float(np.mean(known * factor >= gap)))
        effects.append(FormatEffect(name, gap, gap / factor, *shares))
    return tuple(effects)
