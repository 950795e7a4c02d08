"""What the catalogue says of a law: everything that two implementations of one name can disagree about, as data."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from critattn.errors import DomainError, SpecError
from critattn.protocols import ScalingLaw, Transform
from critattn.scaling.constants import Constant
from critattn.scaling.core import LogN
from critattn.scaling.lengths import Base, Counting, Law, Lengths
from critattn.scaling.transforms import SoftCap

Evidence = Literal["source", "copy", "summary", "derived", "heuristic"]
Scope = Literal["row", "channel", "token", "pair"]
MARKS = {
    "source": "stated",
    "copy": "unverified",
    "summary": "unverified",
    "derived": "derived",
    "heuristic": "heuristic",
}
EVIDENCE = {
    "source": "read in the named source",
    "copy": "read in a third-party copy only",
    "summary": "known from secondary texts only",
    "derived": "derived and checked numerically",
    "heuristic": "a heuristic argument",
}
STEPS = ("qk-norm", "rope", "scale", "base", "cap", "bias", "mask")
COUNTED = {
    "row": "keys the row may attend to; restarts in packed documents, clipped by a window",
    "position": "place in the row's document; restarts in packed documents, not clipped by a window",
    "slot": "place in the key buffer; does not restart, padding and earlier documents count",
    "sequence": "all keys of the sequence, the same in every row",
}
MODEL = "none: fixed by the model's configuration"


@dataclass(frozen=True)
class Entry:
    """A law of the catalogue.

    Attributes:
        name: name on the command line.
        title: what it is, in words.
        formula: m, or beta where the base is 1.
        law: the law with its defaults; None where it is no factor per row.
        source: where it is stated.
        evidence: how it was read: "source", "copy", "summary", "derived" or "heuristic".
        where: what is multiplied: q, logits, cos and sin, the softmax scale.
        order: the steps from scores to logits, "scale" being the factor of the law.
        clamp: what keeps it in bounds, in words.
        dtype: in which type it is computed.
        qk_norm: |q||k| by default: "d" for RMS-normalised q and k, "1" for L2-normalised ones.
        cap: z of the soft cap in `order`.
        examples: parameters whose default is an example, since the source states none.
        learned: parameters that are trained; their default is the initial value.
        notes: what else differs between implementations.
        unverified: parts that nobody has verified, whatever the mark of the rest.
        look_alikes: laws that are easily taken for this one, with the parameters that make them alike.
        rows: positions p at which a conformance vector has to be taken, besides the common ones.
        largest_n: the largest n at which the source gives a value.
        scope: what has a factor of its own.
        reason: why it is no factor per row.
        transform: the law as a transform of logits where it is no factor per row but one of logits.
        normaliser: what stands in place of softmax.
        wrong: a faulty implementation, listed so that it is recognised.
    """

    name: str
    title: str
    formula: str
    law: ScalingLaw | None
    source: str
    evidence: Evidence
    where: str = "logits"
    order: tuple[str, ...] = ("base", "scale", "mask")
    clamp: str = "none"
    dtype: str = "not stated"
    qk_norm: Literal["d", "1"] = "d"
    cap: float | None = None
    examples: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    look_alikes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    largest_n: int | None = None
    scope: Scope = "row"
    reason: str = ""
    transform: Transform | None = None
    normaliser: str = "softmax"
    wrong: bool = False

    @property
    def mark(self) -> str:
        """Stated, derived, heuristic or unverified."""
        return MARKS[self.evidence]

    @property
    def flags(self) -> str:
        """The mark with what is unverified within it, for people."""
        partly = " (in part unverified)" if self.unverified and self.mark != "unverified" else ""
        return f"{self.mark.upper() if self.mark == 'unverified' else self.mark}{partly}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the law and their defaults."""
        if self.law is None:
            return {}
        law: Any = self.law
        fields = dataclasses.fields(law)
        return {one.name: getattr(law, one.name) for one in fields if one.name not in ("counting", "base")}

    @property
    def counting(self) -> Counting | None:
        """What n is; None for a constant."""
        if isinstance(self.law, LogN):
            return Counting(self.law.length)
        if not isinstance(self.law, Law) or type(self.law).__module__ == Constant.__module__:
            return None
        return self.law.counting

    @property
    def base(self) -> Base:
        """The scale beside the factor."""
        return getattr(self.law, "base", "1/sqrt(d)")

    def default_qk_norm(self, dim: float) -> float:
        """|q||k| that the law is meant for, at head dimension d."""
        return float(dim) if self.qk_norm == "d" else 1.0

    def made(self, parameters: Mapping[str, Any] | None = None) -> ScalingLaw:
        """The law with some parameters changed.

        Raises:
            SpecError: where it is no factor per row, or has no such parameter.
            DomainError: for a length or a stretch that is not positive.
        """
        given = dict(parameters or {})
        if self.law is None:
            raise SpecError(f"scaling law {self.name!r} has no factor per row: {self.reason}")
        unknown = sorted(given.keys() - self.parameters.keys())
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise SpecError(f"scaling law {self.name!r} has no parameter {unknown[0]!r}; it has: {known}")
        for name, value in given.items():
            _check(name, value)
        law: Any = self.law
        return dataclasses.replace(law, **given) if given else law

    def factor(self, lengths: Lengths, parameters: Mapping[str, Any] | None = None) -> Any:
        """The factor m at these lengths, (rows,), with some parameters changed."""
        law: Any = self.made(parameters)
        return lengths.xp.broadcast_to(law.factor(lengths), lengths.slots.shape)

    def transforms(
        self, parameters: Mapping[str, Any] | None = None, *, bias: Transform | None = None
    ) -> tuple[Transform, ...]:
        """The transforms of a layer in the order of the source: base, factor, soft cap and the bias given.

        Args:
            parameters: parameters to change.
            bias: a transform that adds a bias, where the layer has one.

        Raises:
            SpecError: for a law that no transform of logits expresses.
        """
        if self.transform is not None and not parameters:
            return (self.transform,) if bias is None else (self.transform, bias)
        law: Any = self.made(parameters)
        if isinstance(law, LogN):
            return (law,) if bias is None else (law, bias)
        steps: dict[str, Transform | None] = {
            "scale": dataclasses.replace(law, base="1"),
            "base": None if law.base == "1" else Constant(base=law.base),
            "cap": None if self.cap is None else SoftCap(self.cap),
            "bias": bias,
        }
        order = self.order if "bias" in self.order else (*self.order, "bias")
        return tuple(made for step in order if (made := steps.get(step)) is not None)

    def record(self) -> dict[str, Any]:
        """Everything as JSON-ready data."""
        counted = self.counting
        kind = None if counted is None else counted.kind
        return {
            "name": self.name,
            "title": self.title,
            "formula": self.formula,
            "mark": self.mark,
            "evidence": EVIDENCE[self.evidence],
            "unverified": list(self.unverified),
            "source": self.source,
            "n": MODEL if kind is None else COUNTED[kind],
            "counts": kind,
            "first_row": None if counted is None or kind == "sequence" else counted.start,
            "restarts_in_packed_documents": None if kind is None else kind in ("row", "position"),
            "clipped_by_windows": None if kind is None else kind == "row",
            "where": self.where,
            "order": list(self.order),
            "soft_cap": self.cap,
            "clamp": self.clamp,
            "largest_n": self.largest_n,
            "base": self.base,
            "default_qk_norm": self.qk_norm,
            "dtype": self.dtype,
            "parameters": self.parameters,
            "example_parameters": list(self.examples),
            "learned_parameters": list(self.learned),
            "scope": self.scope,
            "factor_per_row": self.law is not None,
            "reason": self.reason or None,
            "as_transform": self.law is not None or self.transform is not None,
            "normaliser": self.normaliser,
            "look_alikes": list(self.look_alikes),
            "notes": list(self.notes),
            "wrong": self.wrong,
        }


def _check(name: str, value: Any) -> None:
    if name in ("reference", "interval", "stretch", "original_length", "m", "c") and not value > 0:
        raise DomainError.of(name, value, "positive")
    if name in ("reference", "original_length") and value == 1:
        raise DomainError.of(name, value, "other than 1, whose logarithm is 0")
