"""Perplexity against the scale of the logits and the length, beside the share of heads beyond their critical point."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from critattn.criticality import student_interval
from critattn.errors import DomainError, SpecError
from critattn.protocols import Estimate
from critattn.scaling.catalogue import entry

FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)
Losses = list[np.ndarray]
Means = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Interval:
    """A mean over texts.

    Attributes:
        value: the mean.
        low: lower end of the Student interval over texts; None for a single text.
        high: upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ScalePoint:
    """Loss of a model whose logits are multiplied by a factor, in nats a token.

    Attributes:
        factor: t.
        length: n, the tokens of a window.
        losses: (texts,) mean loss over all predicted tokens of the window.
        loss: mean over texts.
        tail: mean over texts and over the second half of the window, whose rows see n/2 to n keys.
        difference: mean over texts of the loss above that of the same text at t = 1, which leaves out what the texts
            differ in.
        perplexity: exp of `loss`.
        beyond: share of heads whose critical multiplier t_c is below t; None where no t_c were given.
    """

    factor: float
    length: int
    losses: np.ndarray
    loss: Interval
    tail: Interval
    difference: Interval
    perplexity: Interval
    beyond: float | None


@dataclass(frozen=True)
class BestScale:
    """The factor of least loss at one length.

    Attributes:
        length: n.
        factor: from a parabola in log t through the lowest point and its neighbours; None where the lowest is an end.
        low: lower end of its interval over texts (jackknife); None for a single text or where a text has no minimum.
        high: upper end.
        gain: loss at t = 1 minus the least mean loss measured, in nats, with its interval; biased upward, since the
            factor was chosen on the same texts.
        half: median of t_c over the heads, at which half of them cross; None where no t_c were given.
        reason: why something is missing; "" where nothing is.
    """

    length: int
    factor: float | None
    low: float | None
    high: float | None
    gain: Interval
    half: float | None
    reason: str = ""


@dataclass(frozen=True)
class ScaleSweep:
    """Losses over factors and lengths.

    Attributes:
        texts: names of the texts.
        law: catalogued law applied besides the factor; None for none.
        parameters: its parameters that differ from the defaults.
        points: one a factor and length, factors ascending within a length.
        best: one a length.
    """

    texts: tuple[str, ...]
    law: str | None
    parameters: dict[str, Any]
    points: tuple[ScalePoint, ...]
    best: tuple[BestScale, ...]

    def at(self, factor: float, length: int) -> ScalePoint:
        """The point of that factor and length.

        Raises:
            DomainError: where it was not measured.
        """
        for one in self.points:
            if one.length == length and math.isclose(one.factor, factor):
                return one
        raise DomainError.of("factor, length", (factor, length), "one of those measured")


def sweep_scale(
    model: Any,
    windows: Mapping[str, ArrayLike],
    *,
    factors: Sequence[float] = FACTORS,
    lengths: Sequence[int] | None = None,
    law: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    critical: Mapping[int, ArrayLike] | None = None,
    measure: Callable[..., Losses] | None = None,
    level: float = 0.95,
) -> ScaleSweep:
    """Loss of a causal model on windows of text, with the logits of every head multiplied by t.

    t = 1 is always among the factors. Windows start at the first token given. The first n tokens of one window are
    the window of length n, since no row sees later ones: a factor costs one run over the longest windows, except where
    the law or the rotation depends on the length of the whole sequence.

    Args:
        model: a causal model of `models.forward`.
        windows: token numbers (n,) of each text, at least as many as the greatest length.
        factors: positive t.
        lengths: tokens of a window, at least 4; by default the shortest text's.
        law: a law of the catalogue whose factor m multiplies the scores besides t; its soft cap is left out.
        parameters: parameters of the law to change.
        critical: t_c of the heads by length, any shape, at t = 1 without the law; NaN and infinite values count as
            never crossed.
        measure: maps (model, sequences, transforms=, logit_factor=) to losses (n-1,) a sequence, in nats; by default
            `models.forward.run` and `models.loss.losses`.
        level: coverage of the intervals.

    Raises:
        DomainError: for no text, factors that are not positive, lengths below 4 or beyond a text, a model that is not
            causal, or losses that are not one for each predicted token.
        SpecError: for an unknown law or parameter, or a law that is no factor on q.k/sqrt(d).
    """
    sequences = [np.asarray(one) for one in windows.values()]
    sizes = _sizes(sequences, lengths)
    scales = checked_factors(factors)
    if not getattr(model.config, "causal", True):
        raise DomainError("model: is not causal, and has no loss of the next token; allowed: decoders")
    made = {} if parameters is None else dict(parameters)
    transforms, per_length = law_transforms(model, law, made)
    runs = {t: partial(measure or measured, model, transforms=transforms, logit_factor=t) for t in scales}
    tables = {t: _means(run, sequences, sizes, per_length=per_length) for t, run in runs.items()}
    return summary(tuple(windows), sizes, tables, law=law, parameters=made, critical=critical, level=level)


