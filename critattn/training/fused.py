"""Causal attention with a hand-written backward pass: few passes over (rows, keys), products that are contiguous.

Automatic differentiation of a normaliser keeps about ten arrays (rows, keys) and reads each again. Here the forward
pass keeps the weights and at most two more, and `sum_j A_j dA_j` comes from the outputs, `dO . O`, which are short.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from critattn.normalisers import Power, ReluPower, Sigmoid, SigmoidL1, Softmax, SoftplusL1
from critattn.normalisers.rows import EQUAL_ULPS
from critattn.protocols import Array, Normaliser

PhiSlope = tuple[Array, Array]
# rows of a block: with 4 heads and 2048 keys, scores of 8 MB
BLOCK = 256


class Kernel(NamedTuple):
    """A normaliser that has a fused form.

    Attributes:
        stage: the first stage, a key of `STAGES`; "sigmoid" for weights without a sum.
        bias_factor: B of a sigmoid's bias -B log i.
        power: p of the re-weighting, above 1; None without.
        free_rows: rows that see at most this many keys have no offset.
    """

    stage: str
    bias_factor: float = 1.0
    power: float | None = None
    free_rows: int = 0


def _exp(logits: Array, _: Array) -> PhiSlope:
    phi = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    return phi, phi


def _softplus(logits: Array, _: Array) -> PhiSlope:
    small = jnp.exp(-jnp.abs(logits))
    phi = jnp.maximum(logits, 0) + jnp.log1p(small)
    return phi, jnp.where(logits >= 0, 1, small) / (1 + small)


def _sigmoid(logits: Array, shift: Array) -> PhiSlope:
    phi = jax.nn.sigmoid(logits - shift)
    return phi, phi * (1 - phi)


def _relu(logits: Array, _: Array) -> PhiSlope:
    return jnp.maximum(logits, 0), (logits > 0).astype(logits.dtype)


STAGES: dict[str, Callable[[Array, Array], PhiSlope]] = {
    "softmax": _exp,
    "softplus-l1": _softplus,
    "sigmoid-l1": _sigmoid,
    "relu": _relu,
}


def kernel_of(normaliser: Normaliser, *, bounded: bool) -> Kernel | None:
    """The fused form of a normaliser, None where it has none.

    Args:
        normaliser: of the layer.
        bounded: the logits are cosines times a beta: softplus of them does not underflow, which the general form of
            softplus and sigmoid over their sum guards against.
    """
    if isinstance(normaliser, Softmax):
        return Kernel("softmax")
    if isinstance(normaliser, Sigmoid):
        return Kernel("sigmoid", float(normaliser.bias_factor))
    if isinstance(normaliser, ReluPower):
        # at p <= 1 the slope y^(p-1) of a key that is cut off is no 0
        if not float(normaliser.p) > 1:
            return None
        stage: Any = normaliser.stage_one
        inner = kernel_of(stage, bounded=bounded)
        if inner is None or inner.stage not in STAGES or inner.power is not None:
            return None
        return inner._replace(power=float(normaliser.p), free_rows=normaliser.offset_free_rows)
    return _bounded_kernel(normaliser) if bounded else None


def _bounded_kernel(normaliser: Normaliser) -> Kernel | None:
    if isinstance(normaliser, SoftplusL1):
        return Kernel("softplus-l1")
    if isinstance(normaliser, SigmoidL1):
        return Kernel("sigmoid-l1", float(normaliser.bias_factor))
    return Kernel("relu") if isinstance(normaliser, Power) and normaliser.p == 1 else None


def _total(values: Array) -> Array:
    return jnp.sum(values, axis=-1, keepdims=True)


def weights(kernel: Kernel, logits: Array) -> tuple[Array, tuple[Array, ...]]:
    """Weights of causal logits (..., rows, keys), -inf after the query, and what the backward pass needs.

    The last row sees all keys, the one before it all but one, and so on.
    """
    rows, keys = logits.shape[-2:]
    seen = jnp.arange(keys - rows + 1, keys + 1, dtype=logits.dtype)[:, None]
    shift = kernel.bias_factor * jnp.log(seen)
    if kernel.stage == "sigmoid":
        found = jax.nn.sigmoid(logits - shift)
        return found, ()
    phi, slope = STAGES[kernel.stage](logits, shift)
    if kernel.power is not None:
        return _reweighted(kernel.power, kernel.free_rows, (phi, slope), seen)
    total = _total(phi)
    if kernel.stage == "softmax":
        return phi * (1 / total), ()
    alive = total > 0
    scale = jnp.where(alive, 1 / jnp.where(alive, total, 1), 0)
    found = (
        jnp.where(alive, phi * scale, jnp.where(logits > -jnp.inf, 1 / seen, 0))
        if kernel.stage == "relu"
        else phi * scale
    )
    return found, (slope * scale,)


def _reweighted(p: float, free_rows: int, stage: PhiSlope, seen: Array) -> tuple[Array, tuple[Array, ...]]:
    phi, slope = stage
    offset = (seen > free_rows).astype(phi.dtype)
    mean = _total(phi) / seen
    there = jnp.arange(phi.shape[-1]) < seen
    excess = jnp.where(there, jnp.maximum(phi - offset * mean, 0), 0)
    largest = jnp.max(excess, axis=-1, keepdims=True)
    alive = largest > EQUAL_ULPS * jnp.finfo(phi.dtype).eps * offset * mean
    scale = jnp.where(alive, 1 / jnp.where(alive, largest, 1), 0)
    ratio = excess * scale
    below = _power(ratio, p - 1)
    masses = below * ratio
    over = jnp.where(alive, 1 / jnp.where(alive, _total(masses), 1), 0)
    found = jnp.where(alive, masses * over, jnp.where(there, 1 / seen, 0))
    return found, (below * (p * over * scale), slope, offset / seen)


def _power(base: Array, exponent: float) -> Array:
    """A power of numbers in [0, 1]; by products where the exponent is whole."""
    return base ** int(exponent) if float(exponent).is_integer() else base**exponent


def pull(kernel: Kernel, saved: tuple[Array, ...], found: Array, cotangent: Array, common: Array) -> Array:
    """Cotangent of the logits.

    Args:
        kernel: of the forward pass.
        saved: what it kept.
        found: the weights A.
        cotangent: dA, of the shape of the weights.
        common: `sum_j A_j dA_j`, (..., rows, 1).
    """
    if kernel.stage == "sigmoid":
        return found * (1 - found) * cotangent
    if kernel.power is not None:
        over, slope, share = saved
        moved = over * (cotangent - common)
        return slope * (moved - share * _total(moved))
    return (found if kernel.stage == "softmax" else saved[0]) * (cotangent - common)


def _logits(queries: Array, keys: Array, cap: float | None, bias: Array) -> tuple[Array, Array | None]:
    scores = jnp.einsum("bhtd,bhsd->bhts", queries, keys)
    if cap is None:
        return scores + bias, None
    bent = jnp.tanh(scores / cap)
    return cap * bent + bias, bent


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(kernel: Kernel, cap: float | None, qkv: tuple[Array, Array, Array], bias: Array) -> Array:
    """Outputs `sum_j A_ij v_j` of causal attention; the bias has no derivative.

    Args:
        kernel: the normaliser.
        cap: z of the soft cap on the scores; None without.
        qkv: queries (already times beta), (batch, heads, rows, d), the last ones of as many as there are keys; keys
            and values, (batch, heads, keys, d).
        bias: (1 or heads, rows, keys), -inf after the query.

    Returns:
        (batch, heads, rows, d).
    """
    return _forward(kernel, cap, qkv, bias)[0]


def attend_in_blocks(kernel: Kernel, cap: float | None, qkv: tuple[Array, Array, Array], bias: Array) -> Array:
    """`attend` on long sequences, in blocks of rows that leave out the keys after them: half the work, in cache."""
    q, k, v = qkv
    n = q.shape[-2]
    ends = [*range(BLOCK, n, BLOCK), n]
    begins = [0, *ends[:-1]]
    found = [
        attend(kernel, cap, (q[..., begin:end, :], k[..., :end, :], v[..., :end, :]), bias[:, begin:end, :end])
        for begin, end in zip(begins, ends, strict=True)
    ]
    return jnp.concatenate([jnp.asarray(one) for one in found], axis=-2)


def _forward(kernel: Kernel, cap: float | None, qkv: tuple[Array, Array, Array], bias: Array) -> tuple[Array, Any]:
    queries, keys, values = qkv
    logits, bent = _logits(queries, keys, cap, bias)
    found, saved = weights(kernel, logits)
    outputs = jnp.einsum("bhts,bhsd->bhtd", found, values)
    return outputs, (qkv, bias, found, saved, bent, outputs)


def _backward(kernel: Kernel, cap: float | None, kept: Any, cotangent: Array) -> tuple[Any, Array]:
    (queries, keys, values), bias, found, saved, bent, outputs = kept
    of_weights = jnp.einsum("bhtd,bhsd->bhts", cotangent, values)
    common = _total(cotangent * outputs)
    of_logits = pull(kernel, saved, found, of_weights, common)
    if bent is not None:
        of_logits = of_logits * (1 - bent * bent)
    of_queries = jnp.einsum("bhts,bhsd->bhtd", of_logits, keys)
    of_keys = jnp.einsum("bhts,bhtd->bhsd", of_logits, queries)
    of_values = jnp.einsum("bhts,bhtd->bhsd", found, cotangent)
    return (of_queries, of_keys, of_values), jnp.zeros_like(bias)


attend.defvjp(_forward, _backward)
