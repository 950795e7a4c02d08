"""The proof framework: what it proves, what it refutes, and what it leaves undecided."""

import math
import re
import time
from fractions import Fraction
from multiprocessing import active_children
from pathlib import Path

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, ctx
from sympy.codegen.cfunctions import expm1, log1p

from critattn import rooms
from critattn.errors import DomainError, SpecError
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    Verdict,
    agrees,
    argued,
    changes_at_most,
    chosen,
    continuous_at,
    decided,
    enclosed,
    equal,
    examine,
    limit_is,
    load_theorem,
    positive,
    positive_from_zero,
    prove_positive,
    run,
    running,
    signs,
)
from critattn.theorems.report import explained, markdown, page

X, Y, N = sp.symbols("x y n", positive=True)


# branch and bound


def test_proves_what_holds():
    found = prove_positive(lambda x: x * x - x + 1, {"x": (-10, 10)})
    assert found.verdict is Verdict.HOLDS
    # the minimum is 3/4, and the margin is a lower bound of it that some box attains to its width
    assert 0 < found.lowest <= 0.75
    assert found.domain == "x in [-10, 10]"


def test_refutes_what_fails_with_a_point():
    # positive at the ends and on the probing grid (0, .25, .5, .75, 1), negative only near 0.4
    found = prove_positive(lambda x: (x - 0.4) ** 2 - 1e-6, {"x": (0, 1)})
    assert found.verdict is Verdict.FAILS
    place = float(found.witness.split("x = ")[1].split(" ")[0])
    assert abs(place - 0.4) < 1e-3


@pytest.mark.parametrize("budget", [1, 7, 100])
def test_a_budget_that_runs_out_is_undecided(budget):
    # touches 0, so that no partition proves it
    found = prove_positive(lambda x: (x - arb(1) / 3) ** 2, {"x": (0, 1)}, budget=budget)
    assert found.verdict is Verdict.UNDECIDED
    assert found.boxes <= budget


def test_a_true_statement_is_undecided_on_too_small_a_budget():
    def f(x):
        return x * x - x + arb("0.2501")

    assert prove_positive(f, {"x": (0, 1)}, budget=4).verdict is Verdict.UNDECIDED
    assert prove_positive(f, {"x": (0, 1)}).verdict is Verdict.HOLDS


def test_boxes_cover_the_whole_stated_domain():
    seen = []

    def f(x, y):
        value = x * x + y * y - x * y + arb("0.01")
        if x.rad() > 0 and value > 0:
            seen.append(tuple((float(side.lower()), float(side.upper())) for side in (x, y)))
        return value

    assert prove_positive(f, {"x": ("-1/3", "1/3"), "y": (-1, 1)}).verdict is Verdict.HOLDS
    points = np.random.default_rng(0).uniform((-1 / 3, -1), (1 / 3, 1), (2000, 2))
    corners = [(sign / 3, other) for sign in (-1, 1) for other in (-1, 1)]
    for x, y in [*points, *corners]:
        assert any(a <= x <= b and c <= y <= d for (a, b), (c, d) in seen)
    # ends that are no floats are rounded outward
    assert min(a for (a, _), _ in seen) <= Fraction(-1, 3) < Fraction(1, 3) <= max(b for (_, b), _ in seen)


def test_what_is_not_defined_is_not_proved():
    assert prove_positive(lambda x: 1 + x.sqrt(), {"x": (-1, 1)}, budget=50).verdict is Verdict.UNDECIDED


def test_n_to_ten_to_the_300():
    log_n, gamma = sp.symbols("log_n gamma", positive=True)
    odds = log1p(-sp.exp(-log_n)) + (1 - gamma / 2) * log_n
    box = {"log_n": ("7/10", 691), "gamma": ("21/10", 3)}
    assert positive("the self weight is above 1/2", -odds, box).verdict is Verdict.HOLDS
    assert positive("even at gamma = 1.9", -odds, {**box, "gamma": ("19/10", 3)}).verdict is Verdict.FAILS


@pytest.mark.parametrize("ends", [(1, 0), (0, math.inf), (math.nan, 1)])
def test_a_domain_must_be_an_interval(ends):
    with pytest.raises((DomainError, OverflowError, ValueError)):
        prove_positive(lambda x: x, {"x": ends})


def test_a_budget_must_be_positive():
    with pytest.raises(DomainError, match="budget = 0"):
        prove_positive(lambda x: x, {"x": (0, 1)}, budget=0)


# enclosures

