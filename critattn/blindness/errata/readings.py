"""A published figure and its readings, and what several of them share."""

import math
from dataclasses import dataclass

from critattn import biases, formats
from critattn.blindness.distances import blindness_distance

PAPER = "arXiv 2608.03994"
COMMAND = "critattn blindness"
ONE_HEAD = f"{COMMAND} --heads 1 --bias-max 0.5 --flush"
CONTEXT = 2048
HEADS = 9


@dataclass(frozen=True)
class Reading:
    """One way to compute a figure.

    Attributes:
        words: the convention or definition.
        values: what it gives.
        command: the command line that shows it; empty where there is none.
    """

    words: str
    values: tuple[float, ...]
    command: str = ""


@dataclass(frozen=True)
class Erratum:
    """A published figure and its readings.

    Attributes:
        name: a short name.
        figure: what is printed, in words.
        published: the printed numbers.
        unit: unit of the numbers.
        tolerance: half a unit of the last printed digit, relative to the number.
        convention: the reading that gives the printed numbers.
        others: readings by the stated definition, by the code of the model, or in another format.
        remark: what follows.
    """

    name: str
    figure: str
    published: tuple[float, ...]
    unit: str
    tolerance: float
    convention: Reading
    others: tuple[Reading, ...]
    remark: str

    @property
    def reproduced(self) -> bool:
        """The convention gives the printed numbers to their printed digits."""
        pairs = zip(self.published, self.convention.values, strict=True)
        return all(math.isclose(made, printed, rel_tol=self.tolerance) for printed, made in pairs)


def tau(format: str, kind: str) -> float:
    """The threshold of a format, in nats."""
    return formats.get(format).thresholds().of(kind)


def ends(
    heads: int,
    *,
    kind: str = "normal",
    convention: str = "rounded",
    format: str = "bf16",
    bias_max: float = 8.0,
    scale: float = 1.0,
) -> tuple[float, float]:
    """Least and largest blindness distance of a schedule."""
    bias = biases.Alibi(biases.alibi_slopes(heads, bias_max))
    found = blindness_distance(bias, tau(format, kind), convention=convention, scale=scale)
    return float(found.min()), float(found.max())


def defined(heads: int, format: str = "bf16") -> Reading:
    """The definition as stated: the least d, with the logarithm of the smallest subnormal."""
    command = f"{COMMAND} --heads {heads} --format {format} --threshold subnormal"
    values = ends(heads, kind="subnormal", convention="min", format=format)
    return Reading(f"least whole d at the smallest subnormal of {format}, as defined", values, command)


def zero(heads: int, format: str = "bf16") -> Reading:
    """The least whole distance at which exp rounds to zero."""
    command = f"{COMMAND} --heads {heads} --format {format}"
    values = ends(heads, kind="zero", convention="min", format=format)
    return Reading(f"least whole d at which exp rounds to 0 in {format}", values, command)


def published(heads: int) -> Reading:
    """The printed convention: normal threshold, rounded to nearest."""
    words = f"{heads} heads; normal threshold -126 ln 2, rounded to nearest"
    return Reading(words, ends(heads), f"{COMMAND} --heads {heads} --published")
