"""A trained model by what a person calls it: a folder, a file, or the name of an installed package."""

import re
from pathlib import Path

from critattn.errors import SpecError
from critattn.models import installed
from critattn.models.forward import Model, load
from critattn.models.tokenise import Tokeniser, tokeniser

TRAINED = "trained:"
# decoders that were trained with this package and are part of it
DECODER = ".npz"
SEED = re.compile(r"-seed\d+$")
RECORDED = Path(__file__).parents[1] / "training" / "recorded"


def opened(name: str) -> tuple[Model, Tokeniser]:
    """The model and its tokeniser; of the weights, headers alone are read.

    Args:
        name: a folder, a file, or `smollm2`, `minilm`, `antiberty`; a path wins over a name. Decoders trained with
            this package, `trained:NAME`, are for `critattn.training.inspected.opened`.

    Raises:
        SpecError: for a name that is neither, a package that is not installed, and files that cannot be understood.
    """
    path = located(name)
    if path.suffix == DECODER:
        raise SpecError(f"{name!r}: is a decoder trained here; critattn.training.inspected.opened reads it")
    model = load(path)
    return model, tokeniser(model)


def located(name: str) -> Path:
    """Where the weights of a model lie.

    Args:
        name: as `opened` takes it, or `trained:NAME` for a decoder that is part of this package.

    Raises:
        SpecError: as `opened`, and where no such decoder is recorded.
    """
    path = Path(name)
    if path.exists():
        return path
    if name.startswith(TRAINED):
        return _recorded(name.removeprefix(TRAINED))
    if len(path.parts) > 1 or path.suffix:
        raise SpecError(f"model {name!r}: no such file or folder")
    return installed.find(name)


def recorded() -> tuple[str, ...]:
    """Names of the decoders that are part of this package, sorted; NAME stands for its first seed, NAME-seed0."""
    return tuple(sorted({SEED.sub("", name) for name in _weights()}))


def _weights() -> dict[str, Path]:
    """Weights files by their names, and by these without the seed."""
    files = sorted(RECORDED.rglob("*.npz"))
    found = {path.stem: path for path in reversed(files)}
    for path in files:
        found.setdefault(SEED.sub("", path.stem), path)
    return found


def _recorded(name: str) -> Path:
    found, known = _weights(), recorded()
    if name in found:
        return found[name]
    listed = f"recorded: {', '.join(known)}" if known else "none is recorded in this installation"
    raise SpecError(
        f"model {TRAINED + name!r}: no such trained decoder; {listed}; critattn train {name or 'VARIANT'} trains one, "
        "and the .npz file that it writes is a model as well"
    )
