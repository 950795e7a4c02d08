"""What a number format does to biases that grow with the position: the recipes of real code, against exact rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from critattn import formats
from critattn.errors import DomainError, SpecError
from critattn.formats import Format

Rounding = Literal["bias", "sum", "scores"]
LONGEST_ROW = 1 << 24
ROUNDINGS = ("bias", "sum", "scores")


@dataclass(frozen=True)
class Recipe:
    """How an implementation makes the biases of the last row, in which order and type.

    Attributes:
        name: name on the command line.
        steps: what is computed, in words.
        source: where it is read.
        make: (slope, positions float32, format) -> biases, float32.
        absolute: the bias grows with the position, so that the sum is rounded at its size.
        scaled: scores and biases are multiplied by 1/sqrt(d) after they are added.
    """

    name: str
    steps: str
    source: str
    make: Callable[[float, np.ndarray, Format], np.ndarray]
    absolute: bool
    scaled: bool = False


def rounded(values: np.ndarray | float, stated: Format) -> np.ndarray:
    """The values as a numpy cast to the format gives them, widened to float32 again."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, dtype=np.float32).astype(stated.dtype).astype(np.float32)


def _absolute(slope: float, positions: np.ndarray, stated: Format) -> np.ndarray:
    return rounded(np.float32(slope) * positions, stated)


def _relative(slope: float, positions: np.ndarray, stated: Format) -> np.ndarray:
    return rounded(np.float32(slope) * (positions - positions[-1]), stated)


def _falcon(slope: float, positions: np.ndarray, stated: Format) -> np.ndarray:
    return rounded(rounded(slope, stated) * rounded(positions, stated), stated)


RECIPES = {
    one.name: one
    for one in (
        Recipe("absolute", "+m j in float32, then cast", "the shift of softmax", _absolute, absolute=True),
        Recipe("relative", "-m (i - j) in float32, then cast", "the definition of ALiBi", _relative, absolute=False),
        Recipe(
            "bloom",
            "+m j in float32, cast to the model's format; scores and biases are added in it",
            "huggingface/transformers modeling_bloom.py build_alibi_tensor",
            _absolute,
            absolute=True,
        ),
        Recipe(
            "falcon",
            "slopes and positions cast, +m j multiplied in the format; the sum is multiplied by 1/sqrt(d)",
            "huggingface/transformers modeling_falcon.py build_alibi_tensor",
            _falcon,
            absolute=True,
            scaled=True,
        ),
        Recipe(
            "mpt",
            "m (j - (N - 1)) in float32, then cast",
            "mosaicml/llm-foundry attention.py build_alibi_bias",
            _relative,
            absolute=False,
        ),
    )
}


@dataclass(frozen=True)
class PositionError:
    """What a format does to the biases of the last of N rows.

    Where they are larger than its largest number the row has no weights: the total variation is NaN, the errors are
    infinite or NaN.

    Attributes:
        distinct: number of different biases among N.
        max_error: largest error of a bias, up to a constant of the row, as it enters softmax, in nats.
        total_variation: half the l1 distance of the weights to those of the exact biases; the mean over rows of scores.
        standard_error: of that mean; None for one row.
        resolution: spacing of the sums of score and bias at the newest key, in nats: finer content is lost.
    """

    distinct: int
    max_error: float
    total_variation: float
    standard_error: float | None
    resolution: float


def rounded_bias(slope: float, length: int, format: str = "bf16", *, recipe: str = "absolute") -> np.ndarray:
    """Biases of the last of N rows as a recipe computes them, (N,) float32, nats before any scale.

    Args:
        slope: m > 0, nats a position.
        length: N.
        format: a name of `critattn.formats`.
        recipe: a name of `RECIPES`.

    Raises:
        DomainError: for a slope or length out of range.
        SpecError: for an unknown format or recipe.
    """
    _check(slope, length)
    # beyond the largest number of the format a bias is infinite or NaN, as in the code that makes it
    with np.errstate(over="ignore", invalid="ignore"):
        return _named(recipe).make(slope, np.arange(length, dtype=np.float32), formats.get(format))