def summary(
    names: tuple[str, ...],
    sizes: Sequence[int],
    tables: Mapping[float, Sequence[Means]],
    *,
    law: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    critical: Mapping[int, ArrayLike] | None = None,
    level: float = 0.95,
) -> ScaleSweep:
    """Points and best factors of mean losses.

    Args:
        names: of the texts.
        sizes: lengths n, ascending.
        tables: by factor, of which 1 is one, and length: mean losses (texts,) of the windows and of their second
            halves, in nats a token.
        law: the law that was applied besides the factor.
        parameters: its parameters that differ from the defaults.
        critical: t_c of the heads by length.
        level: coverage of the intervals.
    """
    scales = sorted(tables)
    points = tuple(
        _point(tables, t, index, length=n, critical=critical, level=level)
        for index, n in enumerate(sizes)
        for t in scales
    )
    best = tuple(_best([one for one in points if one.length == n], critical, level) for n in sizes)
    return ScaleSweep(names, law, dict(parameters or {}), points, best)


def measured(model: Any, sequences: Losses, *, transforms: tuple[Any, ...] = (), logit_factor: float = 1.0) -> Losses:
    """Losses of the next token, (n-1,) nats a sequence, by the forward pass of `models.forward`."""
    from critattn.models.forward import run
    from critattn.models.loss import losses

    finals = run(model, sequences, transforms=transforms, logit_factor=logit_factor)
    return [np.asarray(one) for one in losses(model, finals, sequences)]


def _sizes(sequences: Losses, lengths: Sequence[int] | None) -> list[int]:
    if not sequences or any(one.ndim != 1 for one in sequences):
        raise DomainError.of("windows", [one.shape for one in sequences], "at least one text, as a vector of tokens")
    shortest = min(one.size for one in sequences)
    sizes = sorted({int(n) for n in (lengths or (shortest,))})
    for n in sizes:
        if not 4 <= n <= shortest:
            raise DomainError.of("length", n, f"from 4 to the {shortest} tokens of the shortest text")
    return sizes


def checked_factors(factors: Sequence[float]) -> list[float]:
    """Different factors in ascending order, 1 among them.

    Raises:
        DomainError: for one that is not positive and finite.
    """
    for t in factors:
        if not 0 < t < math.inf:
            raise DomainError.of("factor", t, "positive and finite")
    return sorted({1.0, *(float(t) for t in factors)})


def law_transforms(model: Any, law: str | None, parameters: Mapping[str, Any]) -> tuple[tuple[Any, ...], bool]:
    """The transforms of a law without its base scale, and whether logits depend on the sequence's length.

    Args:
        model: whose rotation may depend on the length as well.
        law: of the catalogue; None for none.
        parameters: of the law, to change.

    Raises:
        SpecError: for an unknown law or parameter, or a law that is no factor on q.k/sqrt(d).
    """
    dynamic = getattr(getattr(model.config, "rope", None), "kind", "") == "dynamic"
    if law is None:
        if parameters:
            raise SpecError(f"parameters {', '.join(parameters)}: were given without a law")
        return (), dynamic
    named = entry(law)
    made: Any = named.made(dict(parameters))
    if named.base != "1/sqrt(d)":
        raise SpecError(f"scaling law {law!r} has the base scale {named.base}; allowed: laws on q.k/sqrt(d)")
    counted = named.counting
    return (replace(made, base="1"),), dynamic or (counted is not None and counted.kind == "sequence")


