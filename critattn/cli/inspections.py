"""Where figures of trained models find their data: stores of `critattn inspect` by name."""

from pathlib import Path
from typing import Any

DEFAULT = "inspect-smollm2"
# what a figure's DATA says, and what the store's name then ends with
KINDS = {"inspection": "", "intervention": "-scale"}
COMMANDS = {"inspection": "critattn inspect smollm2", "intervention": "critattn inspect smollm2 --sweep-scale"}


def dataset(source: str, *, name: str | None = None, store: str | None = None) -> tuple[str, Any] | str:
    """(name of the store, dataset) of what a figure asks for, or a sentence that says how to make it.

    Args:
        source: the figure's DATA, `inspection` or `intervention`.
        name: the inspection's store, `inspect-smollm2` by default; that of its losses is called NAME-scale.
        store: folder of the stores.

    Raises:
        StoreError: for a store that cannot be read.
        SpecError: for a store that holds something else.
    """
    from critattn.errors import SpecError
    from critattn.storage import Store, store_root

    wanted = (name or DEFAULT).removesuffix(KINDS["intervention"]) + KINDS[source]
    root = store_root() if store is None else Path(store)
    path = root / wanted
    if not (path / "zarr.json").is_file():
        return _how(source, wanted, store)
    opened = Store.open(path)
    kind = opened.spec.get("kind", "study")
    if kind != source:
        raise SpecError(f"store {str(path)!r}: holds data of the kind {kind!r}; allowed: {source!r}")
    data = opened.read()
    return _how(source, wanted, store) if data.attrs["units_missing"] else (wanted, data)


def _how(source: str, wanted: str, store: str | None) -> str:
    place = f" --store {store}" if store else ""
    return f"no complete {source} {wanted!r}; make one with: {COMMANDS[source]}{place} (--inspection names another)"
