"""Pairs of a head and a distance without any weight in a trained decoder with ALiBi, and what never learns of them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from critattn import formats
from critattn.biases import DistanceBias
from critattn.blindness import blindness_distance
from critattn.errors import SpecError
from critattn.models import block, forward
from critattn.models.views import LayerView
from critattn.training.inspected import Trained
from critattn.training.layers import bias_of

FORMATS = ("fp32", "bf16")
ROWS = 16
# of a threshold: rounding to nearest, and where subnormal numbers are flushed, as here
KINDS = {"nearest": "zero", "flushed": "normal"}


@dataclass(frozen=True)
class BlindHead:
    """What one head cannot see in one format at one length.

    Attributes:
        layer: from 0.
        head: from 0.
        length: n, keys of the longest row.
        format: of the numerators exp(l - max l).
        underflow: "nearest", or "flushed" where subnormal numbers are.
        threshold: logit below the row's maximum at which the numerator is 0, nats.
        slope: m of the head.
        predicted: distance from which keys are blind by the bias alone, at equal scores; infinite where none is.
        first: least distance at which some query is blind on these texts; None where none is.
        always: distance from which every query is blind; None where none is.
        share: share of the pairs of query and key with an underflown numerator.
        predicted_share: the same by the bias alone.
        zeros: share of the pairs whose weight is exactly 0 in float32 as this machine computes it.
        starved: every row has one key that is not blind: its weight is 1 whatever the scores, and the matrices of the
            head's queries and keys get no gradient.
    """

    layer: int
    head: int
    length: int
    format: str
    underflow: str
    threshold: float
    slope: float
    predicted: float
    first: int | None
    always: int | None
    share: float
    predicted_share: float
    zeros: float
    starved: bool


def blind_heads(
    model: Trained, sequences: Sequence[np.ndarray], *, rows: int = ROWS, number_formats: Sequence[str] = FORMATS
) -> tuple[BlindHead, ...]:
    """Pairs of head and distance whose numerators underflow, from trained slopes and scores.

    A pair of weight 0 has dA/dl = 0: nothing flows through it, forward or back. ALiBi has no parameter of its own for
    a distance, so that a matrix goes without a gradient only where the head is blind to every key but one.

    Args:
        model: a decoder with a bias.
        sequences: bytes (n,) each, of one length.
        rows: query rows at the end of each sequence; at most n.
        number_formats: names of formats.

    Returns:
        One record a layer, head, format and rule of underflow.

    Raises:
        SpecError: for a decoder without a bias, sequences of different lengths, or an unknown format.
    """
    bias = bias_of(model.variant, model.shape.heads, model.shape.length)
    if bias is None:
        raise SpecError(f"{model.name}: has no bias; allowed: decoders with positions 'alibi'")
    lengths = {len(one) for one in sequences}
    if len(lengths) != 1 or not 1 <= rows <= min(lengths):
        raise SpecError(f"sequences: have lengths {sorted(lengths)}; allowed: one, of at least {rows} rows")
    n = lengths.pop()
    at = np.arange(n - rows, n)
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}

    def visit(_: int, view: LayerView) -> None:
        found.setdefault(view.index, []).append(_read(view, at))

    forward.run(model, sequences, visit=visit)
    limits = [
        (name, rule, formats.get(name).thresholds().of(kind)) for name in number_formats for rule, kind in KINDS.items()
    ]
    made = []
    for layer, read in sorted(found.items()):
        gaps, weights = (np.stack(part) for part in zip(*read, strict=True))
        for head, own in enumerate(bias.heads()):
            here = (gaps[:, head], weights[:, head])
            made += [_head(own, here, at, (layer, head, *limit)) for limit in limits]
    return tuple(made)


def _read(view: LayerView, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gaps below the row's largest logit, NaN after the query, and float32 weights, (heads, rows, n) each."""
    logits, where = view.logits(rows), view.allowed(rows)
    context = block.context_of(view.config, jnp.asarray(rows), view.n)
    weights = np.asarray(block.weights_of(view.settings, logits, context, where))
    seen = np.where(np.asarray(where), np.asarray(logits, np.float64), -np.inf)
    gaps = seen.max(axis=-1, keepdims=True) - seen
    return np.where(np.asarray(where), gaps, np.nan), weights


def _head(
    bias: DistanceBias, read: tuple[np.ndarray, np.ndarray], rows: np.ndarray, at: tuple[int, int, str, str, float]
) -> BlindHead:
    gaps, weights = read
    layer, head, name, rule, threshold = at
    n = gaps.shape[-1]
    distances = rows[:, None] - np.arange(n)[None, :]
    there = np.broadcast_to(distances >= 0, gaps.shape)
    blind = there & (np.nan_to_num(gaps, nan=0.0) >= -threshold)
    far = np.broadcast_to(distances, gaps.shape)
    seen = np.unique(far[there & ~blind])
    predicted = float(blindness_distance(bias, threshold)[0])
    alone = np.where(distances >= 0, distances >= predicted, False)
    return BlindHead(
        layer,
        head,
        n,
        name,
        rule,
        threshold,
        float(_slope(bias)),
        predicted,
        int(far[blind].min()) if blind.any() else None,
        int(seen.max()) + 1 if seen.max() + 1 < n else None,
        float(blind.sum() / there.sum()),
        float(alone.sum() / (distances >= 0).sum()),
        float((there & (weights == 0)).sum() / there.sum()),
        bool(np.all((there & ~blind).sum(axis=-1) == 1)),
    )


def _slope(bias: Any) -> float:
    """The slope of a bias of one head, clamped or not."""
    return float(np.asarray(bias.slope if hasattr(bias, "slope") else bias.bias.slope))


def records(found: Sequence[BlindHead]) -> list[dict[str, Any]]:
    """JSON-ready records."""
    return [dataclasses.asdict(one) for one in found]
