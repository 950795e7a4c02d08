"""Biases linear and logarithmic in the distance."""

import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from critattn import formats
from critattn.biases.base import DistanceBias, Number, distances, per_head
from critattn.biases.casts import rounded_where_asked
from critattn.errors import SpecError
from critattn.protocols import Array, RowContext, pytree

FORMS = ("relative", "absolute")


@pytree(meta=("form", "format"))
class Alibi(DistanceBias):
    """Attention with linear biases, `-m |i - j|`, or `+m j`, which differs by a constant of the row [arXiv 2108.12409].

    Under a causal mask the two give the same weights in exact arithmetic and not in a number format: `+m j` is rounded
    at the size of the position, `-m |i - j|` at that of the distance [docs/theory.md (15.15)].

    Attributes:
        slope: m, nats a position; a number or (heads,).
        form: relative or absolute.
        format: the number format to which the bias is rounded before it is added; None for the dtype of the logits.
    """

    slope: Number
    form: Literal["relative", "absolute"] = "relative"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise SpecError(f"form {self.form!r} is unknown; known: {', '.join(FORMS)}")
        if self.format is not None:
            object.__setattr__(self, "format", formats.get(self.format).name)

    def parameters(self) -> dict[str, Any]:
        """The slope."""
        return {"slope": self.slope}

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`m d`, in nats."""
        return per_head(self.slope, xp) * distance

    def inverse(self, amount: float) -> float:
        """`b/m`."""
        return max(0.0, amount) / float(self.slope)

    def log_sum(self, scale: float = 1.0, length: int | None = None) -> float:
        """`ln((1 - e^(-m N))/(1 - e^(-m)))`, `-ln(1 - e^(-m))` without N [docs/theory.md (15.4)]."""
        slope = float(self.slope) * scale
        if length is None:
            return -math.log(-math.expm1(-slope)) if slope > 0 else math.inf
        # below this the terms differ from 1 by less than they are rounded; the product may underflow to 0
        if slope * length < 1e-17:
            return math.log(length)
        return math.log(math.expm1(-slope * length) / math.expm1(-slope))

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Add the bias: logits (..., rows, keys), dtype of the input; the product is taken in float32 or wider."""
        wide = jnp.promote_types(logits.dtype, jnp.float32)
        if self.form == "absolute":
            product = self.amount(context.key_positions[None, :].astype(wide), jnp)
        else:
            product = -self.amount(distances(context).astype(wide), jnp)
        return logits + rounded_where_asked(product, self.format).astype(logits.dtype)


@pytree()
class LogDistance(DistanceBias):
    """`-m ln(1 + |i - j|)`: weights fall as the power (1 + d)^(-m) of the distance [docs/theory.md (15.5)].

    Attributes:
        slope: m, nats a unit of ln(1 + d); a number or (heads,).
    """

    slope: Number

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`m ln(1 + d)`, in nats."""
        return per_head(self.slope, xp) * xp.log1p(distance)

    def inverse(self, amount: float) -> float:
        """`e^(b/m) - 1`."""
        return _expm1(max(0.0, amount) / float(self.slope))

    def log_inverse(self, amount: float) -> float:
        """`ln(e^(b/m) - 1)`."""
        return log_expm1(max(0.0, amount) / float(self.slope))


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 709 else math.inf


def log_expm1(value: float) -> float:
    """`ln(e^x - 1)` without overflow; -infinity at 0."""
    if value <= 0:
        return -math.inf
    return value + math.log(-math.expm1(-value))
