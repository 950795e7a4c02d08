"""The ReLU^p re-weighted softplus row on near-simplex tokens: self weight and critical p by quadrature.

The stage-one score is sp(c s), c = gamma log n, and a key survives where that exceeds the row's mean m. Everything is
kept relative to the score of a typical key, so that the spread of the scores may be far below their rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from critattn.theory.half_weight import log_others, spread
from critattn.theory.quadrature import Numbers, common_direction, gauss_legendre, peak_window, root_near

# nats below a peak at which an integrand ends
DROP = 40.0
# beyond this dimension the law of a row is Gaussian to better than rounding leaves the geometry
GAUSSIAN_FROM = 1e8
# cos(psi)^WIDE is a Gaussian to double precision
WIDE = 1e30
FIRST_DEGREE, LAST_DEGREE = 16, 128
ANGLES, SEARCH_NODES = 48, 12
ROW_NODES = 1024
SMALLEST_P = 1e-9


@dataclass(frozen=True)
class Stage:
    """The first stage of a row: softplus of c s in n tokens, relative to its value at a typical score.

    Attributes:
        c: steepness gamma log n.
        typical: the score rho of a typical key.
        log_n: natural logarithm of the number of tokens.
    """

    c: float
    typical: float
    log_n: float

    def rise(self, shift: Numbers) -> np.ndarray:
        """sp(z + shift) - sp(z) at z = c rho, to full relative precision at any shift."""
        z = self.c * self.typical
        small = np.clip(shift, -1.0, 1.0)
        near = np.log1p(special.expit(z) * np.expm1(small))
        far = np.logaddexp(special.log_expit(-z), special.log_expit(z) + shift)
        return np.where(np.abs(shift) < 1, near, far)

    def shift_of(self, rise: np.ndarray) -> np.ndarray:
        """The inverse of `rise`."""
        z = self.c * self.typical
        near = np.log1p(np.expm1(np.clip(rise, -1.0, 1.0)) / special.expit(z))
        missing = np.minimum(np.exp(special.log_expit(-z) - rise), 1.0)
        return np.where(np.abs(rise) < 1, near, rise - special.log_expit(z) + np.log1p(-missing))

    @property
    def top(self) -> float:
        """Rise of the self score."""
        return float(self.rise(self.c * (1 - self.typical)))


def _log_sphere_norm(power: float) -> float:
    """Log of the integral of cos(psi)^power over (-pi/2, pi/2)."""
    return float(special.betaln(0.5, (power + 1) / 2))


def mean_rise(stage: Stage, shift: np.ndarray, slope: np.ndarray, power: float, *, count: int) -> np.ndarray:
    """Mean of `stage.rise(shift + slope sin psi)` over psi with density cos(psi)^power.

    Args:
        stage: the first stage.
        shift: mean of the argument relative to a typical key, any shape.
        slope: its amplitude, same shape.
        power: exponent of the density.
        count: nodes in each of the two intervals that meet where the score is 0.
    """
    edge = np.arcsin(min(1.0, np.sqrt(2 * DROP / (power + 1e-300))))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        kink = np.arcsin(np.clip(-(stage.c * stage.typical + shift) / slope, -1.0, 1.0))
    kink = np.clip(np.where(np.isnan(kink), edge, kink), -edge, edge)
    nodes, weights = gauss_legendre(count)
    total = np.zeros(shift.shape)
    for low, high in ((np.full(shift.shape, -edge), kink), (kink, np.full(shift.shape, edge))):
        length = (high - low)[..., None]
        psi = low[..., None] + length * nodes
        x = np.sin(psi)
        density = np.exp(special.xlog1py(power / 2, -x * x))
        total += (stage.rise(shift[..., None] + slope[..., None] * x) * density * length) @ weights
    return total / np.exp(_log_sphere_norm(power))


def _survivor_window(start: np.ndarray, power: float, p: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval of sin(psi) that holds the mass of cos(psi)^power (sin(psi) - start)_+^q for p <= q <= 2p."""

    def peak(q: float) -> np.ndarray:
        root = np.sqrt((power * start) ** 2 + 4 * q * (q + power))
        below = 2 * q / (root - power * np.minimum(start, 0.0))
        above = (root + power * np.maximum(start, 0.0)) / (2 * (q + power))
        return np.where(start < 0, below, above)

    left, right = peak(p), peak(2 * p)
    fall = DROP / p
    width = np.minimum((right - start) * (fall + np.sqrt(fall**2 + 2 * fall)), np.sqrt(2 * DROP / (power + 1e-300)))
    low = left - np.sqrt(2 * DROP) / np.sqrt(p / (left - start) ** 2 + power)
    return np.maximum(np.maximum(low, start), -1.0), np.minimum(right + width, 1.0)


