"""Weights with exact zeros that ignore a common shift: alpha-entmax, sparsemax, hardmax."""

import jax
import jax.numpy as jnp

from critattn.normalisers import rows
from critattn.normalisers.rows import check_above, per_row, prepare
from critattn.protocols import Array, JacobianParts, RowContext, pytree

MAX_STEPS = 240


@pytree()
class Entmax:
    """`A_j = max((alpha - 1) s_j - tau, 0)^(1/(alpha - 1))`, tau such that a row sums to 1 [Peters 2019].

    Exact to rounding for any alpha above 1 [derived, docs/theory.md (6.8)]. alpha = 2 is sparsemax; alpha to 1 tends to
    softmax. A row without any allowed key has weight 0 everywhere.

    Attributes:
        alpha: the exponent, above 1; a scalar, or (rows,).
    """

    alpha: Array | float = 1.5

    name = "entmax"
    analytic = False
    full_support = False
    shift_invariant = True
    unit_row_mass = True

    def __post_init__(self) -> None:
        check_above("alpha", self.alpha, 1)

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        return entmax(s, per_row(self.alpha, s), there).astype(logits.dtype)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = A^(2 - alpha)` on the support, `u = g/sum g` [derived, docs/theory.md (6.8)]."""
        s, there = prepare(logits, where)
        alpha = per_row(self.alpha, s)
        return _parts(entmax(s, alpha, there), alpha)


@pytree()
class Sparsemax:
    """`A_j = max(s_j - tau, 0)`, the point of the simplex closest to the logits [Martins 2016; docs/theory.md (6.9)].

    Rows sum to 1; a row without any allowed key has weight 0 everywhere.
    """

    name = "sparsemax"
    analytic = False
    full_support = False
    shift_invariant = True
    unit_row_mass = True

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        return _sparsemax(s, there).astype(logits.dtype)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = 1` on the support, `u = 1/size` there [derived, docs/theory.md (6.9)]."""
        s, there = prepare(logits, where)
        return _parts(_sparsemax(s, there), jnp.asarray(2, s.dtype))


@pytree()
class Hardmax:
    """`A_j = 1/m` on the m largest logits of a row, 0 elsewhere [docs/theory.md (6.10)].

    Logits within 8 rounding units of the largest share its weight. Rows sum to 1 and have no derivative; a row without
    any allowed key has weight 0 everywhere.
    """

    name = "hardmax"
    analytic = False
    full_support = False
    shift_invariant = True
    unit_row_mass = True

    def __call__(self, logits: Array, context: RowContext, *, where: Array | None = None) -> Array:
        """Weights (..., rows, keys) of logits of the same shape, in the dtype of the logits."""
        s, there = prepare(logits, where)
        largest = rows.top(s, there)
        slack = rows.EQUAL_ULPS * jnp.finfo(logits.dtype).eps * jnp.abs(largest)
        return rows.uniform(there & (s >= largest - slack), s).astype(logits.dtype)

    def jacobian_parts(self, logits: Array, context: RowContext, *, where: Array | None) -> JacobianParts:
        """`g = u = 0`: the weights are constant wherever they are continuous."""
        zero = jnp.zeros_like(prepare(logits, where)[0])
        return JacobianParts(g=zero, u=zero)


def _slopes(weights: Array, alpha: Array) -> Array:
    on = weights > 0
    logs = (2 - alpha) * jnp.log(jnp.where(on, weights, 1))
    # steeper keys (alpha above 2) take whatever is left: a cap keeps g - u g from losing more than half of the digits
    cap = -jnp.log(jnp.finfo(weights.dtype).eps) / 2
    return jnp.where(on, jnp.exp(jnp.minimum(logs, cap)), 0)


def _parts(weights: Array, alpha: Array) -> JacobianParts:
    g = _slopes(weights, alpha)
    return JacobianParts(g=rows.several(weights, g), u=rows.divide(g))


def _sparsemax(s: Array, there: Array) -> Array:
    """The support from the sorted logits, then its threshold, which is differentiable."""
    # keys further than 1 below the largest cannot have weight: cut there, nothing overflows
    z = jnp.where(there, jnp.maximum(s - rows.top(s, there), -1), -1)
    order = -jnp.sort(-jax.lax.stop_gradient(z), axis=-1)
    ranks = jnp.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    size = jnp.maximum(rows.total(1 + ranks * order > jnp.cumsum(order, axis=-1)), 1)
    least = jnp.take_along_axis(order, size - 1, axis=-1)
    support = there & (z >= least)
    shift = (rows.total(jnp.where(support, z, 0)) - 1) / rows.count(support, z)
    return jnp.where(support & (z > shift), z - shift, 0)


@jax.custom_jvp
def entmax(s: Array, alpha: Array, there: Array) -> Array:
    """Entmax weights by a bracketed Newton iteration on the logarithm of the largest weight.

    With k = alpha - 1, the largest weight e^l and gaps D_j = max s - s_j, `A_j = e^l (1 - k D_j e^(-k l))^(1/k)` on the
    keys where this is real. The sum grows with l, and l lies in [-log n, 0] whatever the logits. As k tends to 0 the
    sum tends to a multiple of e^l, so that its logarithm is what Newton's method is applied to.

    Args:
        s: (..., rows, keys), finite.
        alpha: above 1, scalar or (..., rows, 1).
        there: booleans of the shape of s.

    Returns:
        Weights of the shape of s.
    """
    k = alpha - 1
    gap = rows.top(s, there) - s
    depth = jnp.where(there & (gap > 0), jnp.log(k * jnp.where(gap > 0, gap, 1)), -jnp.inf)

    def weights(level: Array) -> tuple[Array, Array]:
        part = jnp.exp(depth - k * level)
        inside = there & (part < 1)
        rest = jnp.where(inside, 1 - part, 1)
        mass = jnp.exp(level + jnp.log1p(jnp.where(inside, -part, 0)) / k)
        return jnp.where(inside, mass, 0), rest

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        low, high, level, step_count = state
        mass, rest = weights(level)
        found, slope = rows.total(mass), rows.total(mass / rest)
        low, high = jnp.where(found <= 1, level, low), jnp.where(found >= 1, level, high)
        move = -jnp.log(found) * found / slope
        unit = _unit(level)
        # a little further than Newton, so that the bracket closes from both sides
        newton = jnp.clip(level + move + jnp.sign(move) * unit, low + unit, high - unit)
        halve = (step_count % 3 == 2) | ~(jnp.abs(newton) < jnp.inf)
        return low, high, jnp.where(halve, (low + high) / 2, newton), step_count + 1

    def open_(state: tuple[Array, Array, Array, Array]) -> Array:
        low, high, level, step_count = state
        return (step_count < MAX_STEPS) & jnp.any(high - low > 4 * _unit(level))

    high = jnp.zeros_like(gap[..., :1])
    low = -jnp.log(rows.count(there, s))
    low, high, _, _ = jax.lax.while_loop(open_, step, (low, high, high, jnp.asarray(0)))
    # above alpha = 2 a key at the edge of the support may gain weight within one unit of the level: it takes the rest
    least, most = weights(low)[0], weights(high)[0]
    lacking, spread = 1 - rows.total(least), rows.total(most) - rows.total(least)
    mixed = least + jnp.clip(lacking / jnp.where(spread > 0, spread, 1), 0, 1) * (most - least)
    return rows.divide(mixed)


def _unit(level: Array) -> Array:
    return jnp.finfo(level.dtype).eps * (1 + jnp.abs(level)) / 2


@entmax.defjvp
def _entmax_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    s, alpha, there = primals
    weights = entmax(s, alpha, there)
    g = _slopes(weights, alpha)
    on = weights > 0
    entropies = -weights * jnp.log(jnp.where(on, weights, 1))
    by_alpha = jnp.where(on, entropies + g * (s - rows.top(s, there)), 0) / (alpha - 1)
    push = jnp.where(on, g * tangents[0], 0) + by_alpha * tangents[1]
    return weights, push - rows.divide(g) * rows.total(push)
