"""Losses of a causal model with its logits multiplied by factors, and where its heads then stand, into a store."""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from critattn.datasets import Axis, Column, Layout, Unit
from critattn.errors import SpecError
from critattn.models import forward, texts
from critattn.models.forward import Model
from critattn.models.inspection import Plan
from critattn.models.intervention import FACTORS, ScaleSweep, checked_factors, law_transforms, summary
from critattn.models.kept import Kept, Progress, Values, identity_of
from critattn.models.loss import losses
from critattn.models.probes import ROWS, row_statistics
from critattn.models.readings import median
from critattn.models.texts import Text
from critattn.models.tokenise import Tokeniser
from critattn.models.views import LayerView

OBSERVABLES = {
    "loss": ("nats", "mean loss over the window"),
    "tail": ("nats", "mean loss over its second half"),
    "beyond": ("", "share of heads with more than half of the typical row's weight on one key"),
    "multiplier": ("", "factor on the model's own logits at which half of the heads have that"),
}


@dataclass(frozen=True)
class ScalePlan:
    """What is measured of a model under factors.

    Attributes:
        lengths: tokens n of a window, ascending.
        windows: windows of each text.
        rows: query rows at the end of each window from which t_c is read.
        factors: positive t on the logits of every head; 1 is always among them.
        law: a law of the catalogue whose factor multiplies the scores besides; None for none.
        parameters: of the law, to change.
    """

    lengths: tuple[int, ...] = (128, 512)
    windows: int = 1
    rows: int = ROWS
    factors: tuple[float, ...] = FACTORS
    law: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def checked(self, model: Model) -> "ScalePlan":
        """The plan with its factors in ascending order.

        Raises:
            SpecError: for an encoder, lengths that the model does not have, counts below 1, or a law that cannot be
                applied.
            DomainError: for factors that are not positive and finite.
        """
        if not model.config.causal:
            raise SpecError(f"{model.name}: is an encoder, without a loss of the next token; allowed: decoders")
        if model.normaliser != "softmax":
            raise SpecError(
                f"{model.name}: makes weights by {model.normaliser}, where no factor on the logits decides how local "
                "they are; allowed: softmax"
            )
        known = Plan(tuple(self.lengths), self.windows, self.rows).checked(model)
        law_transforms(model, self.law, self.parameters)
        return replace(self, lengths=known.lengths, rows=known.rows, factors=tuple(checked_factors(self.factors)))


