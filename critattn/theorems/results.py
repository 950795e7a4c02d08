"""What a check returns: a verdict for each step, and what it rests on."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of a step or of a whole check; what could not be decided never counts as holding."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Grade(StrEnum):
    """The kind of argument behind a theorem.

    `identity` an exact equality, shown symbolically; `limit` shown symbolically under each case of its hypotheses;
    `bound` an inequality certified by ball arithmetic on the whole of a stated domain; `asymptotic` a rate with
    explicit constants, certified on a stated range; `lemma` an argument for people, checked where a machine can;
    `measured` agreement of a heuristic with simulation, with its error: no proof.
    """

    IDENTITY = "identity"
    LIMIT = "limit"
    BOUND = "bound"
    ASYMPTOTIC = "asymptotic"
    LEMMA = "lemma"
    MEASURED = "measured"


@dataclass(frozen=True)
class Step:
    """One step of an argument.

    Attributes:
        claim: what the step says, in readable mathematics.
        verdict: whether the machine found it to hold.
        how: the method, and with it what the verdict rests on.
        detail: the counter-example of a step that fails, the reason of an undecided one, else numbers.
        domain: the domain that a certificate covers; empty for exact algebra.
        checked: False for a step that only people can check.
    """

    claim: str
    verdict: Verdict
    how: str
    detail: str = ""
    domain: str = ""
    checked: bool = True


def argued(claim: str, because: str) -> Step:
    """A step that no machine checks; only a lemma may hold one.

    Args:
        claim: what it says.
        because: the argument.
    """
    return Step(claim, Verdict.HOLDS, "argument for people, not checked", because, checked=False)


def combined(steps: Iterable[Step]) -> Verdict:
    """The verdict of an argument: fails where a step fails, else undecided where one is, or where none was checked."""
    found = list(steps)
    if any(step.verdict is Verdict.FAILS for step in found):
        return Verdict.FAILS
    open_ = any(step.verdict is Verdict.UNDECIDED for step in found)
    return Verdict.UNDECIDED if open_ or not any(step.checked for step in found) else Verdict.HOLDS
