# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # How do we know? One theorem, taken apart
#
# The first lesson ended with a formula. On a simplex of $n$ tokens with common cosine $\rho$, at inverse temperature
# $\beta=\gamma\log n$, half of a token's weight is its own at
#
# $$\gamma_{1/2}=\frac{\log(n-1)}{(1-\rho)\log n}\;\longrightarrow\;\frac1{1-\rho}\,.$$
#
# It was derived on paper and agreed with a simulation. Both may be wrong in the same way. `critattn prove` checks
# such statements by machine. This lesson does by hand what it does, with the statement above.

# %%
import math

import sympy as sp
from flint import arb

import critattn as ca
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Theorem,
    Verdict,
    agrees,
    equal,
    examine,
    load_theorem,
    positive,
    positive_from_zero,
    prove_positive,
    run,
)

# %% [markdown]
# ## 1. Why not just compare numbers?
#
# Here are two formulas, the one above and its limit. Only one of them is true. Compare what they give for the log
# odds of the self weight, $\log\frac{A_{ii}}{1-A_{ii}}=\gamma(1-\rho)\log n-\log(n-1)$, which is 0 where the weight
# is $1/2$:

# %%
rho = 0.3


def log_odds(gamma, log_n):
    """Logarithm of the self weight over the rest."""
    return gamma * (1 - rho) * log_n - (log_n + math.log1p(-math.exp(-log_n)))


def exact(log_n):
    """The gamma of half weight, by the formula."""
    return (log_n + math.log1p(-math.exp(-log_n))) / ((1 - rho) * log_n)


errors = {
    n: (abs(log_odds(exact(math.log(n)), math.log(n))), abs(log_odds(1 / (1 - rho), math.log(n))))
    for n in (10, 10**4, 10**17)
}
assert errors[10][1] > 0.1
assert errors[10**17][1] < 1e-13
errors

# %% [markdown]
# At $n=10$ the false one is caught. At $n=10^{17}$ it is as good as the true one: floating point cannot tell them
# apart, and a test at large $n$ with a tolerance would pass. And no number of points says anything about the others.
#
# ## 2. A symbolic step
#
# Write the weight as it is *defined*, one key at score 1 and $n-1$ keys at score $\rho$, and put the formula in. With
# $t=n^{\gamma(1-\rho)}$, the factor by which the own score is ahead, the weight is $t/(t+n-1)$, and at the claimed
# $\gamma$ the logarithm of $t$ should be $\log(n-1)$.

# %%
n, r, ahead = sp.symbols("n rho t", positive=True)
claimed = sp.log(n - 1) / ((1 - r) * sp.log(n))
sizes = {n: (3, 17, 1009, 10**40)}
steps = [
    equal("log t = gamma (1-rho) log n = log(n-1)", claimed * (1 - r) * sp.log(n), sp.log(n - 1), at=sizes),
    equal("and t = n - 1 means weight 1/2", (ahead / (ahead + n - 1)).subs(ahead, n - 1), sp.Rational(1, 2)),
]
assert all(step.verdict is Verdict.HOLDS for step in steps)
[(step.claim, str(step.verdict), step.how) for step in steps]

# %% [markdown]
# SymPy reduces the difference of the two sides to zero, for *all* $n$ and $\rho$. What does the same step say of the
# limit formula? It tries four points first, in *ball arithmetic*: numbers with a proved error.

# %%
wrong = equal("log t = log(n-1)", 1 / (1 - r) * (1 - r) * sp.log(n), sp.log(n - 1), at=sizes)
assert wrong.verdict is Verdict.FAILS
wrong.detail

# %% [markdown]
# A counter-example, not a suspicion. There is a third verdict. An equality that holds at the sample points and that
# SymPy does not reduce is `undecided`, and what is undecided never counts as true.
#
# ## 3. A certificate
#
# How far is $\gamma_{1/2}$ below its limit?
#
# $$\frac1{1-\rho}-\gamma_{1/2}=\frac{-\log(1-1/n)}{(1-\rho)\log n}\,,$$
#
# and the claim is that $x<-\log(1-x)<x+x^2$ for $x=1/n$ and **every** $n\ge2$. That is an inequality, which algebra
# does not settle. A ball does: it holds a whole interval of $x$, and a function of it encloses all its values there.

