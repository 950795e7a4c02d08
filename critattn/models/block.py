"""The transformer block of every family, from canonical weights and a static configuration."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from critattn.attention import Attention, Bidirectional, Causal, Window, map_row_blocks
from critattn.biases import round_to
from critattn.models.config import Config
from critattn.models.own_weights import log_weights
from critattn.models.rope import rotate
from critattn.protocols import Array, RowContext, Transform, pytree
from critattn.scaling import Law, ScaleInvariant

Weights = dict[str, Array]
BLOCK_BYTES = 8 << 20
LEAST_ROWS = 16
# keeps the derivative of x/|x| finite at 0
UNIT_EPSILON = 1e-6
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


@pytree()
class Settings:
    """What is not static in the logits of a layer.

    Attributes:
        scale: multiplies q.k.
        slopes: (heads,) ALiBi slopes, or None.
        factor: multiplies the final logits, t of an intervention.
        table: cosine and sine of the rotation, (n, dims/2) each, or None.
        transforms: scaling laws and other maps of the scores, before biases.
        attention: a layer of the package that makes weights of the scores after the transforms: its law, cap, bias
            and normaliser; None for softmax with what the configuration says.
    """

    scale: Array
    slopes: Array | None
    factor: Array
    table: tuple[Any, Any] | None
    transforms: tuple[Transform, ...] = ()
    attention: Attention | None = None


def linear(weights: Weights, name: str, x: Array) -> Array:
    """`x W^T + b`, W (out, in), at full precision on any device."""
    product = jnp.matmul(x, weights[name].T, precision="highest")
    return product + weights[f"{name}_bias"] if f"{name}_bias" in weights else product


def normed(config: Config, weights: Weights, name: str, x: Array) -> Array:
    """`w x/sqrt(mean x^2 + e)`, or the same of x less its mean, plus a bias where there is one."""
    if config.norm == "layer":
        x = x - jnp.mean(x, axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + config.norm_eps) * weights[name]
    return x + weights[f"{name}_bias"] if f"{name}_bias" in weights else x


def project(config: Config, weights: Weights, x: Array, table: Any) -> tuple[Array, Array, Array]:
    """Queries (heads, n, head_dim), keys and values (kv_heads, n, head_dim) of a normalised input x (n, width)."""
    q, k, v = (linear(weights, name, x) for name in "qkv")
    if config.clip is not None:
        q, k, v = (jnp.clip(part, -config.clip, config.clip) for part in (q, k, v))
    if config.qk_norm is True:
        q, k = normed(config, weights, "q_norm", q), normed(config, weights, "k_norm", k)
    q, k, v = (jnp.swapaxes(part.reshape(x.shape[0], -1, config.head_dim), 0, 1) for part in (q, k, v))
    if config.qk_norm == "cosine":
        q, k = _unit(q), _unit(k)
    if config.rope is not None:
        q, k = (rotate(part, table, config.rope.interleaved) for part in (q, k))
    return q, k, v


def _unit(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + UNIT_EPSILON**2)


def mask_of(config: Config) -> Attention:
    """The layer's mask, as an attention layer without transforms."""
    if not config.causal:
        return Attention(mask=Bidirectional())
    return Attention(mask=Causal() if config.window is None else Window(config.window))


def allowed_keys(config: Config, context: RowContext) -> Array:
    """Booleans (rows, n)."""
    found = mask_of(config).allowed(context)
    shape = (context.query_positions.shape[0], context.total_keys)
    return jnp.ones(shape, bool) if found is None else found


def context_of(config: Config, rows: Array, n: int) -> RowContext:
    """What the rows at these positions know about themselves."""
    return mask_of(config).context(rows, n, config.head_dim)


def scores_of(q: Array, k: Array, rows: Array, scale: Array) -> Array:
    """`scale q.k`, (heads, rows, n)."""
    kv, n, size = k.shape
    chosen = q[:, rows].reshape(kv, -1, size)
    products = jnp.matmul(chosen, jnp.swapaxes(k, 1, 2), precision="highest")
    return products.reshape(q.shape[0], rows.shape[0], n) * scale.astype(q.dtype)


def logits_of(config: Config, settings: Settings, scores: Array, context: RowContext) -> Array:
    """Logits before the mask of scores (heads, rows, n): transforms, then ALiBi, then the soft cap, then the factor."""
    logits = scores
    for transform in settings.transforms:
        logits = _transformed(transform, logits, context)
    if settings.attention is not None:
        logits = settings.attention.logits(logits, context)
    if settings.slopes is not None:
        bias = _alibi(config, settings.slopes.astype(logits.dtype), context)
        logits = logits + (bias * settings.scale.astype(logits.dtype) if config.bias_scaled else bias)
    if config.softcap is not None:
        logits = config.softcap * jnp.tanh(logits / config.softcap)
    return logits * settings.factor.astype(logits.dtype)


