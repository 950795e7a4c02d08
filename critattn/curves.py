"""Curves of observables along gamma on given tokens: continued from few measurements, then known everywhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from critattn import continuation, observables
from critattn.attention import Attention
from critattn.continuation import Curves
from critattn.measurement import Source, measure_batch
from critattn.observables import Observable
from critattn.tokens import from_array

# a batch of a new size is compiled anew, which costs more than evaluations do while n is small
PADDED_N = 2048
PADDED_TO = 16
ERROR_SUFFIX = "_se"
# a standard error needs no more digits than this
ERROR_TOLERANCE = 1e-3


class Layer(Protocol):
    """Maps gammas, one or (batch,), to a layer or a batch of layers."""

    def __call__(self, gamma: Any) -> Attention:
        """The layer with that gamma."""
        ...


def continue_curve(
    layer: Layer,
    tokens: Source | ArrayLike,
    wanted: Iterable[str | Observable] = ("self_weight",),
    *,
    interval: tuple[float, float] = (0.0, 4.0),
    tolerance: float | None = None,
    dtype: str = "float64",
    max_nodes: int = continuation.MAX_NODES,
    max_points: int = 1025,
    **how: Any,
) -> Curves:
    """Whole curves of observables along gamma on the same tokens, from as few measurements as the tolerance asks for.

    Observables that are analytic in gamma (`Observable.analytic`, and an analytic normaliser) are continued from nested
    Chebyshev nodes; the others from an adaptive grid. Each curve has its values `curve(gamma)`, its susceptibility
    `curve.derivative(gamma)`, its crossings `curve.crossings(level)`, and an error estimate.

    Args:
        layer: maps an array of gammas (batch,) to a batch of layers, as `lambda gamma: Attention(LogN(gamma))` does.
        tokens: Tokens, random scores, queries and keys, or an array (n, d).
        wanted: observables, or their names.
        interval: lowest and highest gamma.
        tolerance: error allowed, as a fraction of each curve's range; 1e-6 in float64, 1e-5 in float32 by default.
        dtype: float64 or float32.
        max_nodes: largest number of Chebyshev nodes.
        max_points: largest number of points of the adaptive grid.
        **how: options of `measure_batch`: identity_weight, attention_weight, sample_rows (the same rows at every
            gamma), probes, seed, memory_bytes.

    Returns:
        Curves by name, in the order asked for. The standard error of a sampled observable is a curve `<name>_se`.

    Raises:
        DomainError: for an interval, tolerance, number of nodes, or tokens that make no sense.
        SpecError: for an unknown observable.
    """
    chosen = observables.select(wanted)
    source = tokens if isinstance(tokens, Source) else from_array(tokens)
    smooth, rest = split(layer, chosen)
    parts: list[Curves] = []
    search = {"interval": interval, "tolerance": tolerance, "dtype": dtype, "tolerances": error_tolerances(chosen)}
    if smooth:
        evaluate = evaluator(layer, source, smooth, dtype=dtype, **how)
        parts.append(continuation.continue_curves(evaluate, **search, max_nodes=max_nodes))
    if rest:
        evaluate = evaluator(layer, source, rest, dtype=dtype, **how)
        parts.append(continuation.adaptive_grid(evaluate, **search, max_points=max_points))
    return _joined(parts, [o.name for o in chosen])


def error_tolerances(chosen: Iterable[Observable]) -> dict[str, float]:
    """Tolerances of the curves of standard errors."""
    return {f"{o.name}{ERROR_SUFFIX}": ERROR_TOLERANCE for o in chosen}


def split(layer: Layer, chosen: Iterable[Observable]) -> tuple[tuple[Observable, ...], tuple[Observable, ...]]:
    """Observables that are analytic along gamma in this layer, and those that are not.

    The normaliser has to be analytic, and so do the transforms: one that is not, as rounding to a format is not, says
    `analytic = False`.
    """
    sample = layer(1.0)
    smooth = sample.normaliser.analytic and all(getattr(step, "analytic", True) for step in sample.transforms)
    listed = tuple(chosen)
    return tuple(o for o in listed if smooth and o.analytic), tuple(o for o in listed if not (smooth and o.analytic))


@dataclass(frozen=True)
class Evaluator:
    """What a continuation evaluates: gammas (k,) to a value of each observable, and `<name>_se` where it has one.

    Attributes:
        layer: maps gammas to a batch of layers.
        source: the tokens or scores.
        chosen: the observables.
        how: options of `measure_batch`.
    """

    layer: Layer
    source: Source
    chosen: tuple[Observable, ...]
    how: Mapping[str, Any]

    def only(self, names: Iterable[str]) -> "Evaluator":
        """The same for some of the curves; all where n is so small that compiling anew costs more than measuring."""
        wanted = {name.removesuffix(ERROR_SUFFIX) for name in names} | set(names)
        small = self.source.n <= PADDED_N
        return self if small else replace(self, chosen=tuple(o for o in self.chosen if o.name in wanted))

    def __call__(self, gammas: np.ndarray) -> dict[str, np.ndarray]:
        """Values (k,) by name."""
        size = len(gammas)
        batches = [gammas]
        if self.source.n <= PADDED_N:
            filled = np.resize(gammas, -(-size // PADDED_TO) * PADDED_TO)
            batches = np.split(filled, len(filled) // PADDED_TO)
        measured = [measure_batch(self.layer(batch), self.source, self.chosen, **self.how) for batch in batches]
        found: dict[str, np.ndarray] = {}
        for o in self.chosen:
            found[o.name] = np.concatenate([part[o.name].value for part in measured])[:size]
            errors = [part[o.name].standard_error for part in measured]
            if all(error is not None for error in errors):
                found[f"{o.name}{ERROR_SUFFIX}"] = np.concatenate([np.asarray(error) for error in errors])[:size]
        return found


def evaluator(layer: Layer, source: Source, chosen: Iterable[Observable], **how: Any) -> Evaluator:
    """What a continuation evaluates, with the options of `measure_batch`."""
    return Evaluator(layer, source, tuple(chosen), how)


def _joined(parts: list[Curves], names: list[str]) -> Curves:
    """Curves of several continuations as one, the observables first in the order asked for."""
    known = {name: curve for part in parts for name, curve in part.items()}
    order = [*names, *(name for name in known if name not in names)]
    nodes = np.unique(np.concatenate([part.nodes for part in parts]))
    return Curves({name: known[name] for name in order}, interval=parts[0].interval, nodes=nodes)