def position_error(
    slope: float,
    length: int,
    format: str = "bf16",
    *,
    recipe: str = "absolute",
    head_dim: int = 64,
    scores: np.ndarray | None = None,
    rounding: Rounding = "sum",
) -> PositionError:
    """Compare the last of N rows under a recipe with the exact one [docs/theory.md (15.14)-(15.17)].

    Args:
        slope: m > 0, nats a position, before the scale of the recipe.
        length: N.
        format: a name of `critattn.formats`.
        recipe: a name of `RECIPES`.
        head_dim: d of the scale 1/sqrt(d), where the recipe has one.
        scores: (..., N) scores as they meet the bias, in nats before the scale; equal ones by default.
        rounding: what is rounded: the bias alone; also its sum with the score; also the score before that (scores
            that were stored in the format).

    Returns:
        The errors.

    Raises:
        DomainError: for a slope, length or head dimension out of range.
        SpecError: for an unknown format, recipe or rounding.
    """
    _check(slope, length)
    if rounding not in ROUNDINGS:
        raise SpecError(f"rounding {rounding!r} is unknown; known: {', '.join(ROUNDINGS)}")
    if not head_dim >= 1:
        raise DomainError.of("head_dim", head_dim, "at least 1")
    made, stated = _named(recipe), formats.get(format)
    scale = head_dim**-0.5 if made.scaled else 1.0
    found = rounded_bias(slope, length, format, recipe=recipe)
    exact = slope * (np.arange(length, dtype=np.float64) - (length - 1))
    scores = np.zeros(length) if scores is None else np.asarray(scores, dtype=np.float64)
    sums = ((rounded(scores, stated) if rounding == "scores" else scores) + found).astype(np.float32)
    sums = sums if rounding == "bias" else rounded(sums, stated)
    offset = slope * (length - 1) if made.absolute else 0.0
    largest = max(1.0, offset)
    with np.errstate(over="ignore", invalid="ignore"):
        change = _softmax(scale * sums.astype(np.float64)) - _softmax(scale * (scores + exact))
        error = float(scale * np.abs(found - (exact + offset)).max())
    distances = np.ravel(0.5 * np.abs(change).sum(axis=-1))
    return PositionError(
        distinct=len(np.unique(found)),
        max_error=error,
        total_variation=float(distances.mean()),
        standard_error=float(distances.std(ddof=1) / math.sqrt(len(distances))) if len(distances) > 1 else None,
        resolution=scale * unit_in_the_last_place(largest, stated) if largest <= stated.largest else math.inf,
    )


def unit_in_the_last_place(value: float, stated: Format) -> float:
    """`2^(floor(log2 x) - p + 1)`, the spacing of the format at x > 0 [docs/theory.md (15.14)]."""
    exponent = max(math.frexp(value)[1] - 1, stated.least_exponent)
    return math.ldexp(1.0, exponent - stated.significand_bits + 1)


def resolution_onset(slope: float, resolution: float, format: str = "bf16") -> int:
    """Position from which content finer than r is lost in the form +m j: `j = r 2^(p-1)/m` [docs/theory.md (15.17)].

    Args:
        slope: m > 0, nats a position.
        resolution: r, in nats, a power of two.
        format: a name of `critattn.formats`.

    Raises:
        DomainError: for a slope or resolution out of range.
    """
    _check(slope, 1)
    if not (math.isfinite(resolution) and resolution > 0 and math.frexp(resolution)[0] == 0.5):
        raise DomainError.of("resolution", resolution, "a power of two")
    return math.ceil(resolution * 2.0 ** (formats.get(format).significand_bits - 1) / slope)


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _named(recipe: str) -> Recipe:
    if recipe not in RECIPES:
        raise SpecError(f"recipe {recipe!r} is unknown; known: {', '.join(RECIPES)}")
    return RECIPES[recipe]


def _check(slope: float, length: int) -> None:
    if not (math.isfinite(slope) and slope > 0):
        raise DomainError.of("slope", slope, "finite and above 0")
    if not 1 <= length <= LONGEST_ROW:
        raise DomainError.of("length", length, f"from 1 to {LONGEST_ROW}, whose positions float32 holds exactly")
