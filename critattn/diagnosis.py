"""Why measured tokens leave the predictor: which of its assumptions their rows break, and by how much."""

from dataclasses import dataclass

import numpy as np

from critattn import criticality, thresholds
from critattn.criticality import Threshold
from critattn.errors import DomainError
from critattn.theory import finite_dimension
from critattn.tokens import Tokens, from_array, one_set


@dataclass(frozen=True)
class Diagnosis:
    """Measured tokens beside exchangeable Gaussian tokens of the same effective rho, n and d.

    Attributes:
        effective_rho: mean off-diagonal cosine.
        measured: half-weight point of the tokens, standard error over rows.
        predicted: what isotropic Gaussian tokens with a common direction would have [docs/theory.md (4.7)].
        surrogate: half-weight point of Gaussian tokens with the mean and covariance of the directions; standard error
            over draws. Its distance from `predicted` is the share of anisotropy, that of `measured` from it the share
            of what a Gaussian does not have: heavy tails, clusters.
        effective_dimension: `(tr C)^2 / tr C^2` of the covariance C of the directions, d if isotropic.
        in_row_deviation: standard deviation of the cosines within a row, averaged over rows.
        in_row_predicted: its prediction, the root of [docs/theory.md (4.2)].
        row_disorder: standard deviation over rows of gamma_i, where A_ii = 1/2; NaN below two such rows.
        row_disorder_predicted: its prediction [docs/theory.md (4.9)].
        largest_cosine: of two distinct tokens.
    """

    effective_rho: float
    measured: Threshold
    predicted: float
    surrogate: Threshold
    effective_dimension: float
    in_row_deviation: float
    in_row_predicted: float
    row_disorder: float
    row_disorder_predicted: float
    largest_cosine: float

    @property
    def anisotropy_share(self) -> float | None:
        """Part of the difference to the prediction that anisotropic Gaussian tokens explain; None without roots."""
        if self.measured.critical is None or self.surrogate.critical is None:
            return None
        return (self.surrogate.critical - self.predicted) / (self.measured.critical - self.predicted)


def diagnose(tokens: Tokens, *, draws: int = 8, seed: int = 0) -> Diagnosis:
    """Hold measured tokens against the assumptions of the predictor, by a Gaussian surrogate and by moments.

    Args:
        tokens: n x d with n > 2 and d > 1; needs O(n^2) memory.
        draws: surrogate token sets, at least 2.
        seed: seed of the surrogate.

    Raises:
        DomainError: for fewer tokens, dimensions or draws, or an effective rho outside [0, 1).
    """
    one_set("diagnose", tokens)
    if tokens.n < 3 or tokens.d < 2:
        raise DomainError(f"tokens: are {tokens.n} x {tokens.d}; a diagnosis needs at least 3 x 2")
    if draws < 2:
        raise DomainError.of("draws", draws, "at least 2")
    vectors = np.asarray(tokens.vectors, dtype=np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (units @ units.T.copy())[~np.eye(tokens.n, dtype=bool)].reshape(tokens.n, -1)
    rho, log_n = float(cosines.mean()), float(np.log(tokens.n))
    if not 0 <= rho < 1:
        raise DomainError.of("effective rho", rho, "in [0, 1)")
    eigenvalues = np.linalg.eigvalsh(np.cov(units.T))
    roots = thresholds.row_half_weights(tokens)
    there = roots[np.isfinite(roots)]
    return Diagnosis(
        effective_rho=rho,
        measured=thresholds.half_weight(tokens),
        predicted=float(finite_dimension.half_weight_gamma(rho, log_n, tokens.d)),
        surrogate=_surrogate(units, draws, seed),
        effective_dimension=float(eigenvalues.sum() ** 2 / np.sum(eigenvalues**2)),
        in_row_deviation=float(cosines.std(axis=1).mean()),
        in_row_predicted=float(np.sqrt(finite_dimension.score_variance(rho, tokens.d))),
        row_disorder=float(np.std(there, ddof=1)) if there.size > 1 else float("nan"),
        row_disorder_predicted=float(finite_dimension.row_disorder(rho, log_n, tokens.d)),
        largest_cosine=float(cosines.max()),
    )


def _surrogate(units: np.ndarray, draws: int, seed: int) -> Threshold:
    rng = np.random.default_rng(seed)
    values, axes = np.linalg.eigh(np.cov(units.T))
    root = axes * np.sqrt(np.clip(values, 0, None))
    found = []
    for _ in range(draws):
        drawn = units.mean(axis=0) + rng.standard_normal(units.shape) @ root.T
        found.append(thresholds.half_weight(from_array(drawn)))
    return criticality.combine(found, method=f"mean of {draws} Gaussian surrogates")
