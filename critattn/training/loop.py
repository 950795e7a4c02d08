"""Training: one compiled step, curves of loss and gradient norms, checkpoints, and an end where it diverges."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from critattn.errors import CritattnError, DomainError
from critattn.interrupts import patience
from critattn.protocols import Array, precision
from critattn.training import checkpoints
from critattn.training.batches import batch
from critattn.training.checkpoints import State
from critattn.training.corpus import Corpus
from critattn.training.model import VOCABULARY, Decoder, losses, make
from critattn.training.presets import Preset
from critattn.training.prompts import DIGITS
from critattn.training.variants import Variant

# a minute of work is the most that a kill may lose; steps between two looks at the clock take a share of it
CHECKPOINT_SECONDS = 45.0
# steps whose losses are looked at together: their mean has a third of the spread of one
LOOK = 10
# nats a byte above the loss of a uniform guess: the right byte has half of its chance, on average
MARGIN = math.log(2)


class Diverged(CritattnError, RuntimeError):
    """A run whose loss left every bound; its last good checkpoint is kept."""


@dataclass(frozen=True)
class Progress:
    """What a caller hears of a run.

    Attributes:
        step: steps done.
        steps: steps in all.
        loss: mean of the last steps, nats a byte.
        gradient_norm: of the last step, before it is clipped.
        seconds_left: estimated from this session's steps.
    """

    step: int
    steps: int
    loss: float
    gradient_norm: float
    seconds_left: float


class Trained(NamedTuple):
    """The end of a run.

    Attributes:
        model: the decoder.
        curves: of each step: `loss` (nats a byte), `gradient_norm`, `query_gradient_norm` and `key_gradient_norm`
            (steps, layers), the norms of the gradients of the matrices that make queries and keys.
        seconds: of work, over all sessions.
    """

    model: Decoder
    curves: dict[str, np.ndarray]
    seconds: float


def config(variant: Variant, preset: Preset, seed: int, corpus: Corpus) -> dict[str, Any]:
    """What defines a run, JSON-ready: a checkpoint of anything else is refused."""
    sizes = {name: value for name, value in preset.to_json().items() if not name.startswith("eval_")}
    return {"variant": variant.to_json(), "preset": sizes, "seed": seed, "corpus": corpus.sha256}


def optimiser(preset: Preset) -> optax.GradientTransformation:
    """AdamW with warm-up and a cosine down to a tenth, clipped gradients, and decay of matrices only."""
    schedule = optax.warmup_cosine_decay_schedule(
        preset.learning_rate / max(1, preset.warmup),
        preset.learning_rate,
        preset.warmup,
        preset.steps,
        preset.learning_rate / 10,
    )
    decayed = optax.adamw(
        schedule, b1=0.9, b2=0.95, weight_decay=preset.weight_decay, mask=lambda tree: jax.tree.map(_is_matrix, tree)
    )
    return optax.chain(optax.clip_by_global_norm(preset.clip), decayed)


def _is_matrix(leaf: Array) -> bool:
    return leaf.ndim > 1


def start(variant: Variant, preset: Preset, seed: int) -> State:
    """A run before its first step; the matrices depend on the seed and the sizes, not on the variant."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DomainError.of("seed", seed, "a whole number of at least 0")
    model: Any = make(variant, preset.shape, seed)
    return State((model, optimiser(preset).init(model)), 0, {}, 0.0)


@functools.cache
def compiled_step(preset: Preset) -> Callable[[Any, Array], tuple[Any, dict[str, Array]]]:
    """One step: (model, optimiser), windows (batch, T + 1) to the next pair and what is recorded of the step."""
    rule = optimiser(preset)

    def step(trainable: Any, windows: Array) -> tuple[Any, dict[str, Array]]:
        model: Any
        model, memory = trainable
        loss, gradient = jax.value_and_grad(weighted_loss)(model, windows.astype(jnp.int32), preset)
        updates, memory = rule.update(gradient, memory, model)
        seen = {"loss": loss, "gradient_norm": _norm(gradient), **_attention_norms(gradient)}
        return (optax.apply_updates(model, updates), memory), seen

    return jax.jit(step, donate_argnums=0)


