"""`critattn scaling`: the catalogue of scaling laws in words, in numbers, and against the critical line."""

import math
from typing import Any

import click

from critattn.cli.common import Command, Count, Grid, Number, Settings, emit, lines, table
from critattn.errors import DomainError, SpecError
from critattn.grids import as_tuple, parse_number

MAX_EXACT = 2**53
LARGEST_LOG_N = 709.0
COLUMNS = ("factor", "beta", "gamma")
LAW_KEYS = ("parameters", "base", "mark", "unverified", "source", "counts", "reason", "wrong")


@click.command(cls=Command)
@click.option("--law", "laws", multiple=True, metavar="NAME", help="A law of the catalogue; may be repeated.")
@click.option("--n", type=Count(many=True), help="Keys that the row sees; its position is n - 1.")
@click.option("--log-n", type=Grid(), help="Natural logarithm of n.")
@click.option("--positions", type=Grid(), help="Positions p of the rows, counted from 0; n = p + 1.")
@click.option("--total", type=Count(), help="Keys of the whole sequence.  [default: those that the row sees]")
@click.option("--d", type=Count(), default=64, show_default=True, help="Head dimension.")
@click.option("--qk-norm", type=Number(0.0), help="|q||k| in gamma.  [default: d, or 1 for L2-normalised q and k]")
@click.option("--rho", type=Number(-1.0), help="Common cosine: the place against gamma_c = 1/(1-rho).")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="A parameter of the law; may be repeated.")
@click.option(
    "--check", "file", metavar="FILE", help="Name the law of the positions and factors in FILE (.json, .csv)."
)
@click.option(
    "--tolerance", type=Number(0.0), help="--check: relative error of the factors.  [default: their rounding]"
)
@click.pass_obj
def command(settings: Settings, **options: Any) -> None:
    """Scaling laws of attention: what they are, their values, and what a file of factors is.

    Without options, the list. With --law alone, conformance vectors: the rows that tell the law from its look-alikes.
    With --n or --positions, factor m, beta = m x base and gamma = beta |q||k| / log n there, for all laws without
    --law. With --check, the law that the factors of FILE follow; exit code 1 where that is no law of the catalogue.

    Example: critattn scaling --law llama-4 --law ministral-3 --positions 8190,8191,8192 --rho 0.5

    Example: critattn scaling --law qwen-1 --json > qwen.json && critattn scaling --check qwen.json

    A CSV file has columns position (from 0) or n, and factor; or score and logit, two rows or more a position.
    """
    if options["file"] is not None:
        from critattn.cli.scaling_check import check

        return check(settings, options)
    if options["tolerance"] is not None:
        raise click.UsageError("--tolerance is for --check")
    points = _points(options)
    if options["rho"] is not None and options["rho"] >= 1:
        raise SpecError(f"--rho {options['rho']:g}: allowed: in [-1, 1)")
    if not options["laws"] and points is None and options["rho"] is None:
        if options["changes"]:
            raise click.UsageError("--set is for --law")
        return _list(settings)
    _values(settings, options, points)
    return None


def _list(settings: Settings) -> None:
    from critattn.scaling import catalogue

    laws = catalogue()
    rows = [
        (one.name, one.formula, one.record()["counts"] or "model", one.where, one.flags, one.source) for one in laws
    ]
    payload = {"laws": [one.record() for one in laws]}
    legend = (
        "n: row = keys the row sees; position = place in its document; slot = place in the key buffer; sequence = all "
        "keys; model = fixed. p counts from 0. --json has everything: order, clamp, defaults, what is unverified."
    )
    columns = ("law", "formula", "n", "applied to", "mark", "source")
    emit(settings, payload, lambda: lines(table(columns, rows, title=f"{len(rows)} scaling laws"), legend))


def _points(options: dict[str, Any]) -> Any:
    """Positions p as a float or a tuple; None where none are given."""
    given = [name for name in ("n", "log_n", "positions") if options[name] is not None]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} are both given; allowed: one of them")
    if not given:
        return None
    value = options[given[0]]
    if given[0] == "positions":
        return _each(value, _position)
    if given[0] == "log_n":
        return _each(value, _from_log)
    return _each(value, lambda n: float(n) - 1)


def _each(value: Any, function: Any) -> Any:
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)


def _position(value: float) -> float:
    if value < 0 or value != math.floor(value):
        raise SpecError(f"--positions {value:g}: allowed: whole numbers >= 0, the first row being 0")
    return value


def _from_log(value: float) -> float:
    if not 0 <= value <= LARGEST_LOG_N:
        raise SpecError(f"--log-n {value:g}: allowed: from 0 to {LARGEST_LOG_N:g}")
    return math.exp(value) - 1


def changed(options: dict[str, Any]) -> dict[str, float]:
    """The parameters of --set.

    Raises:
        SpecError: for anything but NAME=NUMBER.
    """
    found = {}
    for text in options["changes"]:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {text!r}: allowed: NAME=VALUE, such as reference=8192")
        try:
            found[name.strip()] = parse_number(value)
        except SpecError as error:
            raise SpecError(f"--set {text}: {error}") from None
    return found


def _values(settings: Settings, options: dict[str, Any], points: Any) -> None:
    from critattn.scaling import catalogue

    parameters = changed(options)
    if parameters and len(options["laws"]) != 1:
        raise click.UsageError("--set is for one --law")
    chosen = [named(name) for name in options["laws"]] or list(catalogue())
    if parameters:
        _check_changes(chosen[0], parameters)
    if len(chosen) == 1:
        found = _one(chosen[0], options, points, parameters)
        return emit(settings, found, lambda: _people_one(found))
    found = [_one(one, options, points, parameters) for one in chosen]
    payload = {"positions": found[0]["positions"] if points is not None else None}
    payload |= {name: [one[name] for one in found] for name in COLUMNS}
    payload |= {"laws": found}
    return emit(settings, payload, lambda: _people_several(found, values=points is not None))


def named(name: str) -> Any:
    """The law that --law names.

    Raises:
        SpecError: for an unknown name.
    """
    from critattn.scaling import entry

    try:
        return entry(name)
    except SpecError as error:
        raise SpecError(f"--law {name}: {error}") from None


def _check_changes(law: Any, parameters: dict[str, float]) -> None:
    try:
        law.made(parameters)
    except (SpecError, DomainError) as error:
        given = " ".join(f"--set {name}={value:g}" for name, value in parameters.items())
        raise SpecError(f"{given}: {error}") from None


def _one(law: Any, options: dict[str, Any], points: Any, parameters: dict[str, float]) -> dict[str, Any]:
    """Everything about one law at the points, else at the rows of its conformance vector."""
    from critattn import scaling

    dim, norm = float(options["d"]), options["qk_norm"]
    lengths = scaling.conformance_rows(law, dim) if points is None else _lengths(points, dim, options["total"])
    record = law.record()
    found: dict[str, Any] = {"law": law.name, "positions": lengths.slots}
    found |= dict.fromkeys(COLUMNS)
    if law.law is not None:
        found |= scaling.evaluate(law, lengths, parameters=parameters, qk_norm=norm)._asdict()
    found |= {"n": lengths.keys_seen, "document_positions": lengths.positions, "keys_seen": lengths.keys_seen}
    found |= {"total_keys": lengths.total_keys, "d": options["d"]}
    found["qk_norm"] = law.default_qk_norm(dim) if norm is None else norm
    found |= {name: record[name] for name in LAW_KEYS}
    found["parameters"] = {**record["parameters"], **parameters}
    if points is None and law.law is not None:
        found["look_alikes"] = scaling.look_alikes(law, lengths, parameters)
    if options["rho"] is not None:
        found |= _critical(law, found, options, parameters)
    if points is not None and not isinstance(points, tuple):
        found |= {name: value.item() for name, value in found.items() if hasattr(value, "item")}
    return found


def _lengths(points: Any, dim: float, total: float | None) -> Any:
    import numpy as np

    from critattn.scaling import Lengths

    slots = np.asarray(as_tuple(points) if isinstance(points, tuple) else points, dtype=np.float64)
    if total is not None and np.any(slots + 1 > total):
        raise SpecError(f"--total {total:g}: allowed: at least the {float(slots.max()) + 1:g} keys of the last row")
    return Lengths.plain(slots, dim, total_keys=total)


def _critical(law: Any, found: dict[str, Any], options: dict[str, Any], parameters: dict[str, float]) -> dict[str, Any]:
    from critattn import scaling

    line = scaling.critical_gamma(options["rho"])
    keys: dict[str, Any] = {"rho": options["rho"], "critical_gamma": line, "relative_gamma": None}
    keys |= {"crossings": [], "crossing_n": None}
    if law.law is None:
        return keys
    dim = float(options["d"])
    crossed = scaling.crossings(law, options["rho"], dim, parameters=parameters, qk_norm=options["qk_norm"])
    keys["relative_gamma"] = found["gamma"] / line
    keys["crossings"] = [one._asdict() for one in crossed]
    keys["crossing_n"] = crossed[0].n if crossed else None
    return keys


def _people_one(found: dict[str, Any]) -> Any:
    from critattn.scaling import entry

    law = entry(found["law"])
    given = ", ".join(f"{name} = {value}" for name, value in found["parameters"].items()) or "no parameters"
    head = [f"{law.name}: {law.formula}", f"{given}; base {law.base}; d = {found['d']}; |q||k| = {found['qk_norm']:g}"]
    head.append(f"mark: {law.flags}; source: {law.source}")
    head += [f"UNVERIFIED: {text}" for text in law.unverified]
    if law.law is None:
        return lines(*head, f"no factor per row: {law.reason}")
    if law.reason:
        head.append(law.reason)
    shown = ["positions", "n", "total_keys", *COLUMNS, *(["relative_gamma"] if "rho" in found else [])]
    columns = [found[name] if isinstance(found[name], float | int) else list(found[name]) for name in shown]
    rows = [columns] if not isinstance(columns[0], list) else zip(*columns, strict=True)
    return lines(*head, table(shown, rows), *_crossing_lines(found))


def _crossing_lines(found: dict[str, Any]) -> list[str]:
    if "rho" not in found:
        return []
    line = f"critical line gamma_c = 1/(1-rho) = {found['critical_gamma']:g} at rho = {found['rho']:g}"
    if not found["crossings"]:
        return [f"{line}: never crossed"]
    ways = [f"n = {one['n']:.6g} {'upward' if one['upward'] else 'downward'}" for one in found["crossings"][:6]]
    return [f"{line}: crossed at {', '.join(ways)}"]


def _people_several(found: list[dict[str, Any]], *, values: bool) -> Any:
    columns = ["law", *(["positions", *COLUMNS] if values else [])]
    if "rho" in found[0]:
        columns += [*(["relative_gamma"] if values else []), "crossing_n"]
    columns.append("mark")
    return table(columns, ([one[name] for name in columns] for one in found))
