"""`critattn formats`: thresholds of the number formats, as defined and as the libraries here have them."""

import dataclasses
from typing import Any

import click

from critattn.cli.common import Command, Settings, emit, lines, table
from critattn.errors import SpecError

MASK_KEYS = ("least", "spoiling", "spoilt", "twice", "kept")
LEGEND = (
    "Thresholds of x in nats: exp(x) is subnormal below `normal`, the smallest number at `subnormal`, 0 from `zero` "
    "on, too large above `overflow`; 1 + exp(x) is 1 from `absorption` on. `mask`: the smallest bias that spoils "
    "finfo.min + bias, and what comes out."
)
MEASURED = (
    "The largest x of the format whose exp, or weight, is 0. It shows `zero`, the format's own threshold; `normal`: "
    "subnormals are flushed; or `own`, one of the kernel. Rows are of 2 keys; attention: of 32, attention-pair: of 2. "
    "-: not computed in this format; --json says why."
)


@click.command(cls=Command)
@click.argument("formats", nargs=-1, metavar="[NAME ...]")
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Measure this one; may be repeated.")
@click.option("--stated", is_flag=True, help="What the definitions say; measure nothing.")
@click.pass_obj
def command(settings: Settings, formats: tuple[str, ...], backends: tuple[str, ...], stated: bool) -> None:
    """Thresholds of the number formats, stated and measured here on numpy, JAX and, where installed, torch.

    NAME is fp32, bf16, fp16, e4m3fn, e4m3, e5m2, e4m3fnuz or e5m2fnuz, all by default.

    Example: critattn formats bf16 fp16 --json

    Example: critattn formats --backend jax
    """
    from critattn.formats import get, names

    if stated and backends:
        raise click.UsageError("--stated and --backend are both given; allowed: one of them")
    chosen = tuple(dict.fromkeys(_named(get, name) for name in formats)) or names()
    payload: dict[str, Any] = {"formats": {name: _stated(name) for name in chosen}}
    payload |= {"backends": {} if stated else _measured(backends, chosen)}
    payload["not_installed"] = [] if stated else _missing()
    emit(settings, payload, lambda: _people(payload))


def _named(get: Any, name: str) -> str:
    try:
        return get(name).name
    except SpecError as error:
        raise SpecError(f"NAME: {error}") from None


def _stated(name: str) -> dict[str, Any]:
    from critattn.formats import get, mask_facts

    form, mask = get(name), dataclasses.asdict(mask_facts(name))
    own = dataclasses.asdict(form.thresholds())
    about = {"largest": form.largest, "smallest": form.smallest, "has_infinity": form.has_infinity}
    return {"significand_bits": form.significand_bits, **own, **about, "mask": {key: mask[key] for key in MASK_KEYS}}


def _missing() -> list[str]:
    from critattn.formats import operations

    return [name for name in operations.BACKENDS if name not in operations.available()]


def _measured(backends: tuple[str, ...], chosen: tuple[str, ...]) -> dict[str, Any]:
    from critattn.formats import measure_backend, operations

    found = {}
    for name in dict.fromkeys(backends) or operations.available():
        try:
            results = measure_backend(name, chosen)
        except SpecError as error:
            raise SpecError(f"--backend: {error}") from None
        first: dict[str, dict[str, float | None]] = {}
        for one in results:
            first.setdefault(one.operation, {})[one.format] = one.first_zero
        about = {"version": operations.version(name), "device": operations.device(name)}
        found[name] = {**about, "first_zero": first, "measurements": [_record(one) for one in results]}
    return found


def _record(one: Any) -> dict[str, Any]:
    record = dataclasses.asdict(one)
    return {"class" if key == "kind" else key: value for key, value in record.items() if key != "backend"}


def _people(payload: dict[str, Any]) -> Any:
    names = ("significand_bits", "normal", "subnormal", "zero", "overflow", "absorption")
    rows = [(name, *(form[key] for key in names), _mask(form["mask"])) for name, form in payload["formats"].items()]
    shown = [table(("format", "bits", *names[1:], "mask"), rows, title="Number formats, as defined"), LEGEND]
    if payload["backends"]:
        made = [row for name, found in payload["backends"].items() for row in _rows(name, found, payload["formats"])]
        shown += [table(("library", "operation", *payload["formats"]), made, title="\nMeasured here"), MEASURED]
        where = [f"{name} {found['version']} on {found['device']}" for name, found in payload["backends"].items()]
        shown.append("; ".join(where) + ".")
    if payload["not_installed"]:
        shown.append(f"Not installed, so not measured: {', '.join(payload['not_installed'])}.")
    return lines(*shown)


def _mask(mask: dict[str, Any]) -> str:
    return "-" if mask["spoiling"] is None else f"{mask['spoiling']:.4g}: {mask['spoilt']}"


def _rows(name: str, found: dict[str, Any], formats: Any) -> list[tuple[str, ...]]:
    records = {(one["operation"], one["format"]): one for one in found["measurements"]}
    return [
        (name, operation, *(_cell(records[operation, form]) for form in formats)) for operation in found["first_zero"]
    ]


def _cell(record: dict[str, Any]) -> str:
    if record["first_zero"] is not None:
        return f"{record['first_zero']:.7g} {record['class']}"
    return "NaN" if "NaN" in record["note"] else "-"
