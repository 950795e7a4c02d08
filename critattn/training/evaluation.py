"""How a trained model does at its length and beyond: loss on held-out text, retrieval against distance."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from critattn.errors import SpecError
from critattn.protocols import precision
from critattn.training import prompts
from critattn.training.corpus import Corpus
from critattn.training.model import Decoder, cross_entropy
from critattn.training.presets import Preset

MULTIPLES = (1, 2, 4, 8, 16)
# bytes in one call, so that scores (heads, n, n) of a long window fit beside those of short ones
CALL_BYTES = 4096
# distances within and beyond the training length, as shares of it
SHARES = (3 / 8, 1 / 2, 5 / 8, 11 / 16, 1, 3 / 2, 3, 7, 15)
# bytes of a prompt besides those from the stated key to the answer, at most
AROUND = 40
# the prompts of an evaluation have a stream of their own
STREAM = 1_000_003
Z95 = 1.959964


class LengthLoss(NamedTuple):
    """Loss at one length, nats a byte.

    Attributes:
        multiple: length over the training length.
        length: n, bytes of context window.
        window: mean over all places of windows of that length that tile the blocks: the usual validation loss. Every
            length scores the same bytes.
        window_se: its standard error over blocks.
        last: mean over the last T bytes of each block alone, seen with a context of up to n bytes: the same bytes at
            every length, each with more context.
        last_se: its standard error over blocks.
    """

    multiple: int
    length: int
    window: float
    window_se: float
    last: float
    last_se: float


class Retrieval(NamedTuple):
    """Retrieval at one distance.

    Attributes:
        kind: "passkey" or "needle".
        distance: bytes from the stated key to the answer.
        length: bytes of the prompt.
        prompts: how many.
        right: how many whole keys are right, each digit the most likely byte after the true ones before it.
        digits: share of digits that are right; a tenth by chance.
        loss: mean of -log p of a digit, nats; log 10 by chance.
    """

    kind: prompts.Kind
    distance: int
    length: int
    prompts: int
    right: int
    digits: float
    loss: float

    @property
    def accuracy(self) -> float:
        """Share of whole keys that are right."""
        return self.right / self.prompts

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy [Wilson 1927]."""
        return wilson(self.right, self.prompts)


