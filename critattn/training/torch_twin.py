"""The same softmax decoder with rotary positions in torch, with its fused attention: what a step is compared with."""

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from critattn.protocols import precision
from critattn.training import loop, rotary
from critattn.training.model import EPSILON, Decoder
from critattn.training.presets import Preset
from critattn.training.variants import Variant, named
from critattn.training.weights import names

HAS_TORCH = importlib.util.find_spec("torch") is not None
STREAM = 7


class StepTimes(NamedTuple):
    """Time of a training step here and in torch, in alternation.

    Attributes:
        seconds: median wall time here.
        torch_seconds: median wall time in torch.
        ratio: median of the ratios within each alternation.
        cpu_seconds: median CPU time here.
        torch_cpu_seconds: median CPU time in torch; its idle threads wait busily, and count.
    """

    seconds: float
    torch_seconds: float
    ratio: float
    cpu_seconds: float
    torch_cpu_seconds: float


class Twin:
    """A copy of a decoder's weights in torch; only for the variant `softmax-rope`.

    Args:
        model: the decoder whose weights are copied.
    """

    def __init__(self, model: Decoder) -> None:
        self.torch = importlib.import_module("torch")
        self.shape = model.shape
        make = self.torch.nn.Parameter
        self.weights = {name: make(self.torch.tensor(np.asarray(leaf))) for name, leaf in names(model).items()}
        turned = np.asarray(rotary.angles(jnp.arange(model.shape.length), model.shape.width // model.shape.heads))
        self.cos, self.sin = (self.torch.tensor(one(turned)) for one in (np.cos, np.sin))

    def norm(self, x: Any, name: str) -> Any:
        """Root mean square norm with a gain."""
        return self.torch.nn.functional.rms_norm(x, (self.shape.width,), self.weights[name], EPSILON)

    def rotate(self, x: Any) -> Any:
        """Rotary positions on halves."""
        first, second = x.chunk(2, -1)
        turned = [first * self.cos - second * self.sin, second * self.cos + first * self.sin]
        return self.torch.cat(turned, -1)

    def loss(self, windows: np.ndarray) -> Any:
        """Mean of -log p(next byte) over windows (batch, T + 1), a scalar tensor."""
        functional, w, heads = self.torch.nn.functional, self.weights, self.shape.heads
        tokens = self.torch.from_numpy(windows.astype(np.int64))
        batch, n = tokens.shape[0], tokens.shape[1] - 1
        x = w["embedding"][tokens[:, :-1]]
        for index in range(self.shape.layers):
            block = f"blocks.{index}"
            qkv = self.norm(x, f"{block}.attention_norm") @ w[f"{block}.qkv"]
            q, k, v = qkv.view(batch, n, 3, heads, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            x = x + mixed.transpose(1, 2).reshape(batch, n, -1) @ w[f"{block}.out"]
            inner = self.norm(x, f"{block}.mlp_norm")
            x = x + (functional.silu(inner @ w[f"{block}.gate"]) * (inner @ w[f"{block}.up"])) @ w[f"{block}.down"]
        logits = self.norm(x, "final_norm") @ w["unembedding"]
        return functional.cross_entropy(logits.reshape(batch * n, -1), tokens[:, 1:].reshape(-1))

    def stepper(self, preset: Preset, windows: np.ndarray) -> Callable[[], float]:
        """A function that does one training step, with the optimiser and the clipping of `loop`."""
        every = list(self.weights.values())
        rule = self.torch.optim.AdamW(every, preset.learning_rate, betas=(0.9, 0.95), weight_decay=preset.weight_decay)

        def step() -> float:
            rule.zero_grad()
            loss = self.loss(windows)
            loss.backward()
            self.torch.nn.utils.clip_grad_norm_(every, preset.clip)
            rule.step()
            return float(loss.detach())

        return step


def step_times(preset: Preset, *, variant: Variant | None = None, repeats: int = 7) -> StepTimes | None:
    """Time training steps of a variant here and of `softmax-rope` in torch, in turn; None without torch.

    Args:
        preset: sizes.
        variant: what is timed here; `softmax-rope` by default.
        repeats: alternations, after one warm-up of each.
    """
    if not HAS_TORCH:
        return None
    rng = np.random.default_rng(STREAM)
    windows = rng.integers(0, 256, (preset.batch, preset.shape.length + 1)).astype(np.uint8)
    base = named("softmax-rope")
    with precision("float32"):
        theirs = Twin(loop.start(base, preset, 0).trainable[0]).stepper(preset, windows)
        step, state = loop.compiled_step(preset), loop.start(variant or base, preset, 0)
        kept, given = [state.trainable], jnp.asarray(windows)

        def ours() -> None:
            kept[0], seen = step(kept[0], given)
            jax.block_until_ready(seen)

        ours()
        theirs()
        pairs = [(_timed(ours), _timed(theirs)) for _ in range(repeats)]
    wall, cpu = zip(*(one for one, _ in pairs), strict=True)
    wall_torch, cpu_torch = zip(*(other for _, other in pairs), strict=True)
    ratios = [mine / other for mine, other in zip(wall, wall_torch, strict=True)]
    return StepTimes(*map(statistics.median, (wall, wall_torch, ratios, cpu, cpu_torch)))


def _timed(function: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu
