"""Closed forms and quadratures of the theory, in numpy and scipy only: the independent check of the simulation."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from critattn.theory import (
        depth,
        entmax,
        family,
        finite_dimension,
        mixed,
        needle,
        power,
        quadrature,
        random_energy,
        relu_power,
        sigmoid,
        simplex,
        softplus,
    )

__all__ = [
    "depth",
    "entmax",
    "family",
    "finite_dimension",
    "mixed",
    "needle",
    "power",
    "quadrature",
    "random_energy",
    "relu_power",
    "sigmoid",
    "simplex",
    "softplus",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"critattn.theory.{name}")
    raise AttributeError(f"module 'critattn.theory' has no attribute {name!r}")
