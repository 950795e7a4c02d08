"""Observables of an attention layer: one name serves theory, simulation, dataset and axis label."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

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
        row: maps one block to a dict of (rows,) arrays, inside jit.
        reduce: maps the joined arrays (float64, host, fixed order) and the Sample to an Estimate.
        title: a few words for people.
        analytic: along gamma, with an analytic normaliser, it is an analytic function (or a constant): a mean over rows
            or pairs of such functions, without a maximum, a median or a threshold.
    """

    name: str
    symbol: str
    unit: str
    needs: Needs
    row: Callable[[Any], dict[str, Array]]
    reduce: Callable[[Rows, Sample], Estimate]
    title: str
    analytic: bool = False


def row_mean(rows: Rows, sample: Sample) -> Estimate:
    """Mean over rows, with the standard error of a sample without replacement.

    Args:
        rows: {"value": (m,)}.
        sample: m of n rows.
    """
    values = rows["value"]
    if not sample.correction or values.size < 2:
        return Estimate(float(np.mean(values)))
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) * np.sqrt(sample.correction / sample.size)))


def pair_ratio(rows: Rows, sample: Sample) -> Estimate:
    """Ratio of two sums over pairs, `sum above / sum below`; NaN without pairs.

    Standard error of a sample: the pairs form a U-statistic of degree two, whose first-order projection has twice the
    standard deviation of the row sums; the ratio is expanded to first order.

    Args:
        rows: {"above": (m,), "below": (m,)} sums over the pairs of each row.
        sample: m of n tokens.
    """
    below = float(np.sum(rows["below"]))
    if below == 0:
        return Estimate(float("nan"))
    ratio = float(np.sum(rows["above"])) / below
    if not sample.correction or sample.size < 3:
        return Estimate(ratio)
    residual = (rows["above"] - ratio * rows["below"]) / np.mean(rows["below"])
    spread = 2 * np.std(residual, ddof=1) * np.sqrt(sample.correction / sample.size)
    return Estimate(ratio, float(spread))


def pair_count(rows: Rows, sample: Sample) -> Estimate:
    """Number of unordered pairs counted, scaled up from a sample of rows to all pairs."""
    scale = sample.total * (sample.total - 1) / max(sample.size * (sample.size - 1), 1)
    return Estimate(float(np.sum(rows["value"])) / 2 * scale)


def _gradient_total(rows: Rows, sample: Sample) -> Estimate:
    mean = row_mean(rows, sample)
    probe = float(np.sqrt(np.sum(rows["variance"]))) / sample.size
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


NOT_ANALYTIC = ("largest_weight", "operator_norm")


def _add(name: str, symbol: str, unit: str, needs: Needs, row: Any, reduce: Any, title: str) -> None:
    register(Observable(name, symbol, unit, needs, row, reduce, title, name not in NOT_ANALYTIC))


_WEIGHT: tuple[tuple[str, str, str, Any, str], ...] = (
    ("self_weight", r"A_{ii}", "1", _self_weight, "mean self weight"),
    ("entropy", r"H", "nats", _entropy, "mean entropy of a row"),
    ("participation_ratio", r"1/\sum_j A_{ij}^2", "1", _participation, "mean participation ratio"),
    ("sum_of_squares", r"\sum_j A_{ij}^2", "1", _sum_of_squares, "mean sum of squared weights"),
    ("largest_weight", r"\max_j A_{ij}", "1", _largest_weight, "largest weight"),
    ("row_mass", r"\sum_j A_{ij}", "1", _row_mass, "sum of a row"),
)
for _name, _symbol, _unit, _row, _title in _WEIGHT:
    _add(_name, _symbol, _unit, "weights", _row, row_mean, _title)
_add("angle_ratio", r"\lambda", "1", "pairs", _angle_ratio, pair_ratio, "angle ratio, mean of ratios")
_add(
    "angle_ratio_of_means",
    r"\bar\lambda",
    "1",
    "outputs",
    _ratio_of_means,
    pair_ratio,
    "angle ratio, ratio of means",
)
_add("output_cosine", r"\cos'", "1", "outputs", _output_cosine, pair_ratio, "mean cosine of outputs")
_add("effective_rho", r"\rho_\mathrm{eff}", "1", "outputs", _effective_rho, pair_ratio, "mean off-diagonal cosine")
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
