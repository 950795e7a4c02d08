"""Token configurations: the exact simplex, the Gaussian near-simplex, random scores, and arrays from files."""

import contextlib
import os
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.core import Tracer
from numpy.typing import ArrayLike

from critattn.errors import DomainError
from critattn.protocols import Array, precision, pytree

ROWS_PER_KEY = 1024
# 8 GB in float64
MAX_ENTRIES = 10**9
# beyond it, where rows are sampled, studies and commands make tokens block by block and never hold them at once
STREAM_ABOVE = 65_536


@runtime_checkable
class ScoreSource(Protocol):
    """Anything that hands out rows of the score matrix."""

    @property
    def n(self) -> int:
        """Number of tokens."""
        ...

    @property
    def d(self) -> int:
        """Dimension of the tokens; 0 where scores have no tokens behind them."""
        ...

    def score_rows(self, positions: Array) -> Array:
        """Scores (rows, n) of the queries at these positions against all keys."""
        ...


@pytree(meta=("label", "normalised"))
class Tokens:
    """Token vectors x_i, one a row.

    Attributes:
        vectors: (n, d), any norms above 0.
        common_ratio: |z_0|^2/d of the common Gaussian direction of a near-simplex draw; None elsewhere.
        label: what they are, for captions.
        normalised: the layer sees N(x) = x/|x|, the model of the theory; False lets it see x itself.
    """

    vectors: Array | np.ndarray
    common_ratio: Array | float | None = None
    label: str = "tokens"
    normalised: bool = True

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self.vectors.shape[0]

    @property
    def d(self) -> int:
        """Dimension."""
        return self.vectors.shape[1]

    def norms(self) -> Array:
        """Norms r_i = |x_i|, (n,)."""
        return jnp.linalg.norm(jnp.asarray(self.vectors), axis=-1)

    def directions(self) -> Array:
        """Unit vectors y_i = x_i/|x_i|, (n, d) [Chen 2025, eq. (2.2)]."""
        return normalise(jnp.asarray(self.vectors))

    def inputs(self) -> Array:
        """What the layer sees as queries, keys and values: the directions, or the vectors as they are, (n, d)."""
        return self.directions() if self.normalised else jnp.asarray(self.vectors)

    def score_rows(self, positions: Array) -> Array:
        """Scores of the rows at these positions against all tokens (cosines, if normalised), (rows, n)."""
        inputs = self.inputs()
        return inputs[positions] @ inputs.T

    def cast(self, dtype: np.dtype) -> "Tokens":
        """The same tokens in another dtype, on the device."""
        return self.moved_to(jnp.asarray(self.vectors, dtype))

    def moved_to(self, vectors: Array) -> "Tokens":
        """The same tokens at other places."""
        return Tokens(vectors, self.common_ratio, self.label, self.normalised)


@pytree(meta=("n",))
class RandomScores:
    """Scores `s_ij = rho + tau g_ij` with g i.i.d. N(0, 1), and `s_ii = own` [derived, docs/theory.md section 9].

    Rows are generated when asked for, each from its own key, so blocks of any size see the same matrix.

    Attributes:
        key: random key.
        rho: mean of the off-diagonal scores.
        tau: their standard deviation.
        n: number of tokens.
        own: the score of a token with itself; None draws it like the others (random energies, section 5).
    """

    key: Array
    rho: Array | float
    tau: Array | float
    n: int
    own: Array | float | None = 1.0

    @property
    def d(self) -> int:
        """No tokens stand behind the scores: 0."""
        return 0

    def score_rows(self, positions: Array) -> Array:
        """Scores of the queries at these positions, (rows, n)."""
        keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, positions)
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.n,)))(keys)
        scores = self.rho + self.tau * noise
        diagonal = positions[:, None] == jnp.arange(self.n)[None, :]
        return scores if self.own is None else jnp.where(diagonal, self.own, scores)


def normalise(vectors: Array) -> Array:
    """Unit vectors x/|x| along the last axis."""
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def simplex(n: int, d: int, *, rho: float, norm: float = 1.0) -> Tokens:
    """Tokens with exactly equal cosines: `<y_i, y_j> = rho` for i != j, `|x_i| = norm` [Chen 2025, Assumption 1].

    The Gram matrix (1-rho) I + rho 11^T has eigenvalue 1 + (n-1) rho along the constant vector and 1-rho on its
    complement, so an orthonormal (Helmert) basis of the two gives the coordinates.

    Args:
        n: number of tokens.
        d: dimension, at least n (n-1 at rho = -1/(n-1)).
        rho: common cosine, in [-1/(n-1), 1).
        norm: common norm, above 0.

    Returns:
        Tokens with float64 vectors (n, d).

    Raises:
        DomainError: outside these ranges.
    """
    check_counts(n, d)
    lowest = -1.0 / (n - 1) if n > 1 else -np.inf
    if not lowest <= rho < 1:
        raise DomainError.of("rho", rho, f"in [-1/(n-1), 1) = [{lowest:.6g}, 1) for n = {n}")
    if not 0 < norm < np.inf:
        raise DomainError.of("norm", norm, "positive and finite")
    flat = n > 1 and 1 + (n - 1) * rho <= 4 * n * np.finfo(float).eps
    needed = n - 1 if flat else n
    if d < needed:
        raise DomainError(f"d = {d}: a simplex of n = {n} tokens with rho = {rho} needs d >= {needed}")
    spread = np.sqrt(1 - rho) * scipy.linalg.helmert(n).T
    mean = np.full((n, 0 if flat else 1), np.sqrt(max(1 + (n - 1) * rho, 0.0) / n))
    vectors = np.zeros((n, d))
    vectors[:, :needed] = np.hstack([spread, mean])
    return Tokens(norm * vectors, None, f"simplex, n = {n}, d = {d}, rho = {rho:g}")


