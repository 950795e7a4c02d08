"""Measuring observables on an attention layer: exact over all rows, or estimated from a sample of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from critattn import gradient, kernels, observables, streaming
from critattn.attention import MEMORY_BYTES, Attention, block_rows
from critattn.blocks import Sample
from critattn.errors import DomainError
from critattn.observables import Observable
from critattn.protocols import Array, Estimate, as_host, precision, refuse_tracers
from critattn.tokens import QueriesAndKeys, RandomScores, Tokens, TokenStream, WholeSource, check_norms, from_array

DEFAULT = (
    "angle_ratio",
    "angle_ratio_of_means",
    "output_cosine",
    "excluded_pairs",
    "self_weight",
    "entropy",
    "participation_ratio",
    "largest_weight",
    "row_mass",
    "effective_rho",
    "gradient_norm_squared",
    "gradient_norm",
)
Source = WholeSource | TokenStream


@dataclass(frozen=True)
class BatchEstimate:
    """Estimates of one observable for a batch of layers.

    Attributes:
        value: (batch,) float64.
        standard_error: (batch,) float64, NaN where a value is exact; None where all are.
    """

    value: np.ndarray
    standard_error: np.ndarray | None = None

    @classmethod
    def join(cls, estimates: list[Estimate]) -> "BatchEstimate":
        """Stack single estimates."""
        value = np.array([estimate.value for estimate in estimates])
        errors = [estimate.standard_error for estimate in estimates]
        if all(error is None for error in errors):
            return cls(value)
        return cls(value, np.array([np.nan if error is None else error for error in errors]))


def batch(attention: Attention, size: int = 1) -> Attention:
    """The layer with a leading axis (size,) on every leaf: an array of that length is kept, any other is repeated.

    Raises:
        DomainError: for a leaf that is no number and no array, as a function is.
    """

    def widen(leaf: ArrayLike) -> Array:
        leaf = jnp.asarray(_numeric(leaf), jnp.result_type(float))
        if leaf.ndim and leaf.shape[0] == size:
            return leaf
        shared = leaf.ndim > 1 and leaf.shape[0] == 1
        return jnp.broadcast_to(leaf, (size, *(leaf.shape[1:] if shared else leaf.shape)))

    return jax.tree_util.tree_map(widen, attention)


def batch_size(attention: Attention) -> int:
    """Length of the leading axis that the leaves of a batched layer share; 1 where all are scalars or have length 1."""
    leaves = (np.asarray(_numeric(leaf)) for leaf in jax.tree_util.tree_leaves(attention))
    sizes = {leaf.shape[0] for leaf in leaves if leaf.ndim} - {1}
    if len(sizes) > 1:
        raise DomainError(f"attention: its arrays have leading axes {sorted(sizes)}; a batch has one length")
    return sizes.pop() if sizes else 1


def _numeric(leaf: Any) -> ArrayLike:
    if not (hasattr(leaf, "dtype") or isinstance(leaf, int | float)):
        raise DomainError(
            f"attention: {leaf!r} is no pytree; allowed: transforms, normaliser and mask that are, such as frozen "
            "dataclasses under critattn.protocols.pytree()"
        )
    return leaf


def measure(
    attention: Attention,
    tokens: Source | ArrayLike,
    wanted: Iterable[str | Observable] = DEFAULT,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    sample_rows: int | None = None,
    probes: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
    memory_bytes: int = MEMORY_BYTES,
) -> dict[str, Estimate]:
    """Observables of one layer `x' = a x + b ATT(N(x))` on the tokens.

    Args:
        attention: the layer. Arrays in its transforms belong to this one layer, whatever their length (a value for each
            token, a bias for each pair); a leading axis of 1 is dropped.
        tokens: n x d tokens, random scores, or queries that differ from keys.
        wanted: observables, or their names.
        identity_weight: a.
        attention_weight: b.
        sample_rows: number m of rows to measure, drawn without replacement; None measures all n.
        probes: random probes for the costly term of the gradient norm; None computes it exactly.
        seed: seed of the sampled rows and of the probes.
        dtype: float64 or float32.
        memory_bytes: bound on the working memory of a block of rows.

    Returns:
        An Estimate for each name, in the order asked for; standard_error is None where the value is exact.

    Raises:
        DomainError: for bad tokens, a sample outside 2..n, or inside a trace.
        SpecError: for an unknown observable.
    """
    refuse_tracers("measure", (attention, tokens))
    job = _Job(identity_weight, attention_weight, probes, seed, memory_bytes)
    result = _measured(attention, tokens, wanted, job, size=1, sample_rows=sample_rows, dtype=dtype)
    single = {}
    for name, estimate in result.items():
        error = None if estimate.standard_error is None else float(estimate.standard_error[0])
        single[name] = Estimate(float(estimate.value[0]), error)
    return single


def measure_batch(
    attention: Attention,
    tokens: Source | ArrayLike,
    wanted: Iterable[str | Observable] = DEFAULT,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    sample_rows: int | None = None,
    probes: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
    memory_bytes: int = MEMORY_BYTES,
) -> dict[str, BatchEstimate]:
    """The same for a batch of layers on the same tokens: scores are computed once for all of them.

    Args:
        attention: a layer whose arrays (say gamma) have a leading axis (batch,); scalars are shared.
        tokens: as in `measure`.
        wanted: as in `measure`.
        identity_weight: a.
        attention_weight: b.
        sample_rows: as in `measure`.
        probes: as in `measure`.
        seed: as in `measure`.
        dtype: as in `measure`.
        memory_bytes: as in `measure`.

    Returns:
        A BatchEstimate for each name.
    """
    refuse_tracers("measure_batch", (attention, tokens))
    job = _Job(identity_weight, attention_weight, probes, seed, memory_bytes)
    size = batch_size(attention)
    return _measured(attention, tokens, wanted, job, size=size, sample_rows=sample_rows, dtype=dtype)


def _measured(
    attention: Attention,
    tokens: Source | ArrayLike,
    wanted: Iterable[str | Observable],
    job: "_Job",
    *,
    size: int,
    sample_rows: int | None,
    dtype: str,
) -> dict[str, BatchEstimate]:
    chosen = observables.select(wanted)
    source = tokens if isinstance(tokens, Source) else from_array(tokens)
    _check_needs(chosen, source)
    if isinstance(source, TokenStream):
        streaming.check(attention)
    positions = _sample_positions(source, sample_rows, job.seed)
    with precision(dtype) as kind:
        source = _cast(source, kind)
        layers = batch(attention, size)
        width = max(1, int(job.memory_bytes // (2 * kind.itemsize * max(positions.size * source.d, 1))))
        parts = [
            job.measure(
                jax.tree_util.tree_map(lambda leaf, k=k: leaf[k : k + width], layers),
                source,
                positions,
                chosen,
            )
            for k in range(0, size, width)
        ]
    return {o.name: BatchEstimate.join([e for part in parts for e in part[o.name]]) for o in chosen}


def row_values(
    attention: Attention,
    tokens: Source,
    name: str,
    *,
    sample_rows: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
    memory_bytes: int = MEMORY_BYTES,
) -> np.ndarray:
    """Values of one row observable on each (sampled) row of one layer, (m,) float64.

    Raises:
        DomainError: where the observable is no mean over rows.
    """
    observable = observables.get(name)
    if observable.needs not in ("logits", "weights"):
        raise DomainError.of("observable", name, "a mean over rows of weights")
    positions = _sample_positions(tokens, sample_rows, seed)
    with precision(dtype) as kind:
        rows = block_rows(tokens.n, kind.itemsize, memory_bytes)
        source = _cast(tokens, kind)
        values, _ = _rows_of(batch(attention), source, positions, chosen=(observable,), rows=rows, outputs=False)
        return as_host(values[name]["value"])[0]


def _cast(source: Source, dtype: np.dtype) -> Source:
    if isinstance(source, QueriesAndKeys):
        return source.cast(dtype)
    if not isinstance(source, Tokens):
        return source
    with np.errstate(over="ignore", under="ignore"):
        vectors = np.asarray(source.vectors).astype(dtype)
    check_norms(vectors, source.label)
    return source.moved_to(jnp.asarray(vectors))


def _check_needs(chosen: tuple[Observable, ...], source: Source) -> None:
    lacking = [o.name for o in chosen if o.needs in ("outputs", "pairs", "gradient", "operator")]
    if lacking and isinstance(source, RandomScores):
        raise DomainError(f"observables {', '.join(lacking)}: need tokens; random scores have none behind them")
    if lacking and isinstance(source, QueriesAndKeys):
        allowed = "allowed where queries differ from keys: those of weights"
        raise DomainError(f"observables {', '.join(lacking)}: need tokens that are queries, keys and values; {allowed}")
    exact = [o.name for o in chosen if o.needs in ("gradient", "operator")]
    if exact and isinstance(source, TokenStream):
        raise DomainError(f"observables {', '.join(exact)}: need all tokens at once; a stream has them in blocks")
    exact = [o.name for o in chosen if o.needs == "gradient"]
    if exact and isinstance(source, Tokens) and not source.normalised:
        raise DomainError(f"observables {', '.join(exact)}: hold for normalised tokens only")


def _sample_positions(source: Source, sample_rows: int | None, seed: int) -> np.ndarray:
    n = source.n
    if sample_rows is None:
        if isinstance(source, TokenStream):
            raise DomainError("sample_rows = None: a stream of tokens is measured on a sample; give a number of rows")
        return np.arange(n)
    if not 2 <= sample_rows <= n:
        raise DomainError.of("sample_rows", sample_rows, f"in 2..n = {n}")
    # a stream of its own: the sample never depends on how the tokens were drawn
    generator = np.random.default_rng([seed, 0x5A3B1E])
    return np.sort(generator.choice(n, size=sample_rows, replace=False))


@dataclass(frozen=True)
class _Job:
    identity_weight: float
    attention_weight: float
    probes: int | None
    seed: int
    memory_bytes: int

    def measure(
        self,
        layers: Attention,
        source: Source,
        positions: np.ndarray,
        chosen: tuple[Observable, ...],
    ) -> dict[str, list[Estimate]]:
        sample = Sample(positions.size, source.n, source.d)
        rows: dict[str, Mapping[str, Array | np.ndarray]] = {}
        by_need = {
            need: tuple(o for o in chosen if o.needs == need) for need in ("outputs", "pairs", "gradient", "operator")
        }
        plain = tuple(o for o in chosen if o.needs in ("logits", "weights"))
        moving = bool(by_need["outputs"] or by_need["pairs"])
        size = jnp.dtype(jnp.result_type(float)).itemsize
        block = block_rows(source.n, size, self.memory_bytes)
        if plain or moving:
            values, outputs = _rows_of(layers, source, positions, chosen=plain, rows=block, outputs=moving)
            rows |= values
            if moving and outputs is not None and isinstance(source, Tokens | TokenStream):
                # directions do not depend on a common factor, which may be beyond the dtype
                largest = max(abs(self.identity_weight), abs(self.attention_weight)) or 1.0
                mixing = (self.identity_weight / largest, self.attention_weight / largest)
                rows |= kernels.output_pass(
                    _vectors_of(source, positions),
                    outputs,
                    mixing,
                    chosen=(by_need["outputs"], by_need["pairs"]),
                    whole=not sample.correction,
                    devices=jax.local_device_count(),
                )
        if by_need["gradient"] and isinstance(source, Tokens):
            profiles = gradient.row_profiles(
                layers,
                source,
                positions,
                identity_weight=self.identity_weight,
                attention_weight=self.attention_weight,
                probes=self.probes,
                seed=self.seed,
                memory_bytes=self.memory_bytes,
            )
            rows |= {o.name: profiles for o in by_need["gradient"]}
        result = {o.name: _reduce(o, rows[o.name], sample) for o in chosen if o.needs != "operator"}
        if by_need["operator"] and isinstance(source, Tokens):
            result |= {o.name: self._operator(layers, source) for o in by_need["operator"]}
        return result

    def _operator(self, layers: Attention, source: Tokens) -> list[Estimate]:
        return [
            gradient.operator_norm(
                jax.tree_util.tree_map(lambda leaf, k=k: leaf[k], layers),
                source,
                identity_weight=self.identity_weight,
                attention_weight=self.attention_weight,
            )
            for k in range(batch_size(layers))
        ]


def _reduce(observable: Observable, rows: Mapping[str, Array | np.ndarray], sample: Sample) -> list[Estimate]:
    host = {name: as_host(array) for name, array in rows.items()}
    size = next(iter(host.values())).shape[0]
    return [observable.reduce({name: array[k] for name, array in host.items()}, sample) for k in range(size)]


def _rows_of(
    layers: Attention,
    source: Source,
    positions: np.ndarray,
    *,
    chosen: tuple[Observable, ...],
    rows: int,
    outputs: bool,
) -> tuple[dict[str, dict[str, Array]], Array | None]:
    if isinstance(source, TokenStream):
        own = streaming.sampled(source, positions)
        where = jnp.asarray(positions)
        return streaming.stream_pass(layers, source, own, where, chosen=chosen, devices=jax.local_device_count())
    return kernels.row_pass(
        layers,
        source,
        jnp.asarray(positions),
        chosen=chosen,
        rows=rows,
        outputs=outputs,
        devices=jax.local_device_count(),
    )


def _vectors_of(source: Tokens | TokenStream, positions: np.ndarray) -> Array:
    if isinstance(source, TokenStream):
        return streaming.sampled(source, positions)
    return jnp.asarray(source.vectors)[positions]