ZOO = [
    X**3 - 2 * X * Y + sp.Rational(1, 3),
    sp.exp(-X) * sp.log(1 + Y) / (X + Y),
    sp.sqrt(X + Y) - X ** sp.Rational(-1, 2),
    (X - 1) ** 2 * (Y - 2) ** 3,
    X**Y + sp.pi,
    sp.LambertW(X * Y) + sp.gamma(1 + X),
    log1p(X) - expm1(-Y) + sp.tanh(X) + sp.Abs(X - 1),
    (X - 2) ** -2 + sp.erf(Y - X),
]


@pytest.mark.parametrize("expression", ZOO, ids=str)
def test_enclosures_hold_the_value_at_a_point(expression):
    with mpmath.workdps(40):
        expected = sp.lambdify((X, Y), expression.rewrite(sp.log).rewrite(sp.exp), "mpmath")(0.375, 1.75)
        expected = mpmath.nstr(expected.real, 35)
    with ctx.workprec(150):
        found = enclosed(expression)(x=arb(0.375), y=arb(1.75))
        # 35 printed digits
        assert abs(found - arb(expected)) < 1e-33
        assert found.rad() < 1e-40


@pytest.mark.parametrize("expression", ZOO, ids=str)
def test_enclosures_of_boxes_hold_the_values_inside(expression):
    function, sides = enclosed(expression), ((0.5, 1.5), (1.0, 3.0))
    box = [arb(low).union(arb(high)) for low, high in sides]
    whole = function(x=box[0], y=box[1])
    for x in np.linspace(*sides[0], 6):
        for y in np.linspace(*sides[1], 6):
            assert whole.overlaps(function(x=arb(x), y=arb(y)))


def test_an_unknown_function_has_no_enclosure():
    with pytest.raises(SpecError, match="besselj: has no ball form"):
        enclosed(sp.besselj(0, X))


# steps of algebra


def test_equal():
    assert equal("binomial", (X + Y) ** 2, X**2 + 2 * X * Y + Y**2).verdict is Verdict.HOLDS
    step = equal("binomial", (X + Y) ** 2, X**2 + Y**2)
    assert step.verdict is Verdict.FAILS
    assert "differ by" in step.detail
    assert "x = " in step.detail


def test_equality_at_the_samples_alone_is_undecided():
    found = [Fraction(k, 11) for k in (9, 5, 19, 6)]
    product = sp.prod([X - sp.Rational(one) for one in found])
    step = equal("vanishes at the sample points only", product, 0, at={X: found})
    assert step.verdict is Verdict.UNDECIDED


def test_limits():
    assert limit_is("", (1 + 1 / N) ** N, (N, sp.oo), sp.E).verdict is Verdict.HOLDS
    assert limit_is("", (1 + 1 / N) ** N, (N, sp.oo), 3).verdict is Verdict.FAILS


def test_limits_by_continuity():
    form = (1 + X) / (2 + Y)
    assert continuous_at("", form, {X: 0, Y: 0}, sp.Rational(1, 2)).verdict is Verdict.HOLDS
    assert continuous_at("", form, {X: 0, Y: 0}, 1).verdict is Verdict.FAILS
    # along x = y it is 1/2, along x = 2 y it is 2/3
    assert continuous_at("", X / (X + Y), {X: 0, Y: 0}, sp.Rational(1, 2)).verdict is Verdict.UNDECIDED
    # continuous, but not in a way that the step sees
    assert continuous_at("", X ** sp.Rational(1, 2), {X: 0}, 0).verdict is Verdict.UNDECIDED


def test_signs():
    real = sp.Symbol("z", real=True)
    cases = {"": (X + Y, "positive")}, {"": (-X, "positive")}, {"": (real, "positive")}
    assert [next(signs("", case)).verdict for case in cases] == [Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED]


def test_cases():
    cases = {"1/3 < 1/2": Fraction(1, 3) < Fraction(1, 2), "half to even": round(Fraction(5, 2)) == 2}
    assert decided("", cases).verdict is Verdict.HOLDS
    step = decided("", {"fine": True, "wrong": False, "wrong too": False})
    assert (step.verdict, step.detail) == (Verdict.FAILS, "not so: wrong")
    # a claim of no cases has shown nothing
    assert decided("", {}).verdict is Verdict.UNDECIDED


# steps of balls


def test_positive_down_to_zero():
    assert positive_from_zero("", X - sp.log(1 + X), (X, 5, {}), order=2).verdict is Verdict.HOLDS
    # the second derivative changes sign on the way, at 1 - 1/sqrt(2)
    assert positive_from_zero("", X + X**2 + sp.log(1 - X), (X, 0.5, {}), order=2).verdict is Verdict.HOLDS
    assert positive_from_zero("", X - sp.log(1 + X), (X, 5, {}), order=3).verdict is Verdict.UNDECIDED
    assert positive_from_zero("", 1 + X - sp.log(1 + X), (X, 5, {}), order=2).verdict is Verdict.UNDECIDED
    assert positive_from_zero("", X - 2 * sp.log(1 + X), (X, 5, {}), order=1).verdict is Verdict.FAILS