def weighted_loss(model: Decoder, windows: Array, preset: Preset) -> Array:
    """Mean loss of the bytes of a batch, those of the prompts' answers weighted, nats a byte."""
    found = losses(model, windows)
    weight = jnp.ones_like(found)
    if preset.prompts:
        weight = weight.at[-preset.prompts :, -DIGITS:].set(preset.answer_weight)
    return jnp.sum(weight * found) / jnp.sum(weight)


def _norm(tree: Any) -> Array:
    return jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))


def _attention_norms(gradient: Decoder) -> dict[str, Array]:
    width = gradient.shape.width
    parts = {"query_gradient_norm": slice(0, width), "key_gradient_norm": slice(width, 2 * width)}
    return {
        name: jnp.stack([jnp.linalg.norm(block.qkv[:, part]) for block in gradient.blocks])
        for name, part in parts.items()
    }


def train(
    variant: Variant,
    preset: Preset,
    corpus: Corpus,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Trained:
    """Train a variant, or go on from its checkpoint: the same bits as without a stop, on one machine.

    Args:
        variant: the attention.
        preset: sizes.
        corpus: the text.
        seed: of the start and of the batches.
        checkpoint: file for the state, written about every 45 seconds and at the end; None for none.
        progress: called every ten steps.
        checkpoint_seconds: at most this long between two checkpoints, and ten steps.

    The first Ctrl-C lets the ten steps in hand be finished and kept.

    Raises:
        Diverged: where the loss is not finite, or beyond that of a uniform guess; the checkpoint stays as it was.
        KeyboardInterrupt: after a Ctrl-C, once the checkpoint is written.
        StoreError: where the checkpoint cannot be read or written, or is of another configuration.
    """
    with precision("float32"):
        state = start(variant, preset, seed)
        made = config(variant, preset, seed, corpus)
        kept = None if checkpoint is None else checkpoints.load(checkpoint, state.trainable, made)
        run = _Run(preset, corpus, seed, compiled_step(preset))
        state = state if kept is None else kept
        saved = time.monotonic()
        with patience() as stopped:
            while state.step < preset.steps:
                state = run.some_steps(state, progress)
                due = time.monotonic() - saved > checkpoint_seconds
                if checkpoint is not None and (due or stopped.is_set() or state.step == preset.steps):
                    checkpoints.save(checkpoint, state, made)
                    saved = time.monotonic()
                if stopped.is_set():
                    raise KeyboardInterrupt
    return Trained(state.trainable[0], state.curves, state.seconds)


@dataclass
class _Run:
    """A run within one process."""

    preset: Preset
    corpus: Corpus
    seed: int
    step: Callable[[Any, Array], tuple[Any, dict[str, Array]]]
    done: int = 0
    busy: float = 0.0

    def some_steps(self, state: State, progress: Callable[[Progress], None] | None) -> State:
        """Up to ten steps, to the next multiple of ten; then look at the losses."""
        begun = time.monotonic()
        until = min(self.preset.steps, (state.step // LOOK + 1) * LOOK)
        trainable, seen = state.trainable, []
        for number in range(state.step, until):
            windows = batch(self.corpus, self.preset, self.seed, number)
            trainable, one = self.step(trainable, jnp.asarray(windows))
            seen.append(one)
        fresh = {name: np.stack([np.asarray(one[name]) for one in seen]) for name in seen[0]}
        _check(fresh, until)
        curves = {
            name: np.concatenate([state.curves[name], new]) if state.curves else new for name, new in fresh.items()
        }
        spent = time.monotonic() - begun
        self.done, self.busy = self.done + len(seen), self.busy + spent
        if progress is not None:
            left = (self.preset.steps - until) * self.busy / self.done
            loss = float(np.mean(fresh["loss"]))
            progress(Progress(until, self.preset.steps, loss, float(fresh["gradient_norm"][-1]), left))
        return State(trainable, until, curves, state.seconds + spent)


def _check(fresh: dict[str, np.ndarray], until: int) -> None:
    loss = float(np.mean(fresh["loss"]))
    norm = float(np.max(fresh["gradient_norm"]))
    bound = math.log(VOCABULARY) + MARGIN
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(f"step {until}: loss {loss:g}, gradient norm {norm:g}: not finite; lower the learning rate")
    if until > LOOK and loss > bound:
        raise Diverged(f"step {until}: loss {loss:.3g} nats a byte, above {bound:.3g}, that of a uniform guess + ln 2")
