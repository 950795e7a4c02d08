"""Checking a file's tensors against the configuration, and reading them as the canonical weights of a block."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critattn.errors import SpecError
from critattn.models.config import Config
from critattn.models.names import FALCON_TWO_NORMS, FAMILIES, Names

if TYPE_CHECKING:
    from critattn.models.sources import TensorSource

Shape = tuple[int, ...]
# old names of the parameters of a norm
ALIASES = {".weight": ".gamma", ".bias": ".beta"}
# buffers that files carry beside the weights of a block
BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias")
MATRICES = ("qkv", "out", "up", "down")


@dataclass(frozen=True)
class Layout:
    """Names and shapes of every tensor that a model needs.

    Attributes:
        config: the configuration.
        source: the tensors.
        names: names of the family.
        prefix: what stands before the names of the body in this file.
    """

    config: Config
    source: "TensorSource"
    names: Names
    prefix: str

    @classmethod
    def of(cls, config: Config, source: "TensorSource") -> "Layout":
        """The layout of a file, checked: every tensor is there, has its shape, and no block is left over.

        Raises:
            SpecError: naming the first tensor that is missing, misshapen or unknown, with what the config says.
        """
        names = FAMILIES[config.family]
        if config.family == "falcon" and config.parallel and config.mlp_norm:
            names = dataclasses.replace(names, parts={**names.parts, **FALCON_TWO_NORMS})
        tokens = f"{names.outer['tokens']}.weight"
        found = [prefix for prefix in names.prefixes if prefix + tokens in source.tensors]
        if not found:
            needed = f"a {config.family} model needs {names.prefixes[0] + tokens!r}"
            raise SpecError(f"{source.path.name}: {needed}, which the file does not hold")
        layout = cls(config, source, names, found[0])
        layout._check()
        return layout

    def layer(self, index: int) -> dict[str, np.ndarray]:
        """Canonical weights of a block: matrices (out, in), float32, q, k and v apart."""
        weights = {part: self.source.read(name) for part, name in self._layer_names(index).items()}
        if self.config.transposed:
            weights = {part: array.T if array.ndim == 2 else array for part, array in weights.items()}
        for part in ("qkv", "qkv_bias"):
            if part in weights:
                weights |= split(weights.pop(part), self.config, part.removeprefix("qkv"))
        return weights

    def outer(self, *parts: str) -> dict[str, np.ndarray]:
        """Weights outside of the blocks: these parts and their biases, those of them that the family has."""
        shapes = outer_shapes(self.config)
        wanted = [part for part in shapes if part.removesuffix("_bias") in parts]
        return {part: self.source.read(self._outer_name(part)) for part in wanted}

    @property
    def has_head(self) -> bool:
        """There is an output head, of its own or tied to the embedding."""
        if self.config.causal:
            return self.config.tied or self._head_name("head") is not None
        return self._head_name("transform") is not None

    def head(self) -> dict[str, np.ndarray]:
        """Weights of the output head: `head` (vocabulary, width), and where there are `head_bias` and a transform.

        Raises:
            SpecError: where the file has no output head.
        """
        if not self.has_head:
            raise SpecError(f"{self.source.path.name}: holds no language-model head ({self.names.head['head']}.weight)")
        parts = head_shapes(self.config)
        found = {part: name for part in parts if (name := self._head_name(part)) is not None}
        weights = {part: self.source.read(name) for part, name in found.items()}
        if "head" not in weights:
            weights["head"] = self.outer("tokens")["tokens"]
        return weights

    def _check(self) -> None:
        shapes = layer_shapes(self.config)
        for index in range(self.config.layers):
            for part, name in self._layer_names(index).items():
                self._check_one(name, shapes[part])
        for part, shape in outer_shapes(self.config).items():
            self._check_one(self._outer_name(part), shape)
        for part, shape in head_shapes(self.config).items():
            name = self._head_name(part)
            if name is not None:
                self._check_one(name, shape)
        self._check_leftovers()

    def _check_one(self, name: str, expected: Shape) -> None:
        info = self.source.tensors.get(name)
        if info is None:
            raise SpecError(f"{self.source.path.name}: no tensor {name!r}; the config says shape {expected}")
        if tuple(info.shape) != expected:
            found = f"has shape {tuple(info.shape)}"
            raise SpecError(f"{self.source.path.name}: {name!r} {found}; the config says {expected}")

    def _check_leftovers(self) -> None:
        """A tensor of a block that nobody reads means that the config tells of another model."""
        config = self.config
        known = {name for index in range(config.layers) for name in self._layer_names(index).values()}
        pattern = re.compile(re.escape(self.prefix + self.names.layer).replace(r"\{\}", r"(\d{1,9})"))
        for name in self.source.tensors:
            found = pattern.match(name)
            if found is None or name in known or name.endswith(BUFFERS):
                continue
            if int(found[1]) >= config.layers:
                raise SpecError(f"{self.source.path.name}: holds {name!r}; the config says {config.layers} layers")
            raise SpecError(
                f"{self.source.path.name}: holds {name!r}, which the config of a {config.family} has no use for"
            )

    def _layer_names(self, index: int) -> dict[str, str]:
        start = self.prefix + self.names.layer.format(index)
        return {part: self._named(start, self.names.parts, part) for part in layer_shapes(self.config)}

    def _outer_name(self, part: str) -> str:
        return self._named(self.prefix, self.names.outer, part)

    def _named(self, start: str, table: Mapping[str, str], part: str) -> str:
        stem, suffix = part.removesuffix("_bias"), ".bias" if part.endswith("_bias") else ".weight"
        name = start + table[stem] + suffix
        old = start + table[stem] + ALIASES[suffix]
        return old if name not in self.source.tensors and old in self.source.tensors else name

    def _head_name(self, part: str) -> str | None:
        """The name of a part of the head in this file, None where it is tied or there is none."""
        if part.removesuffix("_bias") not in self.names.head:
            return None
        names = [self._named("", self.names.head, part)]
        if part == "head_bias" and not self.config.causal:
            names.append("cls.predictions.bias")
        if part == "head" and self.config.family == "gpt_neox":
            names.append("lm_head.weight")
        return next((name for name in names if name in self.source.tensors), None)


def split(fused: np.ndarray, config: Config, suffix: str = "") -> dict[str, np.ndarray]:
    """Rows of q, k and v of one tensor, ((heads + 2 kv_heads) head_dim, ...).

    `stacked`: [q; k; v]. `grouped`: for each key head the rows of its query heads, then of the key, then of the value;
    with one key head that is [q; k; v], with as many key heads as query heads it is (heads, 3, head_dim).
    """
    heads, kv, size, rest = config.heads, config.kv_heads, config.head_dim, fused.shape[1:]
    if config.fused == "stacked":
        q, k, v = np.split(fused, [heads * size, (heads + kv) * size])
    else:
        parts = fused.reshape(kv, config.group + 2, size, *rest)
        q, k, v = (parts[:, :-2], parts[:, -2], parts[:, -1])
    rows = {"q": q, "k": k, "v": v}
    return {f"{name}{suffix}": np.ascontiguousarray(part.reshape(-1, *rest)) for name, part in rows.items()}


def layer_shapes(config: Config) -> dict[str, Shape]:
    """Shapes in which a family's files store the parts of a block."""
    width, inner = config.width, config.inner
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, Shape] = _norm("norm1", config)
    if config.fused:
        shapes |= _linear("qkv", (query + 2 * key, width), config.qkv_bias)
    else:
        for name, rows in (("q", query), ("k", key), ("v", key)):
            shapes |= _linear(name, (rows, width), config.qkv_bias)
    if config.qk_norm is True:
        shapes |= _norm("q_norm", config) | _norm("k_norm", config)
    shapes |= _linear("out", (width, query), config.out_bias)
    shapes |= _norm("norm2", config) if config.mlp_norm else {}
    shapes |= _linear("gate", (inner, width), config.mlp_bias) if config.gated else {}
    shapes |= _linear("up", (inner, width), config.mlp_bias) | _linear("down", (width, inner), config.mlp_bias)
    if config.transposed:
        shapes = {part: shape[::-1] for part, shape in shapes.items()}
    return shapes


def outer_shapes(config: Config) -> dict[str, Shape]:
    """Shapes of the parts outside of the blocks and the head."""
    shapes: dict[str, Shape] = {"tokens": (config.vocabulary, config.width)}
    if config.learned_positions:
        shapes["positions"] = (config.max_length, config.width)
    if config.token_types:
        shapes["types"] = (config.token_types, config.width)
    shapes |= _norm("embedding_norm", config) if config.embedding_norm else {}
    return shapes | ({} if config.post_norm else _norm("final_norm", config))


def head_shapes(config: Config) -> dict[str, Shape]:
    """Shapes of the parts that an output head may have."""
    shapes: dict[str, Shape] = {"head": (config.vocabulary, config.width), "head_bias": (config.vocabulary,)}
    if config.causal:
        return shapes
    return shapes | _linear("transform", (config.width, config.width), True) | _norm("transform_norm", config)


def _norm(name: str, config: Config) -> dict[str, Shape]:
    return _linear(name, (config.width,), config.norm_bias)


def _linear(name: str, shape: Shape, bias: bool) -> dict[str, Shape]:
    return {name: shape, f"{name}_bias": shape[:1]} if bias else {name: shape}
