"""Studies by name: the files of `simulations/`, or a file of one's own."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critattn import rooms
from critattn.errors import SpecError
from critattn.storage import store_root
from critattn.sweeps.spec import SweepSpec

ROOM = "simulations"


@dataclass(frozen=True)
class Study:
    """A study file.

    Attributes:
        name: its name without suffix.
        table: the parsed file.
        file: where it lies; None in the room `simulations`.
    """

    name: str
    table: Mapping[str, Any]
    file: Path | None = None

    @property
    def typed(self) -> str:
        """What to type for it after a command."""
        return self.name if self.file is None else shlex.quote(str(self.file))

    @property
    def kind(self) -> str:
        """`sweep` or `training`."""
        return str(self.table.get("kind", "sweep"))

    @property
    def title(self) -> str:
        """A few words for people."""
        return str(self.table.get("title", ""))

    def spec(self, *, quick: bool = False) -> SweepSpec:
        """The sweep that it asks for.

        Raises:
            SpecError: where the file is wrong, with its name, and for a study that trains models.
        """
        if self.kind == "training":
            raise SpecError(f"study {self.name!r}: trains models; run it with: critattn extrapolate {self.typed}")
        try:
            return SweepSpec.from_table(self.table, quick=quick)
        except SpecError as error:
            raise SpecError(f"study {self.name!r}: {error}") from None


def load_study(name: str) -> Study:
    """A study of the room `simulations` by its name, or one in a file that ends in `.toml`.

    Raises:
        SpecError: for an unknown name, with those that exist, and for a file that is no TOML.
    """
    if name.endswith(".toml"):
        return Study(Path(name).stem, rooms.load_toml(Path(name)), Path(name))
    return Study(name, rooms.load(ROOM, name))


def studies() -> list[Study]:
    """All studies, sorted by name.

    Raises:
        SpecError: where one of the files is no TOML.
    """
    return [load_study(name) for name in rooms.names(ROOM)]


def store_path(name: str, *, quick: bool = False, root: str | Path | None = None) -> Path:
    """The store of a study below the root: quick runs have one of their own."""
    return (Path(root) if root is not None else store_root()) / (f"{name}-quick" if quick else name)
