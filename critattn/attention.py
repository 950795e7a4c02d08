"""One attention layer: scores to weights to outputs, dense or in blocks of rows, and its repetition in depth."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from critattn.errors import DomainError, SpecError
from critattn.normalisers import Softmax
from critattn.protocols import Array, Normaliser, RowContext, ScalingLaw, Transform, pytree
from critattn.tokens import Tokens, normalise, one_set

MEMORY_BYTES = 256_000_000
LIVE_ARRAYS = 16
# one (rows, n) array of a block: what several passes over it find again in the cache of a core
CACHE_BYTES = 4 << 20
LEAST_ROWS = 128
T = TypeVar("T")
X = TypeVar("X", Tokens, jax.Array)


class Mask(Protocol):
    """Which keys a query may see."""

    def allowed(self, query_positions: Array, key_positions: Array) -> Array | None:
        """Booleans (rows, keys), or None where every key is allowed."""
        ...

    def keys_seen(self, query_positions: Array, total_keys: int) -> Array:
        """How many keys each query sees, (rows,)."""
        ...


@pytree()
class Bidirectional:
    """Every query sees every key."""

    def allowed(self, query_positions: Array, key_positions: Array) -> Array | None:
        """No restriction: None."""
        return None

    def keys_seen(self, query_positions: Array, total_keys: int) -> Array:
        """All n keys, (rows,)."""
        return jnp.full(query_positions.shape, total_keys)


@pytree()
class Causal:
    """A query sees the keys up to and including its own position."""

    def allowed(self, query_positions: Array, key_positions: Array) -> Array | None:
        """True where key position <= query position, (rows, keys)."""
        return key_positions[None, :] <= query_positions[:, None]

    def keys_seen(self, query_positions: Array, total_keys: int) -> Array:
        """Position + 1, (rows,)."""
        return query_positions + 1


@pytree(meta=("width",))
class Window:
    """A query sees the last `width` keys up to and including its own position.

    Attributes:
        width: keys in the window, at least 1.
    """

    width: int

    def __post_init__(self) -> None:
        if not self.width >= 1:
            raise DomainError.of("width", self.width, "at least 1")

    def allowed(self, query_positions: Array, key_positions: Array) -> Array | None:
        """True where position - width < key position <= position, (rows, keys)."""
        distance = query_positions[:, None] - key_positions[None, :]
        return (distance >= 0) & (distance < self.width)

    def keys_seen(self, query_positions: Array, total_keys: int) -> Array:
        """The smaller of position + 1 and the width, (rows,)."""
        return jnp.minimum(query_positions + 1, self.width)


@pytree(meta=("ids",))
class Packed:
    """Several documents in one sequence: a query sees the keys of its own document up to its own position.

    Attributes:
        ids: the document of each position, any integers; kept as a tuple, so that a layer's arrays stay its parameters.
    """

    ids: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(np.asarray(self.ids).tolist()))

    def allowed(self, query_positions: Array, key_positions: Array) -> Array | None:
        """True where the key is of the same document and not after the query, (rows, keys)."""
        ids = jnp.asarray(self.ids)
        same = ids[query_positions][:, None] == ids[key_positions][None, :]
        return same & (key_positions[None, :] <= query_positions[:, None])

    def keys_seen(self, query_positions: Array, total_keys: int) -> Array:
        """Position within the document + 1, (rows,).

        Raises:
            DomainError: where the ids are not one for each key.
        """
        if len(self.ids) != total_keys:
            raise DomainError(f"ids: have {len(self.ids)} entries; allowed: one for each of the {total_keys} keys")
        return self.own_positions(query_positions) + 1

    def own_positions(self, query_positions: Array) -> Array:
        """How many earlier positions belong to the same document, (rows,)."""
        seen: dict[int, int] = {}
        order = np.zeros(len(self.ids), int)
        for place, document in enumerate(self.ids):
            order[place] = seen.get(document, 0)
            seen[document] = order[place] + 1
        return jnp.asarray(order)[query_positions]


MASKS: dict[str, type] = {"bidirectional": Bidirectional, "causal": Causal}


def mask(name: str) -> Mask:
    """The mask of that name.

    Raises:
        SpecError: for an unknown name.
    """
    if name not in MASKS:
        raise SpecError(f"mask {name!r} is unknown; known: {', '.join(sorted(MASKS))}")
    return MASKS[name]()


@jax.tree_util.register_pytree_node_class
class Attention:
    """A layer: transforms in order of application, then the normaliser, under a mask.

    `Attention(LogN(1.2))` is log-n scaled softmax attention. Arrays held by the transforms are leaves of a pytree, so
    a layer passes through jit, vmap and grad.

    Args:
        transforms: maps from logits to logits.
        normaliser: the map from logits to weights; softmax by default.
        mask: which keys a query may see; all by default.
    """

    def __init__(self, *transforms: Transform, normaliser: Normaliser | None = None, mask: Mask | None = None) -> None:
        self.transforms = tuple(transforms)
        self.normaliser: Normaliser = Softmax() if normaliser is None else normaliser
        self.mask: Mask = Bidirectional() if mask is None else mask

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Children of the pytree."""
        return (self.transforms, self.normaliser, self.mask), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> "Attention":
        """Rebuild from the children of the pytree."""
        transforms, normaliser, mask = children
        return cls(*transforms, normaliser=normaliser, mask=mask)

    def __repr__(self) -> str:
        parts = [*map(repr, self.transforms), f"normaliser={self.normaliser!r}", f"mask={self.mask!r}"]
        return f"Attention({', '.join(parts)})"

    def context(self, query_positions: Array, total_keys: int, dim: int) -> RowContext:
        """What the rows at these positions know about themselves."""
        keys_seen = self.mask.keys_seen(query_positions, total_keys)
        restart = getattr(self.mask, "own_positions", None)
        own = None if restart is None else restart(query_positions)
        return RowContext(query_positions, jnp.arange(total_keys), keys_seen, total_keys, dim, own)

    def logits(self, scores: Array, context: RowContext) -> Array:
        """Apply the transforms in order: logits (..., rows, keys) in nats."""
        for transform in self.transforms:
            scores = transform(scores, context)
        return scores

    @property
    def only_scales(self) -> bool:
        """Logits are multiples of a row's scores: there are no transforms but scaling laws."""
        return all(isinstance(transform, ScalingLaw) for transform in self.transforms)

    @property
    def centred(self) -> bool:
        """A constant taken off a row's scores changes no weight."""
        return self.only_scales and self.normaliser.shift_invariant

    def logit_bound(self, scores: Array, context: RowContext, extremes: tuple[Array, Array]) -> Array:
        """An upper bound of the logits of each row, (rows,), attained for scaling laws alone.

        Args:
            scores: (rows, keys).
            context: of the rows.
            extremes: smallest and largest allowed score of each row; they bound the logits of any scaling law, so that
                a sweep over gamma looks for the maximum once.
        """
        if self.only_scales:
            ends = jnp.stack(extremes, axis=-1)
            return jnp.max(self.logits(ends, context), axis=-1)
        logits, where = self.logits(scores, context), self.allowed(context)
        return jnp.max(logits if where is None else jnp.where(where, logits, -jnp.inf), axis=-1)

    def allowed(self, context: RowContext) -> Array | None:
        """Booleans (rows, keys), or None where every key is allowed."""
        return self.mask.allowed(context.query_positions, context.key_positions)

    def weights(self, scores: Array, context: RowContext) -> Array:
        """Row-stochastic weights A (..., rows, keys) of scores of the same shape."""
        return self.normaliser(self.logits(scores, context), context, where=self.allowed(context))


