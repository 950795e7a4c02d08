"""Parameters of a law from factors at given lengths: closed forms and one-dimensional searches, no guesses of start."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from critattn.scaling.constants import YARN, Constant, LongRope, SoftmaxMscale, Yarn
from critattn.scaling.core import LogN
from critattn.scaling.entries import Entry
from critattn.scaling.laws import (
    ClampedLog,
    ClampedLogRatio,
    LogPower,
    LogRatio,
    Power,
    Reciprocal,
    SqrtLogN,
    SqrtLogRatio,
    Ssa,
    SSMax,
    Steps,
)
from critattn.scaling.lengths import SEQUENCE, Lengths

Parameters = dict[str, float]
ABOVE = 1e-9
LONGEST = 1e9
STEEPEST = 10.0


def fitted(law: Entry, lengths: Lengths, factor: np.ndarray) -> list[Parameters]:
    """Candidate parameters with which a law may give these factors, the fewest first; none where it cannot.

    Args:
        law: of the catalogue.
        lengths: of the rows.
        factor: (rows,) the factors.
    """
    fit = FITS.get(type(law.law))
    if fit is None:
        return []
    counted = law.counting or SEQUENCE
    made: Any = law.law
    with np.errstate(all="ignore"):
        found = list(fit(made, np.asarray(lengths.count(counted), float), factor))
    return [one for one in found if all(math.isfinite(value) for value in one.values())]


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.dot(x, y) / np.dot(x, x)) if np.any(x) else math.nan


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and intercept; NaN for fewer than two distinct x."""
    if np.unique(x).size < 2:
        return math.nan, math.nan
    centred = x - x.mean()
    slope = float(np.dot(centred, y) / np.dot(centred, centred))
    return slope, float(y.mean() - slope * x.mean())


