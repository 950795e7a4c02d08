"""Uncertainties of thresholds: over independent draws, over the rows of one measurement, and as intervals."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from critattn.criticality.crossing import Threshold, find_crossing
from critattn.errors import DomainError
from critattn.protocols import Estimate


def combine(
    roots: Sequence[float | Threshold | None] | np.ndarray, *, parameter: str = "gamma", method: str = "draws"
) -> Threshold:
    """Mean threshold and its standard error over independent draws of the tokens: s/sqrt(draws).

    Args:
        roots: one threshold a draw; None, nan or a Threshold without a value where a draw has none.
        parameter: name of the control parameter.
        method: how the roots were found.

    Returns:
        the mean; not converged where a draw is missing, since the mean of the others is biased. One draw has no
        standard error.

    Raises:
        DomainError: without any draw.
    """
    plain = [root.critical if isinstance(root, Threshold) else root for root in roots]
    values = np.array([np.nan if root is None else float(root) for root in plain])
    if values.size == 0:
        raise DomainError.of("roots", list(roots), "at least one draw")
    known = values[np.isfinite(values)]
    if known.size < values.size:
        reason = f"{values.size - known.size} of {values.size} draws have no threshold"
        if known.size:
            reason += f" (mean of the others {known.mean():.6g}, which is biased)"
        return Threshold(parameter, None, None, method, False, reason)
    if known.size == 1:
        return Threshold(parameter, known.item(), None, method, True, "no error: a single draw")
    error = float(known.std(ddof=1) / np.sqrt(known.size))
    return Threshold(parameter, float(known.mean()), error, method, True)


def _check_rows(rows: np.ndarray, resamples: int) -> None:
    if rows.ndim < 1 or len(rows) < 2:
        raise DomainError.of("rows", rows.shape, "an array of at least 2 rows")
    if resamples < 2:
        raise DomainError.of("resamples", resamples, "at least 2")


def bootstrap(
    statistic: Callable[[np.ndarray], float], rows: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> float:
    """Bootstrap standard error of a statistic of the rows of one measurement.

    Args:
        statistic: maps an array of rows to a number.
        rows: (n, ...) array, resampled along its first axis with replacement.
        resamples: number of resamples.
        seed: of the generator.

    Returns:
        standard deviation over the resamples; nan where one of them has no finite value.

    Raises:
        DomainError: for fewer than 2 rows or 2 resamples.
    """
    rows = np.asarray(rows)
    _check_rows(rows, resamples)
    rng = np.random.default_rng(seed)
    values = [statistic(rows[rng.integers(0, len(rows), len(rows))]) for _ in range(resamples)]
    return float(np.std(values, ddof=1)) if np.all(np.isfinite(values)) else np.nan


def _mean_curve(row_curves: Callable[[float], np.ndarray]) -> Callable[[float], Estimate]:
    def curve(gamma: float) -> Estimate:
        rows = np.asarray(row_curves(gamma), dtype=float)
        _check_rows(rows, 2)
        return Estimate(float(rows.mean()), float(rows.std(ddof=1) / np.sqrt(len(rows))))

    return curve


def _resampled_roots(matrix: np.ndarray, control: np.ndarray, level: float, *, resamples: int, seed: int) -> np.ndarray:
    """Roots of resampled means (points, rows), by least-squares lines through the points."""
    rows = matrix.shape[1]
    counts = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    slope, offset = np.polyfit(control - control.mean(), (counts @ matrix.T / rows).T - level, 1)
    return control.mean() - offset / slope


def bootstrap_crossing(
    row_curves: Callable[[float], np.ndarray],
    *,
    level: float = 0.5,
    bracket: tuple[float, float],
    parameter: str = "gamma",
    method: str = "delta",
    resamples: int = 1000,
    seed: int = 0,
    expand_to: float | None = None,
    quantity: str = "the mean over rows",
) -> Threshold:
    """Where the mean over rows crosses a level, with its standard error over the rows of one measurement.

    `delta`: s/(sqrt(n) |slope|) at the root. `bootstrap`: standard deviation of the roots of resampled means, which
    are taken as straight over two standard errors; the two agree to leading order in 1/n.

    Args:
        row_curves: maps the control parameter to the value of each row, (n,).
        level: the level.
        bracket: lower and upper end of the search.
        parameter: name of the control parameter.
        method: `delta` or `bootstrap`.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
        expand_to: as in `find_crossing`.
        quantity: as in `find_crossing`.

    Returns:
        the threshold.

    Raises:
        DomainError: as `find_crossing`; for fewer than 2 rows or resamples, or an unknown method.
    """
    if method not in ("delta", "bootstrap"):
        raise DomainError.of("method", method, "delta or bootstrap")
    found = find_crossing(
        _mean_curve(row_curves),
        level=level,
        bracket=bracket,
        parameter=parameter,
        expand_to=expand_to,
        quantity=quantity,
    )
    found = replace(found, method=f"brent, {method} over rows")
    if method == "delta" or found.critical is None or not found.standard_error:
        return found
    control = found.critical + found.standard_error * np.linspace(-2, 2, 5)
    matrix = np.stack([np.asarray(row_curves(float(x)), dtype=float) for x in control])
    _check_rows(matrix[0], resamples)
    roots = _resampled_roots(matrix, control, level, resamples=resamples, seed=seed)
    return replace(found, standard_error=float(roots.std(ddof=1)))


def student_interval(estimate: Estimate, dof: float, *, level: float = 0.95) -> tuple[float, float]:
    """Two-sided Student interval: value +- t_{dof, (1+level)/2} standard errors.

    Args:
        estimate: value and standard error; without an error the interval is the value itself.
        dof: degrees of freedom of the standard error, inf for a normal interval.
        level: coverage, in (0, 1).

    Raises:
        DomainError: for dof <= 0 or a level outside (0, 1).
    """
    if not dof > 0:
        raise DomainError.of("dof", dof, "positive")
    if not 0 < level < 1:
        raise DomainError.of("level", level, "in (0, 1)")
    upper = (1 + level) / 2
    quantile = special.stdtrit(dof, upper) if np.isfinite(dof) else special.ndtri(upper)
    half = float(quantile) * (estimate.standard_error or 0.0)
    return estimate.value - half, estimate.value + half