def wilson(right: int, count: int) -> tuple[float, float]:
    """The score interval of a share at 95 %: `(p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2))/(1 + z^2/n)`."""
    share, square = right / count, Z95**2 / count
    middle, half = share + square / 2, Z95 * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def blocks(text: np.ndarray, length: int, count: int) -> np.ndarray:
    """Stretches spread evenly over a text that do not overlap, (up to count, length + 1) uint8.

    Raises:
        SpecError: where the text is shorter than one.
    """
    fitting = min(count, text.size // (length + 1))
    if not fitting:
        raise SpecError(f"held-out text: has {text.size} bytes; allowed: at least {length + 1} for the longest window")
    begins = np.linspace(0, text.size - length - 1, fitting).astype(int)
    return text[begins[:, None] + np.arange(length + 1)]


def length_losses(
    model: Decoder, text: np.ndarray, *, count: int, multiples: tuple[int, ...] = MULTIPLES, longest: int = 16
) -> list[LengthLoss]:
    """Loss at multiples of the training length, on the same bytes at every length.

    Args:
        model: trained.
        text: held out, uint8.
        count: blocks of the longest length; fewer where the text is short.
        multiples: lengths over the training length.
        longest: length of a block over the training length; the multiples divide it.

    Raises:
        SpecError: where a multiple does not divide the longest, or the text is too short.
    """
    base = model.shape.length
    if any(one < 1 or longest % one for one in multiples):
        raise SpecError(f"multiples = {multiples}: each must divide {longest}, the longest")
    found = blocks(text, longest * base, count)
    with precision("float32"):
        return [_at_length(model, found, one, base) for one in sorted(multiples)]


def _at_length(model: Decoder, found: np.ndarray, multiple: int, base: int) -> LengthLoss:
    length = multiple * base
    windows = np.stack([found[:, begin : begin + length + 1] for begin in range(0, found.shape[1] - 1, length)], axis=1)
    scored = np.concatenate([loss for loss, _ in _calls(model, windows.reshape(-1, length + 1))])
    # (blocks, windows, length)
    scored = scored.astype(np.float64).reshape(*windows.shape[:2], length)
    whole, last = scored.mean(axis=(1, 2)), scored[:, -1, -base:].mean(axis=-1)
    return LengthLoss(multiple, length, *_mean(whole), *_mean(last))


@jax.jit
def _score(model: Decoder, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Loss at each place, and whether the next byte is the most likely one, each (batch, n)."""
    logits = model(windows[:, :-1])
    after = windows[:, 1:]
    return cross_entropy(logits, after), jnp.argmax(logits, axis=-1) == after


def _calls(model: Decoder, windows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores of windows (count, n + 1) in calls of one shape; what fills the last call is cut off."""
    each = max(1, CALL_BYTES // (windows.shape[1] - 1))
    for begin in range(0, len(windows), each):
        some = windows[begin : begin + each]
        filled = np.concatenate([some, np.repeat(some[-1:], each - len(some), axis=0)])
        loss, right = _score(model, jnp.asarray(filled.astype(np.int32)))
        yield np.asarray(loss)[: len(some)], np.asarray(right)[: len(some)]


def _mean(values: np.ndarray) -> tuple[float, float]:
    spread = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else math.nan
    return float(values.mean()), spread


def distances(kind: prompts.Kind, length: int) -> list[int]:
    """Distances at which retrieval is measured: shares of the training length that the wording leaves room for."""
    rng = np.random.default_rng(0)
    least = max(prompts.wording(kind, rng).nearest for _ in range(8 * len(prompts.CITIES)))
    return [round(share * length) for share in SHARES if share * length >= least]


def retrieval(model: Decoder, text: np.ndarray, kind: prompts.Kind, *, count: int, seed: int = 0) -> list[Retrieval]:
    """Accuracy against distance, on fresh keys.

    Args:
        model: trained.
        text: held out, uint8; what a needle lies in.
        kind: "passkey" or "needle".
        count: prompts a distance.
        seed: of the prompts.
    """
    base = model.shape.length
    with precision("float32"):
        return [_at_distance(model, text, kind, distance, count, seed) for distance in distances(kind, base)]


def _at_distance(
    model: Decoder, text: np.ndarray, kind: prompts.Kind, distance: int, count: int, seed: int
) -> Retrieval:
    base = model.shape.length
    rng = np.random.default_rng([seed, STREAM, distance])
    # as long as in training where the distance is within it
    length = max(base + 1, distance + AROUND)
    some = np.stack([prompts.make(kind, rng, length, text=text, distance=distance) for _ in range(count)])
    # bytes after the answer change nothing in a causal model, and shapes that are there already need no compilation
    window = next(one * base for one in MULTIPLES if one * base >= length - 1)
    filled = np.pad(some, ((0, 0), (0, window + 1 - length)))
    answer = slice(length - 1 - prompts.DIGITS, length - 1)
    scored = list(_calls(model, filled))
    loss, right = (np.concatenate([one[part][:, answer] for one in scored]) for part in (0, 1))
    whole = int(np.sum(np.all(right, axis=-1)))
    return Retrieval(kind, distance, length, count, whole, float(np.mean(right)), float(np.mean(loss)))


@dataclass(frozen=True)
class Evaluation:
    """All measurements of one model.

    Attributes:
        losses: by length.
        retrieval: by kind and distance.
    """

    losses: list[LengthLoss]
    retrieval: list[Retrieval]

    def to_json(self) -> dict[str, list[dict]]:
        """JSON-ready records."""
        return {
            "losses": [one._asdict() for one in self.losses],
            "retrieval": [
                {**one._asdict(), "accuracy": one.accuracy, "interval": list(one.interval())} for one in self.retrieval
            ],
        }


def evaluate(model: Decoder, corpus: Corpus, preset: Preset) -> Evaluation:
    """Loss by length and, where prompts were trained on, retrieval by distance; the same text for every seed."""
    lost = length_losses(model, corpus.held_out, count=preset.eval_blocks)
    kinds = prompts.KINDS if preset.prompt_share else ()
    found = [one for kind in kinds for one in retrieval(model, corpus.held_out, kind, count=preset.eval_prompts)]
    return Evaluation(lost, found)
