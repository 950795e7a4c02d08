"""A trained model by what a person calls it: a folder, a file, or the name of an installed package."""

from pathlib import Path

from critattn.errors import SpecError
from critattn.models import installed
from critattn.models.forward import Model, load
from critattn.models.tokenise import Tokeniser, tokeniser


def opened(name: str) -> tuple[Model, Tokeniser]:
    """The model and its tokeniser; of the weights, headers alone are read.

    Args:
        name: a folder, a file, or `smollm2`, `minilm`, `antiberty`; a path wins over a name.

    Raises:
        SpecError: for a name that is neither, a package that is not installed, and files that cannot be understood.
    """
    model = load(located(name))
    return model, tokeniser(model)


def located(name: str) -> Path:
    """Where the weights of a model lie.

    Raises:
        SpecError: as `opened`.
    """
    path = Path(name)
    if path.exists():
        return path
    if len(path.parts) > 1 or path.suffix:
        raise SpecError(f"model {name!r}: no such file or folder")
    return installed.find(name)
