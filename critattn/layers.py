"""Measuring tokens layer by layer, in depth."""

from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp

from critattn.attention import Attention, block_rows, iterate_layers
from critattn.errors import DomainError
from critattn.measurement import BatchEstimate, batch, batch_size
from critattn.protocols import Array, as_host, map_layers, precision, refuse_tracers
from critattn.tokens import Tokens, one_set


def measure_layers(
    attention: Attention,
    tokens: Tokens,
    wanted: Iterable[str],
    layers: int,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    dtype: str = "float64",
) -> dict[str, BatchEstimate]:
    """Mean cosine and mean norm of the tokens before each layer and after the last [docs/theory.md section 8].

    Args:
        attention: a layer, or a batch of layers with a leading axis (batch,).
        tokens: n x d, the input of the first layer.
        wanted: of `cosine` (mean off-diagonal cosine) and `token_norm` (mean norm).
        layers: number of layers L.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        dtype: float64 or float32.

    Returns:
        Estimates with values (batch, L+1), exact.

    Raises:
        DomainError: for a name that is not recorded in depth, queries that differ from keys, or inside a trace.
    """
    refuse_tracers("measure_layers", (attention, tokens))
    one_set("measure_layers", tokens)
    wanted = tuple(wanted)
    unknown = [name for name in wanted if name not in LAYER_RECORDS]
    if unknown:
        raise DomainError.of("observables", unknown, f"of {', '.join(LAYER_RECORDS)} where layers are iterated")
    with precision(dtype) as kind:
        start = tokens.moved_to(jnp.asarray(tokens.vectors, kind))
        rows = block_rows(tokens.n, kind.itemsize)
        records = _records(
            batch(attention, batch_size(attention)),
            start,
            (identity_weight, attention_weight),
            layers=layers,
            wanted=wanted,
            rows=rows if rows < tokens.n else None,
        )
    return {name: BatchEstimate(as_host(records[name])) for name in wanted}


@partial(jax.jit, static_argnames=("layers", "wanted", "rows"))
def _records(
    batched: Attention,
    start: Tokens,
    mixing: tuple[float, float],
    *,
    layers: int,
    wanted: tuple[str, ...],
    rows: int | None,
) -> dict[str, Array]:
    identity_weight, attention_weight = mixing

    def one(single: Attention) -> dict[str, Array]:
        return iterate_layers(
            single,
            start,
            layers,
            record=lambda state: {name: LAYER_RECORDS[name](state) for name in wanted},
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            block_rows=rows,
        )[1]

    return map_layers(one, batched)


def mean_cosine(tokens: Tokens) -> Array:
    """Mean off-diagonal cosine `(|sum_i y_i|^2 - n) / (n (n-1))`; NaN for a single token."""
    total = jnp.sum(tokens.directions(), axis=0)
    n = tokens.n
    return (jnp.sum(total**2) - n) / (n * (n - 1)) if n > 1 else jnp.nan * total[0]


LAYER_RECORDS = {"cosine": mean_cosine, "token_norm": lambda tokens: jnp.mean(tokens.norms())}
