"""`critattn solve`: closed forms and root solvers; a list or a range among the options gives lists."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import click

from critattn.cli.common import Count, Grid, Group, Number, Settings, emit, outer
from critattn.errors import DomainError, SpecError
from critattn.grids import as_tuple

SNAP = 1e-9
FORWARD = ("self_weight", "cross_weight", "entropy", "participation_ratio", "output_cosine", "angle_ratio")
BACKWARD = ("gradient_norm_squared", "log_gradient_norm_squared", "gradient_norm")
SPECTRAL = ("operator_norm", "singular_values", "log_multiplicities")
LARGEST_BETA = 1e150
THRESHOLDS = ("half_weight_gamma", "half_angle_gamma", "half_angle_residual", "transition_width")


@click.group(cls=Group)
def command() -> None:
    """Closed forms and root solvers.

    Example: critattn solve simplex --n 8 --d 12 --rho 0.3 --gamma 1.2
    """


def count_options(letter: str, what: str) -> Callable[[Callable], Callable]:
    """The pair of options `--n` and `--log-n` (or d) for a count and its natural logarithm.

    Args:
        letter: name of the count.
        what: the count in words, for the help.
    """

    def decorate(function: Callable) -> Callable:
        logarithm = click.option(f"--log-{letter}", type=Grid(), help=f"Natural logarithm of {letter}.")
        plain = click.option(f"--{letter}", type=Count(many=True), help=f"{what} (512, 1e300, 64,512).")
        return plain(logarithm(function))

    return decorate


def log_of(letter: str, count: Any, logarithm: Any, *, required: bool = True) -> Any:
    """The logarithm that a pair of options means, a float or a tuple; None where neither is given.

    Raises:
        click.UsageError: for both, or for neither where one is required.
    """
    if count is not None and logarithm is not None:
        raise click.UsageError(f"--{letter} and --log-{letter} are both given; allowed: one of them")
    if count is None and logarithm is None and required:
        raise click.UsageError(f"--{letter} is missing; allowed: --{letter} or --log-{letter}")
    if count is None:
        return logarithm
    return tuple(math.log(one) for one in count) if isinstance(count, tuple) else math.log(count)


@command.command("simplex")
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
    _check_beta("gamma", gamma, logs["log_n"])
    emit(settings, _simplex(update, {**logs, "rho": rho, "gamma": gamma}))


def _check_beta(option: str, values: Any, log_n: Any = 1.0) -> None:
    """Refuse an inverse temperature whose square, which enters the gradient, is beyond a float."""
    for value in () if values is None else as_tuple(values):
        if not abs(value) * max(as_tuple(log_n)) <= LARGEST_BETA:
            raise SpecError(f"--{option} = {value:g}: allowed: an inverse temperature up to {LARGEST_BETA:g}")


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


@command.command("near-simplex")
@count_options("n", "Number of tokens")
@click.option("--d", type=Count(many=True), required=True, help="Dimension.")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [0, 1).")
@click.option("--gamma", type=Grid(), help="Coefficient of log n, for the self weight and the gradient norm.")
@click.pass_obj
def near_simplex_command(settings: Settings, n: Any, log_n: Any, d: Any, rho: Any, gamma: Any) -> None:
    """Random tokens in d dimensions around a common direction, or uniform on the sphere (rho = 0).

    Example: critattn solve near-simplex --n 2048 --d 16 --rho 0

    Example: critattn solve near-simplex --n 4096 --d 48 --rho 0.5 --gamma 1:4:7 --json
    """
    given = {"log_n": log_of("n", n, log_n), "d": _floats(d), "rho": rho, "gamma": gamma}
    _check_beta("gamma", gamma, given["log_n"])
    emit(settings, _near_simplex(given))


def _near_simplex(given: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from critattn.theory import finite_dimension as theory

    point = outer(**{name: given[name] for name in ("log_n", "d", "rho")})
    payload: dict[str, Any] = {
        name: getattr(theory, name)(**point)
        for name in ("half_weight_gamma", "median_half_weight_gamma", "gaussian_gamma", "row_disorder")
    }
    uniform = theory.large_deviation_gamma(point["log_n"], point["d"])
    payload["large_deviation_gamma"] = np.where(np.asarray(point["rho"]) == 0, uniform, np.nan)
    payload["width"] = theory.width(**outer(log_n=given["log_n"], rho=given["rho"]))
    if given["gamma"] is not None:
        point = outer(**given)
        payload["self_weight"] = theory.self_weight(**point)
        uniform = theory.gradient_norm(point["gamma"], point["log_n"], point["d"])
        payload["gradient_norm"] = np.where(np.asarray(point["rho"]) == 0, uniform, np.nan)
    return payload


def _floats(count: Any) -> Any:
    return tuple(float(one) for one in count) if isinstance(count, tuple) else float(count)


@command.command("random-energy")
@count_options("n", "Number of keys")
@click.option("--beta", type=Grid(), required=True, help="Inverse temperature of the Gaussian scores.")
@click.pass_obj
def random_energy_command(settings: Settings, n: Any, log_n: Any, beta: Any) -> None:
    """Independent Gaussian scores: the random energy model, at finite n and in the limit.

    Example: critattn solve random-energy --n 64 --beta 2.884

    Example: critattn solve random-energy --n 64,1024,16384 --beta 1:9:9 --json
    """
    _check_beta("beta", beta)
    emit(settings, _random_energy(**outer(log_n=log_of("n", n, log_n), beta=beta)))


def _random_energy(*, log_n: Any, beta: Any) -> dict[str, Any]:
    import numpy as np

    from critattn.theory import random_energy as theory

    sum_of_squares = theory.sum_of_squares(beta, log_n)
    critical = theory.critical_beta(log_n)
    known = np.asarray(critical) > 0
    reduced = np.asarray(beta) / np.where(known, critical, 1.0)

    def defined(value: Any) -> Any:
        return np.where(known, value, np.nan)

    return {
        "reduced_beta": defined(reduced),
        "critical_beta": critical,
        "sum_of_squares": sum_of_squares,
        "sum_of_squares_limit": defined(theory.sum_of_squares_limit(reduced)),
        "max_weight_limit": defined(theory.max_weight_limit(reduced)),
    }
