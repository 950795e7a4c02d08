"""What the n of a scaling law counts, and the base class of laws that are one factor per row."""

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.protocols import Array, RowContext, pytree

Base = Literal["1/sqrt(d)", "1/d", "1/16", "1"]
FIXED_BASES = {"1": 1.0, "1/16": 1 / 16}
Kind = Literal["row", "position", "slot", "sequence"]


class Counting(NamedTuple):
    """Which length a law takes.

    Attributes:
        kind: "row", the keys that the row may attend to (clipped by a window, restarted in packed documents);
            "position", the place in the row's own document (restarted, whatever the window); "slot", the place in the
            key buffer (never restarted, so that left padding and earlier documents count); "sequence", all keys.
        start: what the first row has: 1 for n = p + 1, 0 for p itself. Of no effect for "sequence".
    """

    kind: Kind
    start: int = 1


ROW, POSITION, SLOT, SEQUENCE = Counting("row"), Counting("position"), Counting("slot"), Counting("sequence")


class Lengths(NamedTuple):
    """The lengths of a block of rows, as float arrays (rows,) of numpy or JAX.

    Attributes:
        slots: p, place of the query in the key buffer, from 0.
        positions: its place in its own document, from 0.
        keys_seen: how many keys the row may attend to.
        total_keys: keys of the whole layer; a scalar, or (rows,) where each row has a layer of its own.
        dim: head dimension d.
    """

    slots: Any
    positions: Any
    keys_seen: Any
    total_keys: Any
    dim: float

    @property
    def xp(self) -> Any:
        """The array namespace: numpy, or jax.numpy."""
        return self.slots.__array_namespace__()

    @classmethod
    def of(cls, context: RowContext) -> "Lengths":
        """The lengths of a context, in JAX's float type."""
        kind = jnp.result_type(float)
        slots, seen = (jnp.asarray(one, kind) for one in (context.query_positions, context.keys_seen))
        own = slots if context.own_positions is None else jnp.asarray(context.own_positions, kind)
        return cls(slots, own, seen, jnp.asarray(context.total_keys, kind), context.dim)

    @classmethod
    def plain(
        cls,
        slots: ArrayLike,
        dim: float,
        *,
        positions: ArrayLike | None = None,
        keys_seen: ArrayLike | None = None,
        total_keys: ArrayLike | None = None,
    ) -> "Lengths":
        """Float64 lengths on the host; by default each row is the last one of a causal layer of p + 1 keys."""
        p = np.asarray(slots, dtype=np.float64)
        own = p if positions is None else np.asarray(positions, dtype=np.float64)
        seen = own + 1 if keys_seen is None else np.asarray(keys_seen, dtype=np.float64)
        total = p + 1 if total_keys is None else np.asarray(total_keys, dtype=np.float64)
        p, own, seen, total = np.broadcast_arrays(p, own, seen, total)
        return cls(p, own, seen, total, dim)

    def count(self, counting: Counting) -> Any:
        """The length that a law takes."""
        if counting.kind == "sequence":
            return self.total_keys
        if counting.kind == "row":
            return self.keys_seen - (1 - counting.start)
        return (self.positions if counting.kind == "position" else self.slots) + counting.start

    def moved(self, rows: int) -> "Lengths":
        """All lengths moved by a number of rows, as an engine has them that counts one off."""
        return self._replace(**{name: getattr(self, name) + rows for name in self._fields[:-1]})


def base_scale(base: Base, dim: float) -> float:
    """The scale that stands beside the factor of a law.

    Raises:
        DomainError: for a dimension below 1 where the scale needs one.
    """
    if base in FIXED_BASES:
        return FIXED_BASES[base]
    if not dim >= 1:
        raise DomainError(f"dim = {dim}: a law with base {base} needs the head dimension; give a context that has it")
    return dim**-0.5 if base == "1/sqrt(d)" else 1 / dim


def scale_rows(logits: Array, beta: Array) -> Array:
    """Multiply each row of logits (..., rows, keys) by its beta: a scalar, (rows,) or (heads, rows).

    Raises:
        DomainError: for values of beta that are not one for each row.
    """
    if beta.ndim and beta.shape[-1] not in (1, logits.shape[-2]):
        rows = logits.shape[-2]
        raise DomainError(f"beta: has shape {beta.shape} for {rows} rows; allowed: a scalar, or one value a row")
    beta = beta.astype(logits.dtype)
    return logits * (beta[..., None] if beta.ndim else beta)


@pytree(meta=("counting", "base"))
class Law(ABC):
    """A scaling law `beta = m(n) x base`: one factor m for each row of scores q.k.

    Parameters are scalars; (heads, 1) gives one value a head.

    Attributes:
        counting: what n is.
        base: the scale beside m; "1" leaves m alone, for a layer that has the scale as a transform of its own.
    """

    counting: Counting = field(default=SEQUENCE, kw_only=True)
    base: Base = field(default="1/sqrt(d)", kw_only=True)

    @abstractmethod
    def factor(self, lengths: Lengths) -> Any:
        """m: a scalar or (rows,), in the array type of the lengths."""

    def beta(self, context: RowContext) -> Array:
        """Inverse temperature m x base: a scalar or (rows,), in nats per unit of q.k.

        Raises:
            DomainError: for a context without dimension where the base needs one.
        """
        return jnp.asarray(self.factor(Lengths.of(context)) * base_scale(self.base, context.dim))

    def __call__(self, logits: Array, context: RowContext) -> Array:
        """Multiply each row by its beta: logits (..., rows, keys), dtype of the input."""
        return scale_rows(logits, self.beta(context))