# %%
ball = arb(0.25).union(arb(0.5))  # every x of [1/4, 1/2] at once
enclosure = -(1 - ball).log() - ball
assert enclosure.contains(-(1 - arb(0.3)).log() - arb(0.3))
assert not enclosure > 0  # true of what it encloses, but the interval is too wide to see that
certificate = prove_positive(lambda x: -(1 - x).log() - x, {"x": (0.25, 0.5)})
assert certificate.verdict is Verdict.HOLDS
certificate

# %% [markdown]
# One ball does not decide. The interval is halved until the ball of each part lies above 0. The parts cover the
# domain, so that the inequality is proved there, rounding included, for infinitely many $x$. Try it on all of
# $(0,\frac12]$:

# %%
touching = prove_positive(lambda x: -(1 - x).log() - x, {"x": (0, 0.5)}, budget=2000)
assert touching.verdict is Verdict.FAILS
touching

# %% [markdown]
# Of course: at $x=0$ the two sides are equal, and the statement "positive on the closed interval" is false there. Yet
# $x\to0$ is the case of interest, $n\to\infty$. The way out is Taylor's formula. The function and its first derivative
# vanish at 0, so $f(x)=\frac{x^2}2f''(\xi)$; if $f''>0$ on all of $[0,\frac12]$, a claim with room, then $f>0$ on
# $(0,\frac12]$.

# %%
x = sp.Symbol("x", nonnegative=True)
shift = -sp.log(1 - x)
bounds = [
    positive_from_zero("x < -log(1-x)", shift - x, (x, 0.5, {}), order=2),
    positive_from_zero("-log(1-x) < x + x^2", x + x**2 - shift, (x, 0.5, {}), order=2),
]
assert all(step.verdict is Verdict.HOLDS for step in bounds)
[(step.claim, step.how, step.domain) for step in bounds]

# %% [markdown]
# With $1/n$ as the variable, the second line is true of every $n\ge2$ there is. A sharper claim, $x+\frac12x^2$, fails:

# %%
sharper = positive_from_zero("-log(1-x) < x + x^2/2", x + x**2 / 2 - shift, (x, 0.5, {}), order=2)
assert sharper.verdict is Verdict.FAILS
sharper.detail

# %% [markdown]
# ## 4. Mutants: does the check check?
#
# A check that says yes to everything says yes to a theorem too. So each theorem brings false variants of itself, its
# *mutants*, and counts only if the same steps refute every one. For that the parts that could be wrong are taken out of
# the check and passed in, as `claim`:


# %%
def symbolic(claim):
    """Half weight, from the definition."""
    yield equal("log t = log(n-1)", claim.root * (1 - r) * sp.log(n), sp.log(n - 1), at=sizes)


def certified(claim):
    """The distance from the limit for every n, and what the package computes."""
    yield positive_from_zero("-log(1-x) < x + c x^2", x + claim.c * x**2 - shift, (x, 0.5, {}), order=2)
    at_log = {n: sp.exp(sp.Symbol("log_n", positive=True))}
    points = [{"rho": 0.25, "log_n": 2.0}, {"rho": 0.7, "log_n": 40.0}, {"rho": 0.0, "log_n": 690.0}]
    function, tolerance = ca.theory.simplex.half_weight_gamma, 64 * 2.0**-52
    yield agrees("the package's formula", function, claim.root.subs(at_log), points, tolerance=tolerance)


