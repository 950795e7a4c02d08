"""Reading a configuration key by key, with one clear line where a key is missing or makes no sense."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from critattn.errors import SpecError

SIZES = {"layers": 1024, "width": 1 << 17, "heads": 4096, "inner": 1 << 20, "vocabulary": 1 << 23, "length": 1 << 31}
LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class Keys:
    """Keys of a configuration and where they come from.

    Attributes:
        where: the file, for messages.
        values: the keys.
    """

    where: str
    values: Mapping[str, Any]

    def find(self, *names: str) -> tuple[str, Any]:
        """The first of these keys that is there and not null, and its value; the first name and None without."""
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        return names[0], None

    def whole(self, *names: str, most: int, default: int | None = None, least: int = 1) -> int:
        """A whole number from `least` to `most` under any of these names.

        Raises:
            SpecError: where it is missing without default, or no such number.
        """
        name, value = self.find(*names)
        if value is None:
            value = self._default(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SpecError(f"{self.where}: {name} = {_shown(value)}: must be a whole number from {least} to {most}")
        return value

    def number(self, *names: str, default: float | None = None, positive: bool = True) -> float:
        """A finite number, above 0 unless told otherwise.

        Raises:
            SpecError: where it is missing without default, or no such number.
        """
        name, value = self.find(*names)
        if value is None:
            value = self._default(name, default)
        real = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
        if not real or not math.isfinite(value) or (positive and not value > 0):
            allowed = "a finite number above 0" if positive else "a finite number"
            raise SpecError(f"{self.where}: {name} = {_shown(value)}: must be {allowed}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean.

        Raises:
            SpecError: for anything else.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise SpecError(f"{self.where}: {name} = {_shown(value)}: must be true or false")
        return value

    def word(self, *names: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of the allowed words.

        Raises:
            SpecError: where it is missing without default, or none of them.
        """
        name, value = self.find(*names)
        if value is None:
            value = self._default(name, default)
        if not isinstance(value, str) or value not in allowed:
            raise SpecError(f"{self.where}: {name} = {_shown(value)} is not supported; supported: {', '.join(allowed)}")
        return value

    def inner(self, name: str) -> "Keys":
        """The keys of a nested object, empty where there is none.

        Raises:
            SpecError: where the value is no object.
        """
        value = self.values.get(name) or {}
        if not isinstance(value, Mapping):
            raise SpecError(f"{self.where}: {name} = {_shown(value)}: must be an object of keys")
        return Keys(f"{self.where}: {name}", value)

    def refuse(self, *names: str) -> None:
        """Refuse keys that change the computation in a way that is not implemented, unless they are off.

        Raises:
            SpecError: for the first of them that is on.
        """
        for name in names:
            value = self.values.get(name)
            neutral = value is None or value is False or (value is not True and value in (0, 1, "", [], {}))
            if not neutral:
                raise SpecError(f"{self.where}: {name} = {_shown(value)} is not supported")

    def _default(self, name: str, default: Any) -> Any:
        if default is None:
            raise SpecError(f"{self.where}: {name} is missing")
        return default


def _shown(value: Any) -> str:
    return " ".join(repr(value).split())[:60]


def sizes(keys: Keys) -> dict[str, int]:
    """Layers, width, heads, vocabulary and head dimension under their names of every family.

    Raises:
        SpecError: for a missing or absurd size, or a width that the heads do not divide.
    """
    found = {
        "layers": keys.whole("num_hidden_layers", "n_layer", "n_layers", most=SIZES["layers"]),
        "width": keys.whole("hidden_size", "n_embd", "n_embed", "d_model", most=SIZES["width"]),
        "heads": keys.whole("num_attention_heads", "n_head", "n_heads", most=SIZES["heads"]),
        "vocabulary": keys.whole("vocab_size", most=SIZES["vocabulary"]),
    }
    width, heads = found["width"], found["heads"]
    if keys.find("head_dim")[1] is None and width % heads:
        raise SpecError(f"{keys.where}: a width of {width} is not divided by {heads} heads")
    found["head_dim"] = keys.whole("head_dim", most=SIZES["width"], default=max(width // heads, 1))
    return found
