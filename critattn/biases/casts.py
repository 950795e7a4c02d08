"""Rounding to a number format at any place among the transforms."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from critattn import formats
from critattn.protocols import Array, RowContext, pytree


@partial(jax.jit, static_argnames=("name", "saturate"))
def round_to(values: Array, name: str, *, saturate: bool = False) -> Array:
    """Values as the format holds them, in the dtype of the input: nearest, ties to even [docs/theory.md (15.14)].

    Written as arithmetic: XLA may drop a pair of conversions, and its `reduce_precision` flushes the subnormals of the
    narrower format. What is too large becomes infinity, or NaN in a format without infinity. The derivative is 1.
    Subnormals of the dtype of the input itself are at the mercy of the backend, which may flush them.

    Args:
        values: any shape, float32 or float64; a dtype below float32 is widened for the rounding.
        name: a format of `critattn.formats`.
        saturate: what is too large becomes the largest number instead, infinities included.

    Returns:
        An array of the shape and dtype of the input.

    Raises:
        SpecError: for an unknown format.
    """
    stated = formats.get(name)
    values = jnp.asarray(values)
    wide = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return _rounded(wide, stated.name, saturate).astype(values.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _rounded(values: Array, name: str, saturate: bool) -> Array:
    stated = formats.get(name)
    unit = jnp.maximum(_exponent(values), stated.least_exponent) - stated.significand_bits + 1
    rounded = _times_power(jnp.round(_times_power(values, -unit)), unit)
    most = stated.largest if saturate else jnp.inf if stated.has_infinity else jnp.nan
    beyond = (jnp.abs(rounded) > stated.largest) | jnp.isinf(values)
    return jnp.where(beyond, jnp.copysign(most, values), rounded).astype(values.dtype)


@_rounded.defjvp
def _as_identity(name: str, saturate: bool, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _rounded(primals[0], name, saturate), tangents[0]


def _exponent(values: Array) -> Array:
    """`floor(log2 |x|)` from the bits of normal numbers; one below the least exponent for 0 and subnormals."""
    info = jnp.finfo(values.dtype)
    bits = jax.lax.bitcast_convert_type(values, f"int{info.bits}")
    return ((bits >> info.nmant) & (2**info.nexp - 1)) - (info.maxexp - 1)


def _times_power(values: Array, exponent: Array) -> Array:
    """`x 2^k` in two exact steps: 2^k itself may leave the range of the dtype."""
    info = jnp.finfo(values.dtype)
    half = exponent // 2
    for part in (half, exponent - half):
        power = jax.lax.bitcast_convert_type((part + (info.maxexp - 1)) << info.nmant, values.dtype)
        values = values * power
    return values


@pytree(meta=("format", "saturate"))
class Cast:
    """Round the logits to a number format, wherever it stands in the order of the transforms.

    `Attention(Alibi(m, form="absolute"), Cast("bf16"))` is a sum of scores and biases kept in bfloat16. Sums of the
    normaliser keep the dtype of the logits.

    Attributes:
        format: a name of `critattn.formats`, 8-bit ones included.
        saturate: what is too large becomes the largest number; else infinity, or NaN in a format without infinity.
    """

    format: str
    saturate: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", formats.get(self.format).name)

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Rounded logits, of the same shape and dtype."""
        return round_to(logits, self.format, saturate=self.saturate)


def rounded_where_asked(values: Any, name: str | None) -> Any:
    """`round_to`, or the values themselves where no format is named."""
    return values if name is None else round_to(values, name)
