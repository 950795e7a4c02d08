"""The laws of the theory, which act on cosines, and the register of laws that take a coefficient gamma."""

from typing import Any, Literal

import jax.numpy as jnp

from critattn.errors import DomainError, SpecError
from critattn.protocols import Array, RowContext, ScalingLaw, pytree
from critattn.scaling.lengths import Base, Lengths, scale_rows

Length = Literal["sequence", "row"]


@pytree(meta=("length",))
class LogN:
    """Critical scaling `beta = gamma log n` [Chen 2025, eq. (2.1)].

    Attributes:
        gamma: coefficient of log n; a scalar, or (rows,) for one value per row.
        length: "sequence" takes n = all keys of the layer, "row" takes n = the keys a row may see.
    """

    gamma: Array | float
    length: Length = "sequence"

    @property
    def base(self) -> Base:
        """The scores are cosines, which nothing is divided by."""
        return "1"

    def factor(self, lengths: Lengths) -> Any:
        """Gamma log n, in the array type of the lengths."""
        count = lengths.keys_seen if self.length == "row" else lengths.total_keys
        return self.gamma * lengths.xp.log(count)

    def beta(self, context: RowContext) -> Array:
        """Inverse temperature gamma log n: a scalar, or (rows,) for `length="row"` or a gamma per row."""
        count = context.keys_seen if self.length == "row" else context.total_keys
        return jnp.asarray(self.gamma) * jnp.log(jnp.asarray(count, dtype=jnp.result_type(float)))

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Multiply each row by its beta: logits (..., rows, keys), dtype of the input."""
        return scale_rows(logits, self.beta(context))


@pytree()
class InverseTemperature:
    """A fixed inverse temperature `beta`, whatever n.

    Attributes:
        beta_value: beta, in nats per unit of score.
    """

    beta_value: Array | float

    def beta(self, context: RowContext) -> Array:
        """The fixed beta, a scalar."""
        return jnp.asarray(self.beta_value)

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Multiply the scores by beta: logits (..., rows, keys), dtype of the input."""
        return scale_rows(logits, self.beta(context))


def length(name: str) -> Length:
    """Check the name of the length that enters log n.

    Raises:
        DomainError: for anything but `sequence` and `row`.
    """
    if name == "sequence" or name == "row":
        return name
    raise DomainError.of("length", name, "sequence or row")


_LAWS: dict[str, type] = {"log-n": LogN}


def register(name: str, law: type) -> None:
    """Add a scaling law under a name: a class whose first argument is its coefficient gamma.

    Raises:
        SpecError: where the name is taken.
    """
    if name in _LAWS:
        raise SpecError(f"scaling law {name!r} exists already")
    _LAWS[name] = law


def names() -> list[str]:
    """Names of the scaling laws that take a coefficient gamma; `catalogue` has the others."""
    return sorted(_LAWS)


def get(name: str, gamma: Array | float, **options: str) -> ScalingLaw:
    """The scaling law of that name with coefficient gamma.

    Raises:
        SpecError: for an unknown name.
    """
    if name not in _LAWS:
        raise SpecError(f"scaling law {name!r} is unknown; known: {', '.join(names())}")
    return _LAWS[name](gamma, **options)
