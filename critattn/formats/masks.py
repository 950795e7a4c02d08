"""Masks made of the most negative number of a format, and what adding a bias to it gives, measured."""

from dataclasses import dataclass

import numpy as np

from critattn.formats.grid import first, magnitudes
from critattn.formats.stated import Format, get


@dataclass(frozen=True)
class MaskFacts:
    """What a mask of finfo.min does to the logits that it is added to, in numpy's arithmetic.

    Attributes:
        format: its name.
        least: finfo.min, the mask.
        spoiling: the largest bias x < 0 with finfo.min + x not finite; None where no x has.
        spoilt: what comes out there: "-inf", "nan", or None.
        twice: what finfo.min + finfo.min gives: "-inf", "nan" or "finite".
        kept: the largest |x| for which finfo.min + x is finfo.min itself, so that the bias is absorbed.
    """

    format: str
    least: float
    spoiling: float | None
    spoilt: str | None
    twice: str
    kept: float


def mask_facts(format: str) -> MaskFacts:
    """Measure the mask of a format over all its biases; float32 by bisection [derived, docs/theory.md (14.14)].

    Raises:
        SpecError: for an unknown format.
    """
    form = get(format)
    with np.errstate(all="ignore"):
        code, _ = first(form, lambda x: ~np.isfinite(_sum(form, -x)))
        moved, _ = first(form, lambda x: _sum(form, -x) != -form.largest)
        spoiling = None if code is None else -_number(form, code)
        spoilt = None if spoiling is None else _word(_sum(form, np.array([spoiling], form.dtype)))
        twice = _word(_sum(form, np.array([-form.largest], form.dtype)))
    kept = form.largest if moved is None else _number(form, moved - 1)
    return MaskFacts(form.name, -form.largest, spoiling, spoilt, twice, kept)


def _sum(form: Format, bias: np.ndarray) -> np.ndarray:
    return (np.array(-form.largest, form.dtype) + bias).astype(np.float64)


def _number(form: Format, code: int) -> float:
    return float(magnitudes(form, np.array([code]))[0])


def _word(values: np.ndarray) -> str:
    value = values[0]
    return "nan" if np.isnan(value) else ("finite" if np.isfinite(value) else "-inf")