def _log_n(law: LogN, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    yield {"gamma": _slope(np.log(n), m)}


def _sqrt_log_n(law: SqrtLogN, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    c = _slope(np.sqrt(np.log(n)), m)
    if c > 0:
        yield {"c": c}


def _ssmax(law: SSMax, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    if law.shift:
        yield {"shift": float(np.median(np.exp(m) - n))}
        return
    log_n = np.log(np.maximum(n, float(law.floor)))
    s = _slope(log_n, m)
    if s > 0:
        yield {"s": s}
    s, b = _line(log_n, m)
    if s > 0:
        yield {"s": s, "b": b}


def _log_ratio(law: LogRatio, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    s = _slope(np.log(n), m)
    if s > 0:
        yield {"reference": math.exp(1 / s)}


def _clamped_log_ratio(law: ClampedLogRatio, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    risen = m > 1 + ABOVE
    s = _slope(np.log(n[risen]), m[risen])
    if s > 0:
        yield {"reference": math.exp(1 / s)}


def _sqrt_log_ratio(law: SqrtLogRatio, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    s = _slope(np.log(n), m**2)
    if s > 0 and law.gain == 1:
        yield {"reference": math.exp(1 / s)}
    elif s > 0:
        yield {"gain": s * math.log(float(law.reference))}


def _steps(law: Steps, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    """The interval is bracketed by the first row that rose: round numbers within are tried, then the bracket's end."""
    gain, count = float(law.gain), n + float(law.offset)
    risen = m / gain > 1 + ABOVE
    if not risen.any() or risen.all():
        return
    low, high = count[~risen].max(), count[risen].min()
    if not 1 <= low < high:
        return
    tried = {high, *(2.0**power for power in range(4, 31)), *(1000.0 * k for k in range(1, 513))}
    best: tuple[float, Parameters] | None = None
    for interval in sorted(one for one in tried if low < one <= high):
        growth = np.log1p(np.floor(count / interval))
        a = _slope(growth, m / gain - 1)
        left = float(np.abs(gain * (1 + a * growth) - m).max())
        if best is None or left < best[0]:
            best = (left, {"a": a, "interval": interval})
    if best is not None and best[1]["a"] > 0:
        yield best[1]


def _clamped_log(law: ClampedLog, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    risen = m > 1 + ABOVE
    a, intercept = _line(np.log(n[risen]), m[risen])
    if a > 0:
        yield {"a": a, "reference": math.exp((1 - intercept) / a)}


def _power(law: Power, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    """For each L the exponent is a projection; the best L of a grid is polished by least squares."""
    from scipy.optimize import least_squares

    if not np.all(m > 0):
        return
    logs = np.log(m)

    def exponent(log_reference: float) -> float:
        return _slope(np.log1p(n / math.exp(log_reference)), logs)

    def left(log_reference: float) -> float:
        return float(np.sum((np.log1p(n / math.exp(log_reference)) * exponent(log_reference) - logs) ** 2))

    start = min(np.linspace(0, math.log(LONGEST), 60), key=left)
    found = least_squares(
        lambda at: np.log1p(n / math.exp(at[0])) * at[1] - logs,
        (start, np.clip(exponent(start), -STEEPEST, STEEPEST)),
        bounds=((-1.0, -2 * STEEPEST), (math.log(10 * LONGEST), 2 * STEEPEST)),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    ).x
    if found[1] > 0:
        yield {"reference": math.exp(found[0]), "exponent": float(found[1])}


def _log_power(law: LogPower, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    above, logs = m - float(law.delta), np.log(n + 1)
    if not np.all(above > 0):
        return
    if not law.delta:
        yield {"b": _slope(logs, above)}
        return
    g, log_b = _line(np.log(logs), np.log(above))
    yield {"b": math.exp(log_b), "g": g}


def _ssa(law: Ssa, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    slope, intercept = _line(np.log(n), m)
    if 0 < slope < 1 and 0 < intercept < 2:
        yield {"f": math.atanh(intercept - 1), "alpha": math.log(slope / (1 - slope))}


def _reciprocal(law: Reciprocal, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    fallen = m < 1 - ABOVE
    if fallen.any():
        reference = float(np.mean(m[fallen] * (n[fallen] + 1)))
        if reference > 1:
            yield {"reference": reference}


def _constant(law: Constant, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    if m.mean() > 0:
        yield {"m": float(m.mean())}


def stretch(temperature: float, mscale: float = 1.0) -> float:
    """The stretch s of a YaRN temperature `t = 0.1 c ln s + 1`; NaN for t <= 1."""
    log_s = (temperature - 1) / (YARN * mscale)
    return math.exp(log_s) if 0 < log_s < 50 else math.nan


def _yarn(law: Yarn, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    if law.attention_factor is None:
        yield {"stretch": stretch(math.sqrt(max(m.mean(), 0.0)))}


def _softmax_mscale(law: SoftmaxMscale, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    yield {"stretch": stretch(math.sqrt(max(m.mean(), 0.0)), float(law.mscale_all_dim))}


def _long_rope(law: LongRope, n: np.ndarray, m: np.ndarray) -> Iterator[Parameters]:
    log_s = (m.mean() - 1) * math.log(float(law.original_length))
    if 0 < log_s < 50:
        yield {"stretch": math.exp(log_s)}


FITS: dict[type, Callable[..., Iterator[Parameters]]] = {
    LogN: _log_n,
    SqrtLogN: _sqrt_log_n,
    SSMax: _ssmax,
    LogRatio: _log_ratio,
    ClampedLogRatio: _clamped_log_ratio,
    SqrtLogRatio: _sqrt_log_ratio,
    Steps: _steps,
    ClampedLog: _clamped_log,
    Power: _power,
    LogPower: _log_power,
    Ssa: _ssa,
    Reciprocal: _reciprocal,
    Constant: _constant,
    Yarn: _yarn,
    SoftmaxMscale: _softmax_mscale,
    LongRope: _long_rope,
}
CONSTANTS = (Constant, Yarn, SoftmaxMscale, LongRope)
