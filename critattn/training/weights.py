"""Trained weights as small files: float16 arrays under stable names, and a header that says what made them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from critattn.errors import DomainError, SpecError, StoreError
from critattn.reading import reason
from critattn.training.checkpoints import lacking, read_arrays, readable, write_arrays
from critattn.training.model import Decoder, make
from critattn.training.presets import Shape
from critattn.training.variants import Variant

FORMAT = "critattn-decoder-1"


def names(model: Decoder) -> dict[str, Any]:
    """The arrays of a decoder by name, such as `blocks.0.qkv`, in the order of the pytree."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {_dotted(path): leaf for path, leaf in leaves}


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(part, "name", getattr(part, "idx", part))) for part in path)


def rounded(model: Decoder) -> Decoder:
    """The model with every array rounded to float16 and back: what a weights file holds.

    Raises:
        StoreError: where an array has a number beyond float16.
    """

    def one(leaf: Any) -> Any:
        half = jnp.asarray(leaf, jnp.float16)
        if not bool(jnp.all(jnp.isfinite(half))):
            raise StoreError(f"weights: hold {float(jnp.max(jnp.abs(leaf))):g}; allowed: below 65504 in float16")
        return half.astype(jnp.float32)

    return jax.tree.map(one, model)


def save(path: str | os.PathLike[str], model: Decoder, header: Mapping[str, Any]) -> None:
    """Write the arrays as float16 with a JSON header: the variant, the sizes, and what the caller adds.

    Args:
        path: of the npz file.
        model: the decoder.
        header: command, seed, hashes, versions, the loss before and after rounding.

    Raises:
        StoreError: where it cannot be written, or a weight is beyond float16.
    """
    arrays = {name: np.asarray(leaf, np.float16) for name, leaf in names(rounded(model)).items()}
    sizes = {name: int(getattr(model.shape, name)) for name in Shape.__dataclass_fields__}
    own = {"format": FORMAT, "variant": model.variant.to_json(), "shape": sizes}
    write_arrays(Path(path), arrays, {**header, **own})


def load(path: str | os.PathLike[str]) -> tuple[Decoder, dict[str, Any]]:
    """A decoder in float32 and the header of its file.

    Raises:
        StoreError: where the file cannot be read, is not of this format, or does not hold the model that it states.
    """
    file = Path(path)
    arrays, header = read_arrays(file)
    if header.get("format") != FORMAT:
        raise StoreError(f"{str(file)!r}: has format {header.get('format')!r}; allowed: {FORMAT!r}")
    lacking(file, header, {"shape": dict, "variant": dict})
    with readable(file):
        empty = _structure(file, header)
        wanted = names_of_structure(empty)
        if {name: leaf.shape for name, leaf in wanted.items()} != {name: leaf.shape for name, leaf in arrays.items()}:
            raise StoreError(f"{str(file)!r}: its arrays are not those of the model that its header states")
        leaves = [jnp.asarray(arrays[name], jnp.float32) for name in wanted]
    return jax.tree_util.tree_structure(empty).unflatten(leaves), header


def _structure(file: Path, header: Mapping[str, Any]) -> Any:
    try:
        shape, variant = Shape(**header["shape"]), Variant.from_json(header["variant"])
        return jax.eval_shape(lambda: make(variant, shape, 0))
    except (DomainError, SpecError, TypeError) as error:
        raise StoreError(f"{str(file)!r}: its header states no model: {reason(error)}") from error


def names_of_structure(model: Any) -> dict[str, Any]:
    """The leaves of a decoder of shapes by name, in the order of the pytree."""
    return {_dotted(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(model)}
