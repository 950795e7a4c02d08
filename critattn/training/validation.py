"""Theory against trained heads: predicted transitions, gradients below the threshold, blind heads."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from critattn.training import inspected
from critattn.training.blind_heads import BlindHead as BlindHead
from critattn.training.blind_heads import blind_heads as blind_heads
from critattn.training.collapse import Collapse as Collapse
from critattn.training.collapse import gradient_collapse as gradient_collapse
from critattn.training.heads import HeadPoint as HeadPoint
from critattn.training.heads import Line
from critattn.training.inspected import Trained
from critattn.training.localisation import read_heads as read_heads
from critattn.training.results import Run
from critattn.training.verdicts import Verdict as Verdict
from critattn.training.verdicts import agreement as agreement

TEXT_DIGITS = 16


def of_run(run: Run, sequences: Sequence[np.ndarray], text: str, *, rows: int = 16) -> list[Line]:
    """The heads of one trained run against their transitions.

    Args:
        run: whose weights are there.
        sequences: bytes (n,) each, of one length.
        text: sha256 of the text that they are from.
        rows: query rows at the end of each sequence.

    Raises:
        StoreError: where the weights cannot be read.
    """
    points = read_heads(inspected.load(run.file(".npz")), sequences, rows=rows)
    return [Line(run.variant.name, run.seed, text[:TEXT_DIGITS], one) for one in points]


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
