"""`solve near-simplex` and `solve random-energy`: random tokens and random scores."""

from typing import Any

import click

from critattn.cli.common import Command, Count, Grid, Settings, emit, outer
from critattn.cli.solve.options import check_beta, count_options, floats, log_of


@click.command("near-simplex", cls=Command)
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
    given = {"log_n": log_of("n", n, log_n), "d": floats(d), "rho": rho, "gamma": gamma}
    check_beta("gamma", gamma, given["log_n"])
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


@click.command("random-energy", cls=Command)
@count_options("n", "Number of keys")
@click.option("--beta", type=Grid(), required=True, help="Inverse temperature of the Gaussian scores.")
@click.pass_obj
def random_energy_command(settings: Settings, n: Any, log_n: Any, beta: Any) -> None:
    """Independent Gaussian scores: the random energy model, at finite n and in the limit.

    Example: critattn solve random-energy --n 64 --beta 2.884

    Example: critattn solve random-energy --n 64,1024,16384 --beta 1:9:9 --json
    """
    check_beta("beta", beta)
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
