"""SymPy expressions in ball arithmetic: an enclosure of the exact value, for numbers and for boxes alike.

A ball keeps a midpoint and a radius. Where it is wide, products and functions of it lose much; there the ends are
taken instead, by monotony, which encloses the same values more tightly.
"""

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp
from flint import arb, fmpq
from sympy.codegen.cfunctions import expm1, log1p

from critattn.errors import SpecError

# ends are taken beyond this radius against the midpoint
WIDE = 2.0**-12

INCREASING: dict[Any, Callable[[arb], arb]] = {
    sp.exp: arb.exp,
    sp.log: arb.log,
    sp.tanh: arb.tanh,
    sp.erf: arb.erf,
    log1p: arb.log1p,
    expm1: arb.expm1,
}
OTHERS: dict[Any, Callable[[arb], arb]] = {sp.gamma: arb.gamma, sp.Abs: abs}
CONSTANTS: dict[Any, Callable[[], arb]] = {sp.pi: arb.pi, sp.E: arb.const_e, sp.EulerGamma: arb.const_euler}


def enclosed(expression: Any) -> Callable[..., arb]:
    """A function that evaluates an expression in balls.

    Args:
        expression: of sums, products, powers, exp, log, tanh, erf, gamma, the Lambert function, and log1p and expm1 of
            `sympy.codegen.cfunctions`, which do not cancel at 0.

    Returns:
        Takes one arb for each free symbol, by the symbol's name (other names are ignored), and returns an arb.
        A power whose exponent is no integer needs a positive base.

    Raises:
        SpecError: for a function that has no ball form here.
    """
    expression = sp.sympify(expression)
    order: list[tuple[Any, Callable[[list[arb], Mapping[str, arb]], arb]]] = []
    where: dict[Any, int] = {}
    for node in sp.postorder_traversal(expression):
        if node not in where:
            rule = _rule(node, [where[part] for part in node.args])
            where[node] = len(order)
            order.append((node, rule))

    def evaluate(**values: arb) -> arb:
        found: list[arb] = []
        for _, rule in order:
            found.append(rule(found, values))
        return found[-1]

    return evaluate


def _rule(node: Any, parts: list[int]) -> Callable[[list[arb], Mapping[str, arb]], arb]:
    if node.is_Symbol:
        name = node.name
        return lambda found, values: values[name]
    if node.is_Rational or node.is_Float:
        # a float is the fraction that its bits say
        number: Any = sp.Rational(node)
        fraction = fmpq(int(number.p), int(number.q))
        return lambda found, values: arb(fraction)
    if node in CONSTANTS:
        constant = CONSTANTS[node]
        return lambda found, values: constant()
    if node.is_Add:
        return lambda found, values: sum((found[k] for k in parts[1:]), found[parts[0]])
    if node.is_Mul:
        return lambda found, values: _product(found, parts)
    if node.is_Pow:
        return _power(node, parts)
    if node.func is sp.LambertW:
        branch = int(node.args[1]) if len(node.args) > 1 else 0
        return lambda found, values: found[parts[0]].lambertw(branch)
    if node.func in INCREASING:
        increasing = INCREASING[node.func]
        return lambda found, values: _monotone(increasing, found[parts[0]])
    if node.func in OTHERS:
        function = OTHERS[node.func]
        return lambda found, values: function(found[parts[0]])
    allowed = ", ".join(function.__name__ for function in (*INCREASING, *OTHERS))
    raise SpecError(f"{node.func.__name__}: has no ball form; allowed: sums, products, powers, {allowed}, LambertW")


def _wide(ball: arb) -> bool:
    return not ball.rad() <= abs(ball.mid()) * WIDE


def _monotone(function: Callable[[arb], arb], ball: arb) -> arb:
    if not _wide(ball):
        return function(ball)
    return function(ball.lower()).union(function(ball.upper()))


def _times(x: arb, y: arb) -> arb:
    if not (_wide(x) and _wide(y)):
        return x * y
    a, b, c, d = x.lower(), x.upper(), y.lower(), y.upper()
    return (a * c).union(a * d).union(b * c).union(b * d)


def _whole_power(x: arb, k: int) -> arb:
    if not _wide(x):
        return x**k
    low, high = x.lower(), x.upper()
    if low > 0 or high < 0:
        return (low**k).union(high**k)
    if k < 0:
        return x**k
    ends = (low**k).union(high**k)
    return ends if k % 2 else ends.union(arb(0))


def _product(found: list[arb], parts: list[int]) -> arb:
    total = found[parts[0]]
    for k in parts[1:]:
        total = _times(total, found[k])
    return total


def _power(node: Any, parts: list[int]) -> Callable[[list[arb], Mapping[str, arb]], arb]:
    base, exponent = parts
    if node.exp.is_Integer:
        whole = int(node.exp)
        return lambda found, values: _whole_power(found[base], whole)
    if node.exp == sp.Rational(1, 2):
        return lambda found, values: _monotone(arb.sqrt, found[base])
    return lambda found, values: _monotone(arb.exp, _times(found[exponent], _monotone(arb.log, found[base])))
