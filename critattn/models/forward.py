"""A trained model, and its forward pass layer by layer."""

import json
import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from critattn.errors import DomainError, SpecError
from critattn.models import block, views
from critattn.models.block import Settings, Weights
from critattn.models.config import Config
from critattn.models.layouts import Layout
from critattn.models.rope import Rope
from critattn.models.views import LayerView
from critattn.protocols import Array, Transform, precision

if TYPE_CHECKING:
    from critattn.models.sources import TensorSource

Visit = Callable[[int, LayerView], None]
MAX_CONFIG_BYTES = 1 << 24


@dataclass(frozen=True)
class Model:
    """A model whose tensors agree with its configuration; weights are read when they are needed.

    Attributes:
        name: of the folder or the file.
        config: what it computes.
        source: its tensors.
        layout: where they are.
    """

    name: str
    config: Config
    source: "TensorSource"
    layout: Layout

    @classmethod
    def of(cls, source: "TensorSource", config: Config, name: str = "") -> "Model":
        """The model of a source, checked against a configuration.

        Raises:
            SpecError: naming the tensor that disagrees.
        """
        return cls(name or source.path.stem, config, source, Layout.of(config, source))

    @property
    def normaliser(self) -> str:
        """Name of what makes weights of the logits."""
        return "softmax"

    @property
    def usual_lengths(self) -> tuple[int, ...]:
        """Lengths that an inspection reads by default; empty for those of every model."""
        return ()

    def layer(self, index: int) -> Weights:
        """Canonical weights of a layer, float32 on the device."""
        return {part: jnp.asarray(array, jnp.float32) for part, array in self.layout.layer(index).items()}

    def settings(self, index: int, n: int, *, transforms: Sequence[Transform] = (), factor: float = 1.0) -> Settings:
        """What is not static in the logits of a layer at length n."""
        config = self.config
        table = None if config.rope is None else _table(config.rope, n)
        slopes = None if config.slopes is None else jnp.asarray(config.slopes, jnp.float32)
        scale = jnp.float32(config.scale_at(index))
        return Settings(scale, slopes, jnp.float32(factor), table, tuple(transforms))


@lru_cache(maxsize=8)
def _table(rope: Rope, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rope.table(n)


def load(path: str | os.PathLike[str]) -> Model:
    """Open a model: a folder or file of safetensors, GGUF or torch; headers alone are read.

    Raises:
        SpecError: for files that cannot be understood, and a configuration that disagrees with the tensors.
    """
    from critattn.models.sources import open_source

    source = open_source(path)
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    values = None if source.kind == "gguf" else read_config(folder / "config.json")
    name = folder.resolve().name if source.kind != "gguf" else source.path.stem
    return Model.of(source, Config.of(source, values), name)


def read_config(path: Path) -> dict[str, Any] | None:
    """A `config.json`; None where there is none.

    Raises:
        SpecError: for a file that is not a JSON object.
    """
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise SpecError(f"{path.name}: has {path.stat().st_size:,} bytes; allowed: up to {MAX_CONFIG_BYTES:,}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path.name}: is not readable as JSON: {' '.join(str(error).split())[:120]}") from error
    if not isinstance(values, dict):
        raise SpecError(f"{path.name}: must be a JSON object of keys")
    return values


def run(
    model: Model,
    sequences: Sequence[np.ndarray],
    *,
    visit: Visit | None = None,
    transforms: Sequence[Transform] = (),
    logit_factor: float = 1.0,
    layers: Collection[int] | None = None,
) -> list[Array]:
    """Run sequences through the model layer by layer; the weights of each layer are read once and released.

    Args:
        model: the model.
        sequences: token numbers, (n,) integers each; equal lengths share compiled functions.
        visit: called with the number of the sequence and the view of each layer, before the layer is left.
        transforms: maps of the scores `scale q.k` before biases. A law of the catalogue contributes its factor m, the
            model's own scale standing for its 1/sqrt(d).
        logit_factor: t, multiplies the final logits of every head.
        layers: the layers that are visited; all by default.

    Returns:
        The final hidden states, (n, width) float32 each, after the last norm.

    Raises:
        SpecError: for tokens outside of the vocabulary, sequences longer than the table of positions, and layers that
            are not there.
        DomainError: for a factor that is no finite number.
    """
    _check_run(model.config, layers, logit_factor)
    checked = [check_tokens(model.config, sequence) for sequence in sequences]
    with precision("float32"):
        states = _embed(model, checked)
        for index in range(model.config.layers):
            weights, config = model.layer(index), model.config.block(index)
            wanted = visit if layers is None or index in layers else None
            for number, state in enumerate(states):
                settings = model.settings(index, state.shape[0], transforms=transforms, factor=logit_factor)
                view = views.enter(state, index=index, config=config, weights=weights, settings=settings)
                if wanted is not None:
                    wanted(number, view)
                states[number] = views.leave(view)
        final = _device(model.layout.outer("final_norm"))
        return [_normed(model.config, final, "final_norm", state) for state in states]


def _check_run(config: Config, layers: Collection[int] | None, factor: float) -> None:
    absent = [layer for layer in layers or () if not 0 <= layer < config.layers]
    if absent:
        raise SpecError(f"layers: {absent[0]}; allowed: 0 to {config.layers - 1}")
    if not math.isfinite(factor):
        raise DomainError.of("logit_factor", factor, "a finite number")


def check_tokens(config: Config, sequence: np.ndarray) -> np.ndarray:
    """A sequence of tokens as (n,) int32.

    Raises:
        SpecError: for an empty sequence, numbers that are no tokens, or a length past the table of positions.
    """
    tokens = np.asarray(sequence)
    if tokens.ndim != 1 or not tokens.size or tokens.dtype.kind not in "iu":
        raise SpecError(f"tokens: have shape {tokens.shape} of {tokens.dtype}; allowed: whole numbers (n,), n >= 1")
    bad = np.flatnonzero((tokens < 0) | (tokens >= config.vocabulary))
    if bad.size:
        where = f"{int(tokens[bad[0]])} at position {bad[0]}"
        raise SpecError(f"tokens: {where}; allowed: 0 to {config.vocabulary - 1}, the model's vocabulary")
    if config.learned_positions and tokens.size > config.max_length:
        raise SpecError(f"tokens: {tokens.size} of them; allowed: up to {config.max_length}, the model's positions")
    return tokens.astype(np.int32)


def _embed(model: Model, sequences: Sequence[np.ndarray]) -> list[Array]:
    config = model.config
    outer = model.layout.outer("tokens", "positions", "types", "embedding_norm")
    states = []
    for tokens in sequences:
        state = outer["tokens"][tokens]
        if config.learned_positions:
            state = state + outer["positions"][: tokens.size]
        if config.token_types:
            state = state + outer["types"][0]
        states.append(jnp.asarray(state, jnp.float32))
    norm = _device({part: array for part, array in outer.items() if part.startswith("embedding_norm")})
    return [_normed(config, norm, "embedding_norm", state) for state in states]


def _device(weights: dict[str, np.ndarray]) -> Weights:
    return {part: jnp.asarray(array, jnp.float32) for part, array in weights.items()}


def _normed(config: Config, weights: Weights, name: str, x: Array) -> Array:
    return block.normed(config, weights, name, x) if name in weights else x
