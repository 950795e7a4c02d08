"""Polynomials through Chebyshev points of the second kind: nested nodes, coefficients, values, roots.

Everything is on [-1, 1] and in ascending order; docs/continuation.md states the formulas.
"""

import numpy as np
from numpy.polynomial import chebyshev
from scipy import fft, optimize

ROWS = 4096


def points(degree: int) -> np.ndarray:
    """Nodes `x_j = -cos(pi j/N)`, j = 0..N, ascending; every second node of degree 2N is one of degree N, to the bit.

    Args:
        degree: N >= 1.

    Returns:
        (N + 1,) floats in [-1, 1].
    """
    steps = np.arange(degree + 1)
    return np.sin(np.pi * ((2 * steps - degree) / (2 * degree)))


def coefficients(values: np.ndarray) -> np.ndarray:
    """Coefficients a_k of `sum_k a_k T_k(x)` through the values at `points(N)`, (N + 1,), by a cosine transform."""
    degree = len(values) - 1
    found = np.asarray(fft.dct(values[::-1], type=1)) / degree
    found[[0, -1]] /= 2
    return found


def interpolate(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The interpolant at x, (m,), by the barycentric formula with weights (-1)^j, halved at both ends.

    Args:
        x: (m,) numbers in [-1, 1].
        values: (N + 1,) values at `points(N)`.
    """
    nodes = points(len(values) - 1)
    weights = np.where(np.arange(len(values)) % 2, -1.0, 1.0)
    weights[[0, -1]] /= 2
    result = np.empty(len(x))
    for start in range(0, len(x), ROWS):
        distance = x[start : start + ROWS, None] - nodes
        row, node = np.nonzero(distance == 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = weights / distance
            result[start : start + ROWS] = shares @ values / shares.sum(axis=1)
        result[start + row] = values[node]
    return result


def slope(x: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Derivative of the series at x, (m,)."""
    return np.asarray(chebyshev.chebval(x, chebyshev.chebder(series)))


def trimmed(series: np.ndarray) -> np.ndarray:
    """The series without trailing coefficients that are rounding."""
    kept = np.flatnonzero(np.abs(series) > 4 * np.finfo(float).eps * np.max(np.abs(series)))
    return series[: kept[-1] + 1] if kept.size else series[:1]


def real_roots(series: np.ndarray) -> np.ndarray:
    """Real parts of the roots of a series near [-1, 1], ascending, from the eigenvalues of its colleague matrix.

    Roots that lie off the real axis by less than 1e-6 count: a double root splits by the square root of rounding.
    """
    series = trimmed(series)
    if len(series) < 2:
        return np.empty(0)
    roots = chebyshev.chebroots(series)
    near = (np.abs(roots.imag) < 1e-6) & (np.abs(roots.real) <= 1 + 1e-9)
    return np.unique(np.clip(roots.real[near], -1, 1))


def zeros(values: np.ndarray, touching: float) -> np.ndarray:
    """Where the interpolant vanishes: it is cut at its critical points, each monotone piece has one root at most.

    Args:
        values: (N + 1,) values at `points(N)`.
        touching: a critical point whose value is smaller than this is a root too (a double root, up to the error of
            the interpolant); neighbouring ones, with nothing larger between them, are one root.

    Returns:
        Ascending roots, each polished by Brent's method on the barycentric formula.
    """
    critical = real_roots(chebyshev.chebder(trimmed(coefficients(values))))
    cuts = np.unique(np.concatenate([[-1.0], critical, [1.0]]))
    heights = interpolate(cuts, values)
    flat = np.abs(heights) <= touching
    flat[[0, -1]] &= heights[[0, -1]] == 0
    found = [_flattest(cuts[run], heights[run]) for run in _runs(flat)]
    steps = zip(cuts[:-1], cuts[1:], heights[:-1] * heights[1:] < 0, flat[:-1] | flat[1:], strict=True)
    found += [_root(values, low, high) for low, high, crossed, beside in steps if crossed and not beside]
    return np.sort(np.array(found, dtype=float))


def _runs(flags: np.ndarray) -> list[np.ndarray]:
    """Indices of each run of True."""
    where = np.flatnonzero(flags)
    return [run for run in np.split(where, np.flatnonzero(np.diff(where) > 1) + 1) if run.size]


def _flattest(cuts: np.ndarray, heights: np.ndarray) -> float:
    return float(cuts[np.argmin(np.abs(heights))])


def _root(values: np.ndarray, low: float, high: float) -> float:
    found = optimize.brentq(lambda x: interpolate(np.array([x]), values)[0], low, high, xtol=1e-15)
    return float(np.asarray(found))
