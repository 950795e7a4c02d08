"""Where what is read of a model goes, unit of work by unit of work: a store on disk, or memory."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critattn.datasets import Layout, Unit, to_dataset
from critattn.interrupts import patience
from critattn.models import fidelity
from critattn.models.forward import Model
from critattn.models.sources import files_of
from critattn.models.texts import Text
from critattn.storage import Store, canonical_json

Values = NDArray[np.float64]
Progress = Callable[[int, int], None]
Group = Sequence[Unit]
Read = Callable[[Group], Iterable[tuple[Unit, Values, float]]]


def identity_of(
    kind: str,
    model: Model,
    plan: Any,
    chosen: Sequence[Text],
    *,
    windows: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, Any]:
    """What decides about the numbers, JSON-ready: configuration, weights and texts by their checksums, and the plan.

    Args:
        kind: "inspection" or "intervention".
        model: the model.
        plan: a dataclass.
        chosen: texts.
        windows: the tokens that are read of each text; a store knows by them that the tokeniser is the same.
    """
    kept = [{"name": text.name, "sha256": text.sha256} for text in chosen]
    for text, cut in zip(kept, windows or (), strict=windows is not None):
        text["tokens"] = fidelity.digest(np.concatenate(cut))
    return {
        "kind": kind,
        "model": model.name,
        "weights": {path.name: fidelity.checksum(path) for path in files_of(model.source)},
        "config": asdict(model.config),
        "texts": kept,
        **{key: list(value) if isinstance(value, tuple) else value for key, value in asdict(plan).items()},
    }


@dataclass
class Kept:
    """Blocks of values by unit.

    Attributes:
        layout: axes and observables.
        identity: what decides about the numbers, JSON-ready.
        store: where they are on disk; None for memory.
        blocks: those in memory.
    """

    layout: Layout
    identity: dict[str, Any]
    store: Store | None
    blocks: dict[Unit, Values]

    @classmethod
    def open(cls, shape: Layout, spec: dict[str, Any], folder: str | os.PathLike[str] | None) -> "Kept":
        """Open or create the store in a folder; memory for None.

        Raises:
            StoreError: where it cannot be written or holds something else.
        """
        if folder is None:
            return cls(shape, spec, None, {})
        path = Path(folder)
        return cls(shape, spec, Store.create(path, name=path.name, spec=spec, layout=shape), {})

    def fill(self, together: Callable[[list[Unit]], list[Group]], read: Read, progress: Progress | None) -> None:
        """Read what is missing and keep it.

        Args:
            together: sorts missing units into groups that are read in one pass.
            read: maps a group to (unit, block of values, seconds).
            progress: called with (units done, units in all).

        Raises:
            StoreError: where the store cannot be written.
            KeyboardInterrupt: after Ctrl-C, once the group in hand is kept.
        """
        missing, total = self.missing(), len(list(self.layout.units()))
        tell = progress or (lambda done, total: None)
        done = total - len(missing)
        tell(done, total)
        with patience() as stopped:
            for group in together(missing):
                for unit, values, seconds in read(group):
                    self.keep(unit, values, seconds)
                    done += 1
                    tell(done, total)
                if stopped.is_set():
                    raise KeyboardInterrupt

    def missing(self) -> list[Unit]:
        """Units that are not there, in the order of the array."""
        if self.store is None:
            return [unit for unit in self.layout.units() if unit not in self.blocks]
        return self.store.missing_units()

    def keep(self, unit: Unit, values: Values, seconds: float) -> None:
        """Keep the block of a unit, and the seconds that it took."""
        if self.store is None:
            self.blocks[unit] = values
        else:
            self.store.write_unit(unit, values, seconds=seconds)

    def read(self) -> Any:
        """The dataset of what is kept."""
        if self.store is not None:
            return self.store.read()
        whole = np.stack([self.blocks[unit] for unit in self.layout.units()]).reshape(self.layout.shape)
        return to_dataset(self.layout, whole, {"units_missing": 0, "spec": canonical_json(self.identity)})
