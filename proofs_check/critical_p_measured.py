"""The predictor of the critical p against simulated rows, with its standard error: a measurement, no proof."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, Verdict
from critattn.theorems.theorem import Claim
from critattn.theory import relu_power

CASES = ((256, 16, 0.3), (256, 64, 0.1), (256, 64, 0.6))
DRAWS = 24
SEED = 20251030


def certified(claim: Claim) -> Iterator[Step]:
    """Each case: the relative distance against the error class and four standard errors."""
    for n, d, rho in CASES:
        mean, error = simulated(n, d, rho)
        predicted = float(claim.predictor(rho, math.log(n), d))
        apart = abs(predicted - mean) / mean
        allowed = claim.error_class + 4 * error / mean
        words = f"n = {n}, d = {d}, rho = {rho}: within {claim.error_class:g} of it and four standard errors"
        detail = (
            f"predicted {predicted:.4f}, simulated {mean:.4f} +- {error:.4f}: {apart:.2%} apart, {allowed:.2%} allowed"
        )
        verdict = Verdict.HOLDS if apart <= allowed else Verdict.FAILS
        yield Step(words, verdict, f"{DRAWS} draws of {n} tokens, seed {SEED}", detail)


@lru_cache
def simulated(n: int, d: int, rho: float) -> tuple[float, float]:
    """Mean over draws of the p at which the mean self weight of all rows is 1/2, with its standard error."""
    rng = np.random.default_rng([SEED, n, d, int(1000 * rho)])
    roots = [critical_p(rng, n, d, rho) for _ in range(DRAWS)]
    return float(np.mean(roots)), float(np.std(roots, ddof=1) / math.sqrt(DRAWS))


def critical_p(rng: np.random.Generator, n: int, d: int, rho: float) -> float:
    """Of one draw of tokens whose common direction has |z_0|^2 = d, brought to norm 1."""
    common = rng.standard_normal(d)
    common *= math.sqrt(rho) / np.linalg.norm(common)
    tokens = common + math.sqrt((1 - rho) / d) * rng.standard_normal((n, d))
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    values = np.logaddexp(0.0, math.log(d) * math.log(n) * tokens @ tokens.T)
    excess = np.maximum(values - values.mean(axis=1, keepdims=True), 0.0)
    own = np.diagonal(excess)[:, None]
    shares = np.where(excess > 0, excess, 1e-300) / own
    logs = np.log(shares)

    def missing(p: float) -> float:
        return float(np.mean(1 / np.exp(p * logs).sum(axis=1))) - 0.5

    root: Any = brentq(missing, 0.5, 40.0, xtol=1e-6)
    return float(root)


def naive(rho: float, log_n: float, d: float) -> float:
    """The ratio log n/log SNR: every noise score as large as one standard deviation."""
    return log_n / math.log(float(relu_power.signal_to_noise(rho, d)))


THEOREM = Theorem(
    name="critical_p_measured",
    statement=Statement(
        "The p at which ReLU^p rows give half of their weight to themselves is predicted to 2 %, in mean over draws of "
        "Gaussian tokens around a common direction. A measurement of a heuristic.",
        r"\bigl|p_c^{\text{predicted}}/p_c^{\text{simulated}}-1\bigr|\le.02+4\,\text{s.e.}",
    ),
    hypotheses=(
        "tokens of norm 1 around a common direction with |z_0|^2 = d, all keys seen",
        "gamma = log d; three cases of n = 256, in which the other predictors differ by more",
    ),
    source="[heuristic, docs/theory.md (12.9)]",
    grade=Grade.MEASURED,
    claim={"predictor": relu_power.critical_p, "error_class": 0.02},
    certified=certified,
    mutants=(
        Mutant(
            "leading order in log n", {"predictor": relu_power.critical_p_lambert}, "(12.7): high by log log n/log n"
        ),
        Mutant(
            "Gaussian scores", {"predictor": relu_power.critical_p_gaussian}, "(12.6): scores are bounded, rows differ"
        ),
        Mutant(
            "half moment on the sphere",
            {"predictor": relu_power.critical_p_beta},
            "(12.8): rows differ, softplus is convex",
        ),
        Mutant("log n/log SNR", {"predictor": naive}, "the noise is not all one standard deviation large"),
    ),
)
