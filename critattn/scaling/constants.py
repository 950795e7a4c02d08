"""Factors that a model's configuration fixes once, whatever the row."""

from dataclasses import field
from typing import Any

import numpy as np

from critattn.protocols import Array, pytree
from critattn.scaling.lengths import Base, Law, Lengths

META = ("counting", "base")
Number = Array | float
YARN = 0.1


@pytree(meta=META)
class Constant(Law):
    """`m` itself.

    Attributes:
        m: the factor.
    """

    m: Number = 1.0
    base: Base = field(default="1/sqrt(d)", kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """M, the same in every row."""
        return lengths.xp.asarray(self.m)


def yarn_temperature(stretch: Any, mscale: Any = 1.0, xp: Any = np) -> Any:
    """`t(c) = 0.1 c ln s + 1` for a stretch s > 1, else 1.

    Args:
        stretch: s, the stretch of the context.
        mscale: c.
        xp: the array namespace, numpy or jax.numpy.
    """
    return 1 + YARN * mscale * xp.log(xp.maximum(stretch, 1.0))


@pytree(meta=META)
class Yarn(Law):
    """`m = t^2`: t multiplies cos and sin, hence q and k both, in the rotated channels only [transformers 5.24.0].

    A given attention factor is t. Else t = t(mscale)/t(mscale_all_dim) where both are non-zero, else t(1).

    Attributes:
        stretch: s.
        mscale: c of the numerator; 0 for none.
        mscale_all_dim: c of the denominator; 0 for none.
        attention_factor: t itself, or None.
    """

    stretch: Number = 32.0
    mscale: Number = 0.0
    mscale_all_dim: Number = 0.0
    attention_factor: Number | None = None

    def temperature(self, xp: Any = np) -> Any:
        """The resolved t, in an array namespace."""
        if self.attention_factor is not None:
            return xp.asarray(self.attention_factor)
        above, below = (yarn_temperature(self.stretch, c, xp) for c in (self.mscale, self.mscale_all_dim))
        both = (xp.asarray(self.mscale) != 0) & (xp.asarray(self.mscale_all_dim) != 0)
        return xp.where(both, above / below, yarn_temperature(self.stretch, 1.0, xp))

    def factor(self, lengths: Lengths) -> Any:
        """t^2, the same in every row."""
        return self.temperature(lengths.xp) ** 2


@pytree(meta=META)
class LongRope(Law):
    """`m = t^2 = 1 + ln s/ln L` for s > 1, else 1, on cos and sin; a given attention factor is t.

    Attributes:
        stretch: s.
        original_length: L.
        attention_factor: t itself, or None.
    """

    stretch: Number = 32.0
    original_length: Number = 4096.0
    attention_factor: Number | None = None

    def factor(self, lengths: Lengths) -> Any:
        """1 + ln s/ln L, the same in every row."""
        xp = lengths.xp
        if self.attention_factor is not None:
            return xp.asarray(self.attention_factor) ** 2
        return 1 + xp.log(xp.maximum(self.stretch, 1.0)) / xp.log(xp.asarray(self.original_length))


@pytree(meta=META)
class SoftmaxMscale(Law):
    """`m = (0.1 c ln s + 1)^2` on the softmax scale itself, so on all channels; c = 0 for none.

    Attributes:
        stretch: s.
        mscale_all_dim: c.
    """

    stretch: Number = 40.0
    mscale_all_dim: Number = 1.0

    def factor(self, lengths: Lengths) -> Any:
        """The square of t(c), the same in every row."""
        return lengths.xp.asarray(yarn_temperature(self.stretch, self.mscale_all_dim, lengths.xp) ** 2)
