"""One layer as the forward pass meets it: its input, queries, keys and values, and its logits by rows."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from critattn.models import block
from critattn.models.block import Settings, Weights
from critattn.models.config import Config
from critattn.normalisers import Softmax
from critattn.protocols import Array

Map = Callable[[Array], Array]


@dataclass(frozen=True)
class LayerView:
    """What one layer does with one sequence of n tokens.

    A view holds the layer's weights: keep what is computed from it rather than the view.

    Attributes:
        index: the layer, from 0.
        config: the block's configuration, with the layer's own window.
        hidden: (n, width) residual stream that enters the block.
        attention_input: (n, width) normalised input of attention; the stream itself in post-norm models.
        queries: (heads, n, head_dim), after rotation, without the scale.
        keys: (kv_heads, n, head_dim), likewise.
        values: (kv_heads, n, head_dim).
        weights: the layer's canonical weights.
        settings: scale, slopes, intervention and rotation.
    """

    index: int
    config: Config
    hidden: Array
    attention_input: Array
    queries: Array
    keys: Array
    values: Array
    weights: Weights
    settings: Settings

    @property
    def n(self) -> int:
        """Tokens of the sequence."""
        return self.hidden.shape[0]

    def scores(self, rows: Array | np.ndarray) -> Array:
        """`scale q.k` of query rows (rows,) integers: (heads, rows, n)."""
        return _scores(self.settings, (self.queries, self.keys), jnp.asarray(rows))

    def logits(self, rows: Array | np.ndarray) -> Array:
        """Logits in nats before the mask, with bias, soft cap and intervention: (heads, rows, n)."""
        return _logits(self.config, self.settings, (self.queries, self.keys), jnp.asarray(rows))

    @property
    def softmax(self) -> bool:
        """Softmax makes the weights of the logits."""
        return self.settings.attention is None or isinstance(self.settings.attention.normaliser, Softmax)

    def log_weights(self, rows: Array | np.ndarray) -> Array:
        """Logarithms of the weights up to a constant of the row, (heads, rows, n), in nats.

        The logits where softmax makes the weights; else those of the layer's own normaliser, -inf where it cuts off.
        """
        return _log_weights(self.config, self.settings, (self.queries, self.keys), jnp.asarray(rows))

    def allowed(self, rows: Array | np.ndarray) -> Array:
        """The keys that these rows may see, booleans (rows, n)."""
        return block.allowed_keys(self.config, block.context_of(self.config, jnp.asarray(rows), self.n))

    @property
    def attention_map(self) -> Map:
        """Output of attention (n, width), before the residual sum, as a function of its normalised input (n, width)."""
        return lambda x: _attention(self.config, self.weights, self.settings, x)

    def head_map(self, head: int) -> Map:
        """`sum_j A_ij v_j` of one head, (n, head_dim), as a function of the normalised input (n, width).

        A `jax.tree_util.Partial`: what is compiled of it serves all heads and layers of the same shape.
        """
        if self.config.qk_norm or self.settings.attention is not None:
            return jax.tree_util.Partial(_OneHead(self.config), self.weights, self.settings, head)
        settings = _of_head(self.settings, self.config.heads, head)
        weights = _head_weights(self.config, self.weights, head)
        return jax.tree_util.Partial(_OneHead(one_head(self.config)), weights, settings, 0)


@dataclass(frozen=True)
class _OneHead:
    """A function that equals another of the same configuration."""

    config: Config

    def __call__(self, weights: Weights, settings: Settings, place: Array, x: Array) -> Array:
        return _attended_of_all(self.config, weights, settings, x)[place]


def one_head(config: Config) -> Config:
    """The configuration of a single head of a layer."""
    slopes = None if config.slopes is None else (0.0,)
    return dataclasses.replace(config, heads=1, kv_heads=1, slopes=slopes)


def _head_weights(config: Config, weights: Weights, head: int) -> Weights:
    """Rows of q, k and v that belong to a head."""
    places = {"q": head, "k": head // config.group, "v": head // config.group}
    size, found = config.head_dim, {}
    for name, place in places.items():
        for part in (name, f"{name}_bias"):
            if part in weights:
                found[part] = weights[part][place * size : (place + 1) * size]
    return found


def _of_head(settings: Settings, heads: int, head: int) -> Settings:
    """Settings of one head: its slope, and its own values of transforms that have one for each head."""
    slopes = None if settings.slopes is None else settings.slopes[head : head + 1]
    own = jax.tree_util.tree_map(
        lambda leaf: leaf[head : head + 1] if jnp.ndim(leaf) == 2 and jnp.shape(leaf)[0] == heads else leaf,
        settings.transforms,
    )
    return dataclasses.replace(settings, slopes=slopes, transforms=own)


def enter(hidden: Array, *, index: int, config: Config, weights: Weights, settings: Settings) -> LayerView:
    """The view of a layer on a residual stream (n, width); `config` is that of the block."""
    x, q, k, v = _enter(config, weights, settings, hidden)
    return LayerView(index, config, hidden, x, q, k, v, weights, settings)


def leave(view: LayerView) -> Array:
    """The residual stream after the layer, (n, width)."""
    state = (view.hidden, view.attention_input, view.queries, view.keys, view.values)
    return _leave(view.config, view.weights, view.settings, state)


@partial(jax.jit, static_argnames=("config",))
def _enter(config: Config, weights: Weights, settings: Settings, hidden: Array) -> tuple[Array, ...]:
    x = hidden if config.post_norm else block.normed(config, weights, "norm1", hidden)
    return (x, *block.project(config, weights, x, settings.table))


@partial(jax.jit, static_argnames=("config",))
def _leave(config: Config, weights: Weights, settings: Settings, state: tuple[Array, ...]) -> Array:
    hidden, x, q, k, v = state
    attended = block.output(weights, block.attend(config, settings, (q, k, v)))
    return block.joined(config, weights, (hidden, x), attended)


@jax.jit
def _scores(settings: Settings, qk: tuple[Array, Array], rows: Array) -> Array:
    q, k = qk
    return block.scores_of(q, k, rows, settings.scale)


@partial(jax.jit, static_argnames=("config",))
def _logits(config: Config, settings: Settings, qk: tuple[Array, Array], rows: Array) -> Array:
    q, k = qk
    context = block.context_of(config, rows, q.shape[1])
    return block.logits_of(config, settings, block.scores_of(q, k, rows, settings.scale), context)


@partial(jax.jit, static_argnames=("config",))
def _log_weights(config: Config, settings: Settings, qk: tuple[Array, Array], rows: Array) -> Array:
    q, k = qk
    context = block.context_of(config, rows, q.shape[1])
    logits = block.logits_of(config, settings, block.scores_of(q, k, rows, settings.scale), context)
    return block.log_weights_of(settings, logits, context, block.allowed_keys(config, context))


@partial(jax.jit, static_argnames=("config",))
def _attention(config: Config, weights: Weights, settings: Settings, x: Array) -> Array:
    return block.attention(config, weights, settings, x)


@partial(jax.jit, static_argnames=("config",))
def _attended_of_all(config: Config, weights: Weights, settings: Settings, x: Array) -> Array:
    return block.attend(config, settings, block.project(config, weights, x, settings.table))
