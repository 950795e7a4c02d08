"""Biases from kernels: KERPLE and Sandwich."""

import math
from typing import Any

import numpy as np

from critattn.biases.alibi import log_expm1
from critattn.biases.base import DistanceBias, Number, per_head
from critattn.errors import DomainError
from critattn.protocols import pytree


@pytree()
class KerpleLog(DistanceBias):
    """`-r1 ln(1 + r2 |i - j|)` [arXiv 2205.09921; docs/theory.md (15.6)].

    Attributes:
        r1: nats a unit of the logarithm; a number or (heads,).
        r2: a position's share; a number or (heads,).
    """

    r1: Number
    r2: Number = 1.0

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`r1 ln(1 + r2 d)`, in nats."""
        return per_head(self.r1, xp) * xp.log1p(per_head(self.r2, xp) * distance)

    def inverse(self, amount: float) -> float:
        """`(e^(b/r1) - 1)/r2`."""
        log = self.log_inverse(amount)
        return math.exp(log) if log < 709 else math.inf

    def log_inverse(self, amount: float) -> float:
        """The logarithm of `inverse`."""
        return log_expm1(max(0.0, amount) / float(self.r1)) - math.log(float(self.r2))


@pytree()
class KerplePower(DistanceBias):
    """`-r1 |i - j|^r2`, 0 < r2 <= 2; r2 = 1 is ALiBi, r2 = 2 a Gaussian [arXiv 2205.09921; docs/theory.md (15.7)].

    Attributes:
        r1: nats at distance 1; a number or (heads,).
        r2: the exponent; a number or (heads,).
    """

    r1: Number
    r2: Number = 1.0

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`r1 d^r2`, in nats."""
        return per_head(self.r1, xp) * distance ** per_head(self.r2, xp)

    def inverse(self, amount: float) -> float:
        """`(b/r1)^(1/r2)`."""
        log = self.log_inverse(amount)
        return math.exp(log) if log < 709 else math.inf

    def log_inverse(self, amount: float) -> float:
        """The logarithm of `inverse`."""
        ratio = max(0.0, amount) / float(self.r1)
        return math.log(ratio) / float(self.r2) if ratio > 0 else -math.inf


@pytree(meta=("dim",))
class Sandwich(DistanceBias):
    """`-s (S(0) - S(d))`, `S(d) = sum_k cos(d/10000^(2k/D))`, k = 1..D/2: bounded, not monotone [arXiv 2212.10356].

    Its amounts at several distances are in docs/theory.md (15.8). The bias is added to the logits. How s depends on
    the head is not stated in a source that was read.

    Attributes:
        scale: s, nats; a number or (heads,).
        dim: D, even.
    """

    scale: Number = 1.0
    dim: int = 128

    def __post_init__(self) -> None:
        if self.dim < 2 or self.dim % 2:
            raise DomainError.of("dim", self.dim, "an even number, at least 2")

    def parameters(self) -> dict[str, Any]:
        """The scale."""
        return {"scale": self.scale}

    def amount(self, distance: Any, xp: Any = np) -> Any:
        """`s (S(0) - S(d))`, in nats, as a sum of `2 sin^2` that loses no digits."""
        distance = xp.asarray(distance)
        total = xp.zeros(distance.shape, distance.dtype if xp.issubdtype(distance.dtype, xp.floating) else float)
        for k in range(1, self.dim // 2 + 1):
            total = total + 2 * xp.sin(distance * (0.5 * 10000.0 ** (-2 * k / self.dim))) ** 2
        return per_head(self.scale, xp) * total

    def amplitude(self) -> float:
        """`s D`: no cosine is below -1."""
        return float(np.max(self.scale)) * self.dim
