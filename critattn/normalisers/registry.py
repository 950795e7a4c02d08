"""The names of the normalisers, and the way in for new ones."""

import dataclasses
from typing import Any

from critattn.errors import SpecError
from critattn.normalisers.elementwise import Relu, Sigmoid
from critattn.normalisers.entmax import Entmax, Hardmax, Sparsemax
from critattn.normalisers.ratios import Power, SigmoidL1, SoftplusL1
from critattn.normalisers.reweighting import ReluPower
from critattn.normalisers.softmax import Softmax
from critattn.protocols import Normaliser

STAGE = "stage_one"

_BUILTIN: tuple[type, ...] = (
    Softmax,
    SoftplusL1,
    ReluPower,
    Sigmoid,
    SigmoidL1,
    Relu,
    Power,
    Entmax,
    Sparsemax,
    Hardmax,
)
_NORMALISERS: dict[str, type] = {kind.name: kind for kind in _BUILTIN}


def register(name: str, normaliser: type) -> None:
    """Add a normaliser under a name; its instances follow `protocols.Normaliser`.

    Raises:
        SpecError: where the name is taken.
    """
    if name in _NORMALISERS:
        raise SpecError(f"normaliser {name!r} exists already")
    _NORMALISERS[name] = normaliser


def names() -> list[str]:
    """Names of the normalisers that can be asked for."""
    return sorted(_NORMALISERS)


def options(name: str) -> tuple[str, ...]:
    """Names of the options of a normaliser, such as p: the fields of its dataclass.

    Raises:
        SpecError: for an unknown name.
    """
    kind = _kind(name)
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def stages() -> list[str]:
    """Names of the normalisers that can be the first stage of `relu-power`."""
    return [name for name in names() if hasattr(_NORMALISERS[name], "log_phi")]


def get(name: str, **how: Any) -> Normaliser:
    """The normaliser of that name.

    Args:
        name: one of `names()`.
        **how: options of the normaliser by name; `stage_one` may be a name of `stages()`.

    Raises:
        SpecError: for an unknown name or option.
        DomainError: for a value out of range.
    """
    kind: Any = _kind(name)
    known = options(name)
    strange = [option for option in how if option not in known]
    if strange:
        raise SpecError(f"normaliser {name!r}: has no option {strange[0]!r}; known: {', '.join(known) or 'none'}")
    if isinstance(how.get(STAGE), str):
        how[STAGE] = _stage(how[STAGE])
    return kind(**how)


def _kind(name: str) -> type:
    if name not in _NORMALISERS:
        raise SpecError(f"normaliser {name!r} is unknown; known: {', '.join(names())}")
    return _NORMALISERS[name]


def _stage(name: str) -> Any:
    if name not in stages():
        raise SpecError(f"{STAGE} = {name!r}: must be one of {', '.join(stages())}")
    return _NORMALISERS[name]()
