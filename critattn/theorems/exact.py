"""Steps of exact algebra: equalities and limits, each refuted by a number in ball arithmetic or shown by SymPy."""

import numbers
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp
from flint import ctx

from critattn.theorems.balls import exact, shown
from critattn.theorems.expressions import enclosed
from critattn.theorems.results import Step, Verdict

SAMPLES = 4
# Where an equality is tried: sizes for the symbols that count, else small positive fractions.
POINTS: dict[str, tuple[int | Fraction, ...]] = {
    "n": (5, 17, 1009, 10**40),
    "d": (7, 23, 2003, 10**41),
    "rho": (Fraction(3, 10), Fraction(1, 7), Fraction(4, 5), Fraction(1, 2)),
    "gamma": (Fraction(6, 5), Fraction(3, 7), Fraction(9, 4), Fraction(2)),
}
OTHERS = tuple(Fraction(k, 11) for k in (9, 4, 14, 5, 17, 3, 19, 7, 13, 6, 8, 15))

At = Mapping[Any, Sequence[numbers.Rational | int]]


def equal(claim: str, left: Any, right: Any, *, at: At | None = None, how: str = "") -> Step:
    """The step left = right, for all values of the symbols.

    It fails at a sample point where balls of 200 bits exclude equality; it holds where SymPy reduces the difference
    to zero; else it is undecided.

    Args:
        claim: the step in readable mathematics.
        left: an expression.
        right: an expression.
        at: four values to try for a symbol in place of the default ones; needed where the equality has hypotheses.
        how: what is done, where that is more than algebra.
    """
    difference = sp.sympify(left) - sp.sympify(right)
    how = how or "algebra"
    witness = counterexample(difference, at)
    if witness:
        return Step(claim, Verdict.FAILS, how, witness)
    if vanishes(difference):
        return Step(claim, Verdict.HOLDS, how)
    return Step(claim, Verdict.UNDECIDED, how, "SymPy does not reduce the difference to zero")


def counterexample(difference: Any, at: At | None = None) -> str:
    """A point at which an expression certainly differs from zero, in words; empty where none of the samples does."""
    symbols = sorted(difference.free_symbols, key=lambda symbol: symbol.name)
    function = enclosed(difference)
    with ctx.workprec(200):
        for k in range(SAMPLES):
            point = {symbol.name: _sample(symbol, j, k, at or {}) for j, symbol in enumerate(symbols)}
            value = function(**{name: exact(number) for name, number in point.items()})
            if value > 0 or value < 0:
                place = ", ".join(f"{name} = {_short(number)}" for name, number in point.items())
                return f"the two sides differ by {shown(value)}" + (f" at {place}" if place else "")
    return ""


def vanishes(difference: Any) -> bool:
    """Whether SymPy reduces an expression to zero, by the cheapest way that does."""
    ways = (sp.expand, lambda e: sp.cancel(sp.together(e)), sp.simplify, lambda e: sp.simplify(_logs(e)))
    return any(way(difference) == 0 for way in ways)


def limit_is(claim: str, expression: Any, at: tuple[Any, Any], value: Any, *, points: At | None = None) -> Step:
    """The step lim expression = value, by SymPy's Gruntz algorithm.

    Args:
        claim: the step in readable mathematics.
        expression: what goes to the limit.
        at: the symbol and the point it goes to.
        value: the claimed limit.
        points: as `at` of `equal`.
    """
    found = sp.limit(expression, *at)
    step = equal(claim, found, value, at=points, how=f"limit by SymPy ({at[0]} -> {at[1]})")
    if step.verdict is Verdict.FAILS:
        return Step(
            claim, Verdict.FAILS, step.how, f"SymPy finds {sp.sstr(found)}, not {sp.sstr(value)}; {step.detail}"
        )
    return step


def continuous_at(claim: str, expression: Any, point: Mapping[Any, Any], value: Any, *, at: At | None = None) -> Step:
    """The step lim expression = value as several symbols go to a point where the expression is continuous.

    A rational function is continuous where its denominator, in lowest terms, is not zero. So the limit is the value
    there, along whatever path the symbols take.

    Args:
        claim: the step in readable mathematics.
        expression: rational in the symbols of `point`.
        point: where they go.
        value: the claimed limit.
        at: values to try for the other symbols.
    """
    numerator, denominator = sp.fraction(sp.cancel(sp.together(expression)))
    place = ", ".join(f"{symbol} -> {sp.sstr(end)}" for symbol, end in point.items())
    how = f"substitution at a point of continuity ({place})"
    if not (numerator.is_polynomial(*point) and denominator.is_polynomial(*point)):
        return Step(claim, Verdict.UNDECIDED, how, "the expression is not rational in what goes to the limit")
    bottom = sp.factor(denominator.subs(point))
    if bottom.is_zero is not False:
        return Step(claim, Verdict.UNDECIDED, how, f"the denominator {sp.sstr(bottom)} is not shown to be non-zero")
    step = equal(claim, numerator.subs(point) / bottom, value, at=at, how=how)
    if step.verdict is Verdict.FAILS:
        limit = sp.sstr(sp.factor(numerator.subs(point) / bottom))
        return Step(claim, Verdict.FAILS, how, f"the limit is {limit}, not {sp.sstr(value)}; {step.detail}")
    return step


def signs(claim: str, cases: Mapping[str, tuple[Any, str]]) -> Iterator[Step]:
    """Steps that SymPy's assumptions decide: an expression is positive, nonnegative, negative or zero.

    Args:
        claim: what the cases are for.
        cases: a case in words, its expression and the sign claimed.
    """
    for words, (expression, sign) in cases.items():
        forms = (sp.sympify(expression), sp.factor(expression))
        answer = next((found for form in forms if (found := getattr(form, f"is_{sign}")) is not None), None)
        verdict = Verdict.UNDECIDED if answer is None else Verdict.HOLDS if answer else Verdict.FAILS
        detail = "" if answer else f"{sp.sstr(expression)} is {'not' if answer is False else 'not shown to be'} {sign}"
        yield Step(f"{claim}: {words}", verdict, "assumptions on the symbols", detail)


def decided(claim: str, cases: Mapping[str, bool]) -> Step:
    """The step that every one of some cases is true, each decided without rounding; refuted by the first that is not.

    Args:
        claim: the step in readable mathematics.
        cases: a case in words, and whether it is true: comparisons of integers or fractions, or of balls that do not
            touch.
    """
    how = f"exact numbers, {len(cases)} cases"
    if not cases:
        return Step(claim, Verdict.UNDECIDED, how)
    wrong = next((words for words, true in cases.items() if not true), "")
    return Step(claim, Verdict.FAILS if wrong else Verdict.HOLDS, how, f"not so: {wrong}" if wrong else "")


def _logs(expression: Any) -> Any:
    return sp.expand_log(sp.powsimp(sp.expand(expression), force=False), force=False)


def _sample(symbol: Any, j: int, k: int, at: At) -> numbers.Rational | int:
    values = at.get(symbol) or POINTS.get(symbol.name)
    return values[k % len(values)] if values else OTHERS[(5 * j + 3 * k) % len(OTHERS)]


def _short(number: numbers.Rational | int) -> str:
    return f"{number:.0e}" if isinstance(number, int) and number > 10**9 else str(number)
