"""Looking laws up in the catalogue, and a way in for new ones."""

import difflib
from typing import Any

from critattn.errors import SpecError
from critattn.protocols import ScalingLaw, Transform
from critattn.scaling.clamped import RATIOS, STEPPED
from critattn.scaling.constants import Constant
from critattn.scaling.entries import Entry
from critattn.scaling.fixed import FIXED
from critattn.scaling.scalable import SCALABLE_SOFTMAX, THEORY
from critattn.scaling.transforms import OnCosines

_ENTRIES: dict[str, Entry] = {one.name: one for one in (*FIXED, *THEORY, *SCALABLE_SOFTMAX, *RATIOS, *STEPPED)}


def catalogue() -> tuple[Entry, ...]:
    """Every law of the catalogue, constants first."""
    return tuple(_ENTRIES.values())


def entry(name: str) -> Entry:
    """What the catalogue says of a law.

    Raises:
        SpecError: for an unknown name, with the closest one.
    """
    if name not in _ENTRIES:
        close = difflib.get_close_matches(name, _ENTRIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"scaling law {name!r} is unknown; {hint}known: {', '.join(_ENTRIES)}")
    return _ENTRIES[name]


def add(new: Entry) -> None:
    """Add a law to the catalogue.

    Raises:
        SpecError: where the name is taken.
    """
    if new.name in _ENTRIES:
        raise SpecError(f"scaling law {new.name!r} exists already")
    _ENTRIES[new.name] = new


def law(name: str, **parameters: Any) -> ScalingLaw:
    """The law of that name, a transform that multiplies scores q.k by m x base; parameters override defaults.

    Raises:
        SpecError: for an unknown name or parameter, or a law that is no factor per row.
    """
    return entry(name).made(parameters)


def transforms(name: str, *, bias: Transform | None = None, **parameters: Any) -> tuple[Transform, ...]:
    """Base, factor, soft cap and the bias given, in the order of the source: `Attention(*transforms("grok-2"))`.

    Raises:
        SpecError: for an unknown name or parameter, or a law that no transform of logits expresses.
    """
    return entry(name).transforms(parameters, bias=bias)


def on_cosines(name: str, qk_norm: float, **parameters: Any) -> tuple[Transform, ...]:
    """The transforms of a layer whose scores are cosines, where the law acts on q.k with |q||k| = qk_norm.

    Raises:
        SpecError: for an unknown name or parameter, or a law that is no factor per row.
    """
    found = entry(name)
    if found.cap is None:
        return (OnCosines(found.made(parameters), qk_norm),)
    # scores q.k first: the cap stands where the source has it
    return (OnCosines(Constant(base="1"), qk_norm), *found.transforms(parameters))
