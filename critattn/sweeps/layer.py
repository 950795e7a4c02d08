"""What the layer of a sweep is: normaliser and its options, scaling law, mask; called with gamma it makes one."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from critattn import normalisers, scaling
from critattn.attention import MASKS, Attention
from critattn.attention import mask as mask_of
from critattn.biases import Shift
from critattn.errors import SpecError
from critattn.protocols import Normaliser, Transform
from critattn.sweeps import fields

# keys that are options of some normalisers
OPTIONS = ("p", "alpha", "stage_one", "bias_factor", "offset_free_rows")
# keys that stay out of the identity where they are not given
OPTIONAL = (*OPTIONS, "bias", "law", "gamma", "qk_norm")
LOG_D = "log d"


@dataclass(frozen=True)
class AttentionSpec:
    """What the layer is; called with gamma it makes one.

    Attributes:
        normaliser: its name in the registry.
        mask: bidirectional or causal.
        length: which length enters log n, sequence or row.
        identity_weight: a of x' = a x + b ATT.
        attention_weight: b.
        layers: number of layers iterated; 0 for a single layer without a layer axis.
        p: exponent of relu-power and power, where there is no p axis.
        alpha: exponent of entmax.
        stage_one: first stage of relu-power.
        bias_factor: B of the bias -B log n of sigmoid and sigmoid-l1.
        offset_free_rows: first rows without offset of relu-power, under a causal mask.
        bias: b, taken off the scores before they are scaled.
        law: a scaling law that takes gamma; log-n by default.
        gamma: where the critical p is searched: coefficient of log n, or "log d", the default.
        qk_norm: |q||k| under laws of the catalogue; by default that of the law, such as d.
    """

    normaliser: str = "softmax"
    mask: str = "bidirectional"
    length: str = "sequence"
    identity_weight: float = 0.0
    attention_weight: float = 1.0
    layers: int = 0
    p: float | None = None
    alpha: float | None = None
    stage_one: str | None = None
    bias_factor: float | None = None
    offset_free_rows: int | None = None
    bias: float | None = None
    law: str | None = None
    gamma: float | str | None = None
    qk_norm: float | None = None

    def __call__(self, gamma: Any, p: Any = None) -> Attention:
        """The layer with inverse temperature gamma log n; an array of gammas gives a batch of layers.

        Args:
            gamma: coefficient of log n, or (batch,).
            p: exponent in place of the one of the spec, or (batch,).
        """
        law = scaling.get(self.law or "log-n", gamma, length=scaling.length(self.length))
        return self._scaled(law, **({} if p is None else {"p": p}))

    def under(self, law: str, d: float) -> Attention:
        """The layer under a law of the catalogue with its default parameters, in d dimensions.

        Raises:
            SpecError: for an unknown law, or one that is no factor per row.
        """
        norm = scaling.entry(law).default_qk_norm(float(d)) if self.qk_norm is None else self.qk_norm
        return self._scaled(*scaling.on_cosines(law, norm))

    def _scaled(self, *scales: Transform, **given: Any) -> Attention:
        before = () if self.bias is None else (Shift(self.bias),)
        return Attention(*before, *scales, normaliser=self.made(**given), mask=mask_of(self.mask))

    def alone(self, normaliser: str) -> "AttentionSpec":
        """The layer of that normaliser, with the options that it has."""
        known = normalisers.options(normaliser)
        lacking = {name: None for name in OPTIONS if name not in known}
        one = dataclasses.replace(self, normaliser=normaliser, **lacking)
        idle = one.bias is not None and one.made().shift_invariant
        return dataclasses.replace(one, bias=None) if idle else one

    def made(self, **given: Any) -> Normaliser:
        """The normaliser with its options, and those given here in their place."""
        own = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        return normalisers.get(self.normaliser, **{**own, **given})

    @property
    def mixing(self) -> dict[str, Any]:
        """The two weights of x' = a x + b ATT, as keyword arguments."""
        return {"identity_weight": self.identity_weight, "attention_weight": self.attention_weight}

    def gamma_at(self, d: float) -> float:
        """The gamma at which the critical p is searched in d dimensions."""
        return math.log(d) if self.gamma is None or isinstance(self.gamma, str) else self.gamma

    @property
    def has_exponent(self) -> bool:
        """The normaliser has an exponent p."""
        return "p" in normalisers.options(self.normaliser)


def check_layer(layer: AttentionSpec) -> None:
    """Refuse options that the normaliser does not have.

    Raises:
        SpecError: with the key and the normalisers that have it.
    """
    known = normalisers.options(layer.normaliser)
    for name in OPTIONS:
        if getattr(layer, name) is not None and name not in known:
            takes = ", ".join(other for other in normalisers.names() if name in normalisers.options(other))
            raise SpecError(f"attention.{name}: {layer.normaliser} has none; allowed with normaliser {takes}")
    if layer.offset_free_rows is not None and layer.mask != "causal":
        raise SpecError(f"attention.offset_free_rows: {layer.offset_free_rows}; allowed only under a causal mask")
    if layer.bias is not None and layer.made().shift_invariant:
        raise SpecError(f"attention.bias: changes nothing with {layer.normaliser}, which ignores a common shift")


def above(bound: float) -> fields.Reader:
    """A reader of a number above a bound."""

    def read(value: Any) -> float:
        checked = fields.number(value)
        if checked <= bound:
            raise SpecError(f"{checked:g}; allowed: > {bound:g}")
        return checked

    return read


def _law(value: Any) -> str:
    if value not in scaling.names() and value in {one.name for one in scaling.catalogue()}:
        allowed = f"allowed: {', '.join(scaling.names())}; axes.law takes it, without gamma"
        raise SpecError(f"{value!r} has no coefficient gamma to sweep; {allowed}")
    return fields.choice(scaling.names())(value)


def _gamma(value: Any) -> float | str:
    return LOG_D if value == LOG_D else above(0)(value)


ATTENTION_READERS: dict[str, fields.Reader] = {
    "normaliser": lambda value: fields.choice(normalisers.names())(value),
    "mask": fields.choice(MASKS),
    "length": fields.choice(("sequence", "row")),
    "identity_weight": fields.number,
    "attention_weight": fields.number,
    "layers": fields.whole(0),
    "p": above(0),
    "alpha": above(1),
    "stage_one": lambda value: fields.choice(normalisers.stages())(value),
    "bias_factor": fields.number,
    "offset_free_rows": fields.whole(0),
    "bias": fields.number,
    "law": _law,
    "gamma": _gamma,
    "qk_norm": above(0),
}
