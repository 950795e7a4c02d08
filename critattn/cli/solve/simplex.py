"""`solve simplex`: tokens with one common cosine."""

import math
from collections.abc import Iterator
from typing import Any

import click

from critattn.cli.common import Command, Grid, Number, Settings, emit, outer
from critattn.cli.solve.options import check_beta, count_options, log_of
from critattn.errors import DomainError

SNAP = 1e-9
FORWARD = ("self_weight", "cross_weight", "entropy", "participation_ratio", "output_cosine", "angle_ratio")
BACKWARD = ("gradient_norm_squared", "log_gradient_norm_squared", "gradient_norm")
SPECTRAL = ("operator_norm", "singular_values", "log_multiplicities")
THRESHOLDS = ("half_weight_gamma", "half_angle_gamma", "half_angle_residual", "transition_width")


@click.command("simplex", cls=Command)
@count_options("n", "Number of tokens")
@count_options("d", "Dimension, at least n")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [-1/(n-1), 1).")
@click.option("--gamma", type=Grid(), help="Coefficient of log n; without it, thresholds only.")
@click.option("--identity-weight", type=Number(), default=0.0, show_default=True, help="a in x' = a x + b ATT.")
@click.option("--attention-weight", type=Number(), default=1.0, show_default=True, help="b in x' = a x + b ATT.")
@click.option("--norm", type=Number(), default=1.0, show_default=True, help="Norm of the tokens.")
@click.pass_obj
def simplex_command(
    settings: Settings,
    n: Any,
    log_n: Any,
    d: Any,
    log_d: Any,
    rho: Any,
    gamma: Any,
    **update: float,
) -> None:
    """Tokens with one common cosine rho: exact at every n.

    A rho within 1e-9/(n-1) of -1/(n-1) is taken as exactly that.

    Example: critattn solve simplex --n 8 --d 12 --rho 0.3 --gamma 1.2

    Example: critattn solve simplex --n 1e300 --d 1e301 --rho 0.5 --gamma 0:4:81 --json
    """
    logs = {"log_n": log_of("n", n, log_n), "log_d": log_of("d", d, log_d, required=False)}
    check_beta("gamma", gamma, logs["log_n"])
    emit(settings, _simplex(update, {**logs, "rho": rho, "gamma": gamma}))


def _simplex(update: dict[str, float], given: dict[str, Any]) -> dict[str, Any]:
    """Every stable key; each value has axes for those lists only on which it depends, as n, d, rho, gamma."""
    from critattn.theory import simplex

    if given["log_d"] is not None:
        _check_dimension(**_point(given, "log_n", "log_d", "rho"))
    payload: dict[str, Any] = dict.fromkeys(FORWARD + BACKWARD + SPECTRAL)
    if given["gamma"] is not None:
        point = _point(given, "log_n", "rho", "gamma")
        for name in FORWARD:
            mixing = update if name in ("output_cosine", "angle_ratio") else {}
            payload[name] = _beyond_one(getattr(simplex, name)(**point, **mixing), point["log_n"])
    if given["gamma"] is not None and given["log_d"] is not None:
        point = _point(given, "log_n", "log_d", "rho", "gamma")
        for name in BACKWARD:
            payload[name] = _beyond_one(getattr(simplex, name)(**point, **update), point["log_n"])
        payload.update(_spectra(update, point))
    point = _point(given, "log_n", "rho")
    payload["critical_gamma"] = simplex.critical_gamma(**outer(rho=given["rho"]))
    for name in THRESHOLDS:
        mixing = update if name.startswith("half_angle") else {}
        payload[name] = _beyond_one(getattr(simplex, name)(**point, **mixing), point["log_n"])
    return payload


def _point(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """The named arguments on a grid of their own lists, with rho put on -1/(n-1) where it is that close."""
    point = outer(**{name: given[name] for name in names})
    if "log_n" in point and "rho" in point:
        point["rho"] = _snapped(point["rho"], point["log_n"])
    return point


def _beyond_one(value: Any, log_n: Any) -> Any:
    """NaN at n = 1, where there is no pair of tokens and no threshold."""
    import numpy as np

    return np.where(np.asarray(log_n) > 0, value, np.nan)


def _spectra(update: dict[str, float], point: dict[str, Any]) -> dict[str, Any]:
    """Operator norm, [value, multiplicity] pairs and log multiplicities, as nested lists over the grid."""
    import numpy as np

    from critattn.theory import simplex

    points = dict(zip(point, np.broadcast_arrays(*point.values()), strict=True))
    shape, columns = points["log_n"].shape, []
    for values in zip(*(array.ravel().tolist() for array in points.values()), strict=True):
        one = dict(zip(points, values, strict=True))
        columns.append(_spectrum(simplex.singular_values(**one, **update)) if one["log_n"] > 0 else (None,) * 3)
    parts = zip(*columns, strict=True)
    return {name: _nested(iter(part), shape) for name, part in zip(SPECTRAL, parts, strict=True)}


def _spectrum(levels: list[Any]) -> tuple[float, list[list[Any]], list[float]]:
    pairs = [[level.value, level.multiplicity] for level in levels]
    return max(level.value for level in levels), pairs, [level.log_multiplicity for level in levels]


def _nested(items: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(items)
    return [_nested(items, shape[1:]) for _ in range(shape[0])]


def _snapped(rho: Any, log_n: Any) -> Any:
    """The cosines as given, but exactly -1/(n-1) where decimals come within 1e-9 of it in (n-1) rho."""
    import numpy as np

    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        others = np.expm1(log_n)
        lowest = np.where(others > 0, -1 / others, rho)
        near = (others > 0) & (np.abs(1 + others * np.asarray(rho)) < SNAP)
    return np.where(near, lowest, rho) if np.any(near) else rho


def _check_dimension(*, rho: Any, log_n: Any, log_d: Any) -> None:
    """Refuse dimensions in which the tokens do not fit.

    Raises:
        DomainError: with the first point at which they do not.
    """
    import numpy as np

    from critattn.theory.simplex_state import log_others, mean_square

    flat = np.asarray(mean_square(rho, log_n)) == 0
    needed = np.where(flat, log_others(log_n) - SNAP, log_n)
    short, shown_n, shown_d, shown_rho = np.broadcast_arrays(np.asarray(log_d) < needed, log_n, log_d, rho)
    if short.any():
        at = np.unravel_index(int(np.argmax(short)), short.shape)
        n, d = (f"{math.exp(min(float(part[at]), 709)):.15g}" for part in (shown_n, shown_d))
        raise DomainError(
            f"--d {d}: a simplex of n = {n} tokens at rho = {shown_rho[at]:g} does not fit; "
            f"allowed: d >= n, or d >= n - 1 at rho = -1/(n-1)"
        )
