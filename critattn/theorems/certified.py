"""Steps that balls decide: inequalities on a whole domain, and the agreement of floating-point closed forms."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
from flint import arb, ctx

from critattn.theorems.balls import BUDGET, PRECISION, Box, Function, described, exact, prove_positive, shown
from critattn.theorems.exact import vanishes
from critattn.theorems.expressions import enclosed
from critattn.theorems.results import Step, Verdict

# a function of balls, or a SymPy expression, of whose types its stubs know little
Formula = Any

ROUNDING = 2.0**-52
# floats below this have lost digits: an absolute error of its size is no error of a formula
SMALLEST = 2.0**-1022


def positive(claim: str, f: Formula, box: Box, *, budget: int = BUDGET, precision: int = PRECISION) -> Step:
    """The step f > 0 on the whole of a box, by branch and bound.

    Args:
        claim: the step in readable mathematics.
        f: a function of balls, or a SymPy expression in symbols that carry the names of the box.
        box: the domain, as in `prove_positive`.
        budget: largest number of boxes.
        precision: bits.
    """
    found = prove_positive(_in_balls(f), box, budget=budget, precision=precision)
    how = f"ball arithmetic, {found.boxes} boxes"
    if found.verdict is Verdict.FAILS:
        return Step(claim, Verdict.FAILS, how, f"violated: {found.witness}", found.domain)
    if found.verdict is Verdict.UNDECIDED:
        return Step(claim, Verdict.UNDECIDED, how, "the budget ran out or the boxes became too narrow", found.domain)
    return Step(claim, Verdict.HOLDS, how, f"margin at least {found.lowest * (1 - 1e-3):.4g}", found.domain)


def positive_from_zero(claim: str, f: Formula, side: tuple[sp.Symbol, Any, Box], *, order: int) -> Step:
    """The step f > 0 for 0 < x <= high, where f and its first derivatives vanish at 0: f^(order) > 0 on [0, high].

    By Taylor's formula with f(0) = ... = f^(order-1)(0) = 0, f(x) = x^order f^(order)(xi)/order!. So the inequality
    holds down to x = 0, which no box reaches. Where that derivative changes sign on the way to `high`, the rest of the
    domain is covered directly.

    Args:
        claim: the step in readable mathematics.
        f: an expression in x and the symbols of the box.
        side: the symbol x, its upper end, and the box of the other symbols.
        order: of the first derivative that does not vanish.
    """
    x, high, others = side
    how = f"Taylor's formula at {x} = 0, ball arithmetic on derivative {order}"
    domain = {x.name: (0, high), **others}
    for k in range(0, 16, 3):
        # a violation next to 0, where no box of [0, high] gets
        end = high * 2.0**-k
        found = positive(claim, f, {x.name: (end, end), **others}, budget=1)
        if found.verdict is Verdict.FAILS:
            return found
    for k in range(order):
        if not vanishes(sp.diff(f, x, k).subs(x, 0)):
            return Step(claim, Verdict.UNDECIDED, how, f"derivative {k} is not shown to vanish at 0")
    for part in (1, 4, 16):
        # near 0 by Taylor's formula, beyond directly
        near = positive(claim, sp.diff(f, x, order), {x.name: (0, high / part), **others}, budget=BUDGET // 4)
        if near.verdict is Verdict.HOLDS:
            break
    else:
        return Step(
            claim, Verdict.UNDECIDED, how, f"derivative {order} is not shown to be positive near 0", near.domain
        )
    far = positive(claim, f, {x.name: (high / part, high), **others}) if part > 1 else near
    if far.verdict is not Verdict.HOLDS:
        return far
    boxes = near.how.split(", ")[1] + ("" if part == 1 else f" up to {high / part:g}, {far.how.split(', ')[1]} beyond")
    return Step(claim, Verdict.HOLDS, f"{how}, {boxes}", "", described(domain))


def changes_at_most(claim: str, f: Formula, side: tuple[sp.Symbol, Any, Box], slope: Any) -> Step:
    """The step |f(x) - f(0)| <= slope x for 0 < x <= high, by the mean value theorem.

    Args:
        claim: the step in readable mathematics.
        f: an expression in x and the symbols of the box, differentiable on it.
        side: the symbol x, its upper end, and the box of the other symbols.
        slope: the constant, a number or an expression in the other symbols.
    """
    x, high, others = side
    how = f"mean value theorem in {x}, ball arithmetic on the derivative"
    domain = {x.name: (0, high), **others}
    change = f - f.subs(x, 0)
    for end in (high, high / 1000):
        for sign in (1, -1):
            tried = positive(claim, slope * x - sign * change, {x.name: (end, end), **others}, budget=1, precision=200)
            if tried.verdict is Verdict.FAILS:
                return tried
    rate, boxes = sp.diff(f, x), []
    for sign in (1, -1):
        found = positive(claim, slope - sign * rate, domain)
        if found.verdict is not Verdict.HOLDS:
            return Step(claim, Verdict.UNDECIDED, how, f"the derivative: {found.detail}", found.domain)
        boxes.append(int(found.how.split()[2]))
    return Step(claim, Verdict.HOLDS, f"{how}, {sum(boxes)} boxes", "", found.domain)


def agrees(
    claim: str,
    function: Callable[..., Any],
    reference: Formula,
    points: Sequence[Mapping[str, Any]],
    *,
    tolerance: Callable[..., float] | float = 16 * ROUNDING,
    relative_to: Formula | None = None,
    precision: int = 400,
) -> Step:
    """The step that a floating-point closed form equals the exact value at each of some points.

    Args:
        claim: the step in readable mathematics.
        function: takes the numbers of a point by name, returns a float.
        reference: the exact value, a function of balls or an expression in symbols of those names.
        points: floats by name; they are exact numbers for both.
        tolerance: relative error allowed, a number or a function of the point: the rounding of the arguments.
        relative_to: what the error is relative to, where that is not the exact value.
        precision: bits of the exact value; cancellation at n = 10^300 takes thousands.
    """
    formula = _in_balls(reference)
    scale = formula if relative_to is None else _in_balls(relative_to)
    how = f"floating point against balls of {precision} bits at {len(points)} points"
    worst = 0.0
    with ctx.workprec(precision):
        for point in points:
            balls = {name: exact(value) for name, value in point.items()}
            value, unit = formula(**balls), abs(scale(**balls))
            got = float(function(**point))
            allowed = float(tolerance(**point)) if callable(tolerance) else tolerance
            error = abs(arb(got) - value)
            if not error <= unit * arb(allowed) + SMALLEST:
                at = ", ".join(f"{name} = {x:.10g}" for name, x in point.items())
                verdict = Verdict.FAILS if error > unit * arb(allowed) + SMALLEST or got != got else Verdict.UNDECIDED
                return Step(claim, verdict, how, f"{got:.12g} against {shown(value)} at {at}")
            worst = max(worst, float((error / unit).upper()) if unit > SMALLEST else 0.0)
    return Step(claim, Verdict.HOLDS, how, f"largest relative error {worst:.1e}")


def _in_balls(formula: Formula) -> Function:
    return enclosed(formula) if isinstance(formula, sp.Basic) else formula


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations of some values, as points for `agrees`."""
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
