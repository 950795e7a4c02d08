"""Joins a measured threshold with the predictor that applies to it, and gives the verdict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from critattn.criticality import Threshold, combine
from critattn.errors import DomainError, SpecError
from critattn.theory import finite_dimension, mixed, power, relu_power, simplex, softplus

KINDS = ("simplex", "near-simplex", "random-scores", "file", "opposed", "near-opposed")
# A weight carries a rounding error of a few eps times the logits' size (tens of nats), and a root of it the same
# relative to gamma: 1e-15 times 1e2 to 1e3 in float64, 1e-7 times as much in float32.
ROUND_OFF: Mapping[str, float] = MappingProxyType({"float64": 1e-9, "float32": 1e-4})
PREDICTED_LAYER: Mapping[str, str] = MappingProxyType({"normaliser": "softmax", "mask": "bidirectional"})
# normalisers with a predictor in gamma, where there are others than softmax
PREDICTED_NORMALISERS: Mapping[str, tuple[str, ...]] = MappingProxyType({"opposed": ("softmax", "softplus-l1")})
# what a predicted critical p supposes beside the normaliser
PREDICTED_IN_P: Mapping[str, str] = MappingProxyType(
    {"mask": "bidirectional", "stage_one": "softplus-l1", "law": "log-n"}
)


@dataclass(frozen=True)
class Prediction:
    """What theory says about a threshold.

    Attributes:
        value: predicted critical value; None where no predictor applies or it has no root.
        predictor: its name and formula; None where none applies.
        error_class: stated relative error; None where none is stated.
        reason: a sentence where `value` is None, or about how it applies.
    """

    value: float | None
    predictor: str | None
    error_class: float | None
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """A threshold next to its prediction.

    Attributes:
        threshold: the measured threshold.
        coordinates: what was measured (see `compare`).
        predicted: predicted critical value; None where no predictor applies or it has no root.
        predictor: name and formula of the predictor; None where none applies.
        error_class: stated relative error of the predictor; None where none is stated.
        verdict: `agrees`, `within theory error`, `disagrees`, or None where there is nothing to compare.
        reason: a sentence where the verdict is None or needs one.
    """

    threshold: Threshold
    coordinates: Mapping[str, object]
    predicted: float | None
    predictor: str | None
    error_class: float | None
    verdict: str | None
    reason: str = ""


def _number(coordinates: Mapping[str, object], name: str, default: float | None = None) -> float:
    value = coordinates.get(name, default)
    if not isinstance(value, SupportsFloat) or getattr(value, "size", 1) != 1:
        raise SpecError(f"coordinates: {name} = {value!r} is not a number")
    number = float(value)
    if not np.isfinite(number):
        raise DomainError.of(f"coordinates: {name}", number, "finite")
    return number


def _log_n(coordinates: Mapping[str, object]) -> float:
    if "log_n" in coordinates:
        return _number(coordinates, "log_n")
    n = _number(coordinates, "n")
    if n < 2:
        raise DomainError.of("coordinates: n", n, "at least 2")
    return float(np.log(n))


def _rooted(value: object, predictor: str, error_class: float | None, reason: str = "") -> Prediction:
    """A prediction, whose nan means that the formula has no root."""
    number = float(np.asarray(value))
    if np.isfinite(number):
        stated = error_class if error_class is not None and np.isfinite(error_class) else None
        return Prediction(number, predictor, stated, reason)
    return Prediction(None, predictor, None, "the predictor has no root here")


def _none(reason: str) -> Prediction:
    return Prediction(None, None, None, reason)


def _simplex(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    rho, log_n = _number(coordinates, "rho"), _log_n(coordinates)
    if quantity in ("half_weight", "median_half_weight"):
        return _rooted(simplex.half_weight_gamma(rho, log_n), "simplex (1.7)", 0.0)
    if quantity == "half_angle":
        parts = {
            "identity_weight": _number(coordinates, "identity_weight", 0.0),
            "attention_weight": _number(coordinates, "attention_weight", 1.0),
            "norm": _number(coordinates, "norm", 1.0),
        }
        return _rooted(simplex.half_angle_gamma(rho, log_n, **parts), "simplex (1.8)", 0.0)
    return _none(f"no predictor of {quantity} for a simplex")


SOLVERS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "half_weight": finite_dimension.half_weight_gamma,
        "median_half_weight": finite_dimension.median_half_weight_gamma,
    }
)


def _near_simplex(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    if quantity not in SOLVERS:
        return _none(f"no predictor of {quantity} for near-simplex tokens")
    rho, log_n, d = _number(coordinates, "rho"), _log_n(coordinates), _number(coordinates, "d")
    effective = float(np.asarray(finite_dimension.effective_rho(rho, _number(coordinates, "zeta", 1.0))))
    if d < 2:
        return _none("no predictor below 2 dimensions")
    name = "uniform sphere (4.5)" if effective == 0 else "common direction (4.7)"
    stated = float(np.asarray(finite_dimension.error_class(effective, log_n, d)))
    reason = "" if effective == rho else f"at effective rho {effective:.6g}"
    return _rooted(SOLVERS[quantity](effective, log_n, d), name, stated, reason)


def _random_scores(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    rho, log_n, tau = _number(coordinates, "rho"), _log_n(coordinates), _number(coordinates, "tau")
    if tau == 0:
        return _simplex(coordinates, quantity)
    if quantity not in SOLVERS:
        return _none(f"no predictor of {quantity} for random scores")
    # derived for the median row; the mean over rows is as close or closer in simulation
    reduced = float(np.asarray(mixed.reduced_disorder(tau, rho, log_n)))
    return _rooted(mixed.critical_gamma(tau, rho, log_n), "mixed (9.1)", 0.002 if reduced < 0.8 else 0.05)


def _file(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    if quantity not in SOLVERS:
        return _none(f"no predictor of {quantity} for measured tokens")
    name = "effective_rho" if "effective_rho" in coordinates else "rho"
    rho, log_n, d = _number(coordinates, name), _log_n(coordinates), _number(coordinates, "d")
    if not 0 <= rho < 1 or d < 2:
        return _none(f"no predictor at effective rho {rho:.6g} in {d:g} dimensions")
    found = _rooted(SOLVERS[quantity](rho, log_n, d), "common direction (4.7)", None)
    return Prediction(found.value, found.predictor, None, found.reason or f"at effective rho {rho:.6g}")


def _opposed(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    rho, log_n = _number(coordinates, "rho"), _log_n(coordinates)
    if quantity not in SOLVERS:
        return _none(f"no predictor of {quantity} for queries that differ from keys")
    if coordinates.get("normaliser", "softmax") == "softplus-l1":
        bias = _number(coordinates, "bias", 0.0)
        root = softplus.half_weight_gamma(rho, log_n, self_score=1 + 2 * rho, bias=bias)
        return _rooted(root, "softplus, opposed (11.8)", 0.0)
    # differences of scores are those of a simplex with the cosine -rho
    return _rooted(simplex.half_weight_gamma(-rho, log_n), "softmax, opposed (11.8)", 0.0)


def _near_opposed(coordinates: Mapping[str, object], quantity: str) -> Prediction:
    rho, log_n, d = _number(coordinates, "rho"), _log_n(coordinates), _number(coordinates, "d")
    if quantity not in SOLVERS:
        return _none(f"no predictor of {quantity} for queries that differ from keys")
    if d < 3:
        return _none("no predictor below 3 dimensions, one of which is common to all")
    value = np.asarray(SOLVERS[quantity](0.0, log_n, d - 1)) / (1 + rho)
    stated = float(np.asarray(finite_dimension.error_class(0.0, log_n, d - 1)))
    return _rooted(value, "uniform sphere, opposed (11.9)", stated)


RULES: Mapping[str, Callable[[Mapping[str, object], str], Prediction]] = MappingProxyType(
    {
        "simplex": _simplex,
        "near-simplex": _near_simplex,
        "random-scores": _random_scores,
        "file": _file,
        "opposed": _opposed,
        "near-opposed": _near_opposed,
    }
)


def parameter_of(quantity: str) -> str:
    """The control parameter that a threshold of that name is in: p or gamma."""
    return "p" if quantity == "half_weight_p" else "gamma"


def _critical_p(coordinates: Mapping[str, object]) -> Prediction:
    kind, normaliser = str(coordinates["kind"]), str(coordinates.get("normaliser", "relu-power"))
    for name, usual in PREDICTED_IN_P.items():
        if coordinates.get(name, usual) != usual:
            return _none(f"no predictor of p for {name} {coordinates[name]}, only for {usual}")
    if _number(coordinates, "bias", 0.0) != 0:
        return _none("no predictor of p with a bias")
    if kind == "simplex" and normaliser == "power":
        return _rooted(power.critical_p(_number(coordinates, "rho"), _log_n(coordinates)), "simplex (13.1)", 0.0)
    if kind in ("simplex", "opposed") and normaliser == "relu-power":
        return Prediction(None, "simplex (12.1)", 0.0, "every p > 0 localises where all other scores are equal")
    if kind not in ("near-simplex", "file") or normaliser != "relu-power":
        return _none(f"no predictor of p for {normaliser} on {kind} tokens")
    return _reweighted(coordinates, kind)


def _reweighted(coordinates: Mapping[str, object], kind: str) -> Prediction:
    log_n, d = _log_n(coordinates), _number(coordinates, "d")
    rho = _number(coordinates, "effective_rho" if kind == "file" and "effective_rho" in coordinates else "rho")
    if d < 3 or not 0 <= rho < 1:
        return _none(f"no predictor of p at effective rho {rho:.6g} in {d:g} dimensions")
    zeta = 1.0 if kind == "file" else _number(coordinates, "zeta", 1.0)
    effective = float(np.asarray(finite_dimension.effective_rho(rho, zeta)))
    gamma = _number(coordinates, "gamma", float(np.log(d)))
    stated = None if kind == "file" else float(np.asarray(relu_power.error_class(effective, log_n, d)))
    reason = "" if effective == rho and kind != "file" else f"at effective rho {effective:.6g}"
    return _rooted(relu_power.critical_p(effective, log_n, d, gamma=gamma), "re-weighting (12.9)", stated, reason)


def predict(coordinates: Mapping[str, object]) -> Prediction:
    """The prediction that applies to a threshold measured at these coordinates.

    Args:
        coordinates: as for `compare`.

    Raises:
        SpecError: for a missing or unknown kind, or a coordinate that is missing or not a number.
        DomainError: for a coordinate outside of the predictor's range.

    Source: [derived, docs/theory.md (1.7), (1.8), (4.5), (4.7), (9.1), (11.8), (11.9), (12.1), (12.9), (13.1)].
    """
    kind = coordinates.get("kind")
    if kind not in RULES:
        raise SpecError(f"coordinates: kind = {kind!r} must be one of {', '.join(KINDS)}")
    if parameter_of(str(coordinates.get("quantity"))) == "p":
        return _critical_p(coordinates)
    taken = {"normaliser": PREDICTED_NORMALISERS.get(str(kind), ())}
    for name, usual in PREDICTED_LAYER.items():
        if coordinates.get(name, usual) not in (usual, *taken.get(name, ())):
            return _none(f"no predictor for {name} {coordinates[name]}, only for {usual}")
    return RULES[str(kind)](coordinates, str(coordinates.get("quantity", "half_weight")))


def _verdict(threshold: Threshold, prediction: Prediction, round_off: float) -> str | None:
    if threshold.critical is None or prediction.value is None:
        return None
    difference = abs(threshold.critical - prediction.value)
    allowed = 4 * threshold.standard_error if threshold.standard_error else round_off * abs(prediction.value)
    if difference <= allowed:
        return "agrees"
    if prediction.error_class and difference <= allowed + prediction.error_class * abs(prediction.value):
        return "within theory error"
    # one draw of random tokens without an error cannot tell sampling from a wrong formula
    return "disagrees" if threshold.standard_error or prediction.error_class == 0 else None


def _both_missing(threshold: Threshold, prediction: Prediction) -> str:
    if prediction.predictor is None:
        return prediction.reason
    if threshold.critical is None and prediction.value is None:
        return "neither measurement nor predictor has a root"
    if threshold.critical is None:
        return f"no measured threshold: {threshold.reason}"
    missing = "no standard error, and the difference exceeds the predictor's stated error"
    return prediction.reason if prediction.value is None else missing


def compare(threshold: Threshold, coordinates: Mapping[str, object]) -> Comparison:
    """Compare a measured threshold with the predictor that applies.

    `agrees`: |difference| <= 4 standard errors, or, for a curve without errors, a relative difference below the
    round-off of its dtype (1e-9 in float64, 1e-4 in float32). `within theory error`: beyond that by no more than the
    predictor's stated relative error. `disagrees`: else. Measured tokens have no stated error. None: nothing to
    compare, or a difference beyond the stated error without a standard error to judge it by; the reason says so.

    Args:
        threshold: the measured threshold, in gamma, or in p for the quantity half_weight_p.
        coordinates: `kind` (simplex, near-simplex, random-scores, file, opposed, near-opposed); `n` or `log_n`; `rho`;
            `d` (near-simplex, file, near-opposed); `tau` (random-scores: standard deviation of the scores); `zeta`
            (near-simplex: |z_0|^2/d of the draw, 1 by default, which sets the effective rho); `effective_rho` (file:
            mean off-diagonal cosine, else `rho`); `quantity` (half_weight by default, median_half_weight, half_angle,
            half_weight_p); `normaliser` (softmax by default; opposed: or softplus-l1, which reads `bias`; relu-power
            for half_weight_p, which also reads `gamma`, log d by default, `stage_one`, `bias` and `law`); `mask`
            (bidirectional by default); `dtype` (float64 by default); `identity_weight`, `attention_weight`, `norm`
            (half_angle; 0, 1, 1 by default).
            Others are kept and not read.

    Returns:
        the comparison.

    Raises:
        SpecError: for a missing or unknown kind or dtype, or a coordinate that is missing or not a number.
        DomainError: for a coordinate outside of the predictor's range.
    """
    prediction = predict(coordinates)
    parameter = parameter_of(str(coordinates.get("quantity")))
    if threshold.parameter != parameter:
        prediction = _none(f"no predictor of critical {threshold.parameter}, only of {parameter}")
    return _joined(threshold, coordinates, prediction)


def _joined(threshold: Threshold, coordinates: Mapping[str, object], prediction: Prediction) -> Comparison:
    dtype = str(coordinates.get("dtype", "float64"))
    if dtype not in ROUND_OFF:
        raise SpecError(f"coordinates: dtype = {dtype!r} must be one of {', '.join(ROUND_OFF)}")
    verdict = _verdict(threshold, prediction, ROUND_OFF[dtype])
    reason = prediction.reason if verdict else _both_missing(threshold, prediction)
    frozen = MappingProxyType(dict(coordinates))
    found = prediction.value, prediction.predictor, prediction.error_class
    return Comparison(threshold, frozen, *found, verdict, reason)


def compare_draws(roots: ArrayLike, coordinates: Mapping[str, object], *, zeta: ArrayLike) -> Comparison:
    """Compare thresholds of independent draws with free common vectors, each at its own effective rho.

    Prediction and threshold are means over the draws, and the standard error is that of their paired difference,
    s/sqrt(draws): the spread that comes from |z_0|^2 drops out of both.

    Args:
        roots: (draws,) thresholds in gamma, nan where a draw has none.
        coordinates: as for `compare`, without `zeta`.
        zeta: (draws,) |z_0|^2/d of each draw.

    Returns:
        the comparison; without a verdict where a draw has no threshold or no prediction.

    Raises:
        SpecError, DomainError: as for `compare`; for shapes that do not match.
    """
    roots, zeta = np.asarray(roots, dtype=float), np.asarray(zeta, dtype=float)
    if roots.ndim != 1 or roots.shape != zeta.shape:
        raise DomainError.of("roots, zeta", (roots.shape, zeta.shape), "two vectors of one length")
    method = f"mean of {roots.size} draws, each against its effective rho"
    threshold = combine(roots, parameter=parameter_of(str(coordinates.get("quantity"))), method=method)
    each = [predict({**coordinates, "zeta": float(value)}) for value in zeta]
    lost = next((one for one in each if one.value is None), None)
    if lost is not None:
        return _joined(threshold, coordinates, lost)
    values = np.array([one.value for one in each], dtype=float)
    stated = {one.error_class for one in each}
    reason = f"mean over effective rho of {roots.size} draws"
    error_class = stated.pop() if len(stated) == 1 else None
    prediction = Prediction(float(values.mean()), each[0].predictor, error_class, reason)
    if threshold.standard_error is not None:
        threshold = replace(threshold, standard_error=float((roots - values).std(ddof=1) / np.sqrt(roots.size)))
    return _joined(threshold, coordinates, prediction)
