"""The two passes of a measurement under jit: rows of weights in blocks, then outputs and pairs of tokens."""

from functools import partial

import jax
import jax.numpy as jnp

from critattn.attention import Attention, map_row_blocks
from critattn.blocks import OutputBlock, PairBlock, RowBlock
from critattn.observables import Observable
from critattn.protocols import Array
from critattn.tokens import RandomScores, Tokens, normalise

EQUAL_ULPS = 8


@partial(jax.jit, static_argnames=("chosen", "rows", "outputs"))
def row_pass(
    layers: Attention,
    source: Tokens | RandomScores,
    positions: Array,
    *,
    chosen: tuple[Observable, ...],
    rows: int,
    outputs: bool,
) -> tuple[dict[str, dict[str, Array]], Array | None]:
    """Row observables {name: {key: (batch, m)}} and, where asked, attention outputs (batch, m, d)."""

    def block(where: Array) -> tuple[dict[str, dict[str, Array]], Array | None]:
        scores = source.score_rows(where)

        def one(attention: Attention) -> tuple[dict[str, dict[str, Array]], Array | None]:
            view = RowBlock(attention, attention.context(where, source.n, source.d), scores, extremes)
            mixed = view.outputs(source.inputs()) if outputs and isinstance(source, Tokens) else None
            return {o.name: o.row(view) for o in chosen}, mixed

        first = jax.tree_util.tree_map(lambda leaf: leaf[0], layers)
        extremes = _extremes(scores, first.allowed(first.context(where, source.n, source.d)))
        return jax.tree_util.tree_map(lambda x: jnp.moveaxis(x, 0, 1), jax.lax.map(one, layers))

    joined = map_row_blocks(block, positions, rows)
    return jax.tree_util.tree_map(lambda x: jnp.moveaxis(x, 0, 1), joined)


def _extremes(scores: Array, allowed: Array | None) -> tuple[Array, Array]:
    """Smallest and largest allowed score of each row, (rows,) each."""
    if allowed is None:
        return jnp.min(scores, axis=1), jnp.max(scores, axis=1)
    low, high = jnp.where(allowed, scores, jnp.inf), jnp.where(allowed, scores, -jnp.inf)
    return jnp.min(low, axis=1), jnp.max(high, axis=1)


@partial(jax.jit, static_argnames=("chosen", "rows"))
def output_pass(
    vectors: Array,
    outputs: Array,
    mixing: tuple[float, float],
    *,
    chosen: tuple[tuple[Observable, ...], tuple[Observable, ...]],
    rows: int,
) -> dict[str, dict[str, Array]]:
    """Observables of outputs, and of pairs, {name: {key: (batch, m)}} among the m sampled tokens."""
    identity_weight, attention_weight = mixing
    of_outputs, of_pairs = chosen
    units = normalise(vectors)

    def one(mixed: Array) -> dict[str, dict[str, Array]]:
        moved = normalise(identity_weight * vectors + attention_weight * mixed)
        view = OutputBlock(units, moved, jnp.sum(units, axis=0), jnp.sum(moved, axis=0), units.shape[0])
        found = {o.name: o.row(view) for o in of_outputs}
        return found | (_pairs(units, moved, of_pairs, rows) if of_pairs else {})

    return jax.lax.map(one, outputs)


def _pairs(units: Array, moved: Array, chosen: tuple[Observable, ...], rows: int) -> dict[str, dict[str, Array]]:
    tolerance = EQUAL_ULPS * jnp.finfo(units.dtype).eps

    def block(where: Array) -> dict[str, dict[str, Array]]:
        cosines = units[where] @ units.T
        other = where[:, None] != jnp.arange(units.shape[0])[None, :]
        view = PairBlock(cosines, moved[where] @ moved.T, other, other & (1 - cosines > tolerance))
        return {o.name: o.row(view) for o in chosen}

    return map_row_blocks(block, jnp.arange(units.shape[0]), rows)
