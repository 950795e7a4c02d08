"""Laws whose factor grows with the length: logarithms, their ratios, steps and powers."""

from dataclasses import field
from typing import Any

import jax.numpy as jnp
import numpy as np

from critattn.errors import DomainError
from critattn.protocols import Array, RowContext, pytree
from critattn.scaling.lengths import POSITION, ROW, SEQUENCE, SLOT, Base, Counting, Law, Lengths

META = ("counting", "base")
Number = Array | float


@pytree(meta=META)
class SqrtLogN(Law):
    """`m = c sqrt(ln n)`: critical at c = sqrt(2/(1-rho)) for Gaussian scores of correlation rho [arXiv 2505.24333].

    Attributes:
        c: coefficient; sqrt(2) by default, critical for independent scores of unit variance.
    """

    c: Number = 2**0.5
    counting: Counting = field(default=SEQUENCE, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """C sqrt(ln n)."""
        xp = lengths.xp
        return self.c * xp.sqrt(xp.log(lengths.count(self.counting)))


@pytree(meta=META)
class Lssa(Law):
    """`beta = c ln d ln n` on L2-normalised q and k, n the keys of the row [arXiv 2501.13428].

    Attributes:
        c: coefficient, 1 in the source.
    """

    c: Number = 1.0
    counting: Counting = field(default=ROW, kw_only=True)
    base: Base = field(default="1", kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """C ln d ln n."""
        xp = lengths.xp
        return self.c * xp.log(xp.asarray(float(lengths.dim))) * xp.log(lengths.count(self.counting))


@pytree(meta=META)
class Geometric(Law):
    """`beta = c n^(2/(d-1))` on unit vectors in fixed dimension d [heuristic, docs/theory.md (4.6)].

    Attributes:
        c: coefficient, of which only the order d/e is known.
    """

    c: Number = 1.0
    counting: Counting = field(default=SEQUENCE, kw_only=True)
    base: Base = field(default="1", kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """C n^(2/(d-1)); infinite at d = 1."""
        exponent = 2 / (lengths.dim - 1) if lengths.dim > 1 else float("inf")
        return self.c * lengths.count(self.counting) ** exponent


@pytree(meta=META)
class SSMax(Law):
    """`m = s ln(max(n + shift, floor)) + b`: scalable softmax, weights n^(s z) [arXiv 2501.19399].

    Attributes:
        s: slope, learned per head in most versions.
        b: bias.
        floor: smallest argument of the logarithm.
        shift: added to n.
    """

    s: Number = 1.0
    b: Number = 0.0
    floor: Number = 1.0
    shift: Number = 0.0
    counting: Counting = field(default=ROW, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """S ln(max(n + shift, floor)) + b."""
        xp = lengths.xp
        return self.s * xp.log(xp.maximum(lengths.count(self.counting) + self.shift, self.floor)) + self.b


@pytree(meta=META)
class LogRatio(Law):
    """`m = ln n/ln L`, below 1 for n < L.

    Attributes:
        reference: L, the length at which m = 1.
    """

    reference: Number = 512.0
    counting: Counting = field(default=ROW, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """Ln n/ln L."""
        xp = lengths.xp
        return xp.log(lengths.count(self.counting)) / xp.log(xp.asarray(self.reference))


@pytree(meta=META)
class ClampedLogRatio(Law):
    """`m = max(1, ln n/ln L)`; with a strict n > L or not, since both branches give 1 at n = L.

    Attributes:
        reference: L.
    """

    reference: Number = 4096.0
    counting: Counting = field(default=POSITION, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """Ln max(n, L)/ln L."""
        xp = lengths.xp
        top = xp.asarray(self.reference)
        return xp.log(xp.maximum(lengths.count(self.counting), top)) / xp.log(top)


@pytree(meta=META)
class SqrtLogRatio(Law):
    """`m = sqrt(g ln N/ln N0)`, which is sqrt(g) at N = N0.

    Attributes:
        gain: g.
        reference: N0.
    """

    gain: Number = 1.0
    reference: Number = 4096.0
    counting: Counting = field(default=SEQUENCE, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """Sqrt(g ln N/ln N0)."""
        xp = lengths.xp
        return xp.sqrt(self.gain * xp.log(lengths.count(self.counting)) / xp.log(xp.asarray(self.reference)))


@pytree(meta=META)
class Steps(Law):
    """`m = (1 + a ln(1 + floor((p + offset)/f))) g`: constant between multiples of f.

    Attributes:
        a: height of a step in ln 2.
        interval: f.
        offset: added to p; 1 makes the step one row earlier than 0.
        gain: g, a constant that the same model carries.
    """

    a: Number = 0.1
    interval: Number = 8192.0
    offset: Number = 0.0
    gain: Number = 1.0
    counting: Counting = field(default=Counting("slot", 0), kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """(1 + a ln(1 + floor((p + offset)/f))) g."""
        xp = lengths.xp
        steps = xp.floor_divide(lengths.count(self.counting) + self.offset, self.interval)
        return (1 + self.a * xp.log1p(steps)) * self.gain


@pytree(meta=META)
class ClampedLog(Law):
    """`m = 1 + a ln max(n/n0, 1)`: continuous, with a kink at n0.

    Attributes:
        a: slope above n0.
        reference: n0.
    """

    a: Number = 0.1
    reference: Number = 128_000.0
    counting: Counting = field(default=POSITION, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """1 + a ln max(n/n0, 1)."""
        xp = lengths.xp
        return 1 + self.a * xp.log(xp.maximum(lengths.count(self.counting) / self.reference, 1.0))


@pytree(meta=META)
class Power(Law):
    """`m = (1 + n/L)^e`: a power of the length, not a logarithm.

    Attributes:
        reference: L.
        exponent: e.
    """

    reference: Number = 2048.0
    exponent: Number = 0.1
    counting: Counting = field(default=POSITION, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """(1 + n/L)^e."""
        return (1 + lengths.count(self.counting) / self.reference) ** self.exponent


@pytree(meta=META)
class LogPower(Law):
    """`m = delta + b (ln(n+1))^g`, the scale of ASEntmax before alpha-entmax.

    Attributes:
        b: coefficient, learned per head; per token and head in the adaptive version.
        g: exponent, likewise.
        delta: constant term.
    """

    b: Number = 1.0
    g: Number = 1.0
    delta: Number = 1.0
    counting: Counting = field(default=SLOT, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """Delta + b (ln(n+1))^g."""
        return self.delta + self.b * lengths.xp.log(lengths.count(self.counting) + 1) ** self.g


@pytree(meta=META)
class Ssa(Law):
    """`m = 1 + tanh f + sigmoid(alpha) ln n`: selective attention; f is a function of the token.

    Attributes:
        f: one value a token, (n,) or (heads, n); or a scalar, or (heads, 1).
        alpha: logit of the slope.
    """

    f: Number = 0.0
    alpha: Number = 0.0
    counting: Counting = field(default=ROW, kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """1 + tanh f + sigmoid(alpha) ln n, f taken at the row's place in the buffer.

        Raises:
            DomainError: where the values of f are not one for each token.
        """
        xp = lengths.xp
        f = xp.asarray(self.f)
        per_token = f.ndim > 0 and f.shape[-1] > 1
        if per_token and isinstance(lengths.slots, np.ndarray) and lengths.slots.max(initial=0) >= f.shape[-1]:
            rows = f"the {int(lengths.slots.max()) + 1} tokens up to the last row"
            raise DomainError(f"f: has {f.shape[-1]} values; allowed: one, or one for each of {rows}")
        gate = f[..., lengths.slots.astype(int)] if per_token else f
        return 1 + xp.tanh(gate) + xp.log(lengths.count(self.counting)) / (1 + xp.exp(-xp.asarray(self.alpha)))

    def beta(self, context: RowContext) -> Array:
        """Inverse temperature m x base: a scalar or (rows,), in nats per unit of q.k.

        Raises:
            DomainError: where the values of f are not one for each key, or for a context without dimension.
        """
        values = jnp.shape(jnp.asarray(self.f))
        if values and values[-1] not in (1, context.total_keys):
            keys = f"the {context.total_keys} keys"
            raise DomainError(f"f: has {values[-1]} values; allowed: one, or one for each of {keys}")
        return super().beta(context)


@pytree(meta=META)
class Reciprocal(Law):
    """`m = T/(p+1)` from p = T on, else 1: a temperature where its inverse belongs.

    Attributes:
        reference: T.
    """

    reference: Number = 1024.0
    counting: Counting = field(default=Counting("position", 0), kw_only=True)

    def factor(self, lengths: Lengths) -> Any:
        """T/(p+1) for p >= T."""
        p = lengths.count(self.counting)
        return lengths.xp.where(p < self.reference, 1.0, self.reference / (p + 1))
