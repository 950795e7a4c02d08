"""A scaling law recommended from the growth of t_c: the factor that would keep heads where training left them.

A heuristic: t_c(n) is the multiplier at which half of a row's weight is on one key. Where logits are multiplied by
m(n) = t_c(n)/t_c(L), the operating point 1/t_c keeps its value of the training length L. Nothing says that a model
reads better there; perplexity against the scale (`models.intervention`) says so, or not.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.models.advice_laws import Candidate, FormatEffect, Wanted, candidates, format_effects
from critattn.models.growth import Growth, Prediction, grow, median
from critattn.models.growth_fits import Form
from critattn.scaling.catalogue import entry

POINTS = 33
HEURISTIC = (
    "a heuristic: it keeps the operating point 1/t_c of the typical head; whether the model reads better so, "
    "perplexity against the scale has to say"
)


@dataclass(frozen=True)
class Advice:
    """A recommended scaling law. A heuristic.

    Attributes:
        law: name of the recommended law in the catalogue; "constant" for no change, None where there is no answer.
        parameters: those that differ from the catalogue's defaults.
        factor: its m at the target length; None with `law`.
        wanted: m(target) = t_c(target)/t_c(L) of the typical head; None with `law`.
        interval: of `wanted`, over texts and forms; None for a single text.
        train_length: L.
        target_length: the longest row.
        no_change: 1 lies inside the interval; None without one.
        growing: share of heads whose t_c grows (the interval of d t_c/d log n is above 0); None for a single text.
        falling: share of heads whose t_c falls.
        heads: heads that entered.
        left_out: heads without a finite t_c at every length of any text.
        growth: t_c of the typical head; None where no head has one.
        candidates: laws in the order of preference.
        formats: effects of the recommended factor on number formats.
        reasons: sentences for a person.
        mark: "heuristic".
    """

    law: str | None
    parameters: dict[str, float]
    factor: float | None
    wanted: float | None
    interval: tuple[float, float] | None
    train_length: float
    target_length: float
    no_change: bool | None
    growing: float | None
    falling: float | None
    heads: int
    left_out: int
    growth: Growth | None
    candidates: tuple[Candidate, ...]
    formats: tuple[FormatEffect, ...]
    reasons: tuple[str, ...]
    mark: str = "heuristic"


def typical_curve(critical: ArrayLike) -> np.ndarray:
    """t_c of the typical head, (texts, lengths), from (heads, texts, lengths); NaN where no head has a value.

    The median over heads of log t_c, each head centred on its own mean over texts and lengths, plus the median of
    these means: the growth of heads far from the critical line counts as much as that of others.
    """
    t_c = np.asarray(critical, float)
    logs = np.log(np.where((t_c > 0) & np.isfinite(t_c), t_c, np.nan))
    masked = np.ma.masked_invalid(logs)
    level = np.ma.mean(masked, axis=(1, 2), keepdims=True)
    return np.exp(median(np.ma.filled(masked - level, np.nan)) + float(np.ma.median(level)))


def advise(
    critical: ArrayLike,
    lengths: ArrayLike,
    *,
    train_length: float,
    target_length: float,
    causal: bool = True,
    dim: float = 64,
    level: float = 0.95,
    gaps: ArrayLike | None = None,
    present: str = "",
) -> Advice:
    """Recommend a scaling law from the critical multipliers of the heads of a model; none where no head has them.

    Args:
        critical: (..., texts, lengths) t_c of each head with the logits as they are; leading axes are heads.
        lengths: (lengths,) keys seen by the rows.
        train_length: L, the length whose operating point is to be kept.
        target_length: the longest row wanted, above L.
        causal: rows see as many keys as their place; else every row sees all keys.
        dim: head dimension, for laws that need it.
        level: coverage of intervals.
        gaps: gaps max - logit at the longest measured rows, of any shape, in nats, for the number formats.
        present: name of the law that the logits already have, for the sentences.

    Raises:
        DomainError: for shapes that do not match, fewer than 2 lengths, or lengths that are not 2 <= L < target.
    """
    heads, usable = _heads(critical)
    if not 2 <= train_length < target_length < math.inf:
        raise DomainError.of("train_length, target_length", (train_length, target_length), "2 <= train < target")
    ends, left_out = (float(train_length), float(target_length)), heads - len(usable)
    if not len(usable):
        return _nothing(ends, left_out)
    growth = grow(typical_curve(usable), lengths, quantity="t_c of the typical head", level=level)
    wanted = _wanted(growth, ends)
    laws = candidates(wanted, causal=causal, dim=dim)
    interval = wanted.at_target
    unchanged = None if interval is None else interval[0] <= 1 <= interval[1]
    chosen = next(one for one in laws if one.law == "constant" or not unchanged)
    growing, falling = _shares(usable, lengths, level)
    made = Advice(
        law=chosen.law,
        parameters=chosen.parameters,
        factor=chosen.factor,
        wanted=float(wanted.value[-1]),
        interval=interval,
        train_length=ends[0],
        target_length=ends[1],
        no_change=unchanged,
        growing=growing,
        falling=falling,
        heads=len(usable),
        left_out=left_out,
        growth=growth,
        candidates=laws,
        formats=format_effects(chosen.factor, gaps),
        reasons=(),
    )
    return _explained(made, growth, present)


def _heads(critical: ArrayLike) -> tuple[int, np.ndarray]:
    """Number of heads, and t_c of those that have one at every length of some text, NaN where there is none."""
    t_c = np.asarray(critical, float)
    if t_c.ndim < 3:
        raise DomainError.of("critical", t_c.shape, "shaped (heads, texts, lengths), or with more leading axes")
    heads = t_c.reshape(-1, *t_c.shape[-2:])
    heads = np.where(np.isfinite(heads) & (heads > 0), heads, np.nan)
    return len(heads), heads[np.any(np.all(np.isfinite(heads), axis=2), axis=1)]


def _nothing(ends: tuple[float, float], left_out: int) -> Advice:
    return Advice(
        law=None,
        parameters={},
        factor=None,
        wanted=None,
        interval=None,
        train_length=ends[0],
        target_length=ends[1],
        no_change=None,
        growing=None,
        falling=None,
        heads=0,
        left_out=left_out,
        growth=None,
        candidates=(),
        formats=(),
        reasons=(f"no advice: none of {left_out} heads has a finite t_c at every length of any text",),
    )


def _wanted(growth: Growth, ends: tuple[float, float]) -> Wanted:
    """t_c(n)/t_c(L) at rows from L to the target, with intervals of the ratio itself."""
    rows = np.geomspace(*ends, POINTS)

    def ratio(n: float) -> Prediction:
        def function(form: Form, coefficients: np.ndarray) -> np.ndarray:
            values = form.values(coefficients, [ends[0], n])
            return values[..., 1] / values[..., 0]

        return growth.evaluate(function)

    found = [ratio(float(n)) for n in rows]
    value = np.array([one.value for one in found])
    lows, highs = [one.low for one in found], [one.high for one in found]
    if any(end is None for end in (*lows, *highs)):
        return Wanted(rows, value, None, None)
    return Wanted(rows, value, np.array(lows, float), np.array(highs, float))


def _shares(usable: np.ndarray, lengths: ArrayLike, level: float) -> tuple[float | None, float | None]:
    """Shares of heads whose slope of t_c against log n has an interval above 0, or below."""
    ends = []
    for head in usable:
        fit = grow(head, lengths, forms=("log",), level=level, method="student", resamples=2).best
        if fit is not None and fit.intervals is not None:
            ends.append(fit.intervals[1])
    if not ends:
        return None, None
    slopes = np.array(ends)
    return float(np.mean(slopes[:, 0] > 0)), float(np.mean(slopes[:, 1] < 0))


def _explained(made: Advice, growth: Growth, present: str) -> Advice:
    chosen = next(one for one in made.candidates if one.law == made.law)
    said = [growth.sentence, _factor_words(made), *_choice_words(made, chosen)]
    if made.growing is not None and made.falling is not None:
        chance = (1 - growth.level) / 2
        said.append(
            f"t_c grows in {made.growing:.0%} and falls in {made.falling:.0%} of {made.heads} heads beyond their "
            f"intervals over texts ({chance:.1%} each by chance where none does)"
        )
    said += _limits(made, growth)
    if present:
        said.append(f"the logits already have the law {present}: the factor comes on top of it")
    said += [one.words for one in made.formats] if chosen.factor != 1 else []
    return Advice(**{**vars(made), "reasons": (*said, HEURISTIC)})


def _factor_words(made: Advice) -> str:
    within = "" if made.interval is None else f" [{made.interval[0]:.4g}, {made.interval[1]:.4g}]"
    wanted = f"{made.wanted:.4g}{within}"
    return f"rows of n = {made.target_length:g} need m = {wanted} to keep 1/t_c as it is at n = {made.train_length:g}"


def _choice_words(made: Advice, chosen: Candidate) -> list[str]:
    """What is recommended, whether no change would do, and the next laws."""
    formula = entry(chosen.law).formula
    said = [f"recommended: {chosen.words}, where {formula}" if chosen.law != "constant" else "recommended: no change"]
    if chosen.note:
        said.append(f"{chosen.law}: {chosen.note}")
    others = [one for one in made.candidates if one.law not in (chosen.law, "constant")]
    if made.no_change:
        said.append("no change (m = 1) lies inside the interval")
        as_good = [one.words for one in others if one.within]
        if as_good:
            said.append(f"these texts do not tell it from {'; '.join(as_good[:3])}")
    elif others:
        outside = made.no_change is False
        said += ["no change (m = 1) lies outside the interval"] if outside else []
        said += [f"all laws miss the interval somewhere; {chosen.law} is the closest"] if chosen.within is False else []
        said.append(f"next: {'; '.join(one.words for one in others[:2])}")
    return said


def _limits(made: Advice, growth: Growth) -> list[str]:
    """What the answer leans on besides the data."""
    said = [growth.reason] if growth.reason else []
    for name, length in (("training", made.train_length), ("target", made.target_length)):
        if length > growth.lengths[-1]:
            beyond = length / growth.lengths[-1]
            said.append(
                f"the {name} length is {beyond:.3g} times the longest one measured: forms are extrapolated there"
            )
        elif length < growth.lengths[0]:
            said.append(f"the {name} length is below the shortest one measured: forms are extrapolated there")
    if made.left_out:
        said.append(f"{made.left_out} heads without a finite t_c at every length of any text are left out")
    return said
