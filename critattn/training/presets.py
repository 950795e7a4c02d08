"""Sizes of the model and of its training: seconds, minutes, and the published size.

The preset `paper` has the published depth, width and length [arXiv 2501.13428]; bytes instead of tokens leave it 85 M
parameters of the published 124 M. A step takes its batch of 512 in 32 passes (`loop.passes`), each of which keeps 25 GB
for the backward pass under softmax and 38 GB under the re-weighting (all of them at once: 779 and 1205 GB). These
sizes are computed from shapes: no run of this preset has been made here.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from critattn.errors import DomainError, SpecError

# five hundred times the steps of the preset `paper`; more is a slip
MOST_STEPS = 10**7
# of every seed, that of --seed as well
MOST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Shape:
    """Sizes of the model.

    Attributes:
        layers: attention layers.
        width: d, of the residual stream.
        heads: attention heads.
        hidden: width of SwiGLU.
        length: T, the training length in bytes.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    length: int


@dataclass(frozen=True)
class Preset:
    """A model size with its training and evaluation.

    Attributes:
        name: what it is called in records.
        shape: sizes of the model.
        steps: optimiser steps.
        batch: sequences a step.
        learning_rate: at its peak.
        warmup: steps until the peak; a cosine falls to a tenth of it afterwards.
        weight_decay: of AdamW, on matrices.
        clip: largest norm of the gradient.
        prompt_share: share of a batch's sequences that are retrieval prompts.
        answer_weight: weight of a byte of a prompt's answer in the loss; every other byte has 1.
        eval_blocks: blocks of 16 T held-out bytes for the loss.
        eval_prompts: prompts a distance.
    """

    name: str
    shape: Shape
    steps: int
    batch: int
    learning_rate: float
    warmup: int
    weight_decay: float = 0.1
    clip: float = 1.0
    prompt_share: float = 0.0
    answer_weight: float = 1.0
    eval_blocks: int = 32
    eval_prompts: int = 64

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "eval_blocks", "eval_prompts"):
            if not getattr(self, name) >= 1:
                raise DomainError.of(name, getattr(self, name), "at least 1")
        if self.steps > MOST_STEPS:
            raise DomainError.of("steps", self.steps, f"at most {MOST_STEPS}")
        if not 0 <= self.prompt_share < 1:
            raise DomainError.of("prompt_share", self.prompt_share, "in [0, 1)")
        if not 0 < self.answer_weight < math.inf:
            raise DomainError.of("answer_weight", self.answer_weight, "finite and above 0")
        if not 0 <= self.warmup < self.steps:
            raise DomainError.of("warmup", self.warmup, f"in [0, {self.steps})")

    def to_json(self) -> dict[str, Any]:
        """Every field, JSON-ready."""
        return dataclasses.asdict(self)

    def with_steps(self, steps: int) -> "Preset":
        """The same with another number of steps under a name of its own; the warm-up keeps its share of them.

        Raises:
            DomainError: below 1, or above 10^7.
        """
        if steps == self.steps:
            return self
        warmup = self.warmup * steps // self.steps
        return dataclasses.replace(self, name=f"{self.name}-{steps}steps", steps=steps, warmup=warmup)

    @property
    def prompts(self) -> int:
        """Retrieval prompts in a batch; they are its last sequences."""
        return round(self.prompt_share * self.batch)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Preset":
        """The preset of `to_json`."""
        return cls(**{**kept, "shape": Shape(**kept["shape"])})


SMOKE = Shape(layers=2, width=64, heads=2, hidden=128, length=96)
SMALL = Shape(layers=3, width=128, heads=4, hidden=344, length=128)
# the published size and length [arXiv 2501.13428], with bytes instead of tokens
PAPER = Shape(layers=12, width=768, heads=12, hidden=2048, length=1024)

PRESETS = {
    one.name: one
    for one in (
        Preset("smoke", SMOKE, 120, 16, 4e-3, 10, prompt_share=0.25, answer_weight=16.0, eval_blocks=8, eval_prompts=8),
        Preset("small", SMALL, 600, 32, 3e-3, 40, prompt_share=0.5, answer_weight=16.0),
        Preset("small-text", SMALL, 600, 32, 3e-3, 40),
        Preset("paper", PAPER, 18_865, 512, 6e-4, 700, prompt_share=0.125, eval_blocks=64, eval_prompts=200),
    )
}


def preset(name: str) -> Preset:
    """The preset of that name; the head of this module says what `paper` needs.

    Raises:
        SpecError: for an unknown name.
    """
    if name not in PRESETS:
        raise SpecError(f"preset {name!r} is unknown; known: {', '.join(PRESETS)}")
    return PRESETS[name]
