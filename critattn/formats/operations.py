"""What is measured: exponentials, softmax and attention of numpy, JAX and torch, each as a map from x to exp(x)."""

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from critattn.errors import SpecError

BACKENDS = ("numpy", "jax", "torch")
Run = Callable[[np.ndarray], np.ndarray]
# a row this long fills the vectors of a CPU; in torch's attention the keys left over follow other code
ROW = 32


@dataclass(frozen=True)
class Operation:
    """One operation of a library.

    Attributes:
        backend: numpy, jax or torch.
        name: exp, softmax, ... as in `critattn formats`.
        overflows: it is exp itself, not a weight, so that large x overflow.
        run: maps x <= 0 of one format, (m,), to exp(x) or to the weight of the logit x beside a logit 0, (m,), in the
            same format or, from torch, exactly as much in float32.
    """

    backend: str
    name: str
    overflows: bool
    run: Run


def available() -> tuple[str, ...]:
    """The backends that are installed."""
    return tuple(name for name in BACKENDS if importlib.util.find_spec(name) is not None)


def version(backend: str) -> str:
    """The version of the backend, with that of ml_dtypes, which rounds for numpy."""
    own = metadata.version(backend)
    return f"{own} (ml_dtypes {metadata.version('ml_dtypes')})" if backend == "numpy" else own


def device(backend: str) -> str:
    """The device on which the backend is measured: its default one, and a GPU for torch where there is one."""
    if backend == "jax":
        jax = importlib.import_module("jax")
        chosen = jax.config.jax_default_device or jax.devices()[0]
        return str(getattr(chosen, "device_kind", chosen))
    if backend == "torch" and importlib.import_module("torch").cuda.is_available():
        return "cuda"
    return "cpu"


def operations(backend: str) -> tuple[Operation, ...]:
    """The operations of a backend.

    Raises:
        SpecError: for an unknown backend, or one that is not installed.
    """
    if backend not in BACKENDS:
        close = difflib.get_close_matches(backend.lower(), BACKENDS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"backend {backend[:40]!r} is unknown; {hint}known: {', '.join(BACKENDS)}")
    if backend not in available():
        raise SpecError(f"backend {backend!r} is not installed; installed: {', '.join(available())}")
    made = {"numpy": _numpy, "jax": _jax, "torch": _torch}[backend]()
    return tuple(Operation(backend, name, name.startswith("exp"), run) for name, run in made.items())


def _numpy() -> dict[str, Run]:
    def softmax(x: np.ndarray) -> np.ndarray:
        masses = np.exp(_beside_zero(x))
        return (masses / masses.sum(axis=1, keepdims=True))[:, 1]

    return {"exp": np.exp, "softmax": softmax}


def _beside_zero(x: np.ndarray, keys: int = 2) -> np.ndarray:
    """Rows (m, keys) of logits 0, x, x, ...; all but the first too small to count beside it."""
    return np.concatenate([np.zeros_like(x)[:, None], np.repeat(x[:, None], keys - 1, axis=1)], axis=1)


def _second(keys: int, dtype: np.dtype) -> np.ndarray:
    """Values that read off the weight of the second key, (keys,)."""
    return (np.arange(keys) == 1).astype(dtype)


def _jax() -> dict[str, Run]:
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def attention(x: np.ndarray) -> Any:
        # not under jit: with that the CPU refuses float16
        keys = _beside_zero(x, ROW)[:, :, None, None]
        values = np.broadcast_to(_second(ROW, x.dtype)[None, :, None, None], keys.shape)
        given = map(jnp.asarray, (np.ones((len(x), 1, 1, 1), x.dtype), keys, values))
        return jax.nn.dot_product_attention(*given, scale=1.0)[:, 0, 0, 0]

    compiled = jax.jit(jnp.exp)
    softmax = jax.jit(lambda logits: jax.nn.softmax(logits, axis=1)[:, 1])
    made: dict[str, Callable[[np.ndarray], Any]] = {
        "exp": compiled,
        "exp-eager": lambda x: jnp.exp(jnp.asarray(x)),
        "softmax": lambda x: softmax(_beside_zero(x)),
        "attention": attention,
    }
    return {name: _as_numpy(run) for name, run in made.items()}


def _as_numpy(run: Callable[[np.ndarray], Any]) -> Run:
    return lambda x: np.asarray(run(x))


def _torch() -> dict[str, Run]:
    torch, place = importlib.import_module("torch"), device("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    kernels = importlib.import_module("torch.nn.attention")

    def tensor(x: np.ndarray) -> Any:
        kind = getattr(torch, x.dtype.name, None)
        if kind is None:
            raise TypeError(f"torch has no {x.dtype.name}")
        return torch.from_numpy(x.astype(np.float32)).to(kind).to(place)

    def attention(x: np.ndarray, length: int = ROW) -> Any:
        keys = tensor(_beside_zero(x, length))[:, None, :, None]
        values = tensor(_second(length, x.dtype))[None, None, :, None].expand(len(x), 1, length, 1)
        return attend(tensor(np.ones_like(x))[:, None, None, None], keys, values, scale=1.0)[:, 0, 0, 0]

    def plain(x: np.ndarray) -> Any:
        with kernels.sdpa_kernel(kernels.SDPBackend.MATH):
            return attention(x)

    made: dict[str, Callable[[np.ndarray], Any]] = {
        "exp": lambda x: torch.exp(tensor(x)),
        "softmax": lambda x: torch.softmax(tensor(_beside_zero(x)), dim=1)[:, 1],
        "attention-math": plain,
        "attention": attention,
        "attention-pair": lambda x: attention(x, 2),
    }
    return {name: _from_torch(run) for name, run in made.items()}


def _from_torch(run: Callable[[np.ndarray], Any]) -> Run:
    return lambda x: run(x).float().cpu().numpy()
