"""ReLU^p re-weighting of the weights of a first stage: what is below the mean of a row is cut off."""

from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from critattn.normalisers import rows
from critattn.normalisers.ratios import SoftplusL1, powered
from critattn.normalisers.rows import check_above, per_row, prepare
from critattn.protocols import Array, JacobianParts, RowContext, pytree


@runtime_checkable
class FirstStage(Protocol):
    """Weights `a_j = phi(s_j)/sum_k phi(s_k)` that can be re-weighted."""

    @property
    def shift_invariant(self) -> bool:
        """Adding a constant to a row changes nothing."""
        ...

    def log_phi(self, logits: Array, context: RowContext) -> Array:
        """`log phi(s)` elementwise; -inf where phi is 0."""
        ...

    def log_slope(self, logits: Array, context: RowContext) -> Array:
        """`phi'(s)/phi(s)` elementwise; 0 where phi is 0."""
        ...


class Stage(NamedTuple):
    """The first stage of a block of rows, in units in which the largest phi of a row is 1."""

    logs: Array
    there: Array
    phi: Array
    mean: Array  # of phi over the keys seen, (..., rows, 1)
    excess: Array  # phi - mean
    kept: Array  # where it is positive, nowhere in a dead row
    alive: Array  # (..., rows, 1)


@pytree(meta=("offset_free_rows",))
class ReluPower:
    """`A_j = y_j^p/sum_k y_k^p` of `y = max(n_i a - 1, 0)`, `a = phi/sum phi` [Gao 2025, LSSAR; docs/theory.md (6.7)].

    n_i and the sum of phi cancel: what is raised to p is (phi_j - mean phi) over its largest value, which neither
    overflows nor depends on the format. Rows sum to 1. A row that is uniform to rounding has no y above 0: it keeps
    equal weights without a derivative, and is reported by `dead_rows`. A row without any allowed key has weight 0
    everywhere. The derivative exists almost everywhere for p = 1, and not at the mean for p < 1.

    Attributes:
        p: the exponent, above 0; a scalar, or (rows,). Published values are 3 and 15.
        stage_one: the first stage.
        offset_free_rows: rows that see at most this many keys have `A ~ a^p` instead, without the offset 1: the first
            rows under a causal mask. The published layer has 3.
    """

    p: Array | float = 3.0
    stage_one: FirstStage = SoftplusL1()
    offset_free_rows: int = 0

    name = "relu-power"
    analytic = False
    full_support = False
    unit_row_mass = True

    def __post_init__(self) -> None:
        check_above("p", self.p, 0)

    @property
    def shift_invariant(self) -> bool:
        """As the first stage."""
        return self.stage_one.shift_invariant

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        stage, p = self._stage(s, there, context), per_row(self.p, s)
        weights = jnp.where(stage.alive, powered(stage.excess, stage.kept, p)[0], rows.uniform(there, s))
        if self.offset_free_rows:
            weights = jnp.where(self._free(context), _without_offset(stage, p), weights)
        return weights.astype(logits.dtype)

    def dead_rows(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Rows that see keys of equal weight only, (..., rows); offset-free rows are none of them."""
        s, there = prepare(logits, where)
        dead = jnp.any(there, axis=-1) & ~self._stage(s, there, context).alive[..., 0]
        return dead & ~self._free(context)[..., 0] if self.offset_free_rows else dead

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """All four parts of the row Jacobian [derived, docs/theory.md (6.7)].

        With e = phi'/phi: `g_j = p n_i a_j e_j A_j/y_j`, `u = A`, `c_j = p A_j (1/y_j - sum_l A_l/y_l)`,
        `b_j = a_j e_j`; on offset-free rows `g_j = p e_j A_j`, `c = b = 0`.
        """
        s, there = prepare(logits, where)
        stage, p = self._stage(s, there, context), per_row(self.p, s)
        slope = self.stage_one.log_slope(s, context)
        weights, over = powered(stage.excess, stage.kept, p)
        g = rows.several(weights, p * slope * stage.phi * over)
        c = p * stage.mean * (over - weights * rows.total(over))
        b = jnp.where(stage.alive, rows.divide(stage.phi) * slope, 0)
        if self.offset_free_rows:
            free, plain = self._free(context), _without_offset(stage, p)
            g, weights = jnp.where(free, p * slope * plain, g), jnp.where(free, plain, weights)
            b, c = jnp.where(free, 0, b), jnp.where(free, 0, c)
        return JacobianParts(g=g, u=weights, c=c, b=b)

    def _free(self, context: RowContext) -> Array:
        return (context.keys_seen <= self.offset_free_rows)[..., None]

    def _stage(self, s: Array, there: Array, context: RowContext) -> Stage:
        logs = self.stage_one.log_phi(s, context)
        phi = rows.relative(jnp.where(logs > -jnp.inf, logs, 0), there & (logs > -jnp.inf))
        mean = rows.total(phi) / rows.count(there, s)
        excess = jnp.where(there, phi - mean, 0)
        tolerance = rows.EQUAL_ULPS * jnp.finfo(s.dtype).eps * mean
        alive = (rows.top(excess, there) > tolerance) & ~rows.equal(s, there)
        return Stage(logs, there, phi, mean, excess, there & (excess > 0) & alive, alive)


def _without_offset(stage: Stage, p: Array) -> Array:
    """`a^p/sum a^p`; equal weights where phi is 0 on all keys."""
    seen = stage.there & (stage.logs > -jnp.inf)
    weights = rows.divide(rows.relative(p * jnp.where(seen, stage.logs, 0), seen))
    return jnp.where(jnp.any(seen, axis=-1, keepdims=True), weights, rows.uniform(stage.there, weights))
