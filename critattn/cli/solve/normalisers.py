"""`solve softplus|relu-power|entmax|power|sigmoid`: where each normaliser localises."""

from typing import Any

import click

from critattn.cli.common import Command, Count, Grid, Settings, emit, outer
from critattn.cli.solve.options import check_beta, count_options, floats, log_of

WEIGHTS = ("self_weight", "cross_weight", "entropy")


@click.command("softplus", cls=Command)
@count_options("n", "Number of tokens")
@click.option("--rho", type=Grid(), required=True, help="Score of every other key, in [-1, 1].")
@click.option("--self-score", type=Grid(), default=1.0, show_default=True, help="Score of the token with itself.")
@click.option("--bias", type=Grid(), default=0.0, show_default=True, help="b in sp(beta (s - b)), in score units.")
@click.option("--gamma", type=Grid(), help="Coefficient of log n; without it, thresholds only.")
@click.pass_obj
def softplus_command(settings: Settings, n: Any, log_n: Any, gamma: Any, **scores: Any) -> None:
    """Softplus over its sum, on scores rho around a self score.

    Example: critattn solve softplus --n 1000 --rho -0.3

    Example: critattn solve softplus --n 1e6 --rho 0.3 --bias 0.5 --gamma 0:6:25 --json
    """
    given = {"log_n": log_of("n", n, log_n), **scores}
    check_beta("gamma", gamma, given["log_n"])
    emit(settings, _softplus(given, gamma))


def _softplus(given: dict[str, Any], gamma: Any) -> dict[str, Any]:
    from critattn.theory import softplus as theory

    point = outer(**given)
    scores = outer(**{name: given[name] for name in ("rho", "self_score", "bias")})
    payload: dict[str, Any] = dict.fromkeys(WEIGHTS)
    if gamma is not None:
        payload = {name: getattr(theory, name)(**outer(**given, gamma=gamma)) for name in WEIGHTS}
    payload["half_weight_gamma"] = theory.half_weight_gamma(**point)
    payload["half_weight_gamma_lambert"] = theory.half_weight_gamma_lambert(**point)
    payload["critical_gamma"] = theory.critical_gamma(**scores)
    return payload


@click.command("relu-power", cls=Command)
@count_options("n", "Number of tokens")
@click.option("--d", type=Count(many=True), required=True, help="Dimension, at least 3.")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [0, 1).")
@click.option("--gamma", type=Grid(), help="Coefficient of log n in the first stage.  [default: log d]")
@click.option("--p", type=Grid(), help="Exponent, for the self weight and the longest context.")
@click.pass_obj
def relu_power_command(settings: Settings, n: Any, log_n: Any, d: Any, rho: Any, gamma: Any, p: Any) -> None:
    """Softplus-L1 re-weighted by ReLU^p, on L2-normalised near-simplex tokens.

    Example: critattn solve relu-power --n 1024 --d 64 --rho 0.3

    Example: critattn solve relu-power --n 1024,8192 --d 64 --rho 0.3 --p 3,15 --json
    """
    given = {"log_n": log_of("n", n, log_n), "d": floats(d), "rho": rho}
    check_beta("gamma", gamma, given["log_n"])
    emit(settings, _relu_power(given, gamma, p))


def _relu_power(given: dict[str, Any], gamma: Any, p: Any) -> dict[str, Any]:
    from critattn.theory import needle
    from critattn.theory import relu_power as theory

    point = outer(**given)
    payload: dict[str, Any] = {"critical_p": theory.critical_p(**outer(**given, gamma=gamma))}
    for name in ("critical_p_lambert", "critical_p_gaussian", "critical_p_beta"):
        payload[name] = getattr(theory, name)(**point)
    payload["error_class"] = theory.error_class(**point)
    if p is not None:
        payload["self_weight"] = theory.self_weight(**outer(**given, gamma=gamma, p=p))
        tokens = outer(d=given["d"], rho=given["rho"], p=p)
        limit = needle.log_length_limit(tokens["p"], theory.signal_to_noise(tokens["rho"], tokens["d"]))
        payload["log_n_max"], payload["log_n_max_stated"] = limit
    return payload


