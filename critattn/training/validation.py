"""Theory against trained heads: predicted transitions, gradients below the threshold, blind heads."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from critattn.errors import SpecError
from critattn.models.agreement import Agreement, validation
from critattn.training import inspected
from critattn.training.blind_heads import BlindHead as BlindHead
from critattn.training.blind_heads import blind_heads as blind_heads
from critattn.training.collapse import Collapse as Collapse
from critattn.training.collapse import gradient_collapse as gradient_collapse
from critattn.training.inspected import Trained
from critattn.training.localisation import HeadPoint as HeadPoint
from critattn.training.localisation import read_heads as read_heads
from critattn.training.results import Run

TOLERANCE = 0.25


@dataclass(frozen=True)
class Verdict:
    """One prediction of the critical gamma or p against the measured one.

    Attributes:
        prediction: its name.
        control: "gamma" or "p".
        heads: how many are compared.
        agreement: relative errors over heads whose measured value is positive and finite.
        sides: share of the heads that it puts on the right side: largest weight above 1/2 where the head's own value
            is above the predicted one; NaN without a prediction.
        never: heads that no value of the control localises.
        never_predicted: how many of these have no predicted transition either.
        met: share of the heads whose measured value is met within the tolerance, or is infinite like the predicted one;
            heads that are local at every value are left out.
        favourable: at least half are met, and the median error, where there is one, is within the tolerance.
    """

    prediction: str
    control: str
    heads: int
    agreement: Agreement
    sides: float
    never: int
    never_predicted: int
    met: float
    favourable: bool

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready record, without the errors of single heads."""
        found = {name: value for name, value in vars(self).items() if name != "agreement"}
        known = {key: value for key, value in vars(self.agreement).items() if key not in ("name", "errors")}
        return {**known, **found}


def agreement(points: Sequence[HeadPoint], *, own: bool = False, tolerance: float = TOLERANCE) -> tuple[Verdict, ...]:
    """Every prediction against the measured critical values of the heads.

    Args:
        points: heads with one control parameter.
        own: compare with the crossing of the own weight, as in the theory of symmetric tokens, not of the largest one.
        tolerance: relative error that counts as met.

    Raises:
        SpecError: for no heads, or heads with different control parameters or predictions.
    """
    kinds = {(one.control, tuple(one.predicted)) for one in points}
    if len(kinds) != 1:
        names = ", ".join(sorted(control for control, _ in kinds)) or "none"
        raise SpecError(f"heads: have control parameters {names}; allowed: heads of one kind of layer")
    control, names = kinds.pop()
    measured = np.array([one.measured_own if own else one.measured for one in points])
    local = np.array([one.own_weight if own else one.largest for one in points]) > 0.5
    values = np.array([one.value for one in points])
    predicted = {name: np.array([one.predicted[name] for one in points]) for name in names}
    found = validation(predicted, np.where(np.isfinite(measured), measured, math.nan), tolerance=tolerance)
    return tuple(
        _verdict(found[name], control, (values, measured, predicted[name]), local, tolerance=tolerance)
        for name in names
    )


def _verdict(
    errors: Agreement,
    control: str,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    local: np.ndarray,
    *,
    tolerance: float,
) -> Verdict:
    """The verdict from relative errors and from the (own, measured, predicted) values of the heads."""
    values, measured, predicted = points
    never = np.isinf(measured)
    foretold = never & np.isinf(predicted)
    counted = measured > 0
    met = np.sum(foretold | (np.abs(errors.errors) <= tolerance)) / counted.sum() if counted.any() else math.nan
    near = math.isnan(errors.median) or abs(errors.median) <= tolerance
    sides = _sides(values, predicted, local)
    counts = int(never.sum()), int(foretold.sum())
    return Verdict(errors.name, control, len(values), errors, sides, *counts, float(met), bool(near and met >= 0.5))


def _sides(values: np.ndarray, predicted: np.ndarray, local: np.ndarray) -> float:
    there = ~np.isnan(predicted)
    return float(np.mean((values > predicted)[there] == local[there])) if there.any() else math.nan


def of_run(run: Run, sequences: Sequence[np.ndarray], *, rows: int = 16) -> list[dict[str, Any]]:
    """The heads of one trained run against each prediction of their transition, JSON-ready.

    Args:
        run: whose weights are there.
        sequences: bytes (n,) each, of one length.
        rows: query rows at the end of each sequence.

    Returns:
        A record a prediction, and one with `prediction` None for a layer without any: `variant`, `seed`, `control`,
        medians over heads of the own `value` and of the `measured` critical one, share `local` of heads whose mean
        largest weight is above 1/2, and what `Verdict.to_json` says.

    Raises:
        StoreError: where the weights cannot be read.
    """
    points = read_heads(inspected.load(run.file(".npz")), sequences, rows=rows)
    shown = {
        "variant": run.variant.name,
        "seed": run.seed,
        "value": float(np.median([one.value for one in points])),
        "measured": float(np.median([one.measured for one in points])),
        "local": float(np.mean([one.largest > 0.5 for one in points])),
    }
    verdicts = [one.to_json() for one in agreement(points)]
    none = {"prediction": None, "control": points[0].control, **dict.fromkeys(("median", "met", "sides"), math.nan)}
    return [{**shown, **one} for one in verdicts or [none]]


def summary(
    model: Trained, sequences: Sequence[np.ndarray], *, rows: int = 16, longer: Sequence[Sequence[np.ndarray]] = ()
) -> dict[str, Any]:
    """What `critattn inspect` says of a trained decoder besides the statistics of every model, JSON-ready.

    Args:
        model: the decoder.
        sequences: bytes (n,) each, of one length.
        rows: query rows at the end of each sequence.
        longer: sequences of other lengths, on which what ALiBi cannot see is read as well.
    """
    points = read_heads(model, sequences, rows=rows)
    groups = (sequences, *longer) if model.variant.positions == "alibi" else ()
    blind = [one for group in groups for one in blind_heads(model, group, rows=rows)]
    return {
        "variant": model.variant.to_json(),
        "training_length": model.shape.length,
        "normaliser": model.normaliser,
        "control": points[0].control,
        "length": points[0].length,
        "heads": [dataclasses.asdict(one) for one in points],
        "agreement": [one.to_json() for one in agreement(points)],
        "agreement_own": [one.to_json() for one in agreement(points, own=True)],
        "blind": [dataclasses.asdict(one) for one in blind],
    }