def log_survivors(
    stage: Stage, p: float, excess: tuple[np.ndarray, np.ndarray, np.ndarray], power: float, *, count: int
) -> np.ndarray:
    """Log of the mean of (rise - floor)_+^p over psi with density cos(psi)^power.

    Args:
        stage: the first stage.
        p: exponent, > 0.
        excess: shift and amplitude of the argument, and the floor (the row mean's rise); broadcast to one shape.
        power: exponent of the density.
        count: nodes, denser at the lower end, where the integrand starts as a power.
    """
    shift, slope, floor = np.broadcast_arrays(*excess)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        start = np.clip((stage.shift_of(floor) - shift) / slope, -1e9, 1e9)
    start = np.where(np.isnan(start), 1e9, start)
    alive = start < 1
    low, high = _survivor_window(np.where(alive, start, 0.0), power, p)
    bottom = np.arcsin(np.minimum(low, 1.0))
    length = np.arcsin(high) - bottom
    nodes, weights = gauss_legendre(count)
    x = np.sin(bottom[..., None] + length[..., None] * nodes**2)
    over = stage.rise(shift[..., None] + slope[..., None] * x) - floor[..., None]
    with np.errstate(divide="ignore"):
        logs = special.xlog1py(power / 2, -x * x) + p * np.log(np.maximum(over, 0.0))
        sums = np.asarray(special.logsumexp(logs, b=2 * nodes * weights * length[..., None], axis=-1))
    return np.where(alive, sums - _log_sphere_norm(power), -np.inf)


@dataclass(frozen=True)
class Rows:
    """Rows of one layer, each with its own mean: what the odds against the self weight need at every p.

    Attributes:
        stage: the first stage.
        floor: rise of each row's mean, (rows,).
        log_crowd: maps p to the log of a key's mean (rise - floor)_+^p, (rows,).
        share: maps values on the rows to the rule's nodes, (nodes, rows).
        weights: weights of these nodes, (nodes,).
    """

    stage: Stage
    floor: np.ndarray
    log_crowd: Callable[[float], np.ndarray]
    share: np.ndarray
    weights: np.ndarray

    def log_odds_against(self, p: float) -> np.ndarray:
        """Annealed log odds against the self weight, log T(t, p), (rows,)."""
        return log_others(self.stage.log_n) + self.log_crowd(p) - p * np.log(self.stage.top - self.floor)

    def self_weight(self, p: float) -> float:
        """Mean over rows of 1/(1 + T)."""
        return float(self.weights @ special.expit(-(self.share @ self.log_odds_against(p))))


def _row_floor(stage: Stage, mean: np.ndarray) -> np.ndarray:
    """Rise of the row mean, the self score included."""
    alone = np.exp(-stage.log_n)
    return alone * stage.top + (1 - alone) * mean


def uniform_rows(stage: Stage, slope: float, power: float, *, count: int) -> Rows:
    """One row for all, with scores typical + slope/c sin(psi), psi of density cos(psi)^power."""
    shift, amplitude = np.zeros(1), np.full(1, slope)
    floor = _row_floor(stage, mean_rise(stage, shift, amplitude, power, count=count))

    def log_crowd(p: float) -> np.ndarray:
        return log_survivors(stage, p, (shift, amplitude, floor), power, count=count)

    return Rows(stage, floor, log_crowd, np.ones((1, 1)), np.ones(1))