def weights_of(settings: Settings, logits: Array, context: RowContext, where: Array) -> Array:
    """Weights of logits (heads, rows, n) by softmax, or by the layer's own normaliser."""
    if settings.attention is None:
        return jax.nn.softmax(jnp.where(where, logits, -jnp.inf), axis=-1)
    return settings.attention.normaliser(logits, context, where=where)


def log_weights_of(settings: Settings, logits: Array, context: RowContext, where: Array) -> Array:
    """Logarithms of these weights up to a constant of the row: the logits under softmax; -inf where a weight is 0."""
    if settings.attention is None:
        return logits
    return log_weights(settings.attention.normaliser, logits, context, where)


def _transformed(transform: Transform, scores: Array, context: RowContext) -> Array:
    """A law of the catalogue carries the scale 1/sqrt(d) itself; here the model's own scale stands in its place."""
    carries_scale = isinstance(transform, ScaleInvariant) or (isinstance(transform, Law) and transform.base != "1")
    return transform(scores * context.dim**0.5 if carries_scale else scores, context)


def _alibi(config: Config, slopes: Array, context: RowContext) -> Array:
    """`-m |i - j|`; `m j` of rounded numbers where the family rounds, which the weights then show."""
    if config.bias_format is None:
        distance = jnp.abs(context.query_positions[:, None] - context.key_positions[None, :])
        return -slopes[:, None, None] * distance.astype(slopes.dtype)
    parts = (slopes[:, None, None], context.key_positions.astype(slopes.dtype)[None, None, :])
    slope, position = (round_to(part, config.bias_format) for part in parts)
    return round_to(slope * position, config.bias_format)


def attend(config: Config, settings: Settings, qkv: tuple[Array, Array, Array]) -> Array:
    """`sum_j A_ij v_j` of every head, (heads, n, head_dim), in blocks of rows."""
    q, k, v = qkv
    n, kv = q.shape[1], k.shape[0]
    rows = max(LEAST_ROWS, BLOCK_BYTES // (4 * q.shape[0] * n))

    def block(positions: Array) -> Array:
        context = context_of(config, positions, n)
        logits = logits_of(config, settings, scores_of(q, k, positions, settings.scale), context)
        weights = weights_of(settings, logits, context, allowed_keys(config, context))
        mixed = jnp.matmul(weights.reshape(kv, -1, n), v, precision="highest")
        return jnp.swapaxes(mixed.reshape(-1, positions.shape[0], config.head_dim), 0, 1)

    return jnp.swapaxes(map_row_blocks(jax.checkpoint(block), jnp.arange(n), rows), 0, 1)


def attention(config: Config, weights: Weights, settings: Settings, x: Array) -> Array:
    """Output of attention (n, width) of a normalised input x (n, width)."""
    return output(weights, attend(config, settings, project(config, weights, x, settings.table)))


def output(weights: Weights, mixed: Array) -> Array:
    """Heads (heads, n, head_dim) joined and projected, (n, width)."""
    return linear(weights, "out", jnp.swapaxes(mixed, 0, 1).reshape(mixed.shape[1], -1))


def activation(config: Config) -> Callable[[Array], Array]:
    """The activation of the MLP; the names not listed are those of the tanh approximation of gelu."""
    return ACTIVATIONS.get(config.activation, jax.nn.gelu)


def mlp(config: Config, weights: Weights, x: Array) -> Array:
    """`W_down act(W_up x)`, or `W_down (act(W_gate x) W_up x)`, (n, width)."""
    act = activation(config)
    up = linear(weights, "up", x)
    return linear(weights, "down", act(linear(weights, "gate", x)) * up if config.gated else act(up))


def joined(config: Config, weights: Weights, streams: tuple[Array, Array], attended: Array) -> Array:
    """The residual stream after the block, (n, width).

    Args:
        config: of the block.
        weights: of the block.
        streams: the residual stream that enters, and the normalised input of attention, (n, width) each.
        attended: output of attention, (n, width).
    """
    hidden, x = streams
    if config.post_norm:
        middle = normed(config, weights, "norm1", hidden + attended)
        return normed(config, weights, "norm2", middle + mlp(config, weights, middle))
    if config.parallel:
        read = normed(config, weights, "norm2", hidden) if config.mlp_norm else x
        return hidden + attended + mlp(config, weights, read)
    middle = hidden + attended
    return middle + mlp(config, weights, normed(config, weights, "norm2", middle))
