"""Weights `phi(s)/sum phi(s)`: softplus, sigmoid and powers, each divided by its sum."""

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from critattn.normalisers import rows
from critattn.normalisers.rows import check_above, per_row, prepare
from critattn.protocols import Array, JacobianParts, Masses, RowContext, pytree

# below it log(log(1 + e^s)) is its series in e^s to rounding, and above it log(1 + e^s) is far from underflow
SERIES_BELOW = -9.0
HUGE = 2.0**64


class Ratio(ABC):
    """`A_j = phi(s_j)/sum_k phi(s_k)` of a positive function, computed from its logarithm.

    A subclass gives `log_phi` and `log_slope`. Rows sum to 1; a row without any allowed key has weight 0 everywhere.
    """

    full_support = True
    unit_row_mass = True

    @abstractmethod
    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`log phi(s)` elementwise, finite."""

    @abstractmethod
    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`phi'(s)/phi(s)` elementwise."""

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        return rows.divide(rows.relative(self.log_phi(s, context), there)).astype(logits.dtype)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = A phi'/phi`, `u = A` [derived, docs/theory.md (6.2)]."""
        s, there = prepare(logits, where)
        weights = rows.divide(rows.relative(self.log_phi(s, context), there))
        return JacobianParts(g=weights * self.log_slope(s, context), u=weights)


def log_softplus(s: Array) -> Array:
    """`log log(1 + e^s)`, without underflow: s + log(log(1 + t)/t) in powers of t = e^s where t is small."""
    small = s < SERIES_BELOW
    t = jnp.exp(jnp.minimum(s, 0))
    series = s + t * (-1 / 2 + t * (5 / 24 - t / 8))
    return jnp.where(small, series, jnp.log(jax.nn.softplus(jnp.where(small, 0, s))))


def log_softplus_slope(s: Array) -> Array:
    """`sigmoid(s)/log(1 + e^s)`, which is 1 at s = -infinity and 1/s at large s."""
    small = s < SERIES_BELOW
    t = jnp.exp(jnp.minimum(s, 0))
    series = 1 + t * (-1 / 2 + t * (5 / 12 - t * 3 / 8))
    inner = jnp.where(small, 0, s)
    return jnp.where(small, series, jax.nn.sigmoid(inner) / jax.nn.softplus(inner))


@pytree()
class SoftplusL1(Ratio):
    """`A_j = sp(s_j)/sum_k sp(s_k)` with `sp(s) = log(1 + e^s)` [Gao 2025, LSSA; docs/theory.md (6.3)].

    A bias b in units of the score, sp(beta (s - b)), is the transform `Shift(b)` before the scaling law.
    """

    name = "softplus-l1"
    analytic = True
    shift_invariant = False

    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`log sp(s)`."""
        return log_softplus(logits)

    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`sigmoid(s)/sp(s)`."""
        return log_softplus_slope(logits)

    def masses(self, logits: Array, *, where: Array | None, shift: Array) -> Masses:
        """`sp(s_j)/sp(shift)`, whose common factor cancels in the weights."""
        s, there = prepare(logits, where)
        most = jnp.where(jnp.isfinite(shift), shift, 0).astype(s.dtype)
        logs = jnp.where(there, log_softplus(s) - log_softplus(most)[..., None], 0)
        return Masses(jnp.where(there, jnp.exp(logs), 0), logs)


@pytree()
class SigmoidL1(Ratio):
    """`A_j = sigm(s_j - B log n_i)/sum_k sigm(s_k - B log n_i)`, n_i keys seen by the row [docs/theory.md (6.4)].

    Attributes:
        bias_factor: B; a scalar, or (rows,).
    """

    bias_factor: Array | float = 1.0

    name = "sigmoid-l1"
    analytic = True
    shift_invariant = False

    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`log sigm(s - B log n_i)`."""
        return -jax.nn.softplus(-biased(logits, context, self.bias_factor))

    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`1 - sigm(s - B log n_i)`."""
        return jax.nn.sigmoid(-biased(logits, context, self.bias_factor))


def biased(logits: Array, context: RowContext, factor: Array | float) -> Array:
    """`s - B log n_i` with n_i the keys that a row may see."""
    seen = jnp.maximum(context.keys_seen, 1).astype(logits.dtype)[..., None]
    return logits - per_row(factor, logits) * jnp.log(seen)


@pytree()
class Power:
    """`A_j = max(s_j, 0)^p / sum_k max(s_k, 0)^p` [docs/theory.md (6.5)].

    p = 1 is ReLU divided by its sum. Rows sum to 1. A row without any positive logit has equal weights and no
    derivative, and is reported by `dead_rows`; one without any allowed key has weight 0 everywhere.

    Attributes:
        p: the exponent, above 0; a scalar, or (rows,).
    """

    p: Array | float = 3.0

    name = "power"
    analytic = False
    full_support = False
    shift_invariant = False
    unit_row_mass = True

    def __post_init__(self) -> None:
        check_above("p", self.p, 0)

    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`p log s`, and -inf where s is not positive."""
        positive = is_positive(logits)
        return jnp.where(positive, per_row(self.p, logits) * jnp.log(jnp.where(positive, logits, 1)), -jnp.inf)

    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`p/s`, and 0 where s is not positive."""
        positive = is_positive(logits)
        return jnp.where(positive, per_row(self.p, logits) / jnp.where(positive, logits, 1), 0)

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        positive = there & is_positive(s)
        weights, _ = powered(s, positive, per_row(self.p, s))
        alive = jnp.any(positive, axis=-1, keepdims=True)
        return jnp.where(alive, weights, rows.uniform(there, s)).astype(logits.dtype)

    def dead_rows(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Rows that see keys but no positive logit, (..., rows)."""
        s, there = prepare(logits, where)
        return jnp.any(there, axis=-1) & ~jnp.any(there & is_positive(s), axis=-1)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = p A/s`, `u = A` [derived, docs/theory.md (6.5)]."""
        s, there = prepare(logits, where)
        p = per_row(self.p, s)
        weights, over = powered(s, there & is_positive(s), p)
        return JacobianParts(g=rows.several(weights, p * over), u=weights)


def is_positive(s: Array) -> Array:
    """Where s is above 0 and no subnormal number, which backends may flush to 0 at any step."""
    return s >= jnp.finfo(s.dtype).tiny


def powered(values: Array, positive: Array, p: Array) -> tuple[Array, Array]:
    """`A_j = v_j^p/sum_k v_k^p` over positive values, and `A_j/v_j`, without overflow.

    Args:
        values: (..., rows, keys).
        positive: where to take them.
        p: exponent.
    """
    largest = jnp.where(jnp.any(positive, axis=-1, keepdims=True), rows.top(values, positive), 1)
    # a quotient may be computed through a reciprocal, which underflows where the largest is near overflow
    down = jnp.where(largest > HUGE, 1 / HUGE, 1).astype(values.dtype)
    ratio = jnp.where(positive, values * down / (largest * down), 0)
    kept = ratio > 0
    logs = jnp.log(jnp.where(kept, ratio, 1))
    masses = jnp.where(kept, jnp.exp(p * logs), 0)
    summed = rows.total(masses)
    summed = jnp.where(summed > 0, summed, 1)
    return masses / summed, jnp.where(kept, jnp.exp((p - 1) * logs), 0) / (summed * largest)
