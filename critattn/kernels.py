"""The two passes of a measurement under jit: rows of weights in blocks, then outputs and pairs of tokens."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critattn.attention import Attention, map_row_blocks, on_devices
from critattn.blocks import OutputBlock, PairBlock, RowBlock
from critattn.observables import Observable
from critattn.protocols import Array, map_layers
from critattn.tokens import Tokens, WholeSource, normalise

EQUAL_ULPS = 8
PAIR_TILE = 512


@partial(jax.jit, static_argnames=("chosen", "rows", "outputs", "devices"))
def row_pass(
    layers: Attention,
    source: WholeSource,
    positions: Array,
    *,
    chosen: tuple[Observable, ...],
    rows: int,
    outputs: bool,
    devices: int = 1,
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
        if layers.centred:
            # once for all layers; what is near the largest score keeps its digits in every later sum
            top = jnp.where(jnp.isfinite(extremes[1]), extremes[1], 0)
            scores, extremes = scores - top[:, None], (extremes[0] - top, extremes[1] - top)
        return jax.tree_util.tree_map(lambda x: jnp.moveaxis(x, 0, 1), map_layers(one, layers))

    joined = map_row_blocks(block, positions, rows, devices=devices)
    return jax.tree_util.tree_map(lambda x: jnp.moveaxis(x, 0, 1), joined)


def _extremes(scores: Array, allowed: Array | None) -> tuple[Array, Array]:
    """Smallest and largest allowed score of each row, (rows,) each."""
    if allowed is None:
        return jnp.min(scores, axis=1), jnp.max(scores, axis=1)
    low, high = jnp.where(allowed, scores, jnp.inf), jnp.where(allowed, scores, -jnp.inf)
    return jnp.min(low, axis=1), jnp.max(high, axis=1)


@partial(jax.jit, static_argnames=("chosen", "whole", "devices"))
def output_pass(
    vectors: Array,
    outputs: Array,
    mixing: tuple[float, float],
    *,
    chosen: tuple[tuple[Observable, ...], tuple[Observable, ...]],
    whole: bool,
    devices: int = 1,
) -> dict[str, dict[str, Array]]:
    """Observables of outputs, and of pairs, {name: {key: (batch, rows)}} among the m (sampled) tokens.

    Args:
        vectors: (m, d) the tokens.
        outputs: (batch, m, d) of the attention branch.
        mixing: a and b.
        chosen: observables of outputs, and of pairs.
        whole: the tokens are all there are. Of two rows of a pair only the first then has its share, twice, which
            halves the work: the sum over rows is the same, and no single row is needed. A sample costs a second pass
            over its pairs, for what their standard errors need.
        devices: local devices among which pairs are divided.
    """
    identity_weight, attention_weight = mixing
    of_outputs, of_pairs = chosen
    units = normalise(vectors)
    moved = normalise(identity_weight * vectors + attention_weight * outputs)
    before = jnp.sum(units, axis=0)

    def one(after: Array) -> dict[str, dict[str, Array]]:
        view = OutputBlock(units, after, before, jnp.sum(after, axis=0), units.shape[0])
        return {o.name: o.row(view) for o in of_outputs}

    found = jax.lax.map(one, moved)
    found |= _pairs(units, moved, of_pairs, whole, devices) if of_pairs else {}
    pairs = {o.name: o.pair for o in (*of_outputs, *of_pairs) if o.pair is not None}
    if whole or not pairs:
        return found
    sums = {name: (found[name]["above"], found[name]["below"]) for name in pairs}
    squares = jax.lax.map(lambda layer: _squares(layer[0], layer[1], units, pairs), (sums, moved))
    return found | {name: found[name] | {"squares": values} for name, values in squares.items()}


def _pairs(
    units: Array, moved: Array, chosen: tuple[Observable, ...], whole: bool, devices: int
) -> dict[str, dict[str, Array]]:
    """Sums over pairs in tiles of rows and keys; each tile serves all layers, so that its matrix products are large."""
    count = units.shape[0]
    size = min(PAIR_TILE, -(-count // 8) * 8)
    blocks = -(-count // size)
    order = np.minimum(np.arange(blocks * size), count - 1)
    units = units[order]
    # about their mean, outputs that have collapsed keep the digits of their small differences
    spread = (moved - jnp.mean(moved, axis=1, keepdims=True))[:, order]
    tiles = np.array([(i, j) for i in range(blocks) for j in range(i if whole else 0, blocks)])
    tiles = np.concatenate([tiles, np.full((-len(tiles) % devices, 2), -1)])
    tolerance = EQUAL_ULPS * jnp.finfo(units.dtype).eps

    def tile(units: Array, spread: Array, sums: Any, where: Array) -> tuple[Any, None]:
        rows, keys = (jnp.maximum(k, 0) * size + jnp.arange(size) for k in where)
        cosines = units[rows] @ units[keys].T
        other = (rows[:, None] != keys) & (rows[:, None] < count) & (keys < count) & (where[0] >= 0)
        distinct = other & (1 - cosines > tolerance)

        def one(after: Array) -> dict[str, dict[str, Array]]:
            view = PairBlock(cosines, after[rows], after[keys], other, distinct)
            return {o.name: o.row(view) for o in chosen}

        share = jnp.where(whole & (where[0] != where[1]), 2, 1)
        found = jax.vmap(one)(spread)
        if sums is None:
            sums = jax.tree_util.tree_map(lambda x: jnp.zeros((*x.shape[:1], blocks, size), x.dtype), found)
        return jax.tree_util.tree_map(lambda total, x: total.at[:, where[0]].add(share * x), sums, found), None

    def share_of(given: Array, units: Array, spread: Array) -> Any:
        step = partial(tile, units, spread)
        total = jax.lax.scan(step, step(None, given[0])[0], given[1:])[0]
        return jax.tree_util.tree_map(lambda x: x[None], total)

    parts = on_devices(share_of, jnp.asarray(tiles), devices, units, spread)
    return jax.tree_util.tree_map(lambda x: jnp.sum(x, axis=0).reshape(x.shape[1], -1)[:, :count], parts)


def _squares(
    sums: dict[str, tuple[Array, Array]], after: Array, units: Array, pairs: dict[str, Any]
) -> dict[str, Array]:
    """Sums over the pairs of each row of (above - ratio below)^2, with ratio = sum above / sum below, of one layer."""
    tolerance = EQUAL_ULPS * jnp.finfo(units.dtype).eps
    # a ratio without pairs is NaN in the end
    ratios = {name: jnp.sum(above) / jnp.sum(below) for name, (above, below) in sums.items()}
    spread = after - jnp.mean(after, axis=0)

    def block(where: Array) -> dict[str, Array]:
        cosines = units[where] @ units.T
        other = where[:, None] != jnp.arange(units.shape[0])[None, :]
        view = PairBlock(cosines, spread[where], spread, other, other & (1 - cosines > tolerance))
        terms = {name: pair(view) for name, pair in pairs.items()}
        return {name: jnp.sum((above - ratios[name] * below) ** 2, axis=1) for name, (above, below) in terms.items()}

    return map_row_blocks(block, jnp.arange(units.shape[0]), PAIR_TILE)
