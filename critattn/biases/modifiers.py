"""Biases made of other biases: a floor, and a longer context."""

import math
from typing import Any

import numpy as np

from critattn.biases.base import DistanceBias, Number, per_head
from critattn.errors import DomainError
from critattn.protocols import pytree


@pytree()
class Clamp(DistanceBias):
    """`max(B, c)`: the bias falls no lower than c < 0 [docs/theory.md (15.21)].

    Attributes:
        bias: the bias that is clamped.
        floor: c, nats, below 0; a number or (heads,).
    """

    bias: DistanceBias
    floor: Number

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`min(b(d), -c)`, in nats."""
        return xp.minimum(self.bias.amount(distance, xp), -per_head(self.floor, xp))

    def inverse(self, amount: float) -> float | None:
        """That of the bias up to -c; infinity beyond, where the clamp holds."""
        return math.inf if amount > -float(self.floor) else self.bias.inverse(amount)

    def log_inverse(self, amount: float) -> float | None:
        """The logarithm of `inverse`."""
        return math.inf if amount > -float(self.floor) else self.bias.log_inverse(amount)

    def amplitude(self) -> float:
        """The smaller of -c and what bounds the bias."""
        return min(float(np.max(-np.asarray(self.floor))), self.bias.amplitude())


@pytree()
class NtkScaled(DistanceBias):
    """`B/a` for a context a times longer: of ALiBi, slopes m/a, and distances a times larger [docs/theory.md (15.22)].

    Attributes:
        bias: the bias that is stretched.
        factor: a, above 0; a number or (heads,).
    """

    bias: DistanceBias
    factor: Number

    def __post_init__(self) -> None:
        if isinstance(self.factor, int | float) and not self.factor > 0:
            raise DomainError.of("factor", self.factor, "above 0")

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`b(d)/a`, in nats."""
        return self.bias.amount(distance, xp) / per_head(self.factor, xp)

    def inverse(self, amount: float) -> float | None:
        """The distance of `a` times the amount."""
        return self.bias.inverse(amount * float(self.factor))

    def log_inverse(self, amount: float) -> float | None:
        """The logarithm of `inverse`."""
        return self.bias.log_inverse(amount * float(self.factor))

    def amplitude(self) -> float:
        """That of the bias over a."""
        return self.bias.amplitude() / float(np.min(self.factor))