def attention_weights(attention: Attention, scores: Array, context: RowContext | None = None) -> Array:
    """Weights A of a matrix of scores, `A_ij = exp(beta s_ij)/sum_k exp(beta s_ik)` for scaled softmax.

    Args:
        attention: the layer.
        scores: (..., rows, keys); leading axes are heads or replicates.
        context: where the rows stand; by default row i is query i of a square matrix.

    Returns:
        Weights of the shape and dtype of the scores.

    Raises:
        DomainError: where scores are no matrix, or not square and without a context.
    """
    scores = jnp.asarray(scores)
    if scores.ndim < 2:
        raise DomainError(f"scores: have shape {scores.shape}; expected (..., rows, keys)")
    if context is None:
        rows, keys = scores.shape[-2:]
        if rows != keys:
            raise DomainError(f"scores: have shape {scores.shape}; a matrix that is not square needs a context")
        context = attention.context(jnp.arange(rows), keys, 0)
    return attention.weights(scores, context)


def block_rows(n: int, itemsize: int, memory_bytes: int = MEMORY_BYTES) -> int:
    """Rows in a block, a multiple of 64.

    About 16 (rows, n) arrays fit the budget; one of them fits the cache, unless rows are then too few for products.
    """
    cached = max(CACHE_BYTES // (itemsize * n) // 64 * 64, LEAST_ROWS)
    return max(64, min(cached, memory_bytes // (LIVE_ARRAYS * itemsize * n) // 64 * 64))


def map_row_blocks(function: Callable[[Array], T], positions: Array, block_rows: int, *, devices: int = 1) -> T:
    """Apply a function of row positions block by block and join the results along their first axis.

    The last block is filled up with repetitions of its last row, which are cut off again.

    Args:
        function: maps positions (block_rows,) to a pytree of arrays with leading axis block_rows.
        positions: (rows,) integers.
        block_rows: rows in a block.
        devices: local devices among which the rows are divided.
    """
    rows = positions.shape[0]
    if devices > 1:
        share = -(-rows // devices)
        filled = positions[np.minimum(np.arange(share * devices), rows - 1)]
        results = on_devices(partial(map_row_blocks, function, block_rows=block_rows), filled, devices)
        return jax.tree_util.tree_map(lambda x: x[:rows], results)
    if rows <= block_rows:
        return function(positions)
    blocks = -(-rows // block_rows)
    order = np.minimum(np.arange(blocks * block_rows), rows - 1).reshape(blocks, block_rows)
    results = jax.lax.map(function, positions[order])
    return jax.tree_util.tree_map(lambda x: x.reshape(-1, *x.shape[2:])[:rows], results)


def on_devices(function: Callable[..., T], items: Array, devices: int, *shared: Any) -> T:
    """Give each local device its share of the items and join the results along their first axis.

    Args:
        function: maps items (share, ...) and the shared arrays to a pytree of arrays.
        items: (share * devices, ...).
        devices: number of local devices.
        *shared: pytrees of arrays that every device has a copy of; so is what the function closes over, which must
            not be divided among devices already.
    """
    if devices == 1:
        return function(items, *shared)
    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("rows",))
    split = PartitionSpec("rows")
    specs = (split, *(PartitionSpec() for _ in shared))
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)(items, *shared)


def attend(attention: Attention, queries: Array, keys: Array, values: Array, *, block_rows: int | None = None) -> Array:
    """Attention output `sum_j A_ij v_j` with scores `q_i.k_j` (no 1/sqrt(d): a scale is a transform).

    Args:
        attention: the layer.
        queries: (..., rows, d).
        keys: (..., keys, d).
        values: (..., keys, width).
        block_rows: rows handled at once; all by default. Dense and blocked agree to rounding.

    Returns:
        Outputs (..., rows, width).
    """
    queries, keys, values = map(jnp.asarray, (queries, keys, values))
    total_keys, dim = keys.shape[-2:]

    def block(positions: Array) -> Array:
        context = attention.context(positions, total_keys, dim)
        scores = queries[..., positions, :] @ jnp.swapaxes(keys, -1, -2)
        return jnp.moveaxis(attention.weights(scores, context) @ values, -2, 0)

    rows = queries.shape[-2]
    # recomputing a block in the backward pass keeps reverse mode at O(block) memory as well
    step = block if block_rows is None else jax.checkpoint(block)
    return jnp.moveaxis(map_row_blocks(step, jnp.arange(rows), block_rows or rows), 0, -2)


def attention_step(
    attention: Attention,
    tokens: X,
    *,
    identity_weight: float | Array = 0.0,
    attention_weight: float | Array = 1.0,
    block_rows: int | None = None,
) -> X:
    """One layer with K = Q = V = I: `x' = a x + b ATT(N(x))`, N(x) = x/|x| [Chen 2025, eq. (2.3)].

    Args:
        attention: the layer.
        tokens: Tokens, or an array (n, d).
        identity_weight: a, the weight of the residual branch (the tokens themselves, not normalised).
        attention_weight: b, the weight of the attention branch.
        block_rows: rows handled at once; all by default.

    Returns:
        The new tokens, of the type given.
    """
    if isinstance(tokens, Tokens):
        inputs = tokens.inputs()
        mixed = attend(attention, inputs, inputs, inputs, block_rows=block_rows)
        return tokens.moved_to(identity_weight * jnp.asarray(tokens.vectors) + attention_weight * mixed)
    one_set("attention_step", tokens)
    units = normalise(tokens)
    mixed = attend(attention, units, units, units, block_rows=block_rows)
    return identity_weight * tokens + attention_weight * mixed


def iterate_layers(
    attention: Attention,
    tokens: Tokens,
    layers: int,
    *,
    record: Callable[[Tokens], T],
    identity_weight: float | Array = 0.0,
    attention_weight: float | Array = 1.0,
    block_rows: int | None = None,
) -> tuple[Tokens, T]:
    """Apply the same layer `layers` times and record something of the tokens before each and after the last.

    Args:
        attention: the layer.
        tokens: the input.
        layers: number of layers, at least 0.
        record: maps Tokens to a pytree of arrays, inside jit.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        block_rows: rows handled at once; all by default.

    Returns:
        The tokens after the last layer, and the records with a leading axis of layers + 1.

    Raises:
        DomainError: for a negative number of layers.
    """
    if layers < 0:
        raise DomainError.of("layers", layers, "at least 0")

    def layer(state: Tokens, _: None) -> tuple[Tokens, T]:
        moved = attention_step(
            attention,
            state,
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            block_rows=block_rows,
        )
        return moved, record(moved)

    start = jax.tree_util.tree_map(jnp.asarray, tokens)
    last, records = jax.lax.scan(layer, start, None, length=layers)
    first = record(start)
    return last, jax.tree_util.tree_map(lambda x, y: jnp.concatenate([x[None], y]), first, records)
