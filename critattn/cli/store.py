"""`critattn store`: list, show, export and delete results."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import click

from critattn import datasets, storage
from critattn.cli.common import Group, Settings, emit, table

root_option = click.option("--store", "root", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")


@click.group(cls=Group)
def command() -> None:
    """List, show, export and delete results.

    Example: critattn store export collapse collapse.csv
    """


@command.command("list")
@root_option
@click.pass_obj
def list_(settings: Settings, root: str | None) -> None:
    """List the stores below the root.

    Example: critattn store list
    """
    infos = storage.list_stores(root)
    where = str(Path(root) if root else storage.store_root())
    rows = [(info.name, f"{info.done} of {info.units}", _size(info.bytes), _when(info.created)) for info in infos]
    payload = {"root": where, "stores": [dataclasses.asdict(info) for info in infos]}
    empty = f"no results in {where} yet; critattn sweep makes some"
    emit(settings, payload, lambda: table(("store", "units", "size", "made"), rows, title=where) if rows else empty)


@command.command()
@click.argument("name")
@root_option
@click.pass_obj
def show(settings: Settings, name: str, root: str | None) -> None:
    """Show what a store holds and where it came from; every chunk's checksum is verified.

    Example: critattn store show collapse
    """
    found = _shown(storage.find(name, root))
    emit(settings, found, lambda: table(("", ""), _flat({**found, "created": _when(found["created"])})))


@command.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False))
@root_option
@click.pass_obj
def export(settings: Settings, name: str, file: str, root: str | None) -> None:
    """Export a store to FILE: NetCDF (.nc) or CSV in long form (.csv).

    Example: critattn store export collapse collapse.nc
    """
    data = storage.find(name, root).read()
    target = datasets.export(data, file)
    missing = data.attrs["units_missing"]
    payload = {"store": name, "file": str(target), "bytes": target.stat().st_size, "units_missing": missing}
    note = f" ({missing} units are missing and empty)" if missing else ""
    emit(settings, payload, f"wrote {target}{note}")


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@root_option
@click.pass_obj
def delete(settings: Settings, name: str, yes: bool, root: str | None) -> None:
    """Delete a store.

    Example: critattn store delete collapse --yes
    """
    store = storage.find(name, root)
    if not yes and not _confirmed(settings, store):
        emit(settings, {"store": name, "deleted": False}, f"kept {store.path}")
        return
    storage.delete(store)
    emit(settings, {"store": name, "deleted": True}, f"deleted {store.path}")


def _confirmed(settings: Settings, store: storage.Store) -> bool:
    if settings.as_json:
        raise click.UsageError("store delete with --json does not ask; give --yes")
    try:
        return click.confirm(f"Delete {store.path}?", err=True)
    except click.Abort:
        raise click.UsageError("store delete got no answer; give --yes") from None


def _shown(store: storage.Store) -> dict[str, Any]:
    journal = store.journal()
    units = list(store.layout.units())
    damaged = store.damaged_units()
    missing = [unit for unit in units if unit in damaged or not store.chunk_file(unit).exists()]
    axes = store.layout.all_axes()
    return {
        "name": store.name,
        "path": str(store.path),
        "units": len(units),
        "units_missing": len(missing),
        "units_damaged": [list(unit) for unit in damaged],
        "seconds": round(sum(record.get("seconds", 0) for record in journal.values()), 3),
        "observables": [column.name for column in store.layout.observables],
        "axes": {axis.name: list(axis.labels) for axis in axes},
        "spec": dict(store.spec),
        "spec_hash": store.spec_hash,
        "made": dict(store.made),
        "created": store.created,
    }


def _flat(value: Any, key: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(key, value)]
    return [row for name, item in value.items() for row in _flat(item, f"{key}.{name}" if key else name)]


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
