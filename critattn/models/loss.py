"""Losses of a model on its tokens: next-token nats of a decoder, masked tokens of an encoder."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from critattn.errors import SpecError
from critattn.models import block
from critattn.models.block import Weights
from critattn.models.config import Config
from critattn.models.forward import Model, check_tokens, run
from critattn.protocols import Array, precision

VOCABULARY_BLOCK = 8192


def losses(model: Model, finals: Sequence[Array], sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`-log p(token_(i+1) | tokens up to i)` of a decoder, in blocks of the vocabulary.

    Args:
        model: the model.
        finals: final hidden states (n, width) of each sequence, from `run`.
        sequences: their tokens, (n,) integers.

    Returns:
        (n - 1,) float64 nats for each sequence; the perplexity is the exponential of their mean.

    Raises:
        SpecError: for an encoder, a model without output head, or a sequence of one token.
    """
    if not model.config.causal:
        raise SpecError(f"{model.name}: is an encoder, which predicts masked tokens; use masked_top1")
    found = []
    with precision("float32"):
        head = model.layout.head()
        for final, sequence in zip(finals, sequences, strict=True):
            tokens = check_tokens(model.config, sequence)
            if tokens.size < 2:
                raise SpecError("tokens: 1 of them; allowed: at least 2, so that there is a next token")
            found.append(_next_token(head, final[:-1], tokens[1:]))
    return found


def _next_token(head: dict[str, np.ndarray], states: Array, targets: np.ndarray) -> np.ndarray:
    """`logsumexp(W h) - (W h)_target`, its maximum and sum carried from block to block."""
    rows = states.shape[0]
    top, total, hit = jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows)
    for start in range(0, head["head"].shape[0], VOCABULARY_BLOCK):
        weights = _rows(head, start)
        top, total, hit = _absorb(weights, states, jnp.asarray(targets - start), (top, total, hit))
    return np.asarray(top, np.float64) + np.log(np.asarray(total, np.float64)) - np.asarray(hit, np.float64)


def _rows(head: dict[str, np.ndarray], start: int) -> Weights:
    parts = [part for part in ("head", "head_bias") if part in head]
    return {part: jnp.asarray(head[part][start : start + VOCABULARY_BLOCK], jnp.float32) for part in parts}


@jax.jit
def _absorb(weights: Weights, states: Array, targets: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
    top, total, hit = sums
    logits = block.linear(weights, "head", states)
    higher = jnp.maximum(top, jnp.max(logits, axis=1))
    total = total * jnp.exp(top - higher) + jnp.sum(jnp.exp(logits - higher[:, None]), axis=1)
    inside = (targets >= 0) & (targets < logits.shape[1])
    own = jnp.take_along_axis(logits, jnp.where(inside, targets, 0)[:, None], axis=1)[:, 0]
    return higher, total, jnp.where(inside, own, hit)


def predictions(model: Model, final: Array) -> np.ndarray:
    """Output logits of every token, (n, vocabulary) float32, of final hidden states (n, width).

    Raises:
        SpecError: for a model without output head.
    """
    head = model.layout.head()
    with precision("float32"):
        if "transform" in head:
            weights = {part: jnp.asarray(array, jnp.float32) for part, array in head.items() if "transform" in part}
            final = _transform(model.config, weights, final)
        blocks = range(0, model.config.vocabulary, VOCABULARY_BLOCK)
        return np.concatenate([np.asarray(block.linear(_rows(head, start), "head", final)) for start in blocks], axis=1)


@partial(jax.jit, static_argnames=("config",))
def _transform(config: Config, weights: Weights, final: Array) -> Array:
    """The transform of an encoder's head: linear, activation, norm."""
    act = block.activation(config)
    return block.normed(config, weights, "transform_norm", act(block.linear(weights, "transform", final)))


def masked_top1(model: Model, tokens: np.ndarray, mask: int, positions: Sequence[int]) -> float:
    """Share of positions whose token is the most likely one where it alone is masked.

    Args:
        model: an encoder with an output head.
        tokens: (n,) integers.
        mask: the number of the mask token.
        positions: the positions that are masked in turn.

    Raises:
        SpecError: for a decoder, a model without output head, or positions that are not there.
    """
    if model.config.causal:
        raise SpecError(f"{model.name}: is a decoder, which predicts the next token; use losses")
    tokens = check_tokens(model.config, tokens)
    if not positions or not all(0 <= place < tokens.size for place in positions):
        raise SpecError(f"positions: must be one or more numbers from 0 to {tokens.size - 1}")
    if not model.layout.has_head:
        raise SpecError(f"{model.name}: holds no language-model head")
    sequences = []
    for place in positions:
        sequences.append(tokens.copy())
        sequences[-1][place] = mask
    finals = run(model, sequences)
    rows = jnp.stack([final[place] for final, place in zip(finals, positions, strict=True)])
    best = np.argmax(predictions(model, rows), axis=1)
    return float(np.mean(best == tokens[list(positions)]))
