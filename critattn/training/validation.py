"""Theory against trained heads: predicted transitions, gradients below the threshold, blind heads."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from critattn.errors import StoreError
from critattn.storage import canonical_json, differences
from critattn.training import heads, inspected
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


def of_run(run: Run, sequences: Sequence[np.ndarray], corpus: str, *, rows: int = 16) -> list[Line]:
    """The heads of one trained run against their transitions, with the digits that a file keeps.

    Args:
        run: whose weights are there.
        sequences: bytes (n,) each, of one length.
        corpus: sha256 of the text that they are from.
        rows: query rows at the end of each sequence.

    Raises:
        StoreError: where the weights cannot be read, are of another run, or were trained on another text.
    """
    path = run.file(".npz")
    digest, model = heads.digest(path), inspected.load(path)
    made = {"variant": run.variant.to_json(), "preset": run.preset.to_json(), "seed": run.seed, "corpus": corpus}
    kept = model.header.get("config", {})
    changed = differences({key: kept.get(key) for key in made}, json.loads(canonical_json(made)))
    if changed:
        listed = "; ".join(f"{key} was {old!r}, is {new!r}" for key, old, new in changed[:6])
        raise StoreError(f"weights {str(path)!r}: are of another run: {listed}")
    points = read_heads(model, sequences, rows=rows)
    return heads.rounded(Line(run.variant.name, run.seed, digest, corpus[: heads.DIGITS], one) for one in points)


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
