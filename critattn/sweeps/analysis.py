"""From a study to its thresholds: located on its own tokens, combined over draws, held against theory."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from critattn import criticality
from critattn.comparison import Comparison, compare, compare_draws, parameter_of
from critattn.criticality import Threshold
from critattn.errors import SpecError
from critattn.sweeps import choices
from critattn.sweeps.running import run_sweep
from critattn.sweeps.spec import SweepSpec

QUANTITIES = ("half_weight", "median_half_weight", "half_angle", "half_weight_p")
# what is searched where a study holds curves, and so no thresholds of its own
SEARCHED: Mapping[str, tuple[str, ...]] = {
    "simplex": ("half_weight", "half_angle"),
    "near-simplex": ("half_weight", "median_half_weight", "common_ratio"),
    "random-scores": ("median_half_weight",),
    "file": ("half_weight", "effective_rho"),
    "opposed": ("half_weight",),
    "near-opposed": ("half_weight", "median_half_weight"),
}
COORDINATES = ("n", "d", "rho", "tau", "effective_rho")
# what else is shown of a threshold in p, and of one in gamma where the layer is no softmax, or one of several
LAYER: Mapping[str, tuple[str, ...]] = {"p": ("gamma", "normaliser"), "gamma": ("normaliser", "bias")}


def threshold_spec(spec: SweepSpec) -> SweepSpec:
    """The search for thresholds on the tokens of a study of curves; gamma never decides about tokens.

    Searches run in float64, whatever the curves were stored in.

    Raises:
        SpecError: for a study in depth or of laws, which have no threshold in gamma, and for several gammas beside a p
            axis.
    """
    if spec.axes.law:
        raise SpecError("axes.law: laws set their own beta, there is no threshold in gamma; allowed: axes.gamma")
    if spec.mode == "threshold":
        return spec
    if spec.mode == "depth":
        raise SpecError("attention.layers: a study in depth has no threshold in gamma; allowed: 0 layers")
    if spec.axes.p:
        return _search_in_p(spec)
    axes = dataclasses.replace(spec.axes, gamma=())
    return dataclasses.replace(spec, axes=axes, observables=SEARCHED[spec.tokens.kind], dtype="float64")


def _search_in_p(spec: SweepSpec) -> SweepSpec:
    gamma, *others = spec.axes.gamma
    if others:
        raise SpecError("axes.gamma: several points beside a p axis; allowed for a threshold in p: one")
    layer = dataclasses.replace(spec.attention, gamma=gamma)
    axes = dataclasses.replace(spec.axes, gamma=(), p=())
    extra = {"file": ("effective_rho",), "near-simplex": ("common_ratio",)}.get(spec.tokens.kind, ())
    observables = ("half_weight_p", *extra)
    return dataclasses.replace(spec, axes=axes, attention=layer, observables=observables, dtype="float64")


def study_thresholds(spec: SweepSpec, data: Any = None, *, progress: Any = None) -> list[Comparison]:
    """Thresholds of a study at each point of its token axes, held against the predictor that applies.

    Args:
        spec: the study; one of curves has its thresholds searched on the same tokens.
        data: its dataset where it is a study of thresholds; computed here otherwise.
        progress: as in `run_sweep`, for what is computed here.

    Returns:
        A Comparison for each point and quantity. Standard errors are over independent draws where there are several,
        else over the rows of the one draw or file.

    Raises:
        SpecError: for a study in depth or of laws.
    """
    searched = threshold_spec(spec)
    if data is None or searched is not spec:
        data = run_sweep(searched, progress=progress)
    data = _with_common_ratio(searched, data)
    quantities = [name for name in searched.observables if name in QUANTITIES]
    return [_comparison(searched, name, point) for point in _points(data) for name in quantities]


def _with_common_ratio(spec: SweepSpec, data: Any) -> Any:
    """Add |z_0|^2/d of each draw, which predictions for free common directions are taken at; no search is needed."""
    if spec.tokens.kind != "near-simplex" or spec.tokens.fix_common or "common_ratio" in data:
        return data
    drawn = run_sweep(dataclasses.replace(choices.every(spec)[0], observables=("common_ratio",)))
    return data.assign(common_ratio=drawn["common_ratio"])


def _points(data: Any) -> Iterator[Any]:
    dims = [dim for dim in data.sizes if dim != "replicate"]
    for index in itertools.product(*(range(data.sizes[dim]) for dim in dims)):
        yield data.isel(dict(zip(dims, index, strict=True)))


def _comparison(spec: SweepSpec, quantity: str, point: Any) -> Comparison:
    names = {name: str(point[name].item()) for name in choices.given(spec)}
    coordinates = _coordinates(choices.alone(spec, names), quantity, point) | {"compared": bool(names)}
    roots, errors = (np.atleast_1d(point[name].values) for name in (quantity, f"{quantity}_se"))
    if "common_ratio" in point and not spec.tokens.fix_common:
        zeta = np.atleast_1d(point["common_ratio"].values)
        if roots.size > 1:
            return compare_draws(roots, coordinates, zeta=zeta)
        coordinates["zeta"] = float(zeta[0])
    return compare(_threshold(roots, errors, parameter_of(quantity)), coordinates)


def _threshold(roots: np.ndarray, errors: np.ndarray, parameter: str) -> Threshold:
    if roots.size > 1:
        return criticality.combine(roots, parameter=parameter, method=f"mean of {roots.size} draws")
    value, error = float(roots[0]), float(errors[0])
    if not np.isfinite(value):
        return Threshold(parameter, None, None, "search", False, f"no crossing below {parameter}_max, or none at all")
    return Threshold(parameter, value, error if np.isfinite(error) else None, "rows of one token set", True)


def _coordinates(spec: SweepSpec, quantity: str, point: Any) -> dict[str, Any]:
    numbers = {name: float(point[name].values) for name in COORDINATES if name in point and point[name].ndim == 0}
    layer = {"normaliser": spec.attention.normaliser, "mask": spec.attention.mask, **spec.attention.mixing}
    names = {"kind": spec.tokens.kind, "quantity": quantity, "dtype": spec.dtype, "norm": spec.tokens.norm}
    in_p = parameter_of(quantity) == "p"
    options = {name: getattr(spec.attention, name) for name in (("stage_one", "bias", "law") if in_p else ("bias",))}
    layer |= {name: value for name, value in options.items() if value is not None}
    if in_p:
        layer["gamma"] = spec.attention.gamma_at(numbers["d"]) if "d" in numbers else spec.attention.gamma
    return {**names, **layer, **numbers}


def record(comparison: Comparison) -> dict[str, Any]:
    """A comparison as the keys of the command line's JSON."""
    found = comparison.threshold
    where = comparison.coordinates
    usual = found.parameter == "gamma" and where.get("normaliser", "softmax") == "softmax" and not where.get("compared")
    layer = () if usual else LAYER[found.parameter]
    shown = {name: where[name] for name in ("kind", "quantity", *COORDINATES, *layer, "mask") if name in where}
    return {
        "parameter": found.parameter,
        "coordinates": shown,
        "critical": found.critical,
        "standard_error": found.standard_error,
        "method": found.method,
        "converged": found.converged,
        "reason": found.reason or comparison.reason,
        "predicted": comparison.predicted,
        "predictor": comparison.predictor,
        "error_class": comparison.error_class,
        "verdict": comparison.verdict,
    }


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Finite-size scaling of one quantity of a simplex in log n.

    Attributes:
        quantity: half_angle.
        rho: cosine.
        sizes: numbers of tokens.
        limit: extrapolation in 1/log n to n -> infinity; None where not possible.
        limit_error: its standard error from the residuals of the line.
        closed_form_limit: the same line through the predicted points: its distance to 1/(1-rho) is the error of the
            line itself.
        expected: 1/(1-rho), the limit of theory.
        reason: a sentence where there is no limit.
    """

    quantity: str
    rho: float
    sizes: tuple[int, ...]
    limit: float | None
    limit_error: float | None
    closed_form_limit: float | None
    expected: float
    reason: str


def finite_size(comparisons: Sequence[Comparison]) -> list[Scaling]:
    """Extrapolate half-angle points of simplex tokens in 1/log n.

    Their distance to 1/(1-rho) is a constant over log n [docs/theory.md (1.8)]. The half-weight point is as near as
    1/(n log n), where no line in 1/log n applies; at fixed d there is no limit: both are left out, and so is what is no
    softmax, whose limit is another.
    """
    groups: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    for item in comparisons:
        where, found = item.coordinates, item.threshold.critical
        softmax = where.get("normaliser", "softmax") == "softmax"
        if softmax and where["kind"] == "simplex" and where["quantity"] == "half_angle" and found is not None:
            n, rho = float(str(where["n"])), float(str(where["rho"]))
            predicted = np.nan if item.predicted is None else item.predicted
            groups.setdefault((str(where["quantity"]), rho), []).append((n, found, predicted))
    return [_scaling(quantity, rho, sorted(found)) for (quantity, rho), found in groups.items()]


def _scaling(quantity: str, rho: float, found: list[tuple[float, float, float]]) -> Scaling:
    sizes, roots, predicted = np.array(found).T
    line, exact = (criticality.finite_size_scaling(np.log(sizes), points) for points in (roots, predicted))
    whole = tuple(int(size) for size in sizes)
    return Scaling(quantity, rho, whole, line.limit, line.limit_error, exact.limit, 1 / (1 - rho), line.reason)


def collapse(data: Any) -> criticality.Collapse | None:
    """Data collapse of the self weight in log n, for curves of at least two sizes at one d (or d = n) and rho."""
    if "self_weight" not in data or "gamma" not in data.dims or data.sizes.get("n", 1) < 2:
        return None
    curves = data["self_weight"]
    rest = [dim for dim in curves.dims if dim not in ("n", "gamma")]
    if any(curves.sizes[dim] > 1 for dim in rest):
        return None
    values = curves.squeeze(rest).transpose("n", "gamma").values
    return criticality.data_collapse(data["gamma"].values, data["n"].values, values)