def _interpolation(count: int, low: float, high: float, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev points (count,) in [low, high] and the matrix (at, count) that interpolates from them."""
    points = chebyshev.chebpts1(count)
    scale = np.full((count, 1), 2 / count)
    scale[0] = 1 / count
    coefficients = scale * chebyshev.chebvander(points, count - 1).T
    reduced = (2 * at - low - high) / (high - low)
    return (low + high + (high - low) * points) / 2, chebyshev.chebvander(reduced, count - 1) @ coefficients


def common_rows(stage: Stage, rho: float, d: float, *, count: int) -> Rows:
    """Rows at Chebyshev points of the angle with the common direction; keys around that direction too."""
    law = common_direction(rho, d)
    at, weights = law.nodes(ROW_NODES)
    angle, share = _interpolation(count, *law.window, at)

    def shifts(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = np.cos(angle)[:, None] * np.cos(key) - rho
        return stage.c * along, stage.c * np.sin(angle)[:, None] * np.sin(key)

    keys, key_weights = law.nodes(ANGLES)
    floor = _row_floor(stage, mean_rise(stage, *shifts(keys), d - 3, count=ANGLES) @ key_weights)

    def log_crowd(p: float) -> np.ndarray:
        def tilted(key: np.ndarray, count: int = SEARCH_NODES) -> np.ndarray:
            found = log_survivors(stage, p, (*shifts(key), floor[:, None]), d - 3, count=count)
            return law.log_density(key) + found

        ends = np.zeros((len(angle), 1)), np.full((len(angle), 1), law.window[1])
        low, high = peak_window(tilted, *ends)
        nodes, key_weights = gauss_legendre(ANGLES)
        values = tilted(low + (high - low) * nodes, ANGLES)
        return np.asarray(special.logsumexp(values, b=key_weights * (high - low), axis=1)) - law.log_norm

    return Rows(stage, floor, log_crowd, share, weights)


def gaussian_rows(c: float, rho: float, log_n: float, sigma: float) -> Rows:
    """One row for all, with independent Gaussian scores of mean rho and standard deviation sigma."""
    return uniform_rows(Stage(c, rho, log_n), c * sigma * np.sqrt(WIDE), WIDE, count=ANGLES)


def rows_of(c: float, rho: float, log_n: float, d: float, *, count: int) -> Rows:
    """The rows of L2-normalised tokens; one Gaussian row beyond 1e8 dimensions."""
    stage = Stage(c, rho, log_n)
    if d > GAUSSIAN_FROM:
        return gaussian_rows(c, rho, log_n, (1 - rho) * float(np.sqrt(spread(rho) / d)))
    if rho == 0:
        return uniform_rows(stage, c, d - 2, count=2 * count)
    return common_rows(stage, rho, d, count=count)


def critical_p_of(make: Callable[[int], Rows], *, guess: float, p_max: float, tolerance: float) -> tuple[float, float]:
    """The p at which the mean self weight over rows is 1/2, with its relative change in the last doubling of rows.

    Args:
        make: the rows at a number of interpolation points.
        guess: where to look first.
        p_max: largest p to search.
        tolerance: relative change at which doubling ends.

    Returns:
        p and that change; 0 and 0 where the weight is above 1/2 for every p > 0, nan without a root up to p_max.
    """

    def excess_of(rows: Rows) -> Callable[[float], float]:
        return lambda p: float(special.logit(np.clip(rows.self_weight(p), 1e-300, 1 - 1e-16)))

    count, residual = FIRST_DEGREE, np.nan
    excess = excess_of(make(count))
    if excess(SMALLEST_P) >= 0:
        return 0.0, 0.0
    p = root_near(excess, min(guess, p_max), ratio=1.3, limit=p_max)
    while count < LAST_DEGREE and np.isfinite(p):
        count, coarse = 2 * count, p
        p = root_near(excess_of(make(count)), coarse, ratio=1.0001, limit=p_max)
        residual = abs(p / coarse - 1)
        if residual <= tolerance:
            break
    return p, residual
