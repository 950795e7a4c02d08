"""Critical points of a layer on given tokens: roots of its own curves on the same tokens, never read off a grid."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from critattn import criticality
from critattn.attention import MEMORY_BYTES, Attention, block_rows, map_row_blocks
from critattn.continuation import continue_curves
from critattn.criticality import Threshold
from critattn.errors import DomainError
from critattn.measurement import BatchEstimate, measure, measure_batch, row_values
from critattn.protocols import Array, Estimate, precision, refuse_tracers
from critattn.scaling import LogN
from critattn.tokens import RandomScores, Tokens, TokenStream, WholeSource, from_array

Layer = Callable[[Any], Attention]
Source = WholeSource | ArrayLike

NAMES = ("half_weight", "median_half_weight", "row_disorder", "half_angle", "common_ratio", "effective_rho")
IN_P = ("half_weight_p",)
# what a sample of rows estimates, or what needs no rows at all
SAMPLED = ("half_weight", "common_ratio", "effective_rho")
GAMMA_MAX = P_MAX = 1000.0
# weights are defined above p = 0; so close to it nothing depends on p
P_MIN = 1e-6
START = 4.0
# the logits of an exact simplex, up to about 100 nats, round differently in different rows
ALIKE_ULPS = 4096
NEWTON_STEPS = 60
# a root this close to 0 may be a jump at 0
JUMP = 1e-6


def log_n_softmax(gamma: Array | float) -> Attention:
    """Log-n scaled softmax attention with coefficient gamma: the layer used where none is given."""
    return Attention(LogN(gamma))


def half_weight(
    tokens: Source | TokenStream,
    layer: Layer = log_n_softmax,
    *,
    sample_rows: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
    gamma_max: float = GAMMA_MAX,
) -> Threshold:
    """The gamma at which the mean self weight over rows is 1/2, by Brent's method on these tokens.

    Args:
        tokens: Tokens, random scores, queries and keys, an array (n, d), or a stream of tokens with `sample_rows`.
        layer: maps gamma to an Attention; log-n scaled softmax by default.
        sample_rows: number of rows to average over; all by default.
        seed: seed of the sampled rows.
        dtype: float64 or float32.
        gamma_max: end of the search.

    Returns:
        A Threshold; its standard error is that of a mean over rows, s.d.(A_ii)/sqrt(m)/slope, and None where all rows
        are alike to rounding, as on a simplex. `converged` is False with a reason where the mean self weight never
        crosses 1/2.
    """
    if isinstance(tokens, TokenStream):
        return _half_weight_of_stream(tokens, layer, sample_rows, seed, dtype=dtype, gamma_max=gamma_max)
    source = _source(tokens)

    def curve(gamma: float) -> Estimate:
        rows = row_values(layer(gamma), source, "self_weight", sample_rows=sample_rows, seed=seed, dtype=dtype)
        return _mean_over_rows(rows, dtype)

    return _refuse_flat(_refuse_jump(_search(curve, "the mean self weight", gamma_max), curve), curve, dtype)


def half_weight_p(
    tokens: Source,
    layer: Layer,
    *,
    sample_rows: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
    p_max: float = P_MAX,
) -> Threshold:
    """The exponent p at which the mean self weight over rows is 1/2, by Brent's method on these tokens.

    Args:
        tokens: Tokens, random scores, queries and keys, or an array (n, d).
        layer: maps p to an Attention, as `lambda p: Attention(LogN(4.0), normaliser=ReluPower(p))` does.
        sample_rows: number of rows to average over; all by default.
        seed: seed of the sampled rows.
        dtype: float64 or float32.
        p_max: end of the search.

    Returns:
        A Threshold in p, with the standard error of `half_weight`. `converged` is False with a reason where the mean
        self weight never crosses 1/2, as on a simplex, where re-weighting localises for every p.
    """
    source = _source(tokens)

    def curve(p: float) -> Estimate:
        rows = row_values(layer(p), source, "self_weight", sample_rows=sample_rows, seed=seed, dtype=dtype)
        return _mean_over_rows(rows, dtype)

    return _refuse_flat(_search(curve, "the mean self weight", p_max, parameter="p", low=P_MIN), curve, dtype)


def _refuse_jump(found: Threshold, curve: Callable[[float], Estimate]) -> Threshold:
    """No root where the curve jumps at gamma = 0, as it does where only the order of the scores counts."""
    if found.critical is None or found.critical > JUMP:
        return found
    above = curve(found.critical / 1024 if found.critical else JUMP).value
    if above < 0.5:
        return found
    reason = f"the mean self weight jumps across 0.5 at gamma = 0 ({above:.3g} right above it)"
    return Threshold(found.parameter, None, None, found.method, False, reason)


def _half_weight_of_stream(
    stream: TokenStream, layer: Layer, sample_rows: int | None, seed: int, *, dtype: str, gamma_max: float
) -> Threshold:
    """The same from a continued curve: keys are made once for all its nodes, where Brent would make them 15 times."""

    def estimate(gammas: np.ndarray) -> BatchEstimate:
        found = measure_batch(layer(gammas), stream, ["self_weight"], sample_rows=sample_rows, seed=seed, dtype=dtype)
        return found["self_weight"]

    low, high = 0.0, min(START, gamma_max)
    while True:
        interval = (low, high)
        curve = continue_curves(
            lambda gammas: {"self_weight": estimate(gammas).value}, interval=interval, dtype=dtype, tolerance=1e-4
        )["self_weight"]
        roots = curve.crossings(0.5)
        if roots.size or high >= gamma_max:
            break
        low, high = high, min(2 * high, gamma_max)
    if not roots.size:
        reason = f"the mean self weight stays below 1/2 up to gamma = {high:g} ({curve.values[-1]:.3g} there)"
        return Threshold("gamma", None, None, "continuation", False, reason)
    root, error = float(roots[0]), estimate(np.array([roots[0]])).standard_error
    slope = float(curve.derivative(root))
    spread = None if error is None else float(error[0] / abs(slope))
    return Threshold("gamma", root, spread, "continuation", True)


def half_angle(
    tokens: Source,
    layer: Layer = log_n_softmax,
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    dtype: str = "float64",
    gamma_max: float = GAMMA_MAX,
) -> Threshold:
    """The gamma at which the angle ratio (mean of ratios) is 1/2 on these tokens.

    Args:
        tokens: Tokens or an array (n, d).
        layer: maps gamma to an Attention; log-n scaled softmax by default.
        identity_weight: a of `attention_step`.
        attention_weight: b of `attention_step`.
        dtype: float64 or float32.
        gamma_max: end of the search.

    Returns:
        A Threshold without standard error; not converged, with a reason, where the ratio never crosses 1/2.
    """
    source = _source(tokens)

    def curve(gamma: float) -> Estimate:
        return measure(
            layer(gamma),
            source,
            ["angle_ratio"],
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            dtype=dtype,
        )["angle_ratio"]

    return _search(curve, "the angle ratio", gamma_max)


def _search(
    curve: Callable[[float], Estimate], quantity: str, largest: float, *, parameter: str = "gamma", low: float = 0.0
) -> Threshold:
    if not low < largest < np.inf:
        raise DomainError.of(f"{parameter}_max", largest, f"finite and above {low:g}")
    bracket = (low, min(START, largest))
    return criticality.find_crossing(
        curve, level=0.5, bracket=bracket, expand_to=largest, parameter=parameter, quantity=quantity
    )


def _refuse_flat(found: Threshold, curve: Callable[[float], Estimate], dtype: str) -> Threshold:
    """No root where the curve only tends to 1/2 from below, as it does where every token has a copy."""
    if found.critical is None:
        return found
    beyond = 1.01 * found.critical + 0.01
    rise = abs(curve(beyond).value - curve(found.critical).value)
    if rise > max(1e-9, 64 * float(np.finfo(dtype).eps)):
        return found
    where = f"within rounding at {found.parameter} = {found.critical:.6g}"
    reason = f"the mean self weight tends to 0.5 without crossing it ({where})"
    return Threshold(found.parameter, None, None, found.method, False, reason)


def _mean_over_rows(rows: np.ndarray, dtype: str) -> Estimate:
    """Mean with the standard error over rows; rows that are alike to rounding have none (an exact simplex)."""
    alike = rows.size < 2 or np.ptp(rows) <= ALIKE_ULPS * np.finfo(dtype).eps * np.max(np.abs(rows))
    return Estimate(float(np.mean(rows)), None if alike else float(np.std(rows, ddof=1) / np.sqrt(rows.size)))


def row_half_weights(
    tokens: Source,
    layer: Layer = log_n_softmax,
    *,
    dtype: str = "float64",
    gamma_max: float = GAMMA_MAX,
    memory_bytes: int = MEMORY_BYTES,
) -> np.ndarray:
    """The gamma_i of each row at which its own weight A_ii is 1/2 [derived, docs/theory.md (4.8)].

    Newton's method on the log-odds of A_ii, which are linear in gamma on a simplex, kept inside a bracket by bisection.

    Args:
        tokens: Tokens, random scores, queries and keys, or an array (n, d).
        layer: maps gamma, here one value per row, to an Attention; log-n scaled softmax by default.
        dtype: float64 or float32.
        gamma_max: end of the search.
        memory_bytes: bound on the working memory of a block of rows.

    Returns:
        gamma_i, (n,) float64; NaN where a row never reaches 1/2 below gamma_max.
    """
    refuse_tracers("row_half_weights", tokens)
    source = _source(tokens)
    with precision(dtype) as kind:
        if not isinstance(source, RandomScores):
            source = source.cast(kind)
        rows = block_rows(source.n, kind.itemsize, memory_bytes)
        roots = _row_roots(
            source, jnp.asarray(gamma_max, kind), layer=layer, rows=rows, devices=jax.local_device_count()
        )
        return np.asarray(roots).astype(np.float64)


@partial(jax.jit, static_argnames=("layer", "rows", "devices"))
def _row_roots(source: WholeSource, gamma_max: Array, *, layer: Layer, rows: int, devices: int = 1) -> Array:
    tolerance = 16 * jnp.finfo(gamma_max.dtype).eps

    def block(where: Array) -> Array:
        scores = source.score_rows(where)

        def log_odds(gamma: Array) -> Array:
            attention = layer(gamma)
            context = attention.context(where, source.n, source.d)
            weights = attention.weights(scores, context)
            own = where[:, None] == context.key_positions[None, :]
            rest = jnp.sum(jnp.where(own, 0, weights), axis=1)
            return jnp.log(jnp.sum(jnp.where(own, weights, 0), axis=1)) - jnp.log(rest)

        def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            low, high, gamma, count = state
            value, slope = jax.jvp(log_odds, (gamma,), (jnp.ones_like(gamma),))
            low, high = jnp.where(value < 0, gamma, low), jnp.where(value < 0, high, gamma)
            newton = gamma - value / slope
            middle = jnp.where(high < gamma_max, (low + high) / 2, 2 * low + 1)
            inside = (newton > low) & (newton < high)
            moved = jnp.clip(jnp.where(inside, newton, middle), 0, gamma_max)
            # Newton comes from one side: the bracket of a root that has been found is closed by hand
            settled = (jnp.abs(value) <= tolerance) | (inside & (jnp.abs(newton - gamma) <= tolerance * (1 + gamma)))
            low, high = jnp.where(settled, gamma, low), jnp.where(settled, gamma, high)
            return low, high, jnp.where(settled, gamma, moved), count + 1

        def unsettled(state: tuple[Array, Array, Array, Array]) -> Array:
            low, high, gamma, count = state
            return (count < NEWTON_STEPS) & jnp.any(high - low > tolerance * (1 + gamma))

        start = jnp.zeros(where.shape, gamma_max.dtype)
        first = start + 1
        low, high, gamma, _ = jax.lax.while_loop(unsettled, step, (start, start + gamma_max, first, jnp.asarray(0)))
        value, slope = jax.jvp(log_odds, (gamma,), (jnp.ones_like(gamma),))
        # next to an equal token the log-odds only tend to 0: they are there to rounding, and flat
        crossed = (jnp.abs(value) < 1e-3) & ((slope * gamma > 1e4 * tolerance) | (gamma < 1e-3))
        return jnp.where(jnp.isfinite(value) & crossed, gamma, jnp.nan)

    return map_row_blocks(block, jnp.arange(source.n), rows, devices=devices)


def measure_thresholds(
    layer: Layer,
    tokens: Source | TokenStream,
    names: Iterable[str],
    *,
    identity_weight: float = 0.0,
    attention_weight: float = 1.0,
    dtype: str = "float64",
    gamma_max: float = GAMMA_MAX,
    sample_rows: int | None = None,
    seed: int = 0,
) -> dict[str, Threshold]:
    """Several critical points, and what is needed to predict them, of one token set.

    Args:
        layer: maps gamma to an Attention.
        tokens: Tokens, random scores, queries and keys, an array (n, d), or a stream of tokens with `sample_rows`.
        names: of `half_weight` (mean over rows), `median_half_weight` and `row_disorder` (median and standard deviation
            of the rows' own gamma_i), `half_angle`, and of the tokens themselves `common_ratio` (|z_0|^2/d of the draw)
            and `effective_rho` (mean off-diagonal cosine).
        identity_weight: a of `attention_step`, for the angle.
        attention_weight: b of `attention_step`, for the angle.
        dtype: float64 or float32.
        gamma_max: end of the search.
        sample_rows: number of rows to average over; all by default. Medians over rows and the angle need all.
        seed: seed of the sampled rows.

    Returns:
        A Threshold for each name.

    Raises:
        DomainError: for an unknown name, or one that needs all rows where they are sampled.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise DomainError.of("threshold", unknown[0], f"of {', '.join(NAMES)}")
    whole = [name for name in wanted if name not in SAMPLED]
    if sample_rows is not None and whole:
        raise DomainError.of("threshold", whole[0], f"of {', '.join(SAMPLED)} where rows are sampled")
    source = tokens if isinstance(tokens, TokenStream) else _source(tokens)
    sampling: dict[str, Any] = {"sample_rows": sample_rows, "seed": seed}
    found: dict[str, Threshold] = {}
    if "half_weight" in wanted:
        found["half_weight"] = half_weight(source, layer, dtype=dtype, gamma_max=gamma_max, **sampling)
    if {"median_half_weight", "row_disorder"} & set(wanted):
        roots = row_half_weights(_source(tokens), layer, dtype=dtype, gamma_max=gamma_max)
        found |= {"median_half_weight": _median(roots), "row_disorder": _disorder(roots)}
    if "half_angle" in wanted:
        found["half_angle"] = half_angle(
            _source(tokens),
            layer,
            identity_weight=identity_weight,
            attention_weight=attention_weight,
            dtype=dtype,
            gamma_max=gamma_max,
        )
    found |= _of_tokens(source, wanted, layer(1.0), dtype=dtype, **sampling)
    return {name: found[name] for name in wanted}


def _of_tokens(
    source: WholeSource | TokenStream, wanted: Iterable[str], attention: Attention, **how: Any
) -> dict[str, Threshold]:
    """What predictors need to know of the tokens themselves."""
    found: dict[str, Threshold] = {}
    if "common_ratio" in wanted:
        ratio = source.common_ratio if isinstance(source, Tokens | TokenStream) else None
        found["common_ratio"] = _given("common_ratio", None if ratio is None else float(ratio), "the draw has none")
    if "effective_rho" in wanted:
        rho = measure(attention, source, ["effective_rho"], **how)["effective_rho"]
        given = _given("effective_rho", rho.value, "no pairs")
        found["effective_rho"] = replace(given, standard_error=rho.standard_error)
    return found


def _source(tokens: Source | TokenStream) -> WholeSource:
    if isinstance(tokens, TokenStream):
        raise DomainError("tokens: are a stream, whose rows are sampled; this threshold needs all rows")
    return tokens if isinstance(tokens, WholeSource) else from_array(tokens)


def _median(roots: np.ndarray) -> Threshold:
    """Median over all rows; a row that never crosses counts as infinitely late."""
    method = "median of row roots"
    late = np.where(np.isfinite(roots), roots, np.inf)
    value = float(np.median(late))
    if not np.isfinite(value):
        return _given("gamma", None, "half of the rows never reach self weight 1/2", method=method)
    spread = _mean_over_rows(roots, "float64").standard_error is not None
    error = criticality.bootstrap(lambda rows: float(np.median(rows)), late, resamples=200) if spread else None
    usable = error is not None and np.isfinite(error)
    return Threshold("gamma", value, error if usable else None, f"{method}, bootstrap over rows", True)


def _disorder(roots: np.ndarray) -> Threshold:
    there = roots[np.isfinite(roots)]
    value = float(np.std(there, ddof=1)) if there.size > 1 else None
    return _given("gamma", value, "fewer than two rows cross", method="s.d. of row roots")


def _given(parameter: str, value: float | None, reason: str, *, method: str = "measured") -> Threshold:
    there = value is not None and np.isfinite(value)
    return Threshold(parameter, value if there else None, None, method, there, "" if there else reason)
