"""One attention step, the package against what people would use instead, on the host and on an accelerator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critattn import tokens
from critattn.attention import Attention, attention_step, block_rows
from critattn.bench import alternatives
from critattn.bench.timing import alternate
from critattn.protocols import precision
from critattn.scaling import LogN

N, D = 4096, 64
LARGE = 16_384
# relative to the largest entry; a sum over n keys of numbers rounded to 8 or 24 bits
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}


def on_host(repeats: int, n: int = N) -> dict[str, float | None]:
    """Seconds of one attention step in float32 for the package and its alternatives.

    Args:
        repeats: repetitions, whose median counts.
        n: number of tokens.
    """
    beta = float(2 * np.log(n))
    vectors = np.asarray(tokens.near_simplex(0, n, D, rho=0.5).vectors, np.float32)
    with precision("float32"):
        rows = block_rows(n, 4)
        layer, device = Attention(LogN(2.0)), jnp.asarray(vectors)
        ours = jax.jit(lambda x: attention_step(layer, x, block_rows=rows))
        functions = {
            "critattn": lambda: ours(device),
            "torch SDPA": alternatives.sdpa(vectors, beta, 1),
            "naive JAX": alternatives.naive_jax(vectors, beta),
            "naive numpy": alternatives.naive_numpy(vectors, beta),
        }
        return {
            name: None if function is None else alternate(function, None, repeats).seconds
            for name, function in functions.items()
        }


def on_accelerator(repeats: int) -> list[dict[str, Any]] | None:
    """The step at n = 16384 on the default device, in float32 and bfloat16; None where that is the CPU."""
    if jax.default_backend() == "cpu":
        return None
    return [on_device(dtype, LARGE, repeats) for dtype in TOLERANCES]


def on_device(dtype: str, n: int, repeats: int) -> dict[str, Any]:
    """One attention step on the default device, against the rate of a square matrix product there.

    Args:
        dtype: float32 or bfloat16, of tokens, scores and weights.
        n: number of tokens.
        repeats: repetitions, whose median counts.

    Returns:
        JSON-ready: device, dtype, n, seconds, the rate of the device's matrix products and of the step's own in
        GF/s, their ratio, and the largest deviation from float32 on the host relative to the largest entry.
    """
    vectors = np.asarray(tokens.near_simplex(0, n, D, rho=0.5).vectors, np.float32)
    layer = Attention(LogN(2.0))
    with precision("float32"):
        rows = block_rows(n, jnp.dtype(dtype).itemsize)
        step = jax.jit(lambda x: attention_step(layer, x, block_rows=rows))
        given = jnp.asarray(vectors, dtype)
        square = jnp.asarray(np.random.default_rng(0).standard_normal((LARGE // 4, LARGE // 4)), dtype)
        product = jax.jit(jnp.matmul)
        seconds = alternate(lambda: step(given), None, repeats).seconds
        best = 2 * square.shape[0] ** 3 / alternate(lambda: product(square, square), None, repeats).seconds / 1e9
        some = np.asarray(step(given)[:64], np.float32)
    own = 4 * n**2 * D / seconds / 1e9
    exact = _exact_rows(vectors, 64)
    return {
        "device": str(jax.devices()[0].device_kind),
        "dtype": dtype,
        "n": n,
        "seconds": seconds,
        "product_gflops": best,
        "step_gflops": own,
        "ratio": own / best,
        "deviation": float(np.max(np.abs(some - exact)) / np.max(np.abs(exact))),
        "allowed_deviation": TOLERANCES[dtype],
    }


def _exact_rows(vectors: np.ndarray, rows: int) -> np.ndarray:
    """The first rows of the step's output in numpy and float64."""
    x = vectors.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    logits = 2 * np.log(len(x)) * (x[:rows] @ x.T)
    masses = np.exp(logits - logits.max(axis=1, keepdims=True))
    return masses @ x / masses.sum(axis=1, keepdims=True)
