"""The temperature of `critattn measure`: --gamma, --beta, or a law of the catalogue, seen from the layer's cosines."""

import math
from dataclasses import dataclass, field
from typing import Any

import click

from critattn.cli.scaling import changed, named
from critattn.errors import DomainError, SpecError

LOG_N = "log-n"
# beyond it the rounding of a logit reaches a tenth of a nat
LARGEST_BETA = {"float32": 1e6, "float64": 1e15}
# a multiple of log n in every row is one to the rounding of a few operations
ROUNDING = 1e-12


@dataclass(frozen=True)
class Temperature:
    """How the scores of a layer are scaled.

    Attributes:
        transforms: of the layer, in order.
        law: name of the scaling law; None where beta is given without one.
        gamma: beta / log n; None where it is not one number.
        beta: inverse temperature of the cosines; None where it differs by row.
        length: which n is in gamma, sequence or row.
        comparable: the layer is a log-n layer of some gamma, so that a critical gamma has a meaning.
        described: further JSON keys of the law.
    """

    transforms: tuple[Any, ...]
    law: str | None
    gamma: float | None
    beta: float | None
    length: str = "sequence"
    comparable: bool = True
    described: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, Any]:
        """JSON keys."""
        return {"law": self.law, "gamma": self.gamma, "beta": self.beta, **self.described}


def check_options(options: dict[str, Any]) -> None:
    """Refuse options of the temperature that do not go together.

    Raises:
        UsageError: with the options.
        SpecError: for an unknown law.
    """
    law, gamma, beta = options["law"], options["gamma"], options["beta"]
    if gamma is not None and beta is not None:
        raise click.UsageError("--gamma and --beta are both given; give either --gamma or --beta")
    if not _takes_gamma(law):
        return _check_catalogue(options)
    if gamma is None and beta is None:
        wanted = "give either --gamma or --beta, or a --law of the catalogue that brings its own coefficient"
        raise click.UsageError(wanted if law is None else f"--gamma is missing; --law {law} has no other coefficient")
    if beta is not None and law not in (None, LOG_N):
        raise click.UsageError(f"--law {law} is for --gamma; --beta is the inverse temperature itself")
    if options["changes"]:
        raise click.UsageError("--set is for a --law with parameters of its own; log n has --gamma and --length")
    if options["qk_norm"] is not None:
        raise click.UsageError("--qk-norm is for a --law that acts on q.k; --gamma and --beta act on cosines")
    if options["length"] and not options["causal"]:
        raise click.UsageError("--length is for --causal; without a mask every row sees all n keys")
    if options["length"] == "row" and beta is not None:
        raise click.UsageError("--length row is for --gamma; --beta is the same in every row")
    return None


def _takes_gamma(law: str | None) -> bool:
    if law is None or law == LOG_N:
        return True
    from critattn import scaling

    return law in scaling.names()


def _check_catalogue(options: dict[str, Any]) -> None:
    law = named(options["law"])
    for name, why in (("gamma", "brings its own coefficient"), ("beta", "is an inverse temperature of its own")):
        if options[name] is not None:
            raise click.UsageError(f"--{name} and --law {law.name} are both given; the law {why}: give one of them")
    if options["length"]:
        raise click.UsageError(f"--length is for --gamma; the n of {law.name} is {_counted(law)}")
    if law.law is None:
        raise click.UsageError(f"--law {law.name} is no factor per row: {law.reason}")
    given = changed(options)
    missing = [name for name in law.examples if name not in given]
    if missing:
        sets = " ".join(f"--set {name}={law.parameters[name]:g}" for name in missing)
        needed = f"needs {', '.join(missing)}, which its source leaves open"
        raise click.UsageError(f"--law {law.name} {needed}; such as {sets}")
    if options["no_normalise"] and options["qk_norm"] is not None:
        raise click.UsageError("--qk-norm is for normalised tokens; with --no-normalise the scores are q.k themselves")


def _counted(law: Any) -> str:
    counts = law.record()["counts"]
    return "fixed by the model" if counts is None else f"its own: {counts}"


