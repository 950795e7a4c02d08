"""What the parts of an attention layer agree on: contexts, transforms, normalisers, estimates, dtypes."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, dataclass_transform, runtime_checkable

import jax
import numpy as np
from jax.core import Tracer

from critattn.errors import DomainError

T = TypeVar("T")
Array = jax.Array


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def pytree(*, meta: tuple[str, ...] = ()):
    """Make a frozen dataclass a JAX pytree: every field is data, except those named in `meta`.

    Args:
        meta: names of the fields that are static (hashable, part of the compilation key).
    """

    def register(cls: type[T]) -> type[T]:
        frozen: Any = dataclass(frozen=True)(cls)
        data = [field.name for field in dataclasses.fields(frozen) if field.name not in meta]

        def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            return tuple(getattr(node, name) for name in data), tuple(getattr(node, name) for name in meta)

        def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            values, static = flatten(node)
            return tuple(zip(map(jax.tree_util.GetAttrKey, data), values, strict=True)), static

        def unflatten(static: tuple[Any, ...], values: Any) -> Any:
            return frozen(**dict(zip(data, values, strict=True)), **dict(zip(meta, static, strict=True)))

        # not register_dataclass: its tree structures compare equal for any two classes of the same field names, and
        # where their hashes meet in a table, jit runs what it compiled for the other class
        jax.tree_util.register_pytree_with_keys(frozen, flatten_with_keys, unflatten, flatten)
        return frozen

    return register


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error.

    Attributes:
        value: the number, in the unit of the observable.
        standard_error: one standard deviation of the estimator, of a sample of m rows widened for skewness so that the
            95 % interval of Student with m - 1 degrees of freedom holds; None where the value is exact to rounding.
    """

    value: float
    standard_error: float | None = None


@pytree(meta=("total_keys", "dim"))
class RowContext:
    """What a block of query rows knows about itself.

    Attributes:
        query_positions: (rows,) integers, the position of each query.
        key_positions: (keys,) integers, the position of each key.
        keys_seen: (rows,) integers, how many keys a row may attend to under the mask.
        total_keys: number of keys n of the whole layer.
        dim: dimension d of queries and keys.
        own_positions: (rows,) integers, the position of each query within its own document; None where there is one
            document, in which it is the position itself.
    """

    query_positions: Array
    key_positions: Array
    keys_seen: Array
    total_keys: int
    dim: int
    own_positions: Array | None = None


class JacobianParts(NamedTuple):
    """The row Jacobian dA_i/ds_i = diag(g) - u g^T - c B^T of a normaliser [derived, docs/theory.md (3.1)].

    Each is shaped like the weights; `c` and `b` are None for a normaliser with a single rank-one term.
    """

    g: Array
    u: Array
    c: Array | None = None
    b: Array | None = None


class Masses(NamedTuple):
    """Weights before they are divided by their sum: `A_j = values_j / sum_k values_k`.

    Attributes:
        values: (..., rows, keys), at least 0; 0 on forbidden keys.
        logs: their logarithms, anything finite where a value is 0.
    """

    values: Array
    logs: Array


@runtime_checkable
class Transform(Protocol):
    """A map from logits to logits; the order of application is the order in `Attention`."""

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Map logits (..., rows, keys) to logits of the same shape, in nats."""
        ...


@runtime_checkable
class ScalingLaw(Transform, Protocol):
    """A transform that multiplies a row of scores by an inverse temperature."""

    def beta(self, context: RowContext) -> Array:
        """Inverse temperature per row: a scalar or (rows,)."""
        ...


@runtime_checkable
class Normaliser(Protocol):
    """A map from a row of logits to a row of weights.

    Weights of a row without any allowed key are 0. Where a row sees keys but the map gives no weight to any of them, a
    normaliser of unit row mass gives equal weights.

    A normaliser may offer more. `masses(logits, *, where, shift) -> Masses`, where `shift` (rows,) is an upper bound of
    the logits of a row: row observables then come from sums of the masses, without the weights.
    `dead_rows(logits, context, *, where) -> (..., rows)` booleans: rows that see keys, to none of which the map gives
    weight. `log_phi` and `log_slope` of `normalisers.FirstStage`: it can be re-weighted.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    @property
    def analytic(self) -> bool:
        """The weights are analytic in the logits."""
        ...

    @property
    def full_support(self) -> bool:
        """Every allowed key has positive weight, underflow aside."""
        ...

    @property
    def shift_invariant(self) -> bool:
        """Adding a constant to a row changes nothing."""
        ...

    @property
    def unit_row_mass(self) -> bool:
        """The weights of a row with an allowed key sum to 1; else the sum is free."""
        ...

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape; keys where `where` is False get 0."""
        ...

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """The parts of the row Jacobian at these logits."""
        ...


DTYPES = ("float32", "float64")


def check_dtype(dtype: Any) -> str:
    """Canonical name of a supported dtype.

    Raises:
        DomainError: for anything but float32 and float64.
    """
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise DomainError.of("dtype", name, "float32 or float64")
    return name


@contextlib.contextmanager
def precision(dtype: Any) -> Iterator[np.dtype]:
    """Run a block at the given precision: JAX's 64-bit mode is on inside for float64, off for float32.

    Matrix products run at full precision inside, so that a GPU does not round float32 to TF32.

    Raises:
        DomainError: for an unknown dtype.
    """
    name = check_dtype(dtype)
    with jax.enable_x64(name == "float64"), jax.default_matmul_precision("highest"):
        yield np.dtype(name)


def map_layers(function: Callable[[Any], T], layers: Any) -> T:
    """A function of one layer on each layer of a batch, its results stacked along a leading axis (batch,).

    Args:
        function: maps a layer to a pytree of arrays.
        layers: a layer whose leaves have a leading axis (batch,); one without leaves is a batch of one.
    """
    if jax.tree_util.tree_leaves(layers):
        return jax.lax.map(function, layers)
    return jax.tree_util.tree_map(lambda x: x[None], function(layers))


def refuse_tracers(name: str, tree: Any) -> None:
    """Host-side drivers switch precision, which a trace that has begun cannot follow.

    Raises:
        DomainError: where a leaf of `tree` is traced by the caller's jit, vmap or grad.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves(tree)):
        raise DomainError(
            f"{name}: is traced by jit, vmap or grad; this driver chooses its own precision and runs outside of "
            "them (inside, use attention_step and attention_weights, which follow the dtype of their input)"
        )


def as_host(array: Any) -> np.ndarray:
    """A float64 numpy copy of a device array, for reductions on the host in fixed order."""
    return np.asarray(array).astype(np.float64)