def run_scale(
    model: Model,
    encoder: Tokeniser,
    chosen: Sequence[Text],
    plan: ScalePlan,
    *,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Losses and heads of a model whose logits are multiplied by factors, or what is missing of it in a store.

    All lengths of a window begin with the same tokens. In each run the t_c of a head is read at the last rows of a
    length, from the logits as they are, factor included: the hidden states are those of the changed model. `beyond` is
    the share of heads with t_c < 1 there, `multiplier` the median over heads of t_c times the factor; at factor 1 it
    is where half of the heads would cross if the hidden states stayed as they are.

    Args:
        model: a causal model.
        encoder: its tokeniser.
        chosen: texts.
        plan: lengths, windows, factors, law.
        store: folder of the results; None keeps them in memory.
        progress: called with (units done, units in all); a unit is one text under one factor.

    Returns:
        An `xarray.Dataset` over factor, text, window and n: `loss` and `tail` in nats a token, `beyond`, `multiplier`.

    Raises:
        SpecError: for a plan that the model does not allow, or a text too short.
        DomainError: for factors that are not positive.
        StoreError: where the store cannot be written or holds something else.
        KeyboardInterrupt: after Ctrl-C, once the factor in hand is kept.
    """
    plan = plan.checked(model)
    kept = Kept.open(_layout(plan, chosen), identity_of("intervention", model, plan, chosen), store)
    windows = [_windows(encoder, text, plan) for text in chosen] if kept.missing() else []

    def read(group: Sequence[Unit]) -> list[tuple[Unit, Values, float]]:
        return _read(model, plan, [windows[unit[1]] for unit in group], group)

    kept.fill(_by_factor, read, progress)
    return kept.read()


def scale_sweep(data: Any) -> ScaleSweep:
    """Points and best factors, with intervals over texts, of a dataset of `run_scale`; windows of a text are averaged.

    `beyond` of a point is the measured share; `half` of a length is the median t_c at factor 1.
    """
    spec = json.loads(data.attrs["spec"])
    sizes = [int(n) for n in data["n"].values]
    means = data.mean("window").transpose("factor", "n", "text")
    tables = {
        float(t): [
            (means["loss"].values[place, index], means["tail"].values[place, index]) for index in range(len(sizes))
        ]
        for place, t in enumerate(data["factor"].values)
    }
    names = tuple(str(name) for name in data["text"].values)
    found = summary(names, sizes, tables, law=spec["law"], parameters=spec["parameters"])
    beyond = means["beyond"].mean("text")
    half = data["multiplier"].sel(factor=1.0).median(["text", "window"])
    points = tuple(replace(one, beyond=float(beyond.sel(factor=one.factor, n=one.length))) for one in found.points)
    best = tuple(replace(one, half=float(half.sel(n=one.length))) for one in found.best)
    return replace(found, points=points, best=best)


def _layout(plan: ScalePlan, chosen: Sequence[Text]) -> Layout:
    names = tuple(text.name for text in chosen)
    unit = (
        Axis("factor", plan.factors, "factor t on the logits"),
        Axis("text", tuple(float(code) for code in range(len(names))), "text", names=names),
    )
    block = (
        Axis("window", tuple(float(code) for code in range(plan.windows)), "window of the text"),
        Axis("n", tuple(float(n) for n in plan.lengths), "tokens n"),
    )
    return Layout(unit, block, tuple(Column(name, *words) for name, words in OBSERVABLES.items()))


def _windows(encoder: Tokeniser, text: Text, plan: ScalePlan) -> list[np.ndarray]:
    room = plan.lengths[-1] - len(encoder.before)
    found = texts.excerpts(encoder.encode, text, room, plan.windows)
    return [np.concatenate([encoder.before, window]).astype(np.int32) for window in found]


def _by_factor(units: Iterable[Unit]) -> list[Sequence[Unit]]:
    """Texts under one factor share a pass over the weights."""
    groups: dict[int, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit[0], []).append(unit)
    return [*groups.values()]


def _read(
    model: Model, plan: ScalePlan, windows: Sequence[list[np.ndarray]], group: Sequence[Unit]
) -> list[tuple[Unit, Values, float]]:
    """Of each unit the block (windows, lengths, observables, statistics) and its share of the time."""
    begun, factor = time.perf_counter(), plan.factors[group[0][0]]
    flat = [window for one in windows for window in one]
    _, per_length = law_transforms(model, plan.law, plan.parameters)
    if per_length:
        made = [_measured(model, plan, [one[:n] for one in flat], (n,), factor) for n in plan.lengths]
        found = np.concatenate(made, axis=1)
    else:
        found = _measured(model, plan, flat, plan.lengths, factor)
    blocks = found.reshape(len(group), plan.windows, len(plan.lengths), len(OBSERVABLES))
    values = np.stack([blocks, np.full(blocks.shape, np.nan)], axis=-1)
    seconds = (time.perf_counter() - begun) / len(group)
    return [(unit, one, seconds) for unit, one in zip(group, values, strict=True)]


def _measured(
    model: Model, plan: ScalePlan, sequences: list[np.ndarray], lengths: tuple[int, ...], factor: float
) -> Values:
    """(sequences, lengths, observables) of one run over sequences of the longest length."""
    config, (transforms, _) = model.config, law_transforms(model, plan.law, plan.parameters)
    critical = np.full((len(sequences), len(lengths), config.layers, config.heads), np.nan)

    def visit(number: int, view: LayerView) -> None:
        for place, n in enumerate(lengths):
            critical[number, place, view.index] = _multipliers(view, n, plan.rows)

    finals = forward.run(model, sequences, visit=visit, transforms=transforms, logit_factor=factor)
    lost = losses(model, finals, sequences)
    never = np.where(np.isnan(critical), np.inf, critical)
    beyond, middle = np.mean(never < 1, axis=(2, 3)), factor * np.median(never, axis=(2, 3))
    whole = [[one[: n - 1].mean() for n in lengths] for one in lost]
    tail = [[one[n // 2 - 1 : n - 1].mean() for n in lengths] for one in lost]
    return np.stack([np.array(whole), np.array(tail), beyond, middle], axis=-1)


def _multipliers(view: LayerView, n: int, rows: int) -> Values:
    """(heads,) medians of t_c over the last rows of the first n tokens."""
    at = np.arange(n - rows, n)
    logits, allowed = view.logits(at)[..., :n], view.allowed(at)[..., :n]
    return median(np.asarray(row_statistics(logits, allowed, formats=())["critical_multiplier"]))
