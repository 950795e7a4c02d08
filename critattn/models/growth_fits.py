"""Forms of growth with the number of keys, fitted to curves of several texts by maximum likelihood.

Rows of one text at different lengths are correlated, and texts differ in level: `y_t(n) = f(n) + u_t + e_t(n)` with
`u_t ~ N(0, tau^2)` and `e_t(n) ~ N(0, sigma^2/w_n)`. Texts, never single rows, are what intervals resample.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

PRIOR = 24.0
STEEPEST, STRIDE, ITERATIONS = 5.0, 0.5, 60
FLOOR = 1e-18
LARGEST_RATIO = 1e10


@dataclass(frozen=True)
class Form:
    """A form f(n) with its coefficients.

    Attributes:
        name: how the form is called.
        formula: f(n) in words.
        columns: maps log n (m,) to the basis (m, k); None for the power, whose exponent is a coefficient.
        inside: names of the forms that it is a special case of.
    """

    name: str
    formula: str
    columns: Callable[[np.ndarray], np.ndarray] | None
    inside: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Number k of coefficients."""
        return 2 if self.columns is None else self.columns(np.ones(1)).shape[1]

    def values(self, coefficients: np.ndarray, n: ArrayLike) -> np.ndarray:
        """f(n): coefficients (..., k) at lengths n (m,) give (..., m), in the unit of the quantity."""
        log_n = np.log(np.asarray(n, float))
        if self.columns is None:
            with np.errstate(over="ignore"):
                return coefficients[..., :1] * np.exp(coefficients[..., 1:] * log_n)
        return coefficients @ self.columns(log_n).T


FORMS = {
    one.name: one
    for one in (
        Form("constant", "a", lambda x: np.ones((x.size, 1)), ("log", "sqrt-log", "power")),
        Form("proportional-log", "a log n", lambda x: x[:, None], ("log",)),
        Form("proportional-sqrt-log", "a sqrt(log n)", lambda x: np.sqrt(x)[:, None], ("sqrt-log",)),
        Form("log", "a + b log n", lambda x: np.stack([np.ones_like(x), x], axis=1)),
        Form("sqrt-log", "a + b sqrt(log n)", lambda x: np.stack([np.ones_like(x), np.sqrt(x)], axis=1)),
        Form("power", "a n^b", None),
    )
}


@dataclass(frozen=True)
class Fit:
    """One form fitted to all texts by maximum likelihood.

    Attributes:
        form: the form.
        coefficients: (k,) a, or a and b.
        standard_errors: (k,) over texts, by the jackknife; None for a single text.
        intervals: (k, 2) by the method chosen; None for a single text.
        bootstrapped: (k, 2) by the bootstrap, whatever the method; None for a single text.
        log_likelihood: at the maximum, in nats.
        aicc: `-2 log L + 2K + 2K(K+1)/(m-K-1)`, K coefficients and variances, m points; None for m <= K + 1.
        bic: `-2 log L + K log m`; None with `aicc`.
        difference: aicc above that of the best form; None with `aicc`.
        weight: Akaike weight exp(-difference/2), normalised over the forms; 0 with `aicc` None.
        left_out: (texts, k) coefficients without one text each; no rows for a single text.
        resampled: (resamples, k) coefficients of texts drawn with replacement; no rows for a single text.
    """

    form: Form
    coefficients: np.ndarray
    standard_errors: np.ndarray | None
    intervals: np.ndarray | None
    bootstrapped: np.ndarray | None
    log_likelihood: float
    aicc: float | None
    bic: float | None
    left_out: np.ndarray = field(repr=False)
    resampled: np.ndarray = field(repr=False)
    difference: float | None = None
    weight: float = 0.0


def _weights(y: np.ndarray) -> np.ndarray:
    """Weights of the lengths, of mean 1, from the residuals of texts and lengths; all 1 for a single text."""
    texts, lengths = y.shape
    left = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0) + y.mean()
    pooled = float(np.mean(left**2))
    if texts < 2 or pooled <= FLOOR * np.mean(y**2):
        return np.ones(lengths)
    weights = 1 / (PRIOR * pooled + (texts - 1) * np.mean(left**2, axis=0))
    return weights * lengths / weights.sum()


def _whitening(weights: np.ndarray, ratio: float) -> np.ndarray:
    """L with `L' L = sigma^2 V^-1`; ratio is the variance along the common level over sigma^2."""
    along = np.sqrt(weights / weights.sum())
    return (np.eye(weights.size) + (ratio**-0.5 - 1) * np.outer(along, along)) * np.sqrt(weights)


def _solve(form: Form, curves: np.ndarray, log_n: np.ndarray, whiten: np.ndarray) -> np.ndarray:
    """Generalised least squares of curves (..., m), with one L (m, m) or one a curve: coefficients (..., k)."""
    if form.columns is not None:
        return _apply(np.linalg.pinv(whiten @ form.columns(log_n)) @ whiten, curves)
    return _power(curves, log_n, whiten)