def _means(run: Callable[[Losses], Losses], sequences: Losses, sizes: list[int], *, per_length: bool) -> list[Means]:
    """Mean losses of windows of each length and of their second halves."""
    longest = [] if per_length else _losses(run, sequences, sizes[-1])
    made = []
    for n in sizes:
        rows = [one[: n - 1] for one in longest] or _losses(run, sequences, n)
        made.append((np.array([one.mean() for one in rows]), np.array([one[n // 2 - 1 :].mean() for one in rows])))
    return made


def _losses(run: Callable[[Losses], Losses], sequences: Losses, tokens: int) -> Losses:
    found = [np.asarray(one, float) for one in run([one[:tokens] for one in sequences])]
    shapes = [one.shape for one in found]
    if shapes != [(tokens - 1,)] * len(sequences):
        raise DomainError.of("losses", shapes, f"{len(sequences)} vectors of {tokens - 1} tokens")
    return found


def interval_over_texts(values: np.ndarray, level: float) -> Interval:
    """Mean of values (texts,) with the Student interval over texts; without one for a single text."""
    if values.size < 2:
        return Interval(float(values.mean()))
    estimate = Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)))
    return Interval(estimate.value, *student_interval(estimate, values.size - 1, level=level))


def _point(
    tables: Mapping[float, Sequence[Means]],
    t: float,
    index: int,
    *,
    length: int,
    critical: Mapping[int, ArrayLike] | None,
    level: float,
) -> ScalePoint:
    whole, tail = tables[t][index]
    loss = interval_over_texts(whole, level)
    ends = (None if one is None else _exp(one) for one in (loss.low, loss.high))
    known = None if critical is None or length not in critical else np.asarray(critical[length], float)
    return ScalePoint(
        factor=t,
        length=length,
        losses=whole,
        loss=loss,
        tail=interval_over_texts(tail, level),
        difference=interval_over_texts(whole - tables[1.0][index][0], level),
        perplexity=Interval(_exp(loss.value), *ends),
        beyond=None if known is None else float(np.mean(known < t)),
    )


def _exp(nats: float) -> float:
    """Exp without an error beyond the largest float64, which a few unlike texts reach."""
    return math.exp(nats) if nats < math.log(sys.float_info.max) else math.inf


def _vertex(log_t: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Log t of least loss for each row of losses (k, factors); NaN where the lowest point is an end."""
    found = np.full(len(losses), np.nan)
    for row, values in enumerate(losses):
        low = int(np.argmin(values))
        if 0 < low < log_t.size - 1:
            x, y = log_t[low - 1 : low + 2], values[low - 1 : low + 2]
            a, b, _ = np.polyfit(x - x[1], y - y[1], 2)
            found[row] = x[1] - b / (2 * a) if a > 0 else x[1]
    return found


def _best(points: list[ScalePoint], critical: Mapping[int, ArrayLike] | None, level: float) -> BestScale:
    length, log_t = points[0].length, np.log([one.factor for one in points])
    table = np.stack([one.losses for one in points], axis=1)
    lowest = int(np.argmin(table.mean(axis=0)))
    reference = int(np.argmin(np.abs(log_t)))
    gain = interval_over_texts(table[:, reference] - table[:, lowest], level)
    half = None
    if critical is not None and length in critical:
        known = np.asarray(critical[length], float)
        half = float(np.median(np.where(np.isnan(known), np.inf, known)))
    centre = float(_vertex(log_t, table.mean(axis=0, keepdims=True))[0])
    if math.isnan(centre):
        reason = f"the least loss is at the end of the factors, t = {points[lowest].factor:g}"
        return BestScale(length, None, None, None, gain, half, reason)
    texts = len(table)
    if texts < 2:
        return BestScale(length, math.exp(centre), None, None, gain, half, "one text: no interval")
    left_out = _vertex(log_t, (table.sum(axis=0) - table) / (texts - 1))
    if np.any(np.isnan(left_out)):
        reason = "no interval: without one of the texts the least loss is at the end of the factors"
        return BestScale(length, math.exp(centre), None, None, gain, half, reason)
    error = float(np.sqrt((texts - 1) / texts * np.sum((left_out - left_out.mean()) ** 2)))
    low, high = student_interval(Estimate(centre, error), texts - 1, level=level)
    return BestScale(length, math.exp(centre), _exp(low), _exp(high), gain, half)
