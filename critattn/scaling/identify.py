"""Which law some factors follow: a catalogued one, one with other parameters, a known fault, a shift, or none."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from critattn.errors import DomainError, SpecError
from critattn.scaling.catalogue import catalogue
from critattn.scaling.catalogue import entry as entry_of
from critattn.scaling.entries import Entry
from critattn.scaling.fits import CONSTANTS, fitted
from critattn.scaling.lengths import Lengths

Verdict = Literal["law", "fitted", "inverse", "off by one", "missing square", "applied twice", "shift", "none"]
EXACT, SINGLE = 1e-9, 1e-6
DECIMALS, DIGITS = range(3, 9), range(4, 10)
VARIANTS: tuple[Verdict, ...] = ("off by one", "missing square", "inverse", "applied twice")
SHIFT = (
    "exp(x - s log n) is no scaling: the shift is the same for every key of a row, softmax ignores it, and no "
    "weight depends on it"
)


@dataclass(frozen=True)
class Match:
    """A law, or a fault made from one, held against the factors.

    Attributes:
        law: name of the law.
        verdict: how the factors follow from it.
        parameters: its parameters.
        free: how many of them were fitted.
        residual: largest difference from the factors, over max(1, |factor|).
        rms: root mean square of the same.
        fits: every difference is within the tolerance.
        rows: rows by which its lengths are moved, for "off by one".
    """

    law: str
    verdict: Verdict
    parameters: dict[str, Any]
    free: int
    residual: float
    rms: float
    fits: bool
    rows: int = 0


class Data(NamedTuple):
    """Factors at rows.

    Attributes:
        lengths: of the rows, float64.
        factor: (rows,) measured factors.
        tolerance: (rows,) absolute.
    """

    lengths: Lengths
    factor: np.ndarray
    tolerance: np.ndarray


@dataclass(frozen=True)
class Identity:
    """What some factors are.

    Attributes:
        verdict: the answer.
        law: the law in question; None for a shift and for none.
        parameters: its parameters.
        residual: largest difference from the factors, over max(1, |factor|); of the closest law for "none".
        holds: the factors are those of a law of the catalogue that is no fault.
        sentence: the answer in words.
        matches: everything that fits equally well.
        closest: the closest catalogued laws, best first, whether they fit or not.
        also: faults of other catalogued laws that give the same factors.
    """

    verdict: Verdict
    law: str | None
    parameters: dict[str, Any]
    residual: float
    holds: bool
    sentence: str
    matches: list[Match] = field(default_factory=list)
    closest: list[Match] = field(default_factory=list)
    also: list[Match] = field(default_factory=list)


def resolution(factor: np.ndarray) -> np.ndarray:
    """How far rounding may have moved each factor: float64, float32, half precisions, or decimal digits, (rows,).

    The loosest of the roundings that the numbers show; at least 1e-9 relative.
    """
    size = np.maximum(np.abs(factor), 1e-300)
    allowed = EXACT * np.maximum(size, 1.0)
    kinds = ((np.float32, SINGLE), (np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7))
    for kind, relative in kinds:
        with np.errstate(over="ignore"):
            if np.all(factor.astype(kind).astype(float) == factor):
                allowed = np.maximum(allowed, relative * size)
    for decimals in DECIMALS:
        if np.allclose(np.round(factor, decimals), factor, rtol=1e-15, atol=0):
            allowed = np.maximum(allowed, 0.51 * 10.0**-decimals)
            break
    unit = 10.0 ** np.floor(np.log10(size))
    for digits in DIGITS:
        step = unit * 10.0 ** (1 - digits)
        if np.allclose(np.round(factor / step) * step, factor, rtol=1e-14, atol=0):
            return np.maximum(allowed, 0.51 * step)
    return allowed


def identify(
    lengths: Lengths,
    factor: Any,
    *,
    tolerance: float | None = None,
    claim: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Identity:
    """Name the law that factors follow.

    In this order: the catalogue as it stands; a catalogued law one row off, without its square, inverted or applied
    twice; a shift; the catalogue with other parameters. What is simpler wins where both fit.

    Args:
        lengths: of the rows, float64 on the host.
        factor: (rows,) factors m, on top of the base scale.
        tolerance: relative error of the factors; by default the rounding that the numbers show.
        claim: a law that is said to have made them; it is named among laws that fit equally well.
        parameters: parameters that go with the claim.

    Raises:
        DomainError: for factors that are not finite, or none.
        SpecError: for an unknown claim.
    """
    values = np.atleast_1d(np.asarray(factor, dtype=np.float64))
    if not values.size or not np.all(np.isfinite(values)):
        raise DomainError("factor: has no values, or some that are not finite")
    allowed = resolution(values) if tolerance is None else tolerance * np.maximum(np.abs(values), 1e-12)
    data = Data(_spread(lengths, values.size), values, allowed)
    claimed = list(_claimed(data, claim, parameters or {}))
    standing = _ranked([*claimed, *_standing(data)], claim)
    plain = [one for one in standing if one.fits]
    if plain:
        return _answer(plain, standing, also=[one for one in _faults(data) if one.fits])
    faults = _ranked([*_faults(data), *(_faults_of(data, entry_of(claim), parameters) if claim else ())], claim)
    if any(one.fits for one in faults):
        return _answer([one for one in faults if one.fits], standing)
    slope = _shift(data)
    if slope is not None:
        found = Match("", "shift", {"s": slope}, 1, 0.0, 0.0, True)
        return Identity("shift", None, {"s": slope}, 0.0, False, SHIFT, [found], standing[:3])
    free = _ranked(_free(data, claim), claim)
    if any(one.fits for one in free):
        return _answer([one for one in free if one.fits], standing)
    return _none(standing, [*faults, *free])


def _spread(lengths: Lengths, size: int) -> Lengths:
    rows = {name: np.broadcast_to(getattr(lengths, name), (size,)) for name in Lengths._fields[:-1]}
    return lengths._replace(**rows)


def _claimed(data: Data, claim: str | None, parameters: Mapping[str, Any]) -> Iterator[Match]:
    if claim is None:
        return
    named = entry_of(claim)
    if named.law is None:
        raise SpecError(f"scaling law {claim!r} has no factor per row: {named.reason}")
    given = {name: value for name, value in parameters.items() if name in named.parameters}
    if {**named.parameters, **given} != named.parameters:
        yield _held(data, named, "law", given)


def _standing(data: Data) -> Iterator[Match]:
    for one in catalogue():
        if one.law is not None:
            yield _held(data, one, "law", {})


def _faults(data: Data) -> Iterator[Match]:
    for one in catalogue():
        if one.law is not None and not one.wrong:
            yield from _faults_of(data, one, {})


def _faults_of(data: Data, law: Entry, parameters: Mapping[str, Any] | None) -> Iterator[Match]:
    given = {name: value for name, value in (parameters or {}).items() if name in law.parameters}
    for verdict in VARIANTS:
        for rows in (1, -1) if verdict == "off by one" else (0,):
            if not (rows and law.counting is None):
                yield _held(data, law, verdict, given, rows=rows)


def _free(data: Data, claim: str | None) -> Iterator[Match]:
    """Laws with fitted parameters, where there are more distinct rows than parameters; constants for flat factors.

    Of laws that differ in their defaults alone, the first one, and the one that is claimed.
    """
    flat = float(np.ptp(data.factor)) <= 2 * float(data.tolerance.max())
    seen: set[Any] = set()
    for one in catalogue():
        if one.law is None or flat != isinstance(one.law, CONSTANTS):
            continue
        for found in fitted(one, data.lengths, data.factor):
            form = (type(one.law), one.counting, *{**one.parameters, **found}.items())
            known = form in seen and one.name != claim
            seen.add(form)
            if not known and (flat or np.unique(data.factor).size > len(found)):
                yield _held(data, one, "fitted", found, free=len(found))
    if flat and data.factor.mean() > 1:
        for name in ("yarn", "longrope"):
            for found in fitted(entry_of(name), data.lengths, data.factor**2):
                yield _held(data, entry_of(name), "missing square", found, free=1)


def _held(
    data: Data, law: Entry, verdict: Verdict, parameters: Mapping[str, Any], *, rows: int = 0, free: int = 0
) -> Match:
    """A law with some parameters, or a fault made from it, held against the factors."""
    with np.errstate(all="ignore"):
        expected = np.asarray(law.factor(data.lengths.moved(rows), parameters), dtype=np.float64)
        if verdict == "inverse":
            expected = 1 / expected
        elif verdict == "missing square":
            expected = np.sqrt(expected)
        elif verdict == "applied twice":
            expected = expected**2
        apart = np.where(np.isfinite(expected), np.abs(expected - data.factor), np.inf)
        relative = apart / np.maximum(np.abs(data.factor), 1.0)
        fits = bool(np.all(apart <= data.tolerance))
        rms = float(np.sqrt(np.mean(relative**2)))
    known = {**law.parameters, **parameters}
    return Match(law.name, verdict, known, free, float(relative.max()), rms, fits, rows)


def _ranked(found: list[Match] | Iterator[Match], claim: str | None) -> list[Match]:
    """Best first: few free parameters and whole ones, then the residual (a claim breaks ties), then the catalogue."""

    def key(one: Match) -> tuple[Any, ...]:
        # residuals below this are rounding, and say nothing
        left = max(one.rms, 1e-13)
        return (not one.fits, _untidy(one), one.free, round(math.log10(left), 1), one.law != claim)

    return sorted(found, key=key)


def _untidy(one: Match) -> bool:
    """Whether a fitted constant lacks the whole stretch that configurations have."""
    if one.free == 0 or "stretch" not in one.parameters:
        return one.free > 0
    s = float(one.parameters["stretch"])
    return not (s > 1.5 and abs(s - round(s)) <= 1e-3 * s)


def _answer(fitting: list[Match], standing: list[Match], *, also: list[Match] | None = None) -> Identity:
    best = fitting[0]
    law = entry_of(best.law)
    verdict: Verdict = "inverse" if law.wrong and best.verdict in ("law", "fitted") else best.verdict
    holds = verdict in ("law", "fitted")
    known = {one.law for one in fitting}
    others = [one for one in also or [] if one.verdict == "off by one" and one.law not in known]
    return Identity(
        verdict,
        best.law,
        best.parameters,
        best.residual,
        holds,
        _sentence(best, verdict, law),
        fitting,
        standing[:3],
        others,
    )


def _sentence(best: Match, verdict: Verdict, law: Entry) -> str:
    given = ", ".join(f"{name} = {_shown(value)}" for name, value in best.parameters.items() if value is not None)
    where = f"{law.name} ({given})" if given else law.name
    marked = "; UNVERIFIED in the catalogue" if law.mark == "unverified" else ""
    late = "late" if best.rows < 0 else "early"
    return {
        "law": f"the factors are those of {where}{marked}",
        "fitted": f"the factors are those of {law.name} with fitted parameters ({given}){marked}",
        "inverse": f"inverse: the factors fall where they have to grow, as {law.name} says or its reciprocal ({given})",
        "off by one": f"off by one: the factors are those of {where} counted one row {late}",
        "missing square": f"missing square: the factors are the square root of {where}: t in place of t^2",
        "applied twice": f"applied twice: the factors are the square of {where}",
    }[verdict]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shift(data: Data) -> float | None:
    """The s of `exp(x - s log n)`, where the factors are n^-s, -s log n, or (x - s log n)/x at x = 1."""
    n, m = data.lengths.keys_seen, data.factor
    log_n = np.log(n)
    if np.unique(n).size < 3 or np.ptp(m) <= 2 * data.tolerance.max():
        return None
    with np.errstate(all="ignore"):
        for form, linear in (("power", np.log(m)), ("sum", m), ("sum", m - 1)):
            if not np.all(np.isfinite(linear)):
                continue
            s = -float(np.dot(log_n, linear) / np.dot(log_n, log_n))
            expected = n**-s if form == "power" else m - linear - s * log_n
            if s > 0 and np.all(np.abs(expected - m) <= data.tolerance):
                return s
    return None


def _none(standing: list[Match], others: list[Match]) -> Identity:
    close = sorted(standing, key=lambda one: one.rms)
    near = sorted(others, key=lambda one: one.rms)
    best = min([*close[:1], *near[:1]], key=lambda one: one.rms)
    sentence = (
        f"no law of the catalogue fits; closest as catalogued: {close[0].law} (largest difference "
        f"{close[0].residual:.3g}), closest of all: {best.law} ({best.verdict}, {best.residual:.3g})"
    )
    return Identity("none", None, {}, best.residual, False, sentence, [], [*close[:3], *near[:2]])
