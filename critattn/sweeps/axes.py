"""The axes of a sweep and their readers; those of names are along layers, never along tokens."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from critattn import normalisers, scaling
from critattn.errors import SpecError
from critattn.sweeps import fields

# axes whose points are names: in a result codes, with a table of the names in its layout
CATEGORICAL = ("normaliser", "law")
# axes that stay out of the identity where they are not given
OPTIONAL_AXES = ("p", *CATEGORICAL)


@dataclass(frozen=True)
class Axes:
    """The points of a sweep; an axis that the kind of tokens does not have is empty.

    Attributes:
        n: numbers of tokens.
        d: dimensions, or "n" for d = n.
        rho: cosines; of opposed and near-opposed the scores of different tokens, in (-1, 0].
        tau: standard deviations of random scores.
        gamma: coefficients of log n; empty where thresholds are searched.
        p: exponents of a normaliser that has one, beside gamma; empty where it has the one of the layer.
        replicates: independent draws of each token set.
        normaliser: names of normalisers, compared on the same tokens; empty where the layer has its one.
        law: names of laws of the catalogue, compared on the same tokens, in place of gamma.
    """

    n: tuple[int, ...] = ()
    d: tuple[int, ...] | str = ()
    rho: tuple[float, ...] = ()
    tau: tuple[float, ...] = ()
    gamma: tuple[float, ...] = ()
    p: tuple[float, ...] = ()
    replicates: int = 1
    normaliser: tuple[str, ...] = ()
    law: tuple[str, ...] = ()


def _laws() -> Iterable[str]:
    return (*(one.name for one in scaling.catalogue()), *scaling.names())


def _of(known: Callable[[], Iterable[str]]) -> fields.Reader:
    """A reader of distinct names; what is known is looked up late, as registries grow."""

    def read(value: Any) -> tuple[str, ...]:
        choose = fields.choice(dict.fromkeys(known()))
        return tuple(choose(name) for name in fields.names(value))

    return read


def _exponents(value: Any) -> tuple[float, ...]:
    points = fields.grid(value)
    if min(points) <= 0:
        raise SpecError(f"{min(points):g}; allowed: > 0")
    return points


AXIS_READERS = {
    "n": fields.counts,
    "d": fields.counts_or_n,
    "rho": fields.grid,
    "tau": fields.grid,
    "gamma": fields.grid,
    "p": _exponents,
    "replicates": fields.whole(1),
    "normaliser": _of(normalisers.names),
    "law": _of(_laws),
}
