"""Brute force: the layer in numpy and its Jacobian by automatic differentiation, sharing no package code."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def softmax_weights(vectors: np.ndarray, beta: float | np.ndarray, *, causal: bool = False) -> np.ndarray:
    """Dense softmax of beta times the cosines, float64."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    logits = np.asarray(beta)[..., None] * (units @ units.T.copy())
    if causal:
        logits = np.where(np.tri(len(vectors), dtype=bool), logits, -np.inf)
    masses = np.exp(logits - logits.max(axis=1, keepdims=True))
    return masses / masses.sum(axis=1, keepdims=True)


def layer(vectors: np.ndarray, beta: float, a: float, b: float, *, causal: bool = False) -> np.ndarray:
    """x' = a x + b A y, float64."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return a * vectors + b * softmax_weights(vectors, beta, causal=causal) @ units


@partial(jax.jit, static_argnames=("causal",))
def _dense_jacobian(vectors: jax.Array, beta: jax.Array, a: jax.Array, b: jax.Array, *, causal: bool) -> jax.Array:
    n, d = vectors.shape

    def flat_layer(flat: jax.Array) -> jax.Array:
        x = flat.reshape(n, d)
        y = x / jnp.sqrt(jnp.sum(x * x, axis=1, keepdims=True))
        logits = beta * (y @ y.T)
        if causal:
            logits = jnp.where(jnp.tri(n, dtype=bool), logits, -jnp.inf)
        return (a * x + b * jax.nn.softmax(logits, axis=1) @ y).ravel()

    return jax.jacfwd(flat_layer)(vectors.ravel())


def jacobian(vectors: np.ndarray, beta: float, a: float, b: float, *, causal: bool = False) -> np.ndarray:
    """The nd x nd Jacobian of the layer by forward-mode differentiation, float64."""
    with jax.enable_x64(True):
        numbers = [jnp.asarray(value, jnp.float64) for value in (beta, a, b)]
        return np.asarray(_dense_jacobian(jnp.asarray(vectors), *numbers, causal=causal))


def sine_tokens() -> np.ndarray:
    """X[i, k] = sin(1 + (5 i + k)^2), the tokens of reference set T5."""
    return np.sin(1 + (5 * np.arange(8)[:, None] + np.arange(5)[None, :]) ** 2)


def gaussian_tokens(seed: int, n: int, d: int, rho: float) -> np.ndarray:
    """Near-simplex tokens with |z_0|^2 = d, drawn by numpy."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(d)
    common *= np.sqrt(d) / np.linalg.norm(common)
    return np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((n, d))
