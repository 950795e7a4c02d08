"""Predicted transitions of trained heads against the measured ones; nothing here needs the packages that train."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from critattn.errors import SpecError
from critattn.models.agreement import Agreement, validation
from critattn.training.heads import HeadPoint, Line

TOLERANCE = 0.25


@dataclass(frozen=True)
class Verdict:
    """One prediction of the critical gamma or p against the measured one.

    Attributes:
        prediction: its name.
        control: "gamma" or "p".
        heads: how many there are.
        compared: how many enter the errors: measured value and prediction are positive and finite.
        agreement: relative errors over heads whose measured value is positive and finite.
        sides: share of the heads that it puts on the right side: largest weight above 1/2 where the head's own value
            is above the predicted one; NaN without a prediction.
        always: heads that the least value looked at localises already.
        never: heads that no value of the control localises.
        never_predicted: how many of these have no predicted transition either.
        met: share of the heads whose measured value is met within the tolerance, or is infinite like the predicted one;
            heads that are local at every value are left out.
        favourable: at least half are met, and the median error, where there is one, is within the tolerance.
    """

    prediction: str
    control: str
    heads: int
    compared: int
    agreement: Agreement
    sides: float
    always: int
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
    never = np.isposinf(measured)
    foretold = never & np.isposinf(predicted)
    counted = measured > 0
    met = np.sum(foretold | (np.abs(errors.errors) <= tolerance)) / counted.sum() if counted.any() else math.nan
    near = math.isnan(errors.median) or abs(errors.median) <= tolerance
    return Verdict(
        errors.name,
        control,
        heads=len(values),
        compared=int(np.isfinite(errors.errors).sum()),
        agreement=errors,
        sides=_sides(values, predicted, local),
        always=int(np.sum(measured == 0)),
        never=int(never.sum()),
        never_predicted=int(foretold.sum()),
        met=float(met),
        favourable=bool(near and met >= 0.5),
    )


def _sides(values: np.ndarray, predicted: np.ndarray, local: np.ndarray) -> float:
    there = ~np.isnan(predicted)
    return float(np.mean((values > predicted)[there] == local[there])) if there.any() else math.nan


# of a record of one prediction
KEYS = tuple(
    one.name
    for kind in (Verdict, Agreement)
    for one in dataclasses.fields(kind)
    if one.name not in ("agreement", "name", "errors")
)


def by_variant(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Where the heads of each variant stand and every prediction of their transition, JSON-ready.

    Args:
        lines: heads of some runs; those of one variant at several seeds are taken together.

    Returns:
        A record a prediction, and one with `prediction` None for a layer without any: `variant`, `seeds`, `control`,
        medians over heads of the own `value` and of the `measured` critical one, share `local` of heads whose mean
        largest weight is above 1/2, and what `Verdict.to_json` says.
    """
    groups: dict[str, list[Line]] = {}
    for one in lines:
        groups.setdefault(one.variant, []).append(one)
    return [record for name, group in groups.items() for record in _records(name, group)]


def _records(name: str, lines: Sequence[Line]) -> list[dict[str, Any]]:
    points = [one.point for one in lines]
    measured = np.array([one.measured for one in points])
    shown = {
        "variant": name,
        "seeds": sorted({one.seed for one in lines}),
        "value": float(np.median([one.value for one in points])),
        "measured": float(np.median(measured)),
        "local": float(np.mean([one.largest > 0.5 for one in points])),
    }
    verdicts = [one.to_json() for one in agreement(points)]
    counts = {"heads": len(points), "always": int(np.sum(measured == 0)), "never": int(np.isposinf(measured).sum())}
    none = {**dict.fromkeys(KEYS), "control": points[0].control, **counts}
    return [{**shown, **one} for one in verdicts or [none]]
