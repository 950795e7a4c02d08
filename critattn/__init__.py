"""Theory and simulation of attention phase transitions.

    import critattn as ca

    tokens = ca.near_simplex(0, 1024, 64, rho=0.5, fix_common=True)
    layer = ca.Attention(ca.LogN(1.2))
    ca.measure(layer, tokens)["self_weight"]
    ca.half_weight(tokens)

Names are loaded when first used, so that `import critattn` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from critattn import (
        biases,
        blindness,
        criticality,
        families,
        gradient,
        normalisers,
        observables,
        rooms,
        scaling,
        storage,
        theory,
        thresholds,
        tokens,
    )
    from critattn.attention import (
        Attention,
        Bidirectional,
        Causal,
        Packed,
        Window,
        attend,
        attention_step,
        attention_weights,
        iterate_layers,
    )
    from critattn.biases import Alibi, Cast, LogDistance, Shift
    from critattn.comparison import compare
    from critattn.criticality import (
        Threshold,
        data_collapse,
        find_crossing,
        finite_size_scaling,
        susceptibility,
    )
    from critattn.curves import continue_curve
    from critattn.errors import CritattnError, DomainError, SpecError, StoreError
    from critattn.layers import measure_layers
    from critattn.measurement import measure, measure_batch
    from critattn.normalisers import (
        Entmax,
        Hardmax,
        Power,
        Relu,
        ReluPower,
        Sigmoid,
        SigmoidL1,
        Softmax,
        SoftplusL1,
        Sparsemax,
    )
    from critattn.observables import Observable
    from critattn.protocols import Estimate, RowContext
    from critattn.scaling import InverseTemperature, LogN
    from critattn.sweeps import SweepSpec, run_sweep
    from critattn.thresholds import half_angle, half_weight, row_half_weights
    from critattn.tokens import Tokens, load, near_simplex, random_scores, simplex, stream_near_simplex

_MODULES = (
    "biases",
    "blindness",
    "criticality",
    "families",
    "gradient",
    "normalisers",
    "observables",
    "rooms",
    "scaling",
    "storage",
    "theory",
    "thresholds",
    "tokens",
)
_HOMES = {
    "attention": (
        "Attention",
        "Bidirectional",
        "Causal",
        "Packed",
        "Window",
        "attend",
        "attention_step",
        "attention_weights",
        "iterate_layers",
    ),
    "biases": ("Alibi", "Cast", "LogDistance", "Shift"),
    "comparison": ("compare",),
    "criticality": ("Threshold", "data_collapse", "find_crossing", "finite_size_scaling", "susceptibility"),
    "curves": ("continue_curve",),
    "errors": ("CritattnError", "DomainError", "SpecError", "StoreError"),
    "layers": ("measure_layers",),
    "measurement": ("measure", "measure_batch"),
    "normalisers": (
        "Entmax",
        "Hardmax",
        "Power",
        "Relu",
        "ReluPower",
        "Sigmoid",
        "SigmoidL1",
        "Softmax",
        "SoftplusL1",
        "Sparsemax",
    ),
    "observables": ("Observable",),
    "protocols": ("Estimate", "RowContext"),
    "scaling": ("InverseTemperature", "LogN"),
    "sweeps": ("SweepSpec", "run_sweep"),
    "thresholds": ("half_angle", "half_weight", "row_half_weights"),
    "tokens": ("Tokens", "load", "near_simplex", "random_scores", "simplex", "stream_near_simplex"),
}
_NAMES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Alibi",
    "Attention",
    "Bidirectional",
    "Cast",
    "Causal",
    "CritattnError",
    "DomainError",
    "Entmax",
    "Estimate",
    "Hardmax",
    "InverseTemperature",
    "LogDistance",
    "LogN",
    "Observable",
    "Packed",
    "Power",
    "Relu",
    "ReluPower",
    "RowContext",
    "Shift",
    "Sigmoid",
    "SigmoidL1",
    "Softmax",
    "SoftplusL1",
    "Sparsemax",
    "SpecError",
    "StoreError",
    "SweepSpec",
    "Threshold",
    "Tokens",
    "Window",
    "attend",
    "attention_step",
    "attention_weights",
    "biases",
    "blindness",
    "compare",
    "continue_curve",
    "criticality",
    "data_collapse",
    "families",
    "find_crossing",
    "finite_size_scaling",
    "gradient",
    "half_angle",
    "half_weight",
    "iterate_layers",
    "load",
    "measure",
    "measure_batch",
    "measure_layers",
    "near_simplex",
    "normalisers",
    "observables",
    "random_scores",
    "rooms",
    "row_half_weights",
    "run_sweep",
    "scaling",
    "simplex",
    "storage",
    "stream_near_simplex",
    "susceptibility",
    "theory",
    "thresholds",
    "tokens",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"critattn.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"critattn.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("critattn")
    raise AttributeError(f"module 'critattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