def test_changes_at_most():
    box = {"y": (1, 2)}
    assert changes_at_most("", sp.exp(-X * Y), (X, 1, box), 2.1).verdict is Verdict.HOLDS
    assert changes_at_most("", sp.exp(-X * Y), (X, 1, box), 0.5).verdict is Verdict.FAILS
    # the slope at 0 is 2: no smaller constant holds
    assert changes_at_most("", sp.exp(-2 * X), (X, 1, {}), 1.99).verdict is not Verdict.HOLDS


def test_agreement_of_floats():
    points = [{"x": 0.25}, {"x": 3.0}]
    assert agrees("", lambda x: math.exp(x), sp.exp(X), points).verdict is Verdict.HOLDS
    assert agrees("", lambda x: math.exp(x) * (1 + 1e-13), sp.exp(X), points).verdict is Verdict.FAILS
    assert agrees("", lambda x: math.nan, sp.exp(X), points).verdict is Verdict.FAILS
    # below the smallest normal float
    assert agrees("", lambda x: 0.0, sp.exp(-1000 * X), points[1:]).verdict is Verdict.HOLDS


# theorems


def square(claim):
    yield equal("(x+y)^2 expanded", (X + Y) ** 2, X**2 + claim.middle * X * Y + Y**2)


WRONG = (Mutant("no middle", {"middle": 0}, "x y twice"), Mutant("once", {"middle": 1}, "x y twice"))
BINOMIAL = {
    "name": "binomial",
    "statement": Statement("the binomial formula", "(x+y)^2=x^2+2xy+y^2"),
    "hypotheses": ("x and y commute",),
    "source": "[classical]",
    "grade": Grade.IDENTITY,
    "claim": {"middle": 2},
    "symbolic": square,
    "mutants": WRONG,
}


def theorem(**changes):
    return Theorem(**{**BINOMIAL, **changes})


def test_a_theorem_holds():
    outcome = examine(theorem())
    assert outcome.holds
    assert (outcome.mutants_refuted, len(outcome.refutations), outcome.reason) == (2, 2, "")
    assert all("differ by" in one.step.detail for one in outcome.refutations)


def test_a_true_theorem_with_a_mutant_that_is_true_fails():
    same = Mutant("the same in another form", {"middle": sp.Integer(4) / 2}, "it is not false")
    outcome = examine(theorem(mutants=(*WRONG, same)))
    assert outcome.verdict is Verdict.FAILS
    assert outcome.reason == "the check does not refute: the same in another form"


def test_one_mutant_is_not_enough():
    assert examine(theorem(mutants=WRONG[:1])).verdict is Verdict.FAILS
    assert examine(theorem(mutants=())).verdict is Verdict.FAILS


def test_a_false_theorem_fails_with_its_counterexample():
    outcome = examine(theorem(claim={"middle": 3}))
    assert outcome.verdict is Verdict.FAILS
    assert "differ by" in outcome.reason


def test_a_budget_that_runs_out_leaves_the_theorem_undecided():
    def certified(claim):
        yield positive("touches 0", lambda x: (x - arb(1) / 3) ** 2, {"x": (0, 1)}, budget=20)

    outcome = examine(theorem(certified=certified))
    assert outcome.verdict is Verdict.UNDECIDED
    assert not outcome.holds
    assert "budget" in outcome.reason


def test_an_undecided_mutant_is_not_refuted():
    def certified(claim):
        yield positive("room", lambda x: (x - arb(1) / 3) ** 2 + claim.room, {"x": (0, 1)}, budget=20)

    found = theorem(claim={"middle": 2, "room": 1}, certified=certified, mutants=(*WRONG, Mutant("", {"room": 0}, "")))
    outcome = examine(found)
    assert outcome.verdict is Verdict.FAILS
    assert outcome.refutations[2].verdict is Verdict.UNDECIDED


def test_a_check_that_stops_has_refuted_nothing():
    stumbling = Mutant("no number", {"middle": None}, "it cannot be added")
    outcome = examine(theorem(mutants=(*WRONG, stumbling)))
    assert outcome.verdict is Verdict.FAILS
    assert not outcome.refutations[2].refuted
    assert examine(theorem(claim={"middle": None})).verdict is Verdict.FAILS