@click.command("entmax", cls=Command)
@count_options("n", "Number of tokens, at least 2")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [-1, 1).")
@click.option("--alpha", type=Grid(), required=True, help="Entmax parameter, at least 1 (softmax); 2 is sparsemax.")
@click.option("--beta", type=Grid(), help="Inverse temperature, for the self weight.")
@click.pass_obj
def entmax_command(settings: Settings, n: Any, log_n: Any, rho: Any, alpha: Any, beta: Any) -> None:
    """Alpha-entmax on a simplex: half weight and identity at an inverse temperature of order 1.

    Example: critattn solve entmax --n 1024 --rho 0.3 --alpha 1.5
    """
    given = {"log_n": log_of("n", n, log_n), "rho": rho, "alpha": alpha}
    check_beta("beta", beta)
    emit(settings, _entmax(given, beta))


def _entmax(given: dict[str, Any], beta: Any) -> dict[str, Any]:
    from critattn.theory import entmax as theory

    payload = {
        "half_weight_beta": theory.half_weight_beta(**outer(**given)),
        "identity_beta": theory.identity_beta(**outer(rho=given["rho"], alpha=given["alpha"])),
    }
    if beta is not None:
        payload["self_weight"] = theory.self_weight(**outer(**given, beta=beta))
        payload["self_weight_limit"] = theory.self_weight_limit(
            **outer(rho=given["rho"], alpha=given["alpha"], beta=beta)
        )
    return payload


@click.command("power", cls=Command)
@count_options("n", "Number of tokens")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [-1, 1].")
@click.option("--threshold", type=Grid(), default=0.0, show_default=True, help="t in max(s - t, 0)^p.")
@click.option("--p", type=Grid(), help="Exponent, for the self weight.")
@click.pass_obj
def power_command(settings: Settings, n: Any, log_n: Any, rho: Any, threshold: Any, p: Any) -> None:
    """Powers max(s - t, 0)^p over their sum, on a simplex.

    Example: critattn solve power --n 1024 --rho 0.3
    """
    given = {"log_n": log_of("n", n, log_n), "rho": rho, "threshold": threshold}
    emit(settings, _power(given, p))


def _power(given: dict[str, Any], p: Any) -> dict[str, Any]:
    from critattn.theory import power as theory

    payload = {"critical_p": theory.critical_p(**outer(**given))}
    if p is not None:
        payload["self_weight"] = theory.self_weight(**outer(**given, p=p))
    return payload


@click.command("sigmoid", cls=Command)
@count_options("n", "Number of tokens")
@click.option("--rho", type=Grid(), required=True, help="Common cosine, in [-1, 1].")
@click.option("--bias-factor", type=Grid(), required=True, help="B in sigmoid(beta s - B log n).")
@click.option("--gamma", type=Grid(), help="Coefficient of log n, for the weights.")
@click.pass_obj
def sigmoid_command(settings: Settings, n: Any, log_n: Any, rho: Any, bias_factor: Any, gamma: Any) -> None:
    """Sigmoid with a bias -B log n, over its sum: the window of gamma in which rows localise.

    `window` is that for n to infinity, `half_weight_window` that of n tokens; an end without bound is null.

    Example: critattn solve sigmoid --n 1e12 --rho 0.3 --bias-factor 2
    """
    given = {"log_n": log_of("n", n, log_n), "rho": rho, "bias_factor": bias_factor}
    check_beta("gamma", gamma, given["log_n"])
    emit(settings, _sigmoid(given, gamma))


def _sigmoid(given: dict[str, Any], gamma: Any) -> dict[str, Any]:
    from critattn.theory import sigmoid as theory

    point = outer(**given)
    limit = theory.window(**outer(rho=given["rho"], bias_factor=given["bias_factor"]))
    payload: dict[str, Any] = {
        "window": _intervals(limit),
        "half_weight_window": _intervals(theory.half_weight_window(**point)),
    }
    if gamma is not None:
        payload["self_weight"] = theory.self_weight(**outer(**given, gamma=gamma))
        raw = outer(log_n=given["log_n"], bias_factor=given["bias_factor"], gamma=gamma)
        payload["raw_self_weight"] = theory.raw_self_weight(**raw)
        payload["raw_row_mass"] = theory.raw_row_mass(**outer(**given, gamma=gamma))
    return payload


def _intervals(window: tuple[Any, Any]) -> Any:
    """Pairs [low, high], None where there is no window, nested as the ends are."""
    import numpy as np

    def pair(low: Any, high: Any) -> Any:
        if isinstance(low, list):
            return [pair(*ends) for ends in zip(low, high, strict=True)]
        return None if np.isnan(low) else [low, high]

    return pair(*(np.asarray(end).tolist() for end in window))
