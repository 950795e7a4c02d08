"""Biases that are learned for buckets of distances."""

import math
from typing import Any

import numpy as np

from critattn.biases.base import DistanceBias, Number
from critattn.errors import DomainError
from critattn.protocols import pytree


@pytree(meta=("max_distance",))
class T5Buckets(DistanceBias):
    """A learned number for each bucket of distances, the same beyond `max_distance` [arXiv 1910.10683].

    Half of the buckets hold one distance each; the other half are logarithmic up to `max_distance`, and the last holds
    everything beyond. The causal buckets of T5; with a two-sided mask both sides share them.

    Attributes:
        table: what is added to the logits, in nats, (buckets,) or (heads, buckets); an even number of buckets.
        max_distance: distance from which the last bucket holds.
    """

    table: Number
    max_distance: int = 128

    def __post_init__(self) -> None:
        shape = np.shape(self.table)
        if len(shape) not in (0, 1, 2) or (shape and (shape[-1] < 2 or shape[-1] % 2)):
            raise DomainError(f"table: has the shape {shape}; allowed: (buckets,) or (heads, buckets), an even number")
        if shape and self.max_distance <= shape[-1] // 2:
            raise DomainError.of("max_distance", self.max_distance, f"above half the buckets, {shape[-1] // 2}")

    def buckets(self, distance: Any, xp: Any = np) -> Any:
        """The bucket of each distance, integers."""
        count = np.shape(self.table)[-1]
        exact = count // 2
        far = xp.log(xp.maximum(distance, 1) / exact) / math.log(self.max_distance / exact) * (count - exact)
        wide = xp.minimum(exact + xp.floor(far), count - 1)
        return xp.where(distance < exact, distance, wide).astype(int)

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """Minus the entry of the bucket, in nats; it may have either sign."""
        return -xp.asarray(self.table)[..., self.buckets(xp.asarray(distance), xp)]

    def amplitude(self) -> float:
        """The largest penalty of the table."""
        return float(-np.min(np.asarray(self.table)))

    def head_count(self) -> int | None:
        """Rows of the table; None for one head."""
        shape = np.shape(self.table)
        return shape[0] if len(shape) == 2 else None

    def head(self, index: int) -> "T5Buckets":
        """The bias of one head."""
        return T5Buckets(np.asarray(self.table)[index], self.max_distance)