def test_only_a_lemma_may_hold_steps_that_no_machine_checks():
    def with_words(claim):
        yield from square(claim)
        yield argued("and so on", "by induction")

    assert examine(theorem(symbolic=with_words)).verdict is Verdict.UNDECIDED
    assert examine(theorem(symbolic=with_words, grade=Grade.LEMMA)).holds

    def only_words(claim):
        yield argued("all of it", "by induction")

    assert examine(theorem(symbolic=only_words, grade=Grade.LEMMA)).verdict is Verdict.UNDECIDED


def test_what_a_theorem_needs():
    with pytest.raises(SpecError, match=r"changes \['centre'\]; allowed: middle"):
        theorem(mutants=(Mutant("typo", {"centre": 1}, ""),))
    with pytest.raises(SpecError, match="neither a symbolic nor a certified part"):
        theorem(symbolic=None)


def test_reports_say_what_happened():
    outcome = examine(theorem(mutants=WRONG[:1]))
    text = explained(outcome)
    for part in ("binomial: fails", "x and y commute", "[classical]", "(x+y)^2 expanded", "refuted", "1 mutants"):
        assert part in text
    assert "| binomial | [classical] | identity | fails | 1/1 |" in markdown([outcome], title="t")
    html = page([outcome], title="<t>")
    assert "&lt;t&gt;" in html
    assert 'class="bad"' in html


# the room

NAMES = rooms.names("proofs_check")
# above a second
GUIDE = Path(__file__).parent.parent / "docs" / "proofs.md"
CONTRACTION = rooms.path("proofs_check", "contraction")
LONG = {
    "critical_p_measured",
    "critical_window",
    "depth_lifetime",
    "depth_recursion",
    "frozen_weights",
    "gradient_norm",
    "jacobian_spectrum",
    "large_deviations",
    "output_cosine",
    "population_limit",
    "random_energy_freezing",
    "random_scores",
    "sigmoid_window",
    "softplus_lambert",
    "softplus_never_localises",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in NAMES]
)
def test_the_theorems_of_the_room_hold(name):
    (outcome,) = run([name])
    assert outcome.holds, outcome.reason
    assert len(outcome.refutations) >= 2
    for one in outcome.refutations:
        assert one.step.detail


def test_the_room():
    assert len(NAMES) >= 12
    quick = chosen(quick=True)
    assert set(quick) < set(NAMES)
    assert {"log_n_rewriting", "simplex_weights"} <= set(quick)
    assert chosen(["contraction", "contraction"]) == ("contraction",)
    with pytest.raises(SpecError, match="did you mean 'contraction'"):
        chosen(["contracton"])


def test_certificates_say_which_domain_they_cover():
    for name in ("contraction", "hard_limit"):
        steps = load_theorem(name).steps()
        certificates = [step for step in steps if step.how.startswith("ball arithmetic")]
        assert certificates
        assert all(isinstance(step, Step) and " in [" in step.domain for step in certificates)


@pytest.mark.parametrize("text", ["X = 1", "THEOREM = 3", "from critattn.theorems import *"])
def test_a_file_without_its_theorem(tmp_path, monkeypatch, text):
    monkeypatch.setattr(rooms, "__file__", str(tmp_path / "critattn" / "rooms.py"))
    (tmp_path / "proofs_check").mkdir()
    (tmp_path / "proofs_check" / "empty.py").write_text(text)
    with pytest.raises(SpecError, match="defines no THEOREM"):
        load_theorem("empty")
    (tmp_path / "proofs_check" / "other.py").write_text(CONTRACTION.read_text(encoding="utf-8"))
    with pytest.raises(SpecError, match="called 'contraction'"):
        load_theorem("other")


def test_the_file_in_the_guide_is_a_theorem(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "__file__", str(tmp_path / "critattn" / "rooms.py"))
    (tmp_path / "proofs_check").mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "proofs_check" / "NAME.py").write_text(code, encoding="utf-8")
    (outcome,) = run(["NAME"])
    assert outcome.holds, outcome.reason


@pytest.mark.slow
def test_an_interrupt_ends_the_checks_in_hand():
    """The gradient norm takes seconds; whoever stops waiting for it, as Ctrl-C does, has its process ended."""
    before = set(active_children())
    waiting = running._outcomes(["contraction", "gradient_norm"], 2)
    assert next(waiting).name == "contraction"
    start = time.perf_counter()
    waiting.close()
    # ending a process takes well under a second, the check itself about five
    assert time.perf_counter() - start < 2
    assert set(active_children()) == before


def test_workers_must_be_positive():
    with pytest.raises(DomainError, match="workers = 0"):
        run(["contraction"], workers=0)