def near_simplex(
    key: Array | int, n: int, d: int, *, rho: float, unit_norm: bool = True, fix_common: bool = False
) -> Tokens:
    """Gaussian tokens whose cosines scatter around rho.

    `x_i = sqrt(rho) z_0 + sqrt(1-rho) z_i`, z ~ N(0, I/d) [Chen 2025, section 3; docs/theory.md (0.5)].

    Args:
        key: random key, or an integer seed. Noise is drawn in blocks of rows, each from its own key.
        n: number of tokens.
        d: dimension.
        rho: mean cosine, in [0, 1).
        unit_norm: divide each token by its norm.
        fix_common: rescale z_0 to norm 1, which removes the sample-to-sample scatter of rho.

    Returns:
        Tokens (n, d) with `common_ratio` = |z_0|^2 before any rescaling of the tokens (E = 1); float64 from the
        host, the dtype of the trace inside jit.

    Raises:
        DomainError: outside these ranges.
    """
    check_counts(n, d)
    if not 0 <= rho < 1:
        raise DomainError.of("rho", rho, "in [0, 1)")
    traced = isinstance(key, Tracer)
    with contextlib.nullcontext() if traced else precision("float64"):
        common, noise = _gaussian_parts(jax.random.key(key) if isinstance(key, int) else key, n, d)
        if fix_common:
            common = normalise(common)
        vectors = np.sqrt(rho) * common + np.sqrt(1 - rho) * noise
        ratio = jnp.sum(common**2)
        if unit_norm:
            vectors = normalise(vectors)
        if not traced:
            vectors, ratio = np.asarray(vectors), float(ratio)
    return Tokens(vectors, ratio, f"near-simplex, n = {n}, d = {d}, rho = {rho:g}")