def _apply(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return vectors @ matrix.T if matrix.ndim == 2 else (matrix @ vectors[..., None])[..., 0]


def _power(curves: np.ndarray, log_n: np.ndarray, whiten: np.ndarray) -> np.ndarray:
    """Fit a n^b by Gauss-Newton steps in b alone, a being a projection at each b [Kaufman 1975, BIT 15]."""
    centre = log_n.mean()
    x, y = log_n - centre, _apply(whiten, curves)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.log(curves) @ x / (x @ x)
    b = np.clip(np.where(np.isfinite(slope), slope, 0.0), -STEEPEST, STEEPEST)
    for _ in range(ITERATIONS):
        shape = np.exp(b[..., None] * x)
        first, second = _apply(whiten, shape), _apply(whiten, shape * x)
        square = np.sum(first**2, axis=-1)
        a = np.sum(first * y, axis=-1) / square
        second = a[..., None] * (second - first * (np.sum(first * second, axis=-1) / square)[..., None])
        turn = np.sum(second**2, axis=-1)
        step = np.sum(second * y, axis=-1) / np.where(turn > 0, turn, 1.0)
        b = np.clip(b + np.clip(step, -STRIDE, STRIDE), -STEEPEST, STEEPEST)
        if np.all(np.abs(step) < 1e-11):
            break
    first = _apply(whiten, np.exp(b[..., None] * x))
    a = np.sum(first * y, axis=-1) / np.sum(first**2, axis=-1)
    return np.stack([a * np.exp(-b * centre), b], axis=-1)


def _variances(left: np.ndarray, weights: np.ndarray, floor: float) -> tuple[float, float]:
    """Variance ratio of the common level and -2 log L, both variances at their maximum of likelihood."""
    texts, lengths = left.shape
    scaled = left * np.sqrt(weights)
    level = (scaled @ np.sqrt(weights / weights.sum())) ** 2
    along, within = float(level.sum()), float(np.sum(scaled**2) - level.sum())
    points, inner = texts * lengths, texts * (lengths - 1)
    constant = points * (1 + np.log(2 * np.pi)) - texts * np.sum(np.log(weights))
    between, inside = max(along / texts, floor), max(within / inner, floor)
    if texts == 1 or between <= inside:
        return 1.0, float(constant + points * np.log(max((along + within) / points, floor)))
    return min(between / inside, LARGEST_RATIO), float(constant + inner * np.log(inside) + texts * np.log(between))


def fitted(form: Form, y: np.ndarray, n: np.ndarray, *, draws: np.ndarray, level: float, method: str) -> Fit:
    """Fit a form by alternating coefficients and variance ratio, with replicates over whole texts.

    Args:
        form: the form.
        y: (texts, m) finite values.
        n: (m,) lengths.
        draws: (resamples, texts) how often each text is drawn.
        level: coverage of the intervals.
        method: `student` or `bootstrap`.
    """
    texts, log_n, weights = len(y), np.log(n), _weights(y)
    floor = max(FLOOR * float(np.mean(y**2)), 1e-300)
    ratio, coefficients, score, whiten = 1.0, np.zeros(form.parameters), 0.0, np.eye(n.size)
    for _ in range(100):
        whiten = _whitening(weights, ratio)
        coefficients = _solve(form, y.mean(axis=0), log_n, whiten)
        before, (ratio, score) = ratio, _variances(y - form.values(coefficients, n), weights, floor)
        if abs(ratio - before) <= 1e-9 * ratio:
            break
    count, points = form.parameters + (2 if texts > 1 else 1), y.size
    aicc = bic = None
    if points > count + 1:
        aicc = score + 2 * count + 2 * count * (count + 1) / (points - count - 1)
        bic = score + count * float(np.log(points))
    none = np.zeros((0, form.parameters))
    if texts == 1:
        return Fit(form, coefficients, None, None, None, -score / 2, aicc, bic, none, none)
    left_out = _without_each(form, y, log_n, ratio)
    resampled = _solve(form, draws @ y / texts, log_n, whiten)
    ends, errors = interval(coefficients, left_out, resampled, level=level, method=method)
    drawn, _ = interval(coefficients, left_out, resampled, level=level, method="bootstrap")
    return Fit(form, coefficients, errors, ends.T, drawn.T, -score / 2, aicc, bic, left_out, resampled)


def _without_each(form: Form, y: np.ndarray, log_n: np.ndarray, ratio: float) -> np.ndarray:
    """Coefficients (texts, k) without each text, with weights from the others, so that their choice is in the error."""
    others = [np.delete(y, text, axis=0) for text in range(len(y))]
    whiten = np.stack([_whitening(_weights(left), ratio) for left in others])
    return _solve(form, np.stack([left.mean(axis=0) for left in others]), log_n, whiten)


def interval(
    value: np.ndarray, left_out: np.ndarray, resampled: np.ndarray, *, level: float, method: str
) -> tuple[np.ndarray, np.ndarray]:
    """Interval (2, k) and jackknife standard error (k,) of values (k,) with replicates (.., k)."""
    texts = len(left_out)
    spread = np.sum((left_out - left_out.mean(axis=0)) ** 2, axis=0)
    error = np.sqrt((texts - 1) / texts * spread)
    quantile = float(special.stdtrit(texts - 1, (1 + level) / 2))
    if method == "student":
        return np.stack([value - quantile * error, value + quantile * error]), error
    tail = float(special.ndtr(-quantile * np.sqrt(texts / (texts - 1))))
    return np.quantile(resampled, [tail, 1 - tail], axis=0), error
