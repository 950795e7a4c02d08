"""Queries that differ from keys: common scores below -1/(n-1), which no set of unit tokens has with itself."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.protocols import Array, pytree
from critattn.tokens.sources import RandomScores, Tokens, check_counts, near_simplex


@pytree(meta=("label",))
class QueriesAndKeys:
    """Queries q_i and keys k_j, one of each a token, with scores `s_ij = q_i.k_j`; there are no values.

    What needs only weights is measured on them. Outputs, angles between tokens, gradients and layers in depth are of
    tokens that are queries, keys and values at once, and are refused.

    Attributes:
        queries: (n, d).
        keys: (n, d).
        label: what they are, for captions.
    """

    queries: Array | np.ndarray
    keys: Array | np.ndarray
    label: str = "queries and keys"

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self.queries.shape[0]

    @property
    def d(self) -> int:
        """Dimension of queries and keys."""
        return self.queries.shape[1]

    def score_rows(self, positions: Array) -> Array:
        """Scores of the queries at these positions against all keys, (rows, n)."""
        return jnp.asarray(self.queries)[positions] @ jnp.asarray(self.keys).T

    def cast(self, dtype: np.dtype) -> "QueriesAndKeys":
        """The same in another dtype, on the device.

        Raises:
            DomainError: for numbers beyond the range of that dtype.
        """
        with np.errstate(over="ignore", under="ignore"):
            queries, keys = (np.asarray(part).astype(dtype) for part in (self.queries, self.keys))
        for name, part in (("queries", queries), ("keys", keys)):
            if not np.isfinite(part).all():
                raise DomainError(f"{self.label}: {name} hold NaN or infinity; allowed: finite numbers in {dtype}")
        return QueriesAndKeys(jnp.asarray(queries), jnp.asarray(keys), self.label)


# what is there as a whole, in place of a stream
WholeSource = Tokens | RandomScores | QueriesAndKeys


def one_set(name: str, source: Any) -> None:
    """Refuse queries that differ from keys where tokens have to be both, and values.

    Args:
        name: who asks, for the message.
        source: anything.

    Raises:
        DomainError: for QueriesAndKeys.
    """
    if isinstance(source, QueriesAndKeys):
        raise DomainError(f"{name}: has queries that differ from keys, and no values; allowed: one set of tokens")


def from_queries_and_keys(queries: ArrayLike, keys: ArrayLike, *, label: str = "queries and keys") -> QueriesAndKeys:
    """Queries and keys from two arrays, taken as they are: a norm or a 1/sqrt(d) is the caller's.

    Args:
        queries: (n, d) real numbers.
        keys: (n, d), key i of the token whose query is row i.
        label: what they are, for captions and errors.

    Returns:
        Both in float64.

    Raises:
        DomainError: for other shapes, or numbers that are not finite.
    """
    parts = [np.asarray(part) for part in (queries, keys)]
    shapes = [part.shape for part in parts]
    if len(shapes[0]) != 2 or 0 in shapes[0] or shapes[0] != shapes[1]:
        raise DomainError(f"{label}: have shapes {shapes[0]} and {shapes[1]}; allowed: both n x d with n, d >= 1")
    for name, part in zip(("queries", "keys"), parts, strict=True):
        if part.dtype.kind not in "fiu" or not np.isfinite(part).all():
            raise DomainError(f"{label}: {name} hold {part.dtype} that is no finite real number; allowed: finite ones")
    first, second = (part.astype(np.float64) for part in parts)
    return QueriesAndKeys(first, second, label)


def _check(n: int, d: int, rho: float, least: int) -> None:
    check_counts(n, d)
    if not -1 < rho <= 0:
        raise DomainError.of("rho", rho, "in (-1, 0] for queries that differ from keys")
    if d < least:
        raise DomainError(f"d = {d}: queries that differ from keys need d >= {least} here, one of them common to all")


def _assemble(units: np.ndarray, d: int, rho: float, label: str) -> QueriesAndKeys:
    """q_i = (sqrt(1-e) u_i, sqrt e), k_j = (sqrt(1-e) u_j, -sqrt e), e = -rho, from unit vectors u, (n, width)."""
    queries = np.zeros((units.shape[0], d))
    queries[:, : units.shape[1]] = np.sqrt(1 + rho) * units
    queries[:, -1] = np.sqrt(-rho)
    keys = queries.copy()
    keys[:, -1] = -queries[:, -1]
    return QueriesAndKeys(queries, keys, label)


def opposed(n: int, d: int, *, rho: float) -> QueriesAndKeys:
    """Unit queries and keys with exactly equal scores: `q_i.k_j = rho <= 0` for i != j, `q_i.k_i = 1 + 2 rho`.

    `q_i = (sqrt(1-e) u_i, sqrt e)` and `k_j = (sqrt(1-e) u_j, -sqrt e)`, e = -rho, with the first n unit vectors u. No
    unit vectors have a self score above 1 + 2 rho + 2 (1 + rho)/(n - 2) at rho < -1/(n - 1).

    Args:
        n: number of tokens.
        d: dimension, at least n + 1.
        rho: common score, in (-1, 0].

    Returns:
        Queries and keys, float64.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (11.8)].
    """
    _check(n, d, rho, n + 1)
    return _assemble(np.eye(n), d, rho, f"opposed, n = {n}, d = {d}, rho = {rho:g}")


def near_opposed(key: Array | int, n: int, d: int, *, rho: float) -> QueriesAndKeys:
    """The same with random directions u_i, uniform on the sphere of d - 1 dimensions: scores scatter around rho.

    `q_i.k_j = (1 + rho) u_i.u_j + rho`, of standard deviation (1 + rho)/sqrt(d - 1); self scores are exactly 1 + 2 rho.

    Args:
        key: random key, or an integer seed.
        n: number of tokens.
        d: dimension, at least 2.
        rho: mean score of different tokens, in (-1, 0].

    Returns:
        Queries and keys, float64.

    Raises:
        DomainError: outside these ranges.

    Source: [derived, docs/theory.md (11.9)].
    """
    _check(n, d, rho, 2)
    units = np.asarray(near_simplex(key, n, d - 1, rho=0.0).vectors)
    return _assemble(units, d, rho, f"near-opposed, n = {n}, d = {d}, rho = {rho:g}")
