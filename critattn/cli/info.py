"""`critattn info`: versions, devices, threads, the store, the rooms."""

from typing import Any

import click

from critattn import provenance, rooms
from critattn.cli.common import Command, Settings, emit, table


@click.command(cls=Command)
@click.option("--store", "root", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.pass_obj
def command(settings: Settings, root: str | None) -> None:
    """Say what runs here: versions, devices, threads, the store, the rooms.

    Example: critattn info --json
    """
    found = {**provenance.environment(), "store": _store(root), "rooms": {room: _room(room) for room in rooms.SUFFIXES}}
    emit(settings, found, lambda: table(("", ""), _rows(found)))


def _store(root: str | None) -> dict[str, Any]:
    from critattn import storage

    infos = storage.list_stores(root)
    folder = storage.store_root() if root is None else root
    return {"root": str(folder), "stores": len(infos), "bytes": sum(info.bytes for info in infos)}


def _room(room: str) -> dict[str, Any]:
    return {"path": str(rooms.folder(room)), "names": list(rooms.names(room))}


def _rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    git = found["git"] or {}
    state = f"{git['commit'][:12]}{' (changed)' if git['changed'] else ''}" if git else "no checkout"
    return [
        *found["versions"].items(),
        ("platform", found["platform"]),
        ("threads", found["threads"]),
        ("devices", ", ".join(found["devices"])),
        ("git", state),
        ("store", f"{found['store']['root']} ({found['store']['stores']} stores)"),
        *((room, f"{len(item['names'])} in {item['path']}") for room, item in found["rooms"].items()),
    ]
