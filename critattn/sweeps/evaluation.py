"""One unit of work of a sweep: one token set, all gammas and layers, all observables; a pure function."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critattn import curves, layers, observables, tensorfiles, thresholds, tokens
from critattn.attention import Attention
from critattn.continuation import continue_curves
from critattn.datasets import STATISTICS, Axis, Column, Layout, Unit
from critattn.measurement import Source, measure, measure_batch
from critattn.observables import Observable
from critattn.storage import canonical_json
from critattn.sweeps import choices
from critattn.sweeps.axes import CATEGORICAL
from critattn.sweeps.spec import RANDOM_KINDS, SweepSpec
from critattn.tokens import Tokens, TokenStream

log = logging.getLogger(__name__)
LONG_NAMES = {
    "normaliser": "normaliser",
    "law": "scaling law",
    "n": "number of tokens",
    "d": "dimension",
    "rho": "cosine of two tokens",
    "tau": "standard deviation of scores",
    "replicate": "draw",
    "gamma": "gamma = beta / log n",
    "p": "exponent",
    "layer": "layers passed",
    "half_weight": "gamma where the mean self weight is 1/2",
    "half_weight_p": "p where the mean self weight is 1/2",
    "median_half_weight": "median over rows of gamma where a self weight is 1/2",
    "row_disorder": "standard deviation over rows of gamma where a self weight is 1/2",
    "half_angle": "gamma where the angle ratio is 1/2",
    "common_ratio": "squared norm of the common direction over its mean",
    "effective_rho": "mean off-diagonal cosine",
    "cosine": "mean off-diagonal cosine",
    "token_norm": "mean norm of the tokens",
}


def layout_of(spec: SweepSpec) -> Layout:
    """Axes and observables of the sweep's result.

    Unit axes are normaliser and law, which are the outer ones as each point is compiled anew, then n, d, rho, tau and
    replicate as far as the tokens have them; gamma, p and layer are whole in a unit.

    Raises:
        SpecError: for a token file that cannot be read.
    """
    unit_axes, followers = _token_axes(spec)
    blocks = []
    if spec.axes.gamma:
        blocks.append(_axis("gamma", spec.axes.gamma))
    if spec.axes.p:
        blocks.append(_axis("p", spec.axes.p))
    if spec.attention.layers:
        blocks.append(_axis("layer", range(spec.attention.layers + 1)))
    columns = tuple(_column(spec, name) for name in spec.observables)
    interpolated = any(continued(one) for one in choices.every(spec))
    statistics = (*STATISTICS, "interpolation_error") if interpolated else STATISTICS
    named = [
        Axis(name, tuple(range(len(names))), LONG_NAMES[name], names=names)
        for name, names in choices.given(spec).items()
    ]
    return Layout((*named, *unit_axes), tuple(blocks), columns, followers, statistics)


def continued(spec: SweepSpec) -> tuple[Observable, ...]:
    """Observables of a study of curves that are to be interpolated in gamma from fewer measurements.

    Those that are not analytic in gamma are computed at each point, and with them all that the same pass over the rows
    yields.
    """
    if not spec.node_limit:
        return ()
    smooth, rest = curves.split(spec.attention, observables.select(spec.observables))
    return tuple(o for o in smooth if o.needs not in {other.needs for other in rest})


def token_identity(spec: SweepSpec, point: Mapping[str, float]) -> dict[str, Any]:
    """What defines the tokens at a point, JSON-ready: kind, n, d, rho, tau, norm options, replicate; nothing else.

    Normalisers and laws never enter, so that they are compared on the same tokens.
    """
    point = {name: value for name, value in point.items() if name not in CATEGORICAL}
    options = {"norm": spec.tokens.norm, "unit_norm": spec.tokens.unit_norm, "fix_common": spec.tokens.fix_common}
    return {"seed": spec.seed, "kind": spec.tokens.kind, **options, **point}


def token_key(spec: SweepSpec, unit: Unit) -> jax.Array:
    """The random key of a unit's tokens: 64 bits of the sha256 of `token_identity`.

    Gamma, observables, dtype and the layer never enter, so that a curve is a curve on the same tokens; the same on
    every machine.
    """
    text = canonical_json(token_identity(spec, layout_of(spec).point(unit)))
    words = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], dtype="<u4")
    return jax.random.wrap_key_data(jnp.asarray(words.astype(np.uint32)), impl="threefry2x32")


def make_tokens(spec: SweepSpec, unit: Unit) -> Source:
    """The tokens (or scores, or a stream of tokens) of a unit.

    Raises:
        CritattnError: where they cannot be made or read.
    """
    kept = spec.tokens
    if kept.kind == "file":
        return tokens.load(kept.path or "", tensor=kept.tensor, rows=kept.rows)
    point = layout_of(spec).point(unit)
    n, rho = int(point["n"]), float(point["rho"])
    if kept.kind == "simplex":
        return tokens.simplex(n, int(point["d"]), rho=rho, norm=kept.norm)
    if kept.kind == "opposed":
        return tokens.opposed(n, int(point["d"]), rho=rho)
    key = token_key(spec, unit)
    if kept.kind == "near-opposed":
        return tokens.near_opposed(key, n, int(point["d"]), rho=rho)
    if kept.kind == "random-scores":
        return tokens.random_scores(key, n, rho=rho, tau=float(point["tau"]))
    make = tokens.stream_near_simplex if spec.streamed(n) else tokens.near_simplex
    return make(key, n, int(point["d"]), rho=rho, unit_norm=kept.unit_norm, fix_common=kept.fix_common)


def evaluate(spec: SweepSpec, unit: Unit) -> np.ndarray:
    """Measure one unit.

    Args:
        spec: the sweep.
        unit: index along the unit axes of `layout_of(spec)`.

    Returns:
        (*gamma, *p, *layer, observables, statistics) float64: values, standard errors (NaN where a value is exact), and
        where curves may be continued the interpolation error (NaN where a point was computed). A threshold that was
        not found is NaN.

    Raises:
        CritattnError: where the tokens cannot be made.
    """
    made, layout = make_tokens(spec, unit), layout_of(spec)
    one = choices.alone(spec, choices.named(spec, layout.point(unit)))
    measured = {"curve": _curve, "depth": _depth, "threshold": _threshold}[one.mode](one, made)
    columns = [_statistics(*measured[name]) for name in spec.observables]
    block = np.stack(columns, axis=-2)
    # curves of one layer may be interpolated where those of another are not
    lacking = len(layout.statistics) - block.shape[-1]
    return np.concatenate([block, np.full((*block.shape[:-1], lacking), np.nan)], axis=-1) if lacking else block


def _curve(spec: SweepSpec, made: Source) -> dict[str, tuple[Any, ...]]:
    gammas, chosen = np.array(spec.axes.gamma), observables.select(spec.observables)
    how = {**spec.attention.mixing, **spec.sampling, "dtype": spec.dtype, "memory_bytes": spec.memory_bytes}
    if spec.axes.law:
        alone = measure(choices.layer_of(spec, made.d), made, chosen, **how)
        return {name: (estimate.value, estimate.standard_error) for name, estimate in alone.items()}
    smooth = continued(spec)
    if not smooth:
        shape = (gammas.size, len(spec.axes.p)) if spec.axes.p else (gammas.size,)
        measured = measure_batch(_batch(spec), made, chosen, **how)
        return {name: (_shaped(e.value, shape), _shaped(e.standard_error, shape)) for name, e in measured.items()}
    found = _interpolated(spec, made, smooth, how)
    lacking = {o.needs for o in chosen if o.name not in found}
    rest = tuple(o for o in chosen if o.needs in lacking)
    if rest:
        known = curves.evaluator(spec.attention, made, rest, **how)(gammas)
        found |= {o.name: (known[o.name], known.get(f"{o.name}_se"), None) for o in rest}
    return found


def _batch(spec: SweepSpec) -> Attention:
    """A layer for each gamma, and for each pair of gamma and p where there is a p axis."""
    gammas = np.array(spec.axes.gamma)
    if not spec.axes.p:
        return spec.attention(gammas)
    pairs = np.meshgrid(gammas, np.array(spec.axes.p), indexing="ij")
    return spec.attention(*(points.ravel() for points in pairs))


def _shaped(values: Any, shape: tuple[int, ...]) -> Any:
    return None if values is None else np.reshape(values, shape)


def _interpolated(
    spec: SweepSpec, made: Source, smooth: tuple[Observable, ...], how: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Value, standard error and interpolation error on the grid of each curve that converged within the node limit."""
    gammas = np.array(spec.axes.gamma)
    made_curves = continue_curves(
        curves.evaluator(spec.attention, made, smooth, **how),
        interval=(float(gammas.min()), float(gammas.max())),
        tolerance=spec.interpolation_tolerance,
        dtype=spec.dtype,
        max_nodes=spec.node_limit,
        tolerances=curves.error_tolerances(smooth),
    )
    found: dict[str, tuple[Any, ...]] = {}
    for o in smooth:
        curve, error = made_curves[o.name], made_curves.get(f"{o.name}_se")
        if curve.converged and (error is None or error.converged):
            spread = None if error is None else error(gammas)
            found[o.name] = (curve(gammas), spread, curve.error)
        else:
            log.info("every gamma is computed: %s", curve.reason or (error.reason if error else ""))
    return found


