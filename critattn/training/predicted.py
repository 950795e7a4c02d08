"""Critical control parameters that theory gives a head from its cosines, its length and its dimension."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from critattn.models.predictions import score_statistics, tail_multiplier
from critattn.normalisers import FirstStage, ReluPower, Sigmoid, SigmoidL1, Softmax, SoftplusL1
from critattn.protocols import Array, Normaliser, RowContext, precision
from critattn.theory import finite_dimension, needle, relu_power, sigmoid, softplus
from critattn.theory.quadrature import bracketed_root

Values = NDArray[np.float64]
# factors of the scores at which a tail is looked for (a cap can undo it again), and halvings of what is between two
LOOKED, HALVINGS = np.geomspace(1e-3, 1e3, 37), 20
POWERS = np.geomspace(1e-2, 1e3, 101)


class Scores(NamedTuple):
    """The scores of a layer's heads on sequences of one length.

    Attributes:
        context: of the rows.
        cosines: of queries and keys, (sequences, heads, rows, keys).
        logits: likewise, with law, cap and bias, in nats.
        where: (rows, keys), keys that a row sees.
        gammas: (heads,) coefficients of log n times the cosine in the logits.
        logits_at: maps factors (heads,) of the scores to logits, where a cap or a bias comes after them; None where
            logits are proportional to scores.
    """

    context: RowContext
    cosines: np.ndarray
    logits: np.ndarray
    where: np.ndarray
    gammas: Values
    logits_at: Callable[[Values], Values] | None = None


class Angles(NamedTuple):
    """Mean cosines of each head, (heads,): with other positions, with the own one, and the largest of a row."""

    rho: Values
    own: Values
    top: Values


def angles(stack: Scores) -> Angles:
    """Mean cosines over rows and sequences."""
    mine = _own_places(stack.where)
    others = stack.where & ~mine
    counts = others.sum(axis=-1)
    rho = np.where(others, stack.cosines, 0).sum(axis=-1) / counts
    own = np.where(mine, stack.cosines, 0).sum(axis=-1)
    top = np.where(stack.where, stack.cosines, -np.inf).max(axis=-1)
    return Angles(*(one.mean(axis=(0, 2)) for one in (rho, own, top)))


def _own_places(where: np.ndarray) -> np.ndarray:
    """The last key that a row sees under a causal mask is its own position."""
    rows, keys = where.shape
    return np.arange(keys)[None, :] == keys - rows + np.arange(rows)[:, None]


def predictions(normaliser: Normaliser, stack: Scores, dim: int) -> dict[str, Values]:
    """Predicted critical control parameters by name, (heads,); infinite where theory has none, NaN outside its range.

    Softmax, gamma: `limit` is 1/(1-rho), `finite_dimension` the half weight of tokens of that rho in d dimensions,
    `gap` log(n-1)/((s-rho) log n) with s the mean of the largest cosine, `tail` that of the logits' upper tail. The
    first three know nothing of a bias or a cap; the tail is that of logits with them, at the gamma where it says 1/2.
    Softplus and sigmoid over their sums, gamma: `simplex` is the half weight among equal cosines rho, and for softplus
    `gap` with the largest cosine s in place of 1. Powers, p: `tokens` is that of tokens of that rho in d dimensions
    (softplus as first stage), `needle` that of the top of each row among Gaussian others. In d dimensions a negative
    rho counts as 0.

    Args:
        normaliser: of the heads.
        stack: their scores.
        dim: d, channels of a head.

    Source: [docs/theory.md (4.5), (11.3), (12.9), (12.12), (13.4), (16.7)], heuristic for trained heads.
    """
    found = angles(stack)
    log_n = float(np.mean(np.log(stack.where.sum(axis=-1))))
    if isinstance(normaliser, Softmax):
        return _softmax(found, stack, log_n, dim)
    if isinstance(normaliser, SoftplusL1):
        bounded = [np.clip(one, -1, 1) for one in found]
        made = {"simplex": softplus.half_weight_gamma(bounded[0], log_n)}
        made["gap"] = softplus.half_weight_gamma(bounded[0], log_n, self_score=bounded[2])
        return {name: _never(values) for name, values in made.items()}
    if isinstance(normaliser, Sigmoid | SigmoidL1):
        factor = float(np.asarray(normaliser.bias_factor))
        return {"simplex": _never(sigmoid.half_weight_window(np.clip(found.rho, -1, 1), log_n, bias_factor=factor).low)}
    if isinstance(normaliser, ReluPower):
        return _power(normaliser, found, stack, log_n, dim)
    return {}


def _never(values: object) -> Values:
    """No root means no transition."""
    found = np.asarray(values, np.float64)
    return np.where(np.isnan(found), math.inf, found)


def _softmax(found: Angles, stack: Scores, log_n: float, dim: int) -> dict[str, Values]:
    rho = found.rho
    others = math.log(math.expm1(log_n))
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.where(found.top > rho, others / ((found.top - rho) * log_n), math.inf)
    return {
        "limit": np.where(rho < 1, 1 / np.where(rho < 1, 1 - rho, 1), math.inf),
        "finite_dimension": _in_range(rho, lambda _, one: finite_dimension.half_weight_gamma(one, log_n, dim)),
        "gap": gap,
        "tail": at_factors(stack.gammas, _tail_factor(stack)),
    }


def at_factors(own: Values, factors: Values) -> Values:
    """Values of the control parameter at factors of the own ones; of 0, as of a head without queries, infinite too."""
    never = np.isinf(factors)
    return np.where(never, np.copysign(np.inf, own), own * np.where(never, 1, factors))


def _tail_factor(stack: Scores) -> Values:
    """Least factor of the scores at which the median row has its half weight by its upper tail, (heads,).

    0 where that is so at the least factor already, infinite where it never is.
    """

    def points(logits: np.ndarray) -> Values:
        tails = tail_multiplier(score_statistics(logits, stack.where))
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = 1 / tails
        # equal scores have no tail: a head of such rows alone is below its transition
        rows = np.where(np.isnan(rows).all(axis=(0, 2), keepdims=True), 0.0, rows)
        return np.nanmedian(rows, axis=(0, 2))

    if stack.logits_at is None:
        with np.errstate(divide="ignore"):
            return 1 / points(stack.logits)
    above = np.stack([points(stack.logits_at(np.full(len(stack.gammas), factor))) >= 1 for factor in LOOKED])
    first = above.argmax(axis=0)
    low, high = LOOKED[np.maximum(first - 1, 0)], LOOKED[first]
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        up = points(stack.logits_at(middle)) >= 1
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    return np.where(first > 0, np.sqrt(low * high), np.where(above[0], 0.0, math.inf))


def _power(normaliser: ReluPower, found: Angles, stack: Scores, log_n: float, dim: int) -> dict[str, Values]:
    made = {"needle": np.array([_needle(float(snr), log_n) for snr in signal_to_noise(normaliser, stack)])}
    if isinstance(normaliser.stage_one, SoftplusL1):
        slopes = stack.gammas.tolist()
        made["tokens"] = _in_range(
            found.rho, lambda head, one: relu_power.critical_p(one, log_n, dim, gamma=slopes[head])
        )
    return made


def _in_range(rho: Values, predict: Callable[[int, float], Any]) -> Values:
    """A prediction for each head by its number and its rho, which theory wants in [0, 1); NaN at 1."""
    within = np.maximum(rho, 0).tolist()
    return np.array([float(predict(head, one)) if one < 1 else math.nan for head, one in enumerate(within)])


def signal_to_noise(normaliser: ReluPower, stack: Scores) -> Values:
    """Height of a row's top key above the mean of the others, in their standard deviation, (heads,) medians over rows.

    Of the first stage's phi, to which the power is applied.
    """
    with precision("float64"):
        logs = np.asarray(_log_phi(normaliser.stage_one, jnp.asarray(stack.logits), stack.context))
    masked = np.where(stack.where, logs, -np.inf)
    phi = np.exp(masked - masked.max(axis=-1, keepdims=True))
    first = np.arange(phi.shape[-1]) == phi.argmax(axis=-1)[..., None]
    others = stack.where & ~first
    count = others.sum(axis=-1)
    mean = np.where(others, phi, 0).sum(axis=-1) / count
    spread = np.sqrt(np.where(others, (phi - mean[..., None]) ** 2, 0).sum(axis=-1) / count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nanmedian((1 - mean) / spread, axis=(0, 2))


@jax.jit
def _log_phi(stage: FirstStage, logits: Array, context: RowContext) -> Array:
    return stage.log_phi(logits, context)


def _needle(snr: float, log_n: float) -> float:
    """Least p at which a typical row of Gaussian others leaves half of its weight to the top key; infinite for none."""
    if not 0 < snr < math.inf:
        return math.inf if snr <= 0 else 0.0
    odds = np.asarray(needle.typical_log_odds_against(POWERS, snr, log_n))
    below = np.flatnonzero(odds <= 0)
    if not below.size:
        return math.inf
    if below[0] == 0:
        return 0.0

    def at(p: float) -> float:
        return float(needle.typical_log_odds_against(p, snr, log_n))

    return bracketed_root(at, float(POWERS[below[0] - 1]), float(POWERS[below[0]]), xtol=1e-12)
