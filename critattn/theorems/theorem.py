"""A theorem with the check that it and its false variants go through alike."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from critattn.errors import CritattnError, SpecError
from critattn.theorems.results import Grade, Step, Verdict, combined

# The parts of a statement that could be wrong, as attributes: what a mutant changes.
Claim = Any
Check = Callable[[Claim], Iterator[Step]]

NEEDED_MUTANTS = 2
# What a computation on a wrong statement may stumble over; that is no refutation.
STUMBLES = (CritattnError, ArithmeticError, ValueError, TypeError, RuntimeError, AttributeError, LookupError)


@dataclass(frozen=True)
class Statement:
    """What a theorem says, in words and in LaTeX (without dollar signs)."""

    words: str
    latex: str


@dataclass(frozen=True)
class Mutant:
    """A false variant of a theorem.

    Attributes:
        name: what was changed, in a few words.
        changes: the wrong parts, by their name in the theorem's claim.
        why: what makes it false, or where the false statement comes from.
    """

    name: str
    changes: Mapping[str, Any]
    why: str


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """A statement, the arguments that check it, and false variants that the same arguments must refute.

    Attributes:
        name: the name of its file in `proofs_check`.
        statement: in words and in LaTeX.
        hypotheses: one sentence each.
        source: as in docstrings, `[derived, docs/theory.md (1.1)]`.
        grade: the kind of argument.
        claim: the parts of the statement that could be wrong, such as a threshold or an exponent.
        symbolic: yields the steps of exact algebra for a claim.
        certified: yields the steps that ball arithmetic or floating point decides.
        mutants: at least two; each must fail, with a counter-example.

    Raises:
        SpecError: for a mutant that changes nothing of the claim, or a theorem without a check.
    """

    name: str
    statement: Statement
    hypotheses: tuple[str, ...]
    source: str
    grade: Grade
    claim: Mapping[str, Any]
    symbolic: Check | None = None
    certified: Check | None = None
    mutants: tuple[Mutant, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.symbolic is None and self.certified is None:
            raise SpecError(f"theorem {self.name!r}: has neither a symbolic nor a certified part")
        for mutant in self.mutants:
            unknown = sorted(set(mutant.changes) - set(self.claim))
            if unknown or not mutant.changes:
                allowed = ", ".join(self.claim)
                raise SpecError(f"theorem {self.name!r}: mutant {mutant.name!r} changes {unknown}; allowed: {allowed}")

    def steps(self, changes: Mapping[str, Any] | None = None) -> Iterator[Step]:
        """The steps of the check, of the theorem itself or with parts of its claim changed."""
        claim = SimpleNamespace(**{**self.claim, **(changes or {})})
        for part in (self.symbolic, self.certified):
            if part is not None:
                yield from _guarded(part, claim)


@dataclass(frozen=True)
class Refutation:
    """What became of one mutant.

    Attributes:
        name: of the mutant.
        why: what makes it false.
        verdict: `fails` where it was refuted.
        step: the step that refuted it, or None.
    """

    name: str
    why: str
    verdict: Verdict
    step: Step | None

    @property
    def refuted(self) -> bool:
        """Whether a step failed."""
        return self.verdict is Verdict.FAILS


@dataclass(frozen=True)
class Outcome:
    """What became of a theorem: plain data that travels between processes.

    Attributes:
        name: of the theorem.
        statement: in words and in LaTeX.
        hypotheses: one sentence each.
        source: where it comes from.
        grade: the kind of argument.
        verdict: of the theorem's own steps and of its mutants together.
        reason: one line that says why it does not hold; empty where it does.
        steps: its own steps.
        refutations: one for each mutant.
        seconds: wall clock.
    """

    name: str
    statement: Statement
    hypotheses: tuple[str, ...]
    source: str
    grade: Grade
    verdict: Verdict
    reason: str
    steps: tuple[Step, ...]
    refutations: tuple[Refutation, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every step holds and every mutant, at least two, was refuted."""
        return self.verdict is Verdict.HOLDS

    @property
    def mutants_refuted(self) -> int:
        """How many mutants failed."""
        return sum(one.refuted for one in self.refutations)


def examine(theorem: Theorem) -> Outcome:
    """Check a theorem, then each of its mutants by the same steps, up to the first that fails."""
    start = time.perf_counter()
    steps = tuple(theorem.steps())
    refutations = tuple(_refute(theorem, mutant) for mutant in theorem.mutants)
    verdict, reason = _judged(theorem, steps, refutations)
    return Outcome(
        theorem.name,
        theorem.statement,
        theorem.hypotheses,
        theorem.source,
        theorem.grade,
        verdict,
        reason,
        steps,
        refutations,
        time.perf_counter() - start,
    )


def _refute(theorem: Theorem, mutant: Mutant) -> Refutation:
    steps = []
    for step in theorem.steps(mutant.changes):
        if step.verdict is Verdict.FAILS and not step.how.startswith(STUMBLED):
            return Refutation(mutant.name, mutant.why, Verdict.FAILS, step)
        steps.append(step)
    # a computation that stopped has shown nothing
    stopped = any(step.how.startswith(STUMBLED) for step in steps)
    return Refutation(mutant.name, mutant.why, Verdict.UNDECIDED if stopped else combined(steps), None)


def _judged(theorem: Theorem, steps: tuple[Step, ...], refutations: tuple[Refutation, ...]) -> tuple[Verdict, str]:
    own = combined(steps)
    if own is not Verdict.HOLDS:
        bad = next((step for step in steps if step.verdict is own), None)
        return own, "no step was checked by machine" if bad is None else f"{bad.claim}: {bad.detail or bad.how}"
    if theorem.grade is not Grade.LEMMA and not all(step.checked for step in steps):
        return Verdict.UNDECIDED, "a step that no machine checks, in a theorem that is no lemma"
    kept = [one.name for one in refutations if not one.refuted]
    if kept:
        return Verdict.FAILS, f"the check does not refute: {', '.join(kept)}"
    if len(refutations) < NEEDED_MUTANTS:
        return Verdict.FAILS, f"{len(refutations)} mutants, at least {NEEDED_MUTANTS} are needed"
    return Verdict.HOLDS, ""


STUMBLED = "the check stopped"


def _guarded(part: Check, claim: Claim) -> Iterator[Step]:
    try:
        yield from part(claim)
    except STUMBLES as error:
        message = " ".join(str(error).split())
        yield Step("the check runs to its end", Verdict.FAILS, STUMBLED, f"{type(error).__name__}: {message}")