def _gaussian_parts(key: Array, n: int, d: int) -> tuple[Array, Array]:
    dtype = jnp.result_type(float)
    common = jax.random.normal(jax.random.fold_in(key, 0), (d,), dtype)
    blocks = jnp.arange(1, 1 + -(-n // ROWS_PER_KEY))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, blocks)
    noise = jax.vmap(lambda block: jax.random.normal(block, (min(n, ROWS_PER_KEY), d), dtype))(keys)
    return common / np.sqrt(d), noise.reshape(-1, d)[:n] / np.sqrt(d)


@pytree(meta=("n", "d", "unit_norm"))
class TokenStream:
    """The tokens of `near_simplex`, made block by block when they are needed: n x d numbers are never held at once.

    Measured on a sample of rows. The same key gives the same tokens as `near_simplex`, at the precision that is on.

    Attributes:
        key: random key.
        common: (d,) the common direction z_0.
        rho: mean cosine.
        n: number of tokens.
        d: dimension.
        unit_norm: divide each token by its norm.
    """

    key: Array
    common: Array | np.ndarray
    rho: Array | float
    n: int
    d: int
    unit_norm: bool

    @property
    def normalised(self) -> bool:
        """The layer sees N(x) = x/|x|: always."""
        return True

    @property
    def label(self) -> str:
        """What they are, for captions."""
        return f"near-simplex, n = {self.n}, d = {self.d}, rho = {float(self.rho):g}, made block by block"

    @property
    def common_ratio(self) -> float:
        """|z_0|^2 (E = 1)."""
        return float(np.sum(np.asarray(self.common) ** 2))

    def block(self, index: Array) -> Array:
        """Tokens of block `index`: rows 1024 index to 1024 (index + 1), (1024, d); those beyond n are no tokens."""
        dtype = jnp.result_type(float)
        noise = jax.random.normal(jax.random.fold_in(self.key, 1 + index), (min(self.n, ROWS_PER_KEY), self.d), dtype)
        rho = jnp.asarray(self.rho, dtype)
        vectors = jnp.sqrt(rho) * jnp.asarray(self.common, dtype) + jnp.sqrt(1 - rho) * noise / np.sqrt(self.d)
        return normalise(vectors) if self.unit_norm else vectors


def stream_near_simplex(
    key: Array | int, n: int, d: int, *, rho: float, unit_norm: bool = True, fix_common: bool = False
) -> TokenStream:
    """The tokens of `near_simplex` as a stream, for n up to 10^7 and beyond; arguments and errors as there."""
    check_counts(n, d, entries=None)
    if not 0 <= rho < 1:
        raise DomainError.of("rho", rho, "in [0, 1)")
    with precision("float64"):
        key = jax.random.key(key) if isinstance(key, int) else key
        common = jax.random.normal(jax.random.fold_in(key, 0), (d,), jnp.float64) / np.sqrt(d)
        return TokenStream(key, np.asarray(normalise(common) if fix_common else common), rho, n, d, unit_norm)


def random_scores(
    key: Array | int, n: int, *, rho: float = 0.0, tau: float = 1.0, own: float | None = 1.0
) -> RandomScores:
    """Random scores on top of a common geometry: `s_ii = own, s_ij = rho + tau g_ij` [docs/theory.md section 9].

    Args:
        key: random key, or an integer seed.
        n: number of tokens.
        rho: mean of the off-diagonal scores, in [-1, 1].
        tau: their standard deviation, at least 0.
        own: the score of a token with itself. None draws it like the others; with rho = 0 and tau = 1 a row is then
            the random energy model [docs/theory.md section 5].

    Raises:
        DomainError: for n < 1, rho outside [-1, 1] or negative tau.
    """
    check_counts(n, 1)
    if not -1 <= rho <= 1:
        raise DomainError.of("rho", rho, "in [-1, 1]")
    if not 0 <= tau < np.inf:
        raise DomainError.of("tau", tau, "at least 0 and finite")
    return RandomScores(jax.random.key(key) if isinstance(key, int) else key, rho, tau, n, own)


def from_array(vectors: ArrayLike, *, label: str = "tokens", normalised: bool = True) -> Tokens:
    """Tokens from an (n, d) array of finite numbers without a zero row.

    Args:
        vectors: (n, d) real numbers; float32 is kept, everything else becomes float64.
        label: what they are, for captions and errors.
        normalised: the layer sees N(x) = x/|x|; False lets it see x itself.

    Raises:
        DomainError: for anything else.
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or 0 in array.shape:
        raise DomainError(f"{label}: has shape {array.shape}; tokens are n x d with n, d >= 1")
    if array.dtype.kind not in "fiu":
        raise DomainError(f"{label}: holds {array.dtype}; tokens are real numbers")
    array = array.astype(np.float64 if array.dtype.itemsize > 4 or array.dtype.kind != "f" else np.float32)
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise DomainError(f"{label}: row {row} holds NaN or infinity; tokens are finite numbers")
    check_norms(array, label)
    return Tokens(array, None, label, normalised)


def check_norms(vectors: np.ndarray, label: str) -> None:
    """Refuse rows without a direction, and those whose squared norm is beyond the range of their dtype.

    Raises:
        DomainError: with the row, its largest entry and what is allowed.
    """
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", vectors, vectors)
    lost = np.flatnonzero(~np.isfinite(squares) | (squares < np.finfo(vectors.dtype).tiny))
    if not lost.size:
        return
    row = int(lost[0])
    largest = float(np.abs(vectors[row]).max())
    if largest == 0:
        raise DomainError(f"{label}: row {row} is zero; a token needs a direction")
    allowed = "1e-150 to 1e150" if vectors.dtype.itemsize == 8 else "1e-18 to 1e18"
    raise DomainError(f"{label}: row {row} has entries up to {largest:g}; allowed in {vectors.dtype}: about {allowed}")


def load(
    path: str | os.PathLike[str],
    *,
    tensor: str | None = None,
    rows: tuple[int, int] | str | None = None,
    normalised: bool = True,
) -> Tokens:
    """Tokens from a .npy, .npz, .csv or .safetensors file.

    Args:
        path: the file.
        tensor: name of the array within .npz and .safetensors files.
        rows: "start:stop" or (start, stop), the rows to take.
        normalised: as in `from_array`.

    Raises:
        CritattnError: where the file is absent, damaged, ragged, not finite, not two-dimensional or has a zero row.
    """
    from critattn import tensorfiles

    array = tensorfiles.load_array(path, tensor=tensor, rows=rows)
    return from_array(array, label=os.path.basename(os.fspath(path)), normalised=normalised)


def check_counts(n: int, d: int, *, entries: int | None = MAX_ENTRIES) -> None:
    """Refuse n or d that is no whole number of at least 1, and more numbers n d than `entries`.

    Raises:
        DomainError: with the name, its value and what is allowed.
    """
    for name, value in (("n", n), ("d", d)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise DomainError.of(name, value, "a whole number, at least 1")
    if entries is not None and n * d > entries:
        raise DomainError(f"n x d = {n} x {d}: must be at most {entries:.3g} numbers")
