"""Observables of an attention layer: one name serves theory, simulation, dataset and axis label."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from scipy.special import stdtrit

from critattn.blocks import OutputBlock, PairBlock, RowBlock, Sample
from critattn.errors import SpecError
from critattn.protocols import Array, Estimate

Needs = Literal["logits", "weights", "outputs", "pairs", "gradient", "operator"]
Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Observable:
    """Something measured on a layer.

    Attributes:
        name: identifier in the dataset, on the command line and in the theory.
        symbol: LaTeX, for axes.
        unit: "1" or "nats".
        needs: what `row` is given: a RowBlock ("logits", "weights"), an OutputBlock ("outputs"), a PairBlock ("pairs"),
            the squared norms of the rows of the Jacobian ("gradient"); "operator" observables belong to the layer as a
            whole.
        row: maps one block to a dict of (rows,) arrays, inside jit; from a PairBlock sums over its keys, added
            up over blocks of keys; where all rows are measured a pair is counted in one of its two rows, twice.
        reduce: maps the joined arrays (float64, host, fixed order) and the Sample to an Estimate.
        title: a few words for people.
        analytic: along gamma, with an analytic normaliser, it is an analytic function (or a constant): a mean over rows
            or pairs of such functions, without a maximum, a median or a threshold.
        pair: for "outputs" and "pairs": maps a PairBlock to the terms above and below of every pair, (rows, m) each and
            0 on the token itself, whose sums over the row are those of `row`. Only the standard error of a sample needs
            it; without it the interaction of pairs counts twice in that error (at most about 41 % too large).
    """

    name: str
    symbol: str
    unit: str
    needs: Needs
    row: Callable[[Any], dict[str, Array]]
    reduce: Callable[[Rows, Sample], Estimate]
    title: str
    analytic: bool = False
    pair: Callable[[PairBlock], tuple[Array, Array]] | None = None


def widening(values: np.ndarray, sample: Sample) -> float:
    """Factor by which a standard error grows so that Student intervals hold for skew values; 1 without skewness.

    The mean and the standard deviation of a sample of skew values rise and fall together, so that Student's ratio T of
    a mean leaves its 95 % interval too often. To second order in 1/sqrt(m), with skewness g (Edgeworth; Hall, The
    Bootstrap and Edgeworth Expansion, 1992, chapter 2),

        P(|T| <= t) = 0.95 - phi(t) t (t^4 + 2 t^2 - 3) g^2 / (9 m),

    which an interval longer by the factor 1 + (t^4 + 2 t^2 - 3) g^2 / (18 m) makes up for; the kurtosis enters with
    (t^2 - 3) / 12, close to 0, and is left out. The covariance of the mean and the variance carries the
    finite-population factor 1 - m/n, and so does the term.

    The skewness G of a sample (with Fisher's factor) is at most sqrt(m), however skew the law: its mean is
    g - 27 g^3 / (16 m) to leading order in g for a gamma law (delta method), which is added back. A tail that
    is not in the sample stays unknown: with g^2 above some m/2, intervals still cover less than 91 %.

    Args:
        values: (m,) values, or first-order projections, of the sampled rows.
        sample: m of n rows.
    """
    size = values.size
    centred = values - np.mean(values)
    spread = np.mean(centred**2)
    if size < 3 or spread == 0:
        return 1.0
    # divided before the third power, which may underflow
    found = np.mean((centred / np.sqrt(spread)) ** 3) * np.sqrt(size * (size - 1)) / (size - 2)
    skewness = found * (1 + 27 / 16 * found**2 / size)
    t = stdtrit(size - 1, 0.975)
    return float(1 + sample.correction * (t**4 + 2 * t**2 - 3) * skewness**2 / (18 * size))


def row_mean(rows: Rows, sample: Sample) -> Estimate:
    """Mean over rows, with the standard error of a sample without replacement, `w s sqrt((1 - m/n) / m)`.

    `s` is the standard deviation of the rows and w their `widening`: value +- t_{m-1} standard errors is calibrated.

    Args:
        rows: {"value": (m,)}.
        sample: m of n rows.
    """
    values = rows["value"]
    if not sample.correction or values.size < 2:
        return Estimate(float(np.mean(values)))
    spread = np.std(values, ddof=1) * np.sqrt(sample.correction / sample.size)
    return Estimate(float(np.mean(values)), float(widening(values, sample) * spread))


def pair_components(rows: Rows, ratio: float) -> tuple[np.ndarray, float, float]:
    """Components of variance of a ratio of sums over pairs, from a sample of at least three rows.

    To first order the ratio is off by the mean over pairs of e_ij = (above_ij - ratio below_ij) / mean(below), a
    U-statistic of degree two. With e_ij = g_i + g_j + f_ij, where the interactions f_ij sum to 0 over each row, the
    unbiased components are (two-way analysis of a symmetric table without diagonal, Griffing 1956)

        s_f^2 = sum_{i<j} f_ij^2 / (m (m - 3) / 2),     s_g^2 = sum_i g_i^2 / (m - 1) - s_f^2 / (m - 2).

    Args:
        rows: {"above": (m,), "below": (m,)} sums over the pairs of each row, and "squares": (m,), those of
            (above_ij - ratio below_ij)^2; without these s_f^2 counts as 0.
        ratio: sum above / sum below.

    Returns:
        The g_i (m,), s_g^2 and s_f^2; either may come out below 0.
    """
    size = rows["above"].size
    scale = np.mean(rows["below"]) / (size - 1)
    main = (rows["above"] - ratio * rows["below"]) / (scale * (size - 2))
    interaction = 0.0
    if "squares" in rows and size > 3:
        squares = np.sum(rows["squares"]) / (2 * scale**2) - (size - 2) * np.sum(main**2)
        interaction = float(squares / (size * (size - 3) / 2))
    return main, float(np.sum(main**2) / (size - 1) - interaction / (size - 2)), interaction


def pair_error(rows: Rows, ratio: float, sample: Sample) -> float | None:
    """Standard error of a ratio of sums over the pairs of a sample; None for all rows, or fewer than three.

    Symmetric means are inherited by samples without replacement (Tukey 1950), so that the variance is

        4 s_g^2 (1/m - 1/n) + 2 s_f^2 (1/(m (m - 1)) - 1/(n (n - 1)))

    with the `pair_components`; none of them may be below 0, their sum s_g^2 + s_f^2 / (m - 2) kept. The first term
    carries the `widening` of the g_i. Without "squares" this is the jackknife, which holds the second term twice.

    Args:
        rows: as in `pair_components`.
        ratio: sum above / sum below.
        sample: m of n tokens.
    """
    size, total = sample.size, sample.total
    if not sample.correction or size < 3:
        return None
    main, single, interaction = pair_components(rows, ratio)
    both = single + interaction / (size - 2)
    interaction = np.clip(interaction, 0, (size - 2) * both)
    first = 4 * (both - interaction / (size - 2)) * (1 / size - 1 / total)
    second = 2 * interaction * (1 / (size * (size - 1)) - 1 / (total * (total - 1)))
    return float(np.sqrt(widening(main, sample) ** 2 * first + second))


def pair_ratio(rows: Rows, sample: Sample) -> Estimate:
    """Ratio of two sums over pairs, `sum above / sum below`; NaN without pairs.

    The bias of the ratio, O(1/m), is small against its standard error and stays.

    Args:
        rows: {"above": (m,), "below": (m,)} sums over the pairs of each row, and for the standard error of a sample
            "squares" as in `pair_error`.
        sample: m of n tokens.
    """
    below = float(np.sum(rows["below"]))
    if below == 0:
        return Estimate(float("nan"))
    ratio = float(np.sum(rows["above"])) / below
    return Estimate(ratio, pair_error(rows, ratio, sample))


def pair_count(rows: Rows, sample: Sample) -> Estimate:
    """Number of unordered pairs counted, scaled up from a sample of rows to all pairs.

    Args:
        rows: {"value": (m,)} pairs of each row that count.
        sample: m of n tokens.
    """
    counted, others = rows["value"], max(sample.size - 1, 1)
    scale = sample.total * (sample.total - 1) / max(sample.size * (sample.size - 1), 1)
    share = float(np.mean(counted)) / others
    # a pair counts 1 or 0: the squares of 1 - share, counted times, and of share
    squares = counted * (1 - 2 * share) + share**2 * others
    table = {"above": counted, "below": np.full_like(counted, others), "squares": squares}
    error = pair_error(table, share, sample)
    pairs = sample.total * (sample.total - 1) / 2
    return Estimate(float(np.sum(counted)) / 2 * scale, None if error is None else pairs * error)


def _gradient_total(rows: Rows, sample: Sample) -> Estimate:
    """Sum over all rows; each row's value may itself be an estimate from probes (two-stage sampling, Cochran 1977).

    The spread of sampled rows holds the noise of their probes already, up to the finite-population factor 1 - m/n:
    what is left of the noise is m/n of it.
    """
    mean = row_mean(rows, sample)
    probe = float(np.sqrt(np.sum(rows["variance"]) * (1 - sample.correction))) / sample.size
    errors = [error for error in (mean.standard_error, probe or None) if error is not None]
    combined = sample.total * float(np.hypot.reduce(errors)) if errors else None
    return Estimate(sample.total * mean.value, combined)


def _gradient_mean(rows: Rows, sample: Sample) -> Estimate:
    total, size = _gradient_total(rows, sample), sample.total * sample.dim
    error = total.standard_error
    return Estimate(total.value / size, None if error is None else error / size)


def _self_weight(block: RowBlock) -> dict[str, Array]:
    return {"value": block.self_weight}


def _entropy(block: RowBlock) -> dict[str, Array]:
    return {"value": block.entropy}


def _participation(block: RowBlock) -> dict[str, Array]:
    return {"value": 1 / block.sum_of_squares}


def _sum_of_squares(block: RowBlock) -> dict[str, Array]:
    return {"value": block.sum_of_squares}


def _largest_weight(block: RowBlock) -> dict[str, Array]:
    return {"value": block.largest_weight}


def _row_mass(block: RowBlock) -> dict[str, Array]:
    return {"value": block.row_mass}


def _dead(block: RowBlock) -> dict[str, Array]:
    return {"value": block.dead}


def _cosine_sums(units: Array, total: Array) -> Array:
    """Sum over the other tokens of their cosines with each of these, from the sum of all unit vectors."""
    return units @ total - jnp.sum(units**2, axis=1)


def _effective_rho(block: OutputBlock) -> dict[str, Array]:
    above = _cosine_sums(block.before, block.sum_before)
    return {"above": above, "below": jnp.full_like(above, block.count - 1)}


def _output_cosine(block: OutputBlock) -> dict[str, Array]:
    above = _cosine_sums(block.after, block.sum_after)
    return {"above": above, "below": jnp.full_like(above, block.count - 1)}


def _ratio_of_means(block: OutputBlock) -> dict[str, Array]:
    after, before = (
        block.count - 1 - _cosine_sums(units, total)
        for units, total in ((block.after, block.sum_after), (block.before, block.sum_before))
    )
    return {"above": after, "below": before}


def _angle_ratio(block: PairBlock) -> dict[str, Array]:
    weights = jnp.where(block.distinct, 1 / (1 - block.cosines), 0)
    return {"above": block.weighted_angles(weights), "below": jnp.sum(weights > 0, axis=1)}


def _angle_ratio_pairs(block: PairBlock) -> tuple[Array, Array]:
    ratio = jnp.where(block.distinct, (1 - block.output_cosines) / (1 - block.cosines), 0)
    return ratio, block.distinct.astype(ratio.dtype)


def _ratio_of_means_pairs(block: PairBlock) -> tuple[Array, Array]:
    return jnp.where(block.other, 1 - block.output_cosines, 0), jnp.where(block.other, 1 - block.cosines, 0)


def _output_cosine_pairs(block: PairBlock) -> tuple[Array, Array]:
    return jnp.where(block.other, block.output_cosines, 0), block.other.astype(block.cosines.dtype)


def _effective_rho_pairs(block: PairBlock) -> tuple[Array, Array]:
    return jnp.where(block.other, block.cosines, 0), block.other.astype(block.cosines.dtype)


def _excluded(block: PairBlock) -> dict[str, Array]:
    return {"value": jnp.sum(block.other & ~block.distinct, axis=1)}


def _same(rows: Any) -> Any:
    return rows


_REGISTRY: dict[str, Observable] = {}


def register(observable: Observable) -> Observable:
    """Add an observable; `measure`, sweeps and the command line then know its name.

    Raises:
        SpecError: where the name is taken.
    """
    if observable.name in _REGISTRY:
        raise SpecError(f"observable {observable.name!r} exists already")
    _REGISTRY[observable.name] = observable
    return observable


def names() -> list[str]:
    """Names of all observables, in order of registration."""
    return list(_REGISTRY)


def get(name: str) -> Observable:
    """The observable of that name.

    Raises:
        SpecError: for an unknown name.
    """
    if name not in _REGISTRY:
        raise SpecError(f"observable {name!r} is unknown; known: {', '.join(names())}")
    return _REGISTRY[name]


def select(wanted: Iterable[str | Observable]) -> tuple[Observable, ...]:
    """Observables by name, without repetitions, in the order asked for.

    Raises:
        SpecError: for an unknown name.
    """
    return tuple(dict.fromkeys(get(item) if isinstance(item, str) else item for item in wanted))


NOT_ANALYTIC = ("largest_weight", "operator_norm", "dead_row_fraction")


def _add(
    name: str, symbol: str, unit: str, needs: Needs, row: Any, reduce: Any, title: str, *, pair: Any = None
) -> None:
    register(Observable(name, symbol, unit, needs, row, reduce, title, name not in NOT_ANALYTIC, pair))


_WEIGHT: tuple[tuple[str, str, str, Any, str], ...] = (
    ("self_weight", r"A_{ii}", "1", _self_weight, "mean self weight"),
    ("entropy", r"H", "nats", _entropy, "mean entropy of a row"),
    ("participation_ratio", r"1/\sum_j A_{ij}^2", "1", _participation, "mean participation ratio"),
    ("sum_of_squares", r"\sum_j A_{ij}^2", "1", _sum_of_squares, "mean sum of squared weights"),
    ("largest_weight", r"\max_j A_{ij}", "1", _largest_weight, "largest weight"),
    ("row_mass", r"\sum_j A_{ij}", "1", _row_mass, "sum of a row"),
    ("dead_row_fraction", r"f_\mathrm{dead}", "1", _dead, "rows without weight on any key"),
)
for _name, _symbol, _unit, _row, _title in _WEIGHT:
    _add(_name, _symbol, _unit, "weights", _row, row_mean, _title)
_PAIR: tuple[tuple[str, str, Needs, Any, Any, str], ...] = (
    ("angle_ratio", r"\lambda", "pairs", _angle_ratio, _angle_ratio_pairs, "angle ratio, mean of ratios"),
    (
        "angle_ratio_of_means",
        r"\bar\lambda",
        "outputs",
        _ratio_of_means,
        _ratio_of_means_pairs,
        "angle ratio, ratio of means",
    ),
    ("output_cosine", r"\cos'", "outputs", _output_cosine, _output_cosine_pairs, "mean cosine of outputs"),
    (
        "effective_rho",
        r"\rho_\mathrm{eff}",
        "outputs",
        _effective_rho,
        _effective_rho_pairs,
        "mean off-diagonal cosine",
    ),
)
for _name, _symbol, _needs, _row, _pair, _title in _PAIR:
    _add(_name, _symbol, "1", _needs, _row, pair_ratio, _title, pair=_pair)
_add("excluded_pairs", r"n_\mathrm{equal}", "1", "pairs", _excluded, pair_count, "pairs of equal tokens")
_add(
    "gradient_norm_squared",
    r"\|\nabla X'\|_F^2",
    "1",
    "gradient",
    _same,
    _gradient_total,
    "squared gradient norm",
)
_add("gradient_norm", r"\eta", "1", "gradient", _same, _gradient_mean, "gradient norm per coordinate")
_add(
    "operator_norm",
    r"\|\nabla X'\|_2",
    "1",
    "operator",
    _same,
    row_mean,
    "largest singular value of the Jacobian",
)