def temperature(options: dict[str, Any], n: int, d: int, dtype: str) -> Temperature:
    """The temperature that the options ask for, on n tokens in d dimensions.

    Raises:
        SpecError: for an inverse temperature that leaves logits without the digits that weights need, or a parameter
            out of range.
    """
    from critattn import scaling

    log_n = math.log(n)
    if not _takes_gamma(options["law"]):
        return _of_catalogue(options, n, d, dtype)
    _check_beta(options, n, dtype)
    if options["beta"] is not None:
        gamma = options["beta"] / log_n if log_n else None
        return Temperature((scaling.InverseTemperature(options["beta"]),), options["law"], gamma, options["beta"])
    name, length = options["law"] or LOG_N, options["length"] or "sequence"
    made = scaling.get(name, options["gamma"], length=length)
    beta = None if length == "row" else options["gamma"] * log_n
    return Temperature((made,), name, options["gamma"], beta, length)


def _check_beta(options: dict[str, Any], n: int, dtype: str) -> None:
    name = "gamma" if options["beta"] is None else "beta"
    beta = options[name] * (math.log(n) if name == "gamma" else 1)
    largest = LARGEST_BETA[dtype]
    if not abs(beta) <= largest:
        formula = "gamma log n" if name == "gamma" else "beta"
        raise SpecError(f"--{name} = {options[name]:g} at n = {n}: allowed in {dtype}: |{formula}| up to {largest:g}")


def _of_catalogue(options: dict[str, Any], n: int, d: int, dtype: str) -> Temperature:
    from critattn import scaling

    law, given = named(options["law"]), changed(options)
    norm = 1.0 if options["no_normalise"] else options["qk_norm"]
    norm = law.default_qk_norm(float(d)) if norm is None else norm
    betas, seen = _betas(law, given, norm, (n, d, options["causal"]))
    largest = float(abs(betas).max())
    if not largest <= LARGEST_BETA[dtype]:
        reached = "is no number" if math.isnan(largest) else f"reaches {largest:g}"
        allowed = f"allowed in {dtype}: |beta| up to {LARGEST_BETA[dtype]:g}"
        raise SpecError(f"--law {law.name} at n = {n}, d = {d}: beta {reached}; {allowed}")
    beta = float(betas[0]) if (betas == betas[0]).all() else None
    gamma, length = _gamma(betas, seen, beta, n)
    described = {
        "law_parameters": {**law.parameters, **given},
        "qk_norm": None if options["no_normalise"] else norm,
        "soft_cap": law.cap,
    }
    comparable = law.cap is None and (gamma is not None or beta is not None)
    made = scaling.on_cosines(law.name, norm, **given)
    return Temperature(made, law.name, gamma, beta, length, comparable, described)


def _betas(law: Any, given: dict[str, float], norm: float, where: tuple[int, int, bool]) -> Any:
    """Inverse temperature of the cosines in each row, and the keys that the rows see, (n,) each."""
    import numpy as np

    from critattn import scaling

    n, d, causal = where
    place = np.arange(n, dtype=np.float64)
    lengths = scaling.Lengths.plain(place, float(d), keys_seen=None if causal else n, total_keys=n)
    counted = law.counting
    if law.largest_n is not None and counted is not None and lengths.count(counted).max() > law.largest_n:
        raise SpecError(f"--law {law.name} at n = {n}: allowed: n up to {law.largest_n}, where its table ends")
    try:
        return scaling.evaluate(law, lengths, parameters=given).beta * norm, lengths.keys_seen
    except (SpecError, DomainError) as error:
        sets = " ".join(f"--set {name}={value:g}" for name, value in given.items())
        raise SpecError(f"--law {law.name} {sets}".rstrip() + f": {error}") from None


def _gamma(betas: Any, seen: Any, beta: float | None, n: int) -> tuple[float | None, str]:
    """The gamma of a layer whose rows have these betas, and which n its logarithm takes."""
    import numpy as np

    if beta is not None:
        return (beta / math.log(n) if n > 1 else None), "sequence"
    ratios = betas[seen > 1] / np.log(seen[seen > 1])
    alike = np.ptp(ratios) <= ROUNDING * np.abs(ratios).max()
    return (float(np.median(ratios)), "row") if alike else (None, "row")
