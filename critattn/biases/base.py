"""What the biases share: a penalty that depends on the distance between query and key alone."""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from critattn.errors import DomainError
from critattn.protocols import Array, RowContext

Number = Array | np.ndarray | float


def per_head(value: Any, xp: Any) -> Any:
    """A parameter of one head as it is; one of (heads,) with two axes more, for the rows and the keys."""
    value = xp.asarray(value)
    return value[..., None, None] if value.ndim else value


def distances(context: RowContext) -> Array:
    """|i - j|, (rows, keys) integers."""
    return jnp.abs(context.query_positions[:, None] - context.key_positions[None, :])


@dataclass(frozen=True)
class DistanceBias(ABC):
    """`B_ij = -b(d)`, d = |i - j|, added to the logits.

    Parameters are numbers, or arrays of (heads,) that meet a leading axis of the logits (..., heads, rows, keys). The
    same object is a transform of `Attention` and the subject of `critattn.blindness`.
    """

    @abstractmethod
    def amount(self, distance: Any, xp: Any = np) -> Any:
        """The penalty b(d) in nats, of the shape of the distances, with a leading axis where there are heads."""

    def inverse(self, amount: float) -> float | None:
        """The real distance at which b reaches an amount; None where b has no inverse, infinity beyond 1.8e308."""
        return None

    def log_inverse(self, amount: float) -> float | None:
        """Natural logarithm of `inverse`, finite where that overflows; None where b has no inverse."""
        found = self.inverse(amount)
        return None if found is None else float(np.log(found)) if found > 0 else -np.inf

    def amplitude(self) -> float:
        """The least upper bound known of b(d), in nats; infinity for a bias without bound."""
        return np.inf

    def log_sum(self, scale: float = 1.0, length: int | None = None) -> float | None:
        """Logarithm of the sum of e^(-scale b(d)) over d = 0..length - 1, in nats; over all d >= 0 without a length.

        None where no closed form is known.
        """
        return None

    def parameters(self) -> dict[str, Any]:
        """The fields that may differ between heads, by name."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    def head_count(self) -> int | None:
        """Number of heads; None for a bias without an axis of heads.

        Raises:
            DomainError: where two parameters have a different number of heads.
        """
        found = {count for count in map(_count, self.parameters().values()) if count is not None}
        if len(found) > 1:
            raise DomainError(f"{type(self).__name__}: parameters for {sorted(found)} heads; allowed: one number")
        return found.pop() if found else None

    def head(self, index: int) -> Any:
        """The bias of one head, with parameters that are numbers."""
        chosen = {name: _pick(value, index) for name, value in self.parameters().items()}
        return dataclasses.replace(self, **chosen)

    def heads(self) -> list[Any]:
        """The biases of all heads, in their order."""
        count = self.head_count()
        return [self] if count is None else [self.head(index) for index in range(count)]

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Subtract b(d): logits (..., rows, keys), dtype of the input; b is computed in float32 or wider."""
        wide = jnp.promote_types(logits.dtype, jnp.float32)
        return logits - self.amount(distances(context).astype(wide), jnp).astype(logits.dtype)


def _count(value: Any) -> int | None:
    if isinstance(value, DistanceBias):
        return value.head_count()
    shape = np.shape(value)
    return shape[0] if shape else None


def _pick(value: Any, index: int) -> Any:
    if isinstance(value, DistanceBias):
        return value.head(index) if value.head_count() is not None else value
    return value[index] if np.ndim(value) else value
