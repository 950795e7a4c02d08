"""What people would use instead, written as they would write it."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HAS_TORCH = importlib.util.find_spec("torch") is not None


def _torch() -> Any:
    """The module, by name: it is an extra, and nothing else of the package knows it."""
    return importlib.import_module("torch")


def sdpa(vectors: np.ndarray, beta: float, calls: int) -> Callable[[], Any] | None:
    """`calls` calls of torch's scaled_dot_product_attention on the tokens; None without torch."""
    if not HAS_TORCH:
        return None
    torch = _torch()
    tokens = torch.from_numpy(np.ascontiguousarray(vectors))[None, None]
    attend = torch.nn.functional.scaled_dot_product_attention

    def run() -> None:
        with torch.inference_mode():
            for _ in range(calls):
                attend(tokens, tokens, tokens, scale=beta)

    return run


def naive_numpy(vectors: np.ndarray, beta: float) -> Callable[[], Any]:
    """One attention step with whole matrices in numpy."""

    def run() -> np.ndarray:
        logits = beta * (vectors @ vectors.T)
        masses = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (masses / masses.sum(axis=1, keepdims=True)) @ vectors

    return run


def naive_jax(vectors: np.ndarray, beta: float) -> Callable[[], Any]:
    """One attention step with whole matrices under jit."""
    step = jax.jit(lambda x: jax.nn.softmax(beta * (x @ x.T), axis=1) @ x)
    tokens = jnp.asarray(vectors)
    return lambda: step(tokens)


def jacobian_norm(vectors: np.ndarray, beta: float) -> Callable[[], Any]:
    """Squared norm of the layer's Jacobian by forward-mode differentiation of the whole map."""

    def layer(x: jax.Array) -> jax.Array:
        y = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        return jax.nn.softmax(beta * (y @ y.T), axis=1) @ y

    norm = jax.jit(lambda x: jnp.sum(jax.jacfwd(layer)(x) ** 2))
    tokens = jnp.asarray(vectors)
    return lambda: norm(tokens)


def gemms(rows: int, inner: int, columns: int) -> list[Callable[[], Any]]:
    """float32 matrix products (rows, inner) x (inner, columns) in torch, where it is there, and in JAX."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, inner), (inner, columns)))
    product, one, two = jax.jit(jnp.matmul), jnp.asarray(left), jnp.asarray(right)
    found: list[Callable[[], Any]] = [lambda: product(one, two)]
    if HAS_TORCH:
        torch = _torch()
        first, second = torch.from_numpy(left), torch.from_numpy(right)
        found.insert(0, lambda: first @ second)
    return found


def exponentials(count: int) -> list[Callable[[], Any]]:
    """float32 exponentials of `count` numbers in torch, where it is there, and in JAX."""
    numbers = np.random.default_rng(0).standard_normal(count, dtype=np.float32)
    exponential, array = jax.jit(jnp.exp), jnp.asarray(numbers)
    found: list[Callable[[], Any]] = [lambda: exponential(array)]
    if HAS_TORCH:
        torch = _torch()
        tensor = torch.from_numpy(numbers)
        found.insert(0, lambda: torch.exp(tensor))
    return found
