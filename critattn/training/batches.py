"""What a step sees, a function of the seed and of the step alone, so that a resumed run goes on as if never stopped."""

import numpy as np

from critattn.errors import SpecError
from critattn.training import prompts
from critattn.training.corpus import Corpus
from critattn.training.presets import Preset


def windows(text: np.ndarray, rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Stretches of a text at random places, (count, length) uint8.

    Raises:
        SpecError: where the text is shorter.
    """
    if text.size < length:
        raise SpecError(f"corpus: has {text.size} bytes; allowed: at least {length} for one sequence")
    begins = rng.integers(0, text.size - length + 1, count)
    return text[begins[:, None] + np.arange(length)]


def batch(corpus: Corpus, preset: Preset, seed: int, step: int) -> np.ndarray:
    """The sequences of a step, (batch, T + 1) uint8: text, then the share of prompts, of both kinds in turn."""
    rng = np.random.default_rng([seed, step])
    length = preset.shape.length + 1
    found = windows(corpus.train, rng, preset.batch, length)
    for place in range(preset.prompts):
        kind = prompts.KINDS[(place + step) % len(prompts.KINDS)]
        found[preset.batch - 1 - place] = prompts.make(kind, rng, length, text=corpus.train)
    return found