def _depth(spec: SweepSpec, made: Source) -> dict[str, tuple[Any, Any]]:
    if not isinstance(made, Tokens):
        raise TypeError("depth needs tokens")
    layer = spec.attention(np.array(spec.axes.gamma))
    found = layers.measure_layers(
        layer, made, spec.observables, spec.attention.layers, **spec.attention.mixing, dtype=spec.dtype
    )
    return {name: (estimate.value, estimate.standard_error) for name, estimate in found.items()}


def _threshold(spec: SweepSpec, made: Source) -> dict[str, tuple[Any, Any]]:
    in_gamma = [name for name in spec.observables if name not in thresholds.IN_P]
    found = thresholds.measure_thresholds(
        spec.attention, made, in_gamma, **spec.attention.mixing, **spec.sampling, dtype=spec.dtype
    )
    if len(in_gamma) < len(spec.observables):
        if isinstance(made, TokenStream):
            raise TypeError("a search in p needs all rows")
        gamma = spec.attention.gamma_at(made.d)
        found["half_weight_p"] = thresholds.half_weight_p(made, lambda p: spec.attention(gamma, p), dtype=spec.dtype)
    return {name: (threshold.critical, threshold.standard_error) for name, threshold in found.items()}


def _statistics(value: Any, *others: Any) -> np.ndarray:
    value = np.asarray(np.nan if value is None else value, dtype=np.float64)
    filled = [np.asarray(np.nan if other is None else other, dtype=np.float64) for other in others]
    return np.stack([value, *(np.broadcast_to(other, value.shape) for other in filled)], axis=-1)


