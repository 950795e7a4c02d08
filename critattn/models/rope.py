"""Rotary position embeddings: frequencies under every scaling in use, both layouts of the pairs."""

import math
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from critattn.errors import SpecError
from critattn.protocols import Array

Kind = Literal["default", "linear", "dynamic", "yarn", "llama3"]
KINDS: tuple[Kind, ...] = ("default", "linear", "dynamic", "yarn", "llama3")
YARN_LOG = 0.1


@dataclass(frozen=True)
class Rope:
    """Rotation of pairs of channels by `position x frequency`, `frequency_i = theta^(-2i/dims)` [arXiv 2104.09864].

    Attributes:
        theta: base of the wavelengths.
        dims: rotated channels of a head, even, the first ones.
        interleaved: pairs are (2i, 2i + 1), as in GGUF files of architecture llama; else (i, i + dims/2).
        kind: how frequencies are stretched.
        factor: stretch of the context.
        original_length: context before the stretch.
        attention_factor: multiplies cos and sin, hence the logits of rotated channels by its square.
        low_frequency: of llama3: wavelengths over original_length/low_frequency are divided by the factor.
        high_frequency: of llama3: wavelengths under original_length/high_frequency are kept.
        beta_fast: of YaRN: channels that rotate more often over the original length are kept.
        beta_slow: of YaRN: channels that rotate less often are divided by the factor.
        truncate: of YaRN: the ramp between the two starts and ends at whole channels.
        divisors: (dims/2) divisors of the frequencies that a file states; None for none.
    """

    theta: float
    dims: int
    interleaved: bool = False
    kind: Kind = "default"
    factor: float = 1.0
    original_length: int = 0
    attention_factor: float = 1.0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    divisors: tuple[float, ...] | None = None

    def frequencies(self, n: int) -> np.ndarray:
        """Radians a position of each pair, (dims/2,) float64; they depend on the length n for `dynamic` alone."""
        theta = self._stretched_theta(n) if self.kind == "dynamic" else self.theta
        plain = theta ** (-np.arange(0, self.dims, 2) / self.dims)
        if self.kind == "linear":
            plain = plain / self.factor
        if self.kind == "llama3":
            plain = self._llama3(plain)
        if self.kind == "yarn":
            ramp = self._yarn_ramp()
            plain = plain / self.factor * ramp + plain * (1 - ramp)
        return plain if self.divisors is None else plain / np.array(self.divisors)

    def table(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosine and sine, (n, dims/2) float32 each, times the attention factor; phases are float64."""
        phases = np.arange(n)[:, None] * self.frequencies(n)
        cos, sin = np.cos(phases) * self.attention_factor, np.sin(phases) * self.attention_factor
        return cos.astype(np.float32), sin.astype(np.float32)

    def _stretched_theta(self, n: int) -> float:
        """`theta (s N/L - s + 1)^(d/(d-2))` past the original length L."""
        longest = max(n, self.original_length)
        growth = self.factor * longest / self.original_length - (self.factor - 1)
        return self.theta * growth ** (self.dims / (self.dims - 2))

    def _llama3(self, plain: np.ndarray) -> np.ndarray:
        turns = self.original_length * plain / (2 * math.pi)
        kept = np.clip((turns - self.low_frequency) / (self.high_frequency - self.low_frequency), 0, 1)
        return plain / self.factor * (1 - kept) + plain * kept

    def _yarn_ramp(self) -> np.ndarray:
        """0 on channels that keep their frequency, 1 on those divided by the factor [arXiv 2309.00071]."""
        ends = [self._channel_of(turns) for turns in (self.beta_fast, self.beta_slow)]
        if self.truncate:
            ends = [math.floor(ends[0]), math.ceil(ends[1])]
        low, high = max(ends[0], 0), min(ends[1], self.dims - 1)
        high = high + 0.001 if low == high else high
        return np.clip((np.arange(self.dims // 2) - low) / (high - low), 0, 1)

    def _channel_of(self, turns: float) -> float:
        return self.dims * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(self.theta))


def check_rope(rope: Rope, head_dim: int, where: str) -> Rope:
    """The rotation, where its numbers make sense.

    Raises:
        SpecError: for dims, theta, a factor or lengths outside of the range where frequencies are defined.
    """
    limits = (
        ("rotated channels", rope.dims, rope.dims % 2 == 0 and 2 <= rope.dims <= head_dim, f"even, 2 to {head_dim}"),
        ("rope_theta", rope.theta, rope.theta > 1, "above 1"),
        ("rope factor", rope.factor, 0 < rope.factor <= 1e6, "in (0, 1e6]"),
        ("rope attention_factor", rope.attention_factor, 0 < rope.attention_factor <= 100, "in (0, 100]"),
    )
    for name, value, fine, allowed in limits:
        if not fine:
            raise SpecError(f"{where}: {name} = {value:g}: must be {allowed}")
    if rope.kind in ("dynamic", "yarn", "llama3") and rope.original_length < 1:
        raise SpecError(f"{where}: rope type {rope.kind} needs original_max_position_embeddings")
    if rope.kind == "dynamic" and rope.dims < 4:
        raise SpecError(f"{where}: rope type dynamic at {rope.dims} rotated channels: must be at least 4")
    if rope.kind == "llama3" and not 0 < rope.low_frequency < rope.high_frequency:
        found = f"low_freq_factor = {rope.low_frequency:g}, high_freq_factor = {rope.high_frequency:g}"
        raise SpecError(f"{where}: {found}: must be 0 < low < high")
    if rope.kind == "yarn" and not 0 < rope.beta_slow < rope.beta_fast:
        found = f"beta_slow = {rope.beta_slow:g}, beta_fast = {rope.beta_fast:g}"
        raise SpecError(f"{where}: {found}: must be 0 < slow < fast")
    return rope


def yarn_attention_factor(factor: float, mscale: float = 0.0, mscale_all_dim: float = 0.0) -> float:
    """`t(s, 1)`, or `t(s, m)/t(s, m_all)` where both are given, t(s, m) = 0.1 m ln s + 1 [transformers 5.24.0]."""
    grown = math.log(max(factor, 1.0))
    if mscale and mscale_all_dim:
        return (YARN_LOG * mscale * grown + 1) / (YARN_LOG * mscale_all_dim * grown + 1)
    return YARN_LOG * grown + 1


def rotate(x: Array, table: tuple[ArrayLike, ArrayLike], interleaved: bool) -> Array:
    """Rotate the first channels of x (..., n, head_dim) by a table of (n, dims/2) each; dtype of x."""
    cos, sin = (jnp.asarray(part, x.dtype) for part in table)
    dims = 2 * cos.shape[-1]
    if interleaved:
        first, second = x[..., 0:dims:2], x[..., 1:dims:2]
    else:
        first, second = x[..., : dims // 2], x[..., dims // 2 : dims]
    turned = (first * cos - second * sin, second * cos + first * sin)
    if interleaved:
        rotated = jnp.stack(turned, axis=-1).reshape(*x.shape[:-1], dims)
    else:
        rotated = jnp.concatenate(turned, axis=-1)
    return jnp.concatenate([rotated, x[..., dims:]], axis=-1)
