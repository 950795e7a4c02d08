"""The softmax weights at inverse temperature gamma log n are powers of n."""

from collections.abc import Iterator

import sympy as sp

from critattn.symbolic import GAMMA, RHO, N
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, agrees, equal, grid
from critattn.theorems.theorem import Claim
from critattn.theory import simplex

SCORES = sp.symbols("g1:5", real=True)
AT = {N: (2, 17, 1009, 40), GAMMA: (1, 2, 3, 4)}


def symbolic(claim: Claim) -> Iterator[Step]:
    """Term by term, then in a row of four keys and on the simplex."""
    score = SCORES[0]
    yield equal(
        "exp(beta g) = n^(gamma g) for every score g, so that numerators and sums of any number of keys agree",
        sp.exp(claim.beta * score),
        claim.base ** (GAMMA * score),
        at=AT,
    )
    old = [sp.exp(claim.beta * g) for g in SCORES]
    new = [claim.base ** (GAMMA * g) for g in SCORES]
    yield equal("the weights of a row of four keys agree", old[0] / sum(old), new[0] / sum(new), at=AT)
    # a common shift of the scores cancels, and the rewriting keeps that
    shift = sp.Symbol("s", real=True)
    moved = [claim.base ** (GAMMA * (g + shift)) for g in SCORES]
    yield equal("a shift of all scores leaves the weights", moved[1] / sum(moved), new[1] / sum(new), at=AT)


def certified(claim: Claim) -> Iterator[Step]:
    """The numerical self weight of a simplex is that ratio of powers."""
    log_n = sp.Symbol("log_n", positive=True)
    base = claim.base.subs(N, sp.exp(log_n))
    own, other = base**GAMMA, base ** (GAMMA * RHO)
    yield agrees(
        "theory.simplex.self_weight = n^gamma/(n^gamma + (n-1) n^(gamma rho))",
        simplex.self_weight,
        own / (own + (sp.exp(log_n) - 1) * other),
        grid(gamma=(0.0, 0.5, 1.0, 2.5), rho=(0.0, 0.25, 0.7), log_n=(0.7, 5.0, 40.0, 690.0)),
        tolerance=lambda gamma, rho, log_n: 2.0**-52 * (8 + 4 * (1 + gamma) * log_n),
    )


THEOREM = Theorem(
    name="log_n_rewriting",
    statement=Statement(
        "Softmax of beta times the scores with beta = gamma log n is a ratio of powers of n.",
        r"\frac{e^{\beta G_{ij}}}{\sum_k e^{\beta G_{ik}}} = \frac{n^{\gamma G_{ij}}}{\sum_k n^{\gamma G_{ik}}},"
        r"\quad \beta=\gamma\log n",
    ),
    hypotheses=("n >= 2 is the number of tokens", "log is the natural logarithm", "the scores are real"),
    source="[Chen 2025, (1.1), (1.2), (2.1); docs/theory.md (0.1)]",
    grade=Grade.IDENTITY,
    claim={"beta": GAMMA * sp.log(N), "base": N},
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("binary logarithm", {"beta": GAMMA * sp.log(N) / sp.log(2)}, "beta = gamma log2 n has powers of n^1.44"),
        Mutant("squared logarithm", {"beta": GAMMA * sp.log(N) ** 2}, "that law has gamma growing as log n"),
        Mutant("base n - 1", {"base": N - 1}, "the powers are of the number of tokens, the self included"),
    ),
)
