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
from critattn.training.presets import MOST_SEED, Preset
from critattn.training.prompts import DIGITS
from critattn.training.variants import Variant

# a minute of work, or one step where it takes longer, is the most that a kill may lose
CHECKPOINT_SECONDS = 45.0
# a step that takes longer is followed by a look at the clock, others only by one after ten
SLOW_SECONDS = 5.0
# steps whose losses are looked at together: their mean has a third of the spread of one
LOOK = 10
# nats a byte above the loss of a uniform guess: the right byte has half of its chance, on average
MARGIN = math.log(2)
# bytes whose activations are kept at once, for the backward pass: at the published size 24 to 38 GB of them
PASS_BYTES = 16_384
ADVICE = "another seed may help, or from Python a Preset with a lower learning_rate or a longer warmup"


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
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MOST_SEED:
        raise DomainError.of("seed", seed, f"a whole number from 0 to {MOST_SEED}")
    model: Any = make(variant, preset.shape, seed)
    return State((model, optimiser(preset).init(model)), 0, {}, 0.0)


def passes(preset: Preset) -> int:
    """Passes of a step: the smallest divisor of the batch at which none has more than 16,384 bytes; else the batch."""
    most = max(1, PASS_BYTES // preset.shape.length)
    return next(
        count for count in range(1, preset.batch + 1) if preset.batch % count == 0 and preset.batch <= most * count
    )


@functools.cache
def compiled_step(preset: Preset) -> Callable[[Any, Array], tuple[Any, dict[str, Array]]]:
    """One step: (model, optimiser), windows (batch, T + 1) to the next pair and what is recorded of the step.

    The gradient is that of the whole batch, summed over as many passes as `passes` says.
    """
    rule = optimiser(preset)

    def step(trainable: Any, windows: Array) -> tuple[Any, dict[str, Array]]:
        model: Any
        model, memory = trainable
        loss, gradient = loss_and_gradient(model, windows.astype(jnp.int32), preset)
        updates, memory = rule.update(gradient, memory, model)
        seen = {"loss": loss, "gradient_norm": _norm(gradient), **_attention_norms(gradient)}
        return (optax.apply_updates(model, updates), memory), seen

    return jax.jit(step, donate_argnums=0)


def loss_and_gradient(model: Decoder, windows: Array, preset: Preset) -> tuple[Array, Any]:
    """`weighted_loss` of the windows (batch, T + 1) and its gradient, in passes one after the other.

    Returns:
        The loss, nats a byte, and the gradient, a pytree as the model; to rounding the same for every number of
        passes.
    """
    count = passes(preset)
    if count == 1:
        return jax.value_and_grad(weighted_loss)(model, windows, preset)
    weight = _weight(jnp.ones((len(windows), windows.shape[1] - 1), model.embedding.dtype), preset)
    weight = weight / jnp.sum(weight)

    def share(model: Decoder, windows: Array, weight: Array) -> Array:
        return jnp.sum(weight * losses(model, windows))

    def add(summed: Any, part: tuple[Array, Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, summed, jax.value_and_grad(share)(model, *part)), None

    parts = windows.reshape(count, -1, windows.shape[-1]), weight.reshape(count, -1, weight.shape[-1])
    nothing: Any = (jnp.zeros_like(weight[0, 0]), jax.tree.map(jnp.zeros_like, model))
    return jax.lax.scan(add, nothing, parts)[0]


def weighted_loss(model: Decoder, windows: Array, preset: Preset) -> Array:
    """Mean loss of the bytes of a batch, those of the prompts' answers weighted, nats a byte."""
    found = losses(model, windows)
    weight = _weight(jnp.ones_like(found), preset)
    return jnp.sum(weight * found) / jnp.sum(weight)


def _weight(ones: Array, preset: Preset) -> Array:
    """The weight of each byte (batch, T): prompts are the last sequences, and their answers the last bytes."""
    return ones.at[-preset.prompts :, -DIGITS:].set(preset.answer_weight) if preset.prompts else ones


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
        progress: called every ten steps, and after each that takes more than 5 s.
        checkpoint_seconds: at most this much work between two checkpoints, or the steps between two looks at the
            clock: ten, of up to 5 s each, or a single longer one.

    A kill loses about a minute of work at most, or one step where it takes longer. The first Ctrl-C lets the steps in
    hand be finished and kept.

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
                # the next look would be too late
                due = time.monotonic() - saved + run.last > checkpoint_seconds
                if checkpoint is not None and (due or stopped.is_set() or state.step == preset.steps):
                    checkpoints.save(checkpoint, state, made)
                    saved = time.monotonic()
                if stopped.is_set():
                    raise KeyboardInterrupt
    return Trained(state.trainable[0], state.curves, state.seconds)


@dataclass
class _Run:
    """A run within one process.

    Attributes:
        preset: sizes.
        corpus: the text.
        seed: of the batches.
        step: the compiled step.
        done: steps of this process.
        busy: seconds that they took.
        last: seconds from the last look at the clock but one to the last.
        pace: seconds a step between these; NaN before the first.
    """

    preset: Preset
    corpus: Corpus
    seed: int
    step: Callable[[Any, Array], tuple[Any, dict[str, Array]]]
    done: int = 0
    busy: float = 0.0
    last: float = 0.0
    pace: float = math.nan

    def some_steps(self, state: State, progress: Callable[[Progress], None] | None) -> State:
        """Up to ten steps, to the next multiple of ten, or one that takes long; then look at the losses."""
        begun = time.monotonic()
        until = min(self.preset.steps, (state.step // LOOK + 1) * LOOK)
        trainable, seen = state.trainable, []
        for number in range(state.step, until):
            started = time.monotonic()
            windows = batch(self.corpus, self.preset, self.seed, number)
            trainable, one = self.step(trainable, jnp.asarray(windows))
            seen.append(one)
            if self._is_slow(one, started, first=self.done + len(seen) == 1):
                until = number + 1
                break
        fresh = {name: np.stack([np.asarray(one[name]) for one in seen]) for name in seen[0]}
        curves = {
            name: np.concatenate([state.curves[name], new]) if state.curves else new for name, new in fresh.items()
        }
        recent = {name: values[-LOOK:] for name, values in curves.items()}
        _check(recent, until)
        spent = time.monotonic() - begun
        self.done, self.busy = self.done + len(seen), self.busy + spent
        self.last, self.pace = spent, spent / len(seen)
        if progress is not None:
            left = (self.preset.steps - until) * self.busy / self.done
            loss = float(np.mean(recent["loss"]))
            progress(Progress(until, self.preset.steps, loss, float(fresh["gradient_norm"][-1]), left))
        return State(trainable, until, curves, state.seconds + spent)

    def _is_slow(self, recorded: dict[str, Array], started: float, *, first: bool) -> bool:
        """Whether a step took long; waits for it unless those before it were fast. The first one compiles."""
        if self.pace <= SLOW_SECONDS:
            return False
        jax.block_until_ready(recorded)
        return not first and time.monotonic() - started > SLOW_SECONDS


def _check(recent: dict[str, np.ndarray], until: int) -> None:
    loss = float(np.mean(recent["loss"]))
    norm = float(np.max(recent["gradient_norm"]))
    bound = math.log(VOCABULARY) + MARGIN
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(f"step {until}: loss {loss:g}, gradient norm {norm:g}: not finite; {ADVICE}")
    if until > LOOK and loss > bound:
        raise Diverged(
            f"step {until}: loss {loss:.3g} nats a byte, above {bound:.3g}, that of a uniform guess + ln 2; {ADVICE}"
        )
