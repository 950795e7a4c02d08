"""Ball arithmetic: an inequality on a whole box of parameters, by branch and bound with python-flint's arb.

A ball encloses the exact value of an expression for every point of the box it was evaluated on, so that `f > 0`
on each box of a partition proves the inequality on the whole domain. n = 10^300 is an ordinary value; functions
that take log n as their variable keep boxes small there.
"""

import heapq
import itertools
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx, fmpq

from critattn.errors import DomainError
from critattn.theorems.results import Verdict

End = int | float | str | numbers.Rational
Box = Mapping[str, tuple[End, End]]
Function = Callable[..., arb]

PRECISION = 96
BUDGET = 20_000
# below this relative width of a box, splitting it shows nothing more
NARROWEST = 2.0**-48


@dataclass(frozen=True)
class Certificate:
    """What branch and bound found about f > 0 on a box.

    Attributes:
        verdict: `holds` only where every box of a partition of the domain was proved.
        boxes: boxes evaluated.
        domain: the whole domain, in words.
        witness: a point at which f <= 0 for certain, with f there; empty elsewhere.
        lowest: a lower bound of f over the domain where the verdict is `holds`, else nan.
    """

    verdict: Verdict
    boxes: int
    domain: str
    witness: str
    lowest: float


def prove_positive(f: Function, box: Box, *, budget: int = BUDGET, precision: int = PRECISION) -> Certificate:
    """Decide f > 0 on the whole of a closed box.

    Boxes are taken in the order of their lower bounds, proved, or split in the middle of the side that is widest
    against the domain. Ends that floats do not hold are rounded outward.

    Args:
        f: takes one arb a variable, by name, and returns an arb; it must be defined on the whole box.
        box: the ends of each variable.
        budget: largest number of boxes to evaluate.
        precision: bits.

    Returns:
        The certificate: `fails` with a point, or `undecided` where the budget ran out or boxes became too narrow.

    Raises:
        DomainError: for ends that are not finite or out of order, or a budget below 1.
    """
    if budget < 1:
        raise DomainError.of("budget", budget, "at least 1")
    sides = {name: _outward(name, *ends) for name, ends in box.items()}
    with ctx.workprec(precision):
        return _search(f, sides, budget, described(box))


def described(box: Box) -> str:
    """The domain in words: `rho in [0.1, 0.9], log_n in [1, 691]`."""
    return ", ".join(f"{name} in [{low}, {high}]" for name, (low, high) in box.items())


def exact(value: End) -> arb:
    """A number as a ball: exact for integers, floats and dyadic fractions, else enclosed."""
    if isinstance(value, str):
        return exact(Fraction(value))
    if isinstance(value, numbers.Rational):
        return arb(fmpq(int(value.numerator), int(value.denominator)))
    return arb(value)


def shown(ball: arb) -> str:
    """Ten digits of a ball, without its radius where that is smaller."""
    return ball.str(10, radius=False)


Side = tuple[float, float]


def _outward(name: str, low: End, high: End) -> Side:
    first, last = Fraction(low), Fraction(high)
    if first > last:
        raise DomainError.of(name, (low, high), "an interval, its lower end first")
    start, stop = float(first), float(last)
    start = math.nextafter(start, -math.inf) if Fraction(start) > first else start
    stop = math.nextafter(stop, math.inf) if Fraction(stop) < last else stop
    return start, stop


def _search(f: Function, sides: Mapping[str, Side], budget: int, domain: str) -> Certificate:
    names = list(sides)
    whole = tuple(sides[name] for name in names)
    lengths = [high - low for low, high in whole]
    for point in _probes(whole):
        found = _violation(f, names, point)
        if found:
            return Certificate(Verdict.FAILS, 0, domain, found, math.nan)
    order = itertools.count()
    heap = [(-math.inf, next(order), whole)]
    lowest, done = math.inf, 0
    while heap:
        if done >= budget:
            return Certificate(Verdict.UNDECIDED, done, domain, "", math.nan)
        _, _, one = heapq.heappop(heap)
        done += 1
        value = f(**{name: arb(low).union(arb(high)) for name, (low, high) in zip(names, one, strict=True)})
        if value > 0:
            lowest = min(lowest, math.nextafter(float(value.lower()), -math.inf))
            continue
        found = _violation(f, names, tuple(low + (high - low) / 2 for low, high in one))
        if found:
            return Certificate(Verdict.FAILS, done, domain, found, math.nan)
        halves = _split(one, lengths)
        if halves is None:
            return Certificate(Verdict.UNDECIDED, done, domain, "", math.nan)
        bound = float(value.lower()) if value.is_finite() else -math.inf
        for half in halves:
            heapq.heappush(heap, (bound, next(order), half))
    return Certificate(Verdict.HOLDS, done, domain, "", lowest)


def _probes(whole: tuple[Side, ...]) -> list[tuple[float, ...]]:
    """Corners (of up to eight variables) and a coarse grid, where a false statement mostly shows at once."""
    if len(whole) > 4:
        return list(itertools.islice(itertools.product(*whole), 256))
    parts = [[low + (high - low) * k / 4 for k in range(4)] + [high] for low, high in whole]
    return list(itertools.product(*parts))


def _violation(f: Function, names: list[str], point: tuple[float, ...]) -> str:
    value = f(**{name: arb(x) for name, x in zip(names, point, strict=True)})
    if not value <= 0:
        return ""
    at = ", ".join(f"{name} = {x:.10g}" for name, x in zip(names, point, strict=True))
    return f"at {at} it is {shown(value)}"


def _split(one: tuple[Side, ...], lengths: list[float]) -> tuple[tuple[Side, ...], tuple[Side, ...]] | None:
    widths = [(high - low) / length if length else 0.0 for (low, high), length in zip(one, lengths, strict=True)]
    if not widths or max(widths) < NARROWEST:
        return None
    k = widths.index(max(widths))
    low, high = one[k]
    middle = low + (high - low) / 2
    if not low < middle < high:
        return None
    return (*one[:k], (low, middle), *one[k + 1 :]), (*one[:k], (middle, high), *one[k + 1 :])
