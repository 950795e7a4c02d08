"""What distinguishes one trained model from another: positions, scores, scaling law, bias and normaliser, as data."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Any

from critattn import scaling
from critattn.errors import DomainError, SpecError

POSITIONS = ("rope", "none", "alibi")
# as published [arXiv 2608.03994]: the floor of the clamp and the cap, nats
FLOOR, CAP = -87.0, 50.0
LETTERS = "CELS"
# published exponents of the re-weighting [arXiv 2501.13428], and the rows that it leaves without an offset
POWERS = (3.0, 15.0)
FREE_ROWS = 3

Options = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Variant:
    """The attention of one model, JSON-ready.

    The logits are `beta_i (q_i . k_j)`, capped where there is a soft cap, plus the bias; the normaliser makes weights
    of them under a causal mask.

    Attributes:
        name: what it is called in records.
        positions: "rope", "none" or "alibi".
        normaliser: a name of `normalisers.names()`, with its options; the option `stage_one` names the first stage
            of `relu-power`, where "relu" is max(s, 0) over its sum.
        law: a name of the catalogue of scaling laws, with its parameters.
        cosines: q and k are L2-normalised per head, so that scores are cosines.
        learned_gain: each head has a trained factor on the law, 1 at the start.
        explicit: the slopes put the blindness distances of the heads at T/64 ... 4T, T the training length.
        log_distance: the bias is -m ln(1 + d) instead of -m d.
        clamp: floor of the bias in nats, below 0; None without.
        softcap: z of z tanh(l/z) on the logits before the bias, in nats; None without.
    """

    name: str
    positions: str = "rope"
    normaliser: str = "softmax"
    normaliser_options: Options = field(default_factory=dict)
    law: str = "constant"
    law_parameters: Options = field(default_factory=dict)
    cosines: bool = False
    learned_gain: bool = False
    explicit: bool = False
    log_distance: bool = False
    clamp: float | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        for name in ("normaliser_options", "law_parameters"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.positions not in POSITIONS:
            raise SpecError(f"positions {self.positions!r} is unknown; known: {', '.join(POSITIONS)}")
        if self.positions != "alibi" and (self.explicit or self.log_distance or self.clamp is not None):
            raise SpecError(f"variant {self.name!r}: explicit, log_distance and clamp belong to positions = 'alibi'")
        if self.clamp is not None and not self.clamp < 0:
            raise DomainError.of("clamp", self.clamp, "below 0")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise DomainError.of("softcap", self.softcap, "finite and above 0")
        scaling.law(self.law, **self.law_parameters)

    def __hash__(self) -> int:
        return hash(repr(sorted(self.to_json().items(), key=str)))

    def to_json(self) -> dict[str, Any]:
        """Every field, JSON-ready."""
        found = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items()}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Variant":
        """The variant of `to_json`.

        Raises:
            SpecError: for a field that does not exist.
        """
        known = {one.name for one in dataclasses.fields(cls)}
        strange = sorted(set(kept) - known)
        if strange:
            raise SpecError(f"variant: has no field {strange[0]!r}; known: {', '.join(sorted(known))}")
        return cls(**kept)


def cosine_log_n(gamma: float) -> Variant:
    """Softmax on cosines with `beta = gamma log i`, i the keys of the row [Chen 2025, eq. (2.1)]."""
    law = {"gamma": float(gamma), "length": "row"}
    return Variant(f"cosine-logn-{gamma:.3g}", law="log-n", law_parameters=law, cosines=True)


def softplus_family(name: str, stage: str, power: float | None = None) -> Variant:
    """A layer on cosines with `beta = log d log i`: a first stage over its sum, re-weighted where a power is given.

    Args:
        name: of the variant.
        stage: "softplus-l1", "softmax", "sigmoid-l1" or "relu".
        power: p of the re-weighting [Gao 2025, LSSAR].
    """
    if power is None:
        kind, how = ("power", {"p": 1.0}) if stage == "relu" else (stage, {})
    else:
        kind, how = "relu-power", {"p": power, "stage_one": stage, "offset_free_rows": FREE_ROWS}
    return Variant(name, normaliser=kind, normaliser_options=how, law="lssa", cosines=True)


def alibi(letters: str = "") -> Variant:
    """ALiBi with the mitigations named by letters: C clamp, E explicit slopes, L log distance, S soft cap.

    Raises:
        SpecError: for other letters.
    """
    chosen = [letter for letter in LETTERS if letter in letters]
    if sorted(chosen) != sorted(letters):
        raise SpecError(f"mitigations {letters!r}: must be letters of {LETTERS}, each at most once")
    return Variant(
        "-".join(["alibi", *chosen]).lower(),
        positions="alibi",
        explicit="E" in chosen,
        log_distance="L" in chosen,
        clamp=FLOOR if "C" in chosen else None,
        softcap=CAP if "S" in chosen else None,
    )


def mitigations() -> tuple[Variant, ...]:
    """The fifteen combinations of C, E, L and S, in the order of arXiv 2608.03994."""
    groups = [group for size in range(1, 5) for group in combinations(LETTERS, size)]
    return tuple(alibi("".join(group)) for group in groups)


def ablations() -> tuple[Variant, ...]:
    """Four first stages on cosines, each without and with re-weighting."""
    stages = {"softplus": "softplus-l1", "exp": "softmax", "sigmoid-l1": "sigmoid-l1", "relu-l1": "relu"}
    found = []
    for short, stage in stages.items():
        found.append(softplus_family(f"first-stage-{short}", stage))
        found += [softplus_family(f"first-stage-{short}-p{p:g}", stage, p) for p in POWERS]
    return tuple(found)


# below and above 1/(1-rho) for every rho from 0 to .71; the upper one is log d at d = 32, the factor of LSSA
GAMMAS = (1.0, math.log(32))


def scaling_laws() -> tuple[Variant, ...]:
    """A constant, scalable softmax, and log n on cosines at several gamma around 1/(1-rho)."""
    gammas = (0.5, 1.0, 1.5, 2.0, 2.5, math.log(32), 5.0)
    return (named("softmax-rope"), named("ssmax"), *map(cosine_log_n, gammas))


_NAMED: dict[str, Variant] = {
    one.name: one
    for one in (
        Variant("softmax-rope"),
        Variant("softmax-nope", positions="none"),
        dataclasses.replace(alibi(), name="softmax-alibi"),
        dataclasses.replace(alibi("L"), name="alibi-log"),
        dataclasses.replace(alibi("CL"), name="alibi-clamp-log"),
        Variant("ssmax", law="ssmax", learned_gain=True),
        dataclasses.replace(cosine_log_n(GAMMAS[0]), name="cosine-logn-low"),
        dataclasses.replace(cosine_log_n(GAMMAS[1]), name="cosine-logn-high"),
        softplus_family("lssa", "softplus-l1"),
        softplus_family("lssar-p3", "softplus-l1", 3.0),
        softplus_family("lssar-p15", "softplus-l1", 15.0),
        Variant("sigmoid", normaliser="sigmoid"),
    )
}


def main_variants() -> tuple[Variant, ...]:
    """The twelve variants that are trained at several seeds."""
    return tuple(_NAMED.values())


def every_variant() -> dict[str, Variant]:
    """All named variants: the twelve, the mitigations, the ablations and the scaling laws."""
    return {**{one.name: one for one in (*mitigations(), *ablations(), *scaling_laws())}, **_NAMED}


def named(name: str) -> Variant:
    """The variant of that name.

    Raises:
        SpecError: for an unknown name, with the closest match.
    """
    if name in _NAMED:
        return _NAMED[name]
    known = every_variant()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"variant {name[:80]!r} is unknown; {hint}known: {', '.join(sorted(known))}")
    return known[name]
