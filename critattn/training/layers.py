"""The attention layer of a variant, built from the package's laws, biases and normalisers."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from critattn import biases, normalisers, scaling
from critattn.attention import Attention, Causal
from critattn.normalisers import Power
from critattn.protocols import Array, Normaliser, Transform
from critattn.training.variants import Variant

# the logarithm of the smallest normal number of float32 and bf16, which the published slopes refer to
THRESHOLD = float(np.log(2.0) * -126)
# blindness distances of explicit slopes, as shares of the training length: 32 ... 8192 at 2048 [arXiv 2608.03994]
NEAREST, FARTHEST = 1 / 64, 4.0


class Parts(NamedTuple):
    """What a causal layer does to scores, as arrays.

    Attributes:
        beta: factor of the scores, a scalar or (rows,).
        cap: z of the soft cap, or None.
        bias: (1 or heads, rows, keys), nats; -inf on keys after the query.
    """

    beta: Array
    cap: float | None
    bias: Array


def normaliser_of(variant: Variant) -> Normaliser:
    """The normaliser; the first stage "relu" is `Power(1)`.

    Raises:
        SpecError: for an unknown name or option.
    """
    how: dict[str, Any] = dict(variant.normaliser_options)
    if how.get("stage_one") == "relu":
        how["stage_one"] = Power(1.0)
    return normalisers.get(variant.normaliser, **how)


def explicit_distances(heads: int, length: int) -> np.ndarray:
    """Blindness distances of the heads, geometric from T/64 to 4T, (heads,) positions."""
    return np.geomspace(length * NEAREST, length * FARTHEST, heads)


def bias_of(variant: Variant, heads: int, length: int) -> biases.DistanceBias | None:
    """The bias for a model of that many heads trained at that length; None without.

    Slopes are those of the ALiBi paper, or m = -tau/d and -tau/ln(1 + d) at the explicit distances
    [docs/theory.md (15.20)].
    """
    if variant.positions != "alibi":
        return None
    if variant.explicit:
        distances = explicit_distances(heads, length)
        slopes = biases.robust_slopes(distances, THRESHOLD, log_distance=variant.log_distance)
    else:
        slopes = biases.alibi_slopes(heads)
    found = biases.LogDistance(slopes) if variant.log_distance else biases.Alibi(slopes)
    return found if variant.clamp is None else biases.Clamp(found, variant.clamp)


def attention_of(variant: Variant, heads: int, length: int) -> Attention:
    """The layer that acts on scores q.k (batch, heads, rows, keys); `length` is the training length."""
    transforms: list[Transform] = [scaling.law(variant.law, **variant.law_parameters)]
    if variant.softcap is not None:
        transforms.append(scaling.SoftCap(variant.softcap))
    bias = bias_of(variant, heads, length)
    if bias is not None:
        transforms.append(bias)
    return Attention(*transforms, normaliser=normaliser_of(variant), mask=Causal())


def parts_of(variant: Variant, heads: int, length: int, *, keys: int, dim: int) -> Parts:
    """What the layer does to the scores of a square causal matrix of `keys` keys, at head dimension `dim`."""
    layer = attention_of(variant, heads, length)
    context = layer.context(jnp.arange(keys), keys, dim)
    law: Any = layer.transforms[0]
    bias = bias_of(variant, heads, length)
    none = jnp.zeros((1, keys, keys))
    added = none if bias is None else bias(none, context)
    after = jnp.triu(jnp.full((keys, keys), -jnp.inf), 1)
    return Parts(law.beta(context), variant.softcap, added + after)
