"""Brute force: the layer in numpy and its Jacobian by automatic differentiation, sharing no package code."""

from collections.abc import Callable
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


def _ratio(masses: jax.Array) -> jax.Array:
    return masses / masses.sum(axis=1, keepdims=True)


def _seen(allowed: jax.Array) -> jax.Array:
    return allowed.sum(axis=1, keepdims=True)


def _naive_softplus_l1(s: jax.Array, allowed: jax.Array, _: jax.Array) -> jax.Array:
    return _ratio(jnp.where(allowed, jnp.log1p(jnp.exp(s)), 0))


def _naive_softmax(s: jax.Array, allowed: jax.Array, _: jax.Array) -> jax.Array:
    return _ratio(jnp.where(allowed, jnp.exp(s), 0))


def _naive_sigmoid(s: jax.Array, allowed: jax.Array, factor: jax.Array) -> jax.Array:
    return jnp.where(allowed, 1 / (1 + jnp.exp(-s) * _seen(allowed) ** factor), 0)


def _naive_sigmoid_l1(s: jax.Array, allowed: jax.Array, factor: jax.Array) -> jax.Array:
    return _ratio(_naive_sigmoid(s, allowed, factor))


def _naive_relu(s: jax.Array, allowed: jax.Array, _: jax.Array) -> jax.Array:
    return jnp.where(allowed & (s > 0), s, 0) / _seen(allowed)


def _naive_powers(y: jax.Array, alive: jax.Array, allowed: jax.Array, p: jax.Array) -> jax.Array:
    positive = (y > 0) & alive
    masses = jnp.where(positive, jnp.where(positive, y, 1) ** p, 0)
    total = masses.sum(axis=1, keepdims=True)
    return jnp.where(alive, masses / jnp.where(alive, total, 1), allowed / _seen(allowed))


def _naive_power(s: jax.Array, allowed: jax.Array, p: jax.Array) -> jax.Array:
    y = jnp.where(allowed, s, 0)
    return _naive_powers(y, jnp.any(y > 0, axis=1, keepdims=True), allowed, p)


def _naive_reweighted(stage: Callable, s: jax.Array, allowed: jax.Array, p: jax.Array) -> jax.Array:
    y = jnp.where(allowed, _seen(allowed) * stage(s, allowed, 1.0) - 1, 0)
    low = jnp.where(allowed, s, jnp.inf).min(axis=1, keepdims=True)
    high = jnp.where(allowed, s, -jnp.inf).max(axis=1, keepdims=True)
    return _naive_powers(y, high - low > 1e-12, allowed, p)


def _naive_entmax(s: jax.Array, allowed: jax.Array, alpha: jax.Array) -> jax.Array:
    """Bisection of tau, then one Newton step that carries the derivative of the implicit function."""
    k = alpha - 1
    z = k * jnp.where(allowed, s, 0)
    fixed = jax.lax.stop_gradient(z)
    top = jnp.where(allowed, fixed, -jnp.inf).max(axis=1, keepdims=True)

    def weights(z: jax.Array, tau: jax.Array) -> jax.Array:
        on = allowed & (z > tau)
        return jnp.where(on, jnp.where(on, z - tau, 1) ** (1 / k), 0)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        middle = (ends[0] + ends[1]) / 2
        below = weights(fixed, middle).sum(axis=1, keepdims=True) < 1
        return jnp.where(below, ends[0], middle), jnp.where(below, middle, ends[1])

    low, high = jax.lax.fori_loop(0, 60, halve, (top - 1, top))
    tau = (low + high) / 2
    slope = jax.jvp(lambda t: weights(fixed, t), (tau,), (jnp.ones_like(tau),))[1]
    excess = weights(z, tau).sum(axis=1, keepdims=True) - 1
    return weights(z, tau - excess / slope.sum(axis=1, keepdims=True))


def _naive_hardmax(s: jax.Array, allowed: jax.Array, _: jax.Array) -> jax.Array:
    top = jnp.where(allowed, s, -jnp.inf).max(axis=1, keepdims=True)
    return _ratio((allowed & (s >= top - 1e-12)).astype(s.dtype))


# (logits, allowed, parameter) -> weights, float64, for logits of a size at which the formulas as written are safe
NAIVE: dict[str, Callable] = {
    "softmax": _naive_softmax,
    "softplus-l1": _naive_softplus_l1,
    "sigmoid": _naive_sigmoid,
    "sigmoid-l1": _naive_sigmoid_l1,
    "relu": _naive_relu,
    "power": _naive_power,
    "entmax": _naive_entmax,
    "sparsemax": lambda s, allowed, _: _naive_entmax(s, allowed, jnp.asarray(2.0, s.dtype)),
    "hardmax": _naive_hardmax,
    "relu-power over softplus-l1": partial(_naive_reweighted, _naive_softplus_l1),
    "relu-power over softmax": partial(_naive_reweighted, _naive_softmax),
    "relu-power over sigmoid-l1": partial(_naive_reweighted, _naive_sigmoid_l1),
}


@partial(jax.jit, static_argnames=("kind",))
def _naive_jacobian(kind: str, vectors: jax.Array, allowed: jax.Array, numbers: jax.Array) -> jax.Array:
    n, d = vectors.shape
    beta, a, b, parameter = numbers

    def flat_layer(flat: jax.Array) -> jax.Array:
        x = flat.reshape(n, d)
        y = x / jnp.sqrt(jnp.sum(x * x, axis=1, keepdims=True))
        return (a * x + b * NAIVE[kind](beta * (y @ y.T), allowed, parameter) @ y).ravel()

    return jax.jacfwd(flat_layer)(vectors.ravel())


def naive_jacobian(
    kind: str, vectors: np.ndarray, beta: float, a: float, b: float, parameter: float, *, causal: bool = False
) -> np.ndarray:
    """The nd x nd Jacobian of the layer with any normaliser by forward-mode differentiation, float64."""
    n = len(vectors)
    with jax.enable_x64(True):
        allowed = jnp.tri(n, dtype=bool) if causal else jnp.ones((n, n), bool)
        numbers = jnp.asarray([beta, a, b, parameter], jnp.float64)
        return np.asarray(_naive_jacobian(kind, jnp.asarray(vectors), allowed, numbers))


def naive_weights(kind: str, logits: np.ndarray, allowed: np.ndarray, parameter: float) -> np.ndarray:
    """Weights by the formula as written, float64."""
    with jax.enable_x64(True):
        numbers = jnp.asarray(logits, jnp.float64), jnp.asarray(allowed), jnp.asarray(parameter, jnp.float64)
        return np.asarray(NAIVE[kind](*numbers))