def _token_axes(spec: SweepSpec) -> tuple[list[Axis], tuple[Axis, ...]]:
    if spec.tokens.kind == "file":
        return [], _file_shape(spec)
    axes, followers = [_axis("n", spec.axes.n)], ()
    if spec.axes.d == "n":
        followers = (Axis("d", spec.axes.n, LONG_NAMES["d"], along="n"),)
    elif not isinstance(spec.axes.d, str) and spec.axes.d:
        axes.append(_axis("d", spec.axes.d))
    axes += [_axis(name, points) for name, points in (("rho", spec.axes.rho), ("tau", spec.axes.tau)) if points]
    if spec.tokens.kind in RANDOM_KINDS:
        axes.append(_axis("replicate", range(spec.axes.replicates)))
    return axes, followers


def _file_shape(spec: SweepSpec) -> tuple[Axis, ...]:
    kept = spec.tokens
    shape = tensorfiles.load_array(kept.path or "", tensor=kept.tensor, rows=kept.rows).shape
    return tuple(Axis(name, (size,), LONG_NAMES[name]) for name, size in zip(("n", "d"), shape, strict=True))


def _axis(name: str, points: Iterable[float]) -> Axis:
    return Axis(name, tuple(points), LONG_NAMES[name])


def _column(spec: SweepSpec, name: str) -> Column:
    if spec.mode == "curve":
        known = observables.get(name)
        return Column(name, known.unit, known.title)
    return Column(name, "1", LONG_NAMES.get(name, name))
