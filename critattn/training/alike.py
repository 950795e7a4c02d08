"""Which variants have the same layers within the training length, so that they are trained alike."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray

from critattn.training.layers import bias_of
from critattn.training.presets import Shape
from critattn.training.variants import Variant, every_variant

# what acts through the bias alone, which is compared itself
WITHIN_BIAS = ("name", "explicit", "log_distance", "clamp")


@functools.cache
def alike(variants: tuple[Variant, ...], shape: Shape) -> tuple[tuple[str, ...], ...]:
    """Groups of variants that compute the same from the same weights in windows of the training length.

    They share positions, normaliser, law, cosines, trained gain and soft cap, and their biases at every distance below
    T are equal to the bit in float32. A clamp that no bias reaches within T makes no difference, for example.

    Args:
        variants: to be compared.
        shape: sizes of the model; biases depend on its heads and its training length.

    Returns:
        The names, each in one group; groups and their members in the order given.
    """
    groups: dict[Any, list[str]] = {}
    for one in variants:
        groups.setdefault((_facts(one), _bias(one, shape)), []).append(one.name)
    return tuple(map(tuple, groups.values()))


def of_dataset(data: xarray.Dataset) -> tuple[tuple[str, ...], ...]:
    """The groups of the variants of a dataset of `collected.dataset`."""
    known, spec = every_variant(), json.loads(data.attrs["spec"])
    there = tuple(known[name] for name in data["variant"].values.tolist() if name in known)
    return alike(there, Shape(**spec["preset"]["shape"]))


def _facts(variant: Variant) -> str:
    facts = {key: value for key, value in variant.to_json().items() if key not in WITHIN_BIAS}
    return repr([(key, sorted(value.items()) if isinstance(value, Mapping) else value) for key, value in facts.items()])


def _bias(variant: Variant, shape: Shape) -> bytes:
    """The penalties of all heads at distances 0 ... T - 1, which are all that the matrix holds."""
    bias = bias_of(variant, shape.heads, shape.length)
    if bias is None:
        return b""
    return np.asarray(bias.amount(jnp.arange(shape.length), jnp), np.float32).tobytes()