half_weight = {
    "name": "half_weight",
    "statement": Statement("Half of the weight is the token's own just below 1/(1-rho).", r"\gamma_{1/2}=..."),
    "hypotheses": ("rho < 1", "n >= 2"),
    "source": "[derived, docs/theory.md (1.7)]",
    "grade": Grade.BOUND,
    "claim": {"root": claimed, "c": 1},
    "symbolic": symbolic,
    "certified": certified,
}
mutants = (
    Mutant("the limit", {"root": 1 / (1 - r)}, "true for infinitely many tokens only"),
    Mutant("1 + rho", {"root": sp.log(n - 1) / ((1 + r) * sp.log(n))}, "a sign"),
    Mutant("c = 1/2", {"c": sp.Rational(1, 2)}, "Taylor's polynomial is a lower bound"),
)
outcome = examine(Theorem(**half_weight, mutants=mutants))
assert outcome.holds
assert outcome.mutants_refuted == 3
{one.name: one.step.detail for one in outcome.refutations}

# %% [markdown]
# Now a lazy check, which compares the claim with itself. It accepts the theorem. It accepts the mutants as well, and
# that gives it away:


# %%
def lazy(claim):
    """Compares what is claimed with what is claimed."""
    yield equal("the root is the root", claim.root, claim.root)


caught = examine(Theorem(**{**half_weight, "symbolic": lazy, "certified": None}, mutants=mutants))
assert caught.verdict is Verdict.FAILS
caught.reason

# %% [markdown]
# ## 5. A wrong formula, planted
#
# The last step above ties the theorem to the code that everybody calls. Spoil that code by one part in $10^{11}$, which
# no plot would show, and run the check of the package on it:

# %%
right = ca.theory.simplex.half_weight_gamma
ca.theory.simplex.half_weight_gamma = lambda rho, log_n: right(rho, log_n) * (1 + 1e-11)
try:
    (spoiled,) = run(["simplex_weights"])
finally:
    ca.theory.simplex.half_weight_gamma = right
(sound,) = run(["simplex_weights"])
assert spoiled.verdict is Verdict.FAILS
assert "half_weight_gamma" in spoiled.reason
assert sound.holds
spoiled.reason

# %% [markdown]
# This step guards the code. It is agreement at a few points, no proof, and the theorem does not rest on it.
#
# ## 6. Hypotheses are part of the statement
#
# Published sentences become mutants too. One reads: a float32 or bfloat16 softmax gives a key the weight
# $e^{\tau}=0$ where $\tau$ is the logarithm of the smallest subnormal number. With rounding to nearest that number is
# just that, a number; zero begins $\log2$ lower. The theorem on number formats keeps the sentence as a false variant:

# %%
formats = load_theorem("format_thresholds")
(published,) = (one for one in formats.mutants if one.name == "exp(tau_subnormal) = 0")
refuting = next(step for step in formats.steps(published.changes) if step.verdict is Verdict.FAILS)
assert all(step.verdict is Verdict.HOLDS for step in formats.steps())
published.why, refuting.claim, refuting.detail

# %% [markdown]
# And a hypothesis that is needed gets a mutant without it. Is $A_{ii}>\frac12$ above $1/(1-\rho)$, and from which
# $\gamma$ on? The box says which $\gamma$ were covered; reach below and a point turns up.

# %%
log_n, gamma = sp.symbols("log_n gamma", positive=True)
margin = gamma * (1 - sp.Rational(3, 10)) * log_n - log_n - sp.log(1 - sp.exp(-log_n))
inside = positive("A_ii > 1/2", margin, {"log_n": ("7/10", 690), "gamma": ("3/2", 4)})
beyond = positive("A_ii > 1/2", margin, {"log_n": ("7/10", 690), "gamma": ("13/10", 4)})
assert (inside.verdict, beyond.verdict) == (Verdict.HOLDS, Verdict.FAILS)
inside.domain, beyond.detail

# %% [markdown]
# ## What to take along
#
# * Algebra shows equalities for all values, balls show inequalities on whole domains, Taylor's formula takes them to
#   the end of the domain. A number at a point shows only that something is false.
# * Three verdicts: holds, fails with a counter-example, undecided. Undecided is not true.
# * A check is worth what it refutes. All of them, with their mutants: `critattn prove`, and one step by step:
#   `critattn prove --explain simplex_weights`. How to write another: docs/proofs.md.
