"""Training studies: which variants, at which seeds and sizes, and what is read off them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critattn.errors import SpecError
from critattn.sweeps import Study, fields, load_study, studies
from critattn.training.presets import MOST_SEED, PRESETS, Preset, preset
from critattn.training.results import Run
from critattn.training.variants import Variant, every_variant, named

KIND, SWEEP = "training", "sweep"
MEASURES = ("loss", "passkey", "needle")
# the records that come with the package
RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Experiment:
    """A training study.

    Attributes:
        name: of its file.
        title: a few words.
        variants: the attentions that are compared.
        preset: sizes.
        seeds: each variant is trained once for each.
        measures: of "loss", "passkey" and "needle", what the study is about.
    """

    name: str
    title: str
    variants: tuple[Variant, ...]
    preset: Preset
    seeds: tuple[int, ...] = (0,)
    measures: tuple[str, ...] = ("loss",)

    def runs(self, folder: Path) -> list[Run]:
        """Every run with its files below a folder: all variants at the first seed, then at the second."""
        return [Run(folder, one, self.preset, seed) for seed in self.seeds for one in self.variants]

    def changed(
        self,
        *,
        preset: Preset | None = None,
        seeds: Sequence[int] | None = None,
        variants: Sequence[str] | None = None,
    ) -> "Experiment":
        """The same with another preset, other seeds, each once, or some of its variants; None keeps what is there.

        Raises:
            SpecError: for a variant that the study does not have.
        """
        chosen = self.variants if variants is None else tuple(self._variant(name) for name in variants)
        return dataclasses.replace(
            self,
            preset=self.preset if preset is None else preset,
            seeds=self.seeds if seeds is None else tuple(dict.fromkeys(seeds)),
            variants=chosen,
        )

    def _variant(self, name: str) -> Variant:
        known = {one.name: one for one in self.variants}
        if name not in known:
            raise SpecError(f"study {self.name!r}: has no variant {name!r}; allowed: {', '.join(known)}")
        return known[name]


def experiment(name: str, *, quick: bool = False) -> Experiment:
    """A training study of the room `simulations` by its name, or one in a file that ends in `.toml`.

    Args:
        name: of the study.
        quick: with what its table `quick` says.

    Raises:
        SpecError: for an unknown name, a study of another kind, and a file that is wrong, with its name.
    """
    return of_study(load_study(name), quick=quick)


def experiments() -> list[Experiment]:
    """All training studies, sorted by name.

    Raises:
        SpecError: where one of the files is wrong.
    """
    return [of_study(study) for study in studies() if study.kind == KIND]


def of_study(study: Study, *, quick: bool = False) -> Experiment:
    """The experiment that a study file asks for.

    Raises:
        SpecError: where it is of another kind, or wrong, with its name.
    """
    _check_kind(study)
    try:
        read = fields.read_table("", study.table, READERS)
        found = {**read, **(read.get("quick", {}) if quick else {})}
        if "variants" not in found:
            raise SpecError("variants: missing; allowed: a list of names (critattn train --list)")
    except SpecError as error:
        raise SpecError(f"study {study.name!r}: {error}") from None
    return Experiment(
        name=study.name,
        title=study.title,
        variants=found["variants"],
        preset=preset(found.get("preset", "small")),
        seeds=found.get("seeds", (0,)),
        measures=found.get("measures", ("loss",)),
    )


def _check_kind(study: Study) -> None:
    kind = study.table.get("kind")
    if kind == SWEEP:
        raise SpecError(f"study {study.name!r}: is a {kind}; run it with: critattn sweep {study.typed}")
    if kind != KIND:
        is_now = "kind: missing" if kind is None else f"kind = {kind!r}"
        allowed = f"{KIND} (for critattn extrapolate) or {SWEEP} (for critattn sweep)"
        raise SpecError(f"study {study.name!r}: {is_now}; allowed: {allowed}")


def _variants(value: Any) -> tuple[Variant, ...]:
    one = fields.choice(every_variant())
    found = tuple(named(one(name)) for name in fields.names(value))
    if len(found) < len(value.split(",") if isinstance(value, str) else value):
        raise SpecError(f"{value!r}; allowed: each variant once")
    return found


def _seeds(value: Any) -> tuple[int, ...]:
    whole = fields.whole(0, MOST_SEED)
    items = value if isinstance(value, list) else [value]
    if not items or len(set(map(str, items))) != len(items):
        raise SpecError(f"{value!r}; allowed: a list of whole numbers, each once")
    return tuple(whole(one) for one in items)


def _measures(value: Any) -> tuple[str, ...]:
    one = fields.choice(MEASURES)
    return tuple(one(name) for name in fields.names(value))


def _quick(value: Any) -> Mapping[str, Any]:
    return fields.read_table("quick", value, {key: READERS[key] for key in ("preset", "seeds", "variants")})


READERS: dict[str, fields.Reader] = {
    "kind": fields.choice((KIND,)),
    "title": fields.text,
    "description": fields.text,
    "preset": lambda value: fields.choice(PRESETS)(value),
    "variants": _variants,
    "seeds": _seeds,
    "measures": _measures,
    "quick": _quick,
}
