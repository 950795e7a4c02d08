"""Published results of the attentions that are trained here, as printed, with the paper of each number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LSSA = "arXiv 2501.13428"
ALIBI = "arXiv 2608.03994"


@dataclass(frozen=True)
class Published:
    """One column of a published table.

    Attributes:
        key: a name of its own.
        source: the paper.
        words: what was measured, on what.
        quantity: "loss" (nats a token), "passkey" or "needle" (shares of prompts).
        low: where it was measured, in training lengths: the length of the windows of a loss, or the nearest distance.
        high: the same, or the farthest distance of a mean over distances.
        windows: the shares are of windows of `high` training lengths with the key anywhere in them, which is compared
            with the mean over distances up to that length.
        values: by the names of the variants that are trained here.
        others: by their published names, those that are not.
        bounds: variants whose value is a lower bound.
    """

    key: str
    source: str
    words: str
    quantity: str
    low: float
    high: float
    values: Mapping[str, float]
    others: Mapping[str, float] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()
    windows: bool = False

    @property
    def place(self) -> str:
        """Quantity and place in a few words: `loss at 8T`, `passkey, 0 to T`, `passkey in windows of 1.5T`."""
        if self.windows:
            return f"{self.quantity} in windows of {_times(self.high)}"
        if self.low == self.high:
            return f"{self.quantity} at {_times(self.high)}"
        return f"{self.quantity}, {_times(self.low)} to {_times(self.high)}"


def _times(multiple: float) -> str:
    return "0" if multiple == 0 else "T" if multiple == 1 else f"{multiple:g}T"


# GPT-2 small, 124M parameters, trained at 1024 tokens: validation loss at 1, 2, 4 and 8 times that length
_LOSSES = {
    "softmax-rope": (3.19, 4.17, 5.45, 6.28),
    "sigmoid": (3.19, 7.46, 11.84, 14.50),
    "ReLU": (3.21, 6.27, 8.50, 10.35),
    "lssa": (3.19, 4.13, 5.30, 5.94),
    "lssar-p3": (3.18, 4.24, 5.41, 6.30),
    "lssar-p15": (3.19, 3.19, 3.23, 3.32),
}
# the same model at 8 times the length, without one part at a time; the last value is printed as "> 10"
_ABLATION = {
    "lssar-p15": 3.32,
    "lssa": 5.94,
    "first-stage-exp-p15": 7.02,
    "first-stage-sigmoid-l1-p15": 3.86,
    "first-stage-relu-l1-p15": 10.0,
}
# accuracy in contexts of 1 and 1.5 times the length
_PASSKEY = {"softmax-rope": (0.64, 0.0), "lssar-p15": (0.86, 0.45)}
# 148M parameters, 30 layers, trained at 2048 tokens, means of 3 seeds: validation loss, then areas under the accuracy
# curve of passkey within and beyond the training length and of the needle likewise
_ALIBI = {
    "Steep": (2.994, 0.84, 0.09, 0.44, 0.02),
    "Safe": (2.876, 0.98, 0.17, 0.48, 0.02),
    "Wide": (2.853, 0.75, 0.08, 0.45, 0.01),
    "softmax-alibi": (2.846, 0.93, 0.08, 0.68, 0.20),
    "softmax-rope": (2.842, 0.64, 0.00, 0.28, 0.00),
    "alibi-e": (2.846, 0.84, 0.04, 0.48, 0.02),
    "alibi-c": (2.847, 0.87, 0.08, 0.65, 0.17),
    "alibi-log": (2.883, 0.95, 0.77, 0.41, 0.03),
    "alibi-s": (2.847, 0.85, 0.03, 0.61, 0.17),
    "alibi-c-e": (2.845, 0.92, 0.11, 0.50, 0.05),
    "alibi-clamp-log": (2.883, 0.95, 0.79, 0.41, 0.03),
    "alibi-c-s": (2.846, 0.66, 0.00, 0.61, 0.13),
    "alibi-e-l": (2.855, 0.92, 0.00, 0.43, 0.00),
    "alibi-e-s": (2.846, 0.99, 0.12, 0.48, 0.04),
    "alibi-l-s": (2.884, 0.97, 0.67, 0.40, 0.02),
    "alibi-c-e-l": (2.855, 0.92, 0.00, 0.42, 0.00),
    "alibi-c-e-s": (2.846, 0.98, 0.09, 0.45, 0.02),
    "alibi-c-l-s": (2.884, 0.97, 0.69, 0.40, 0.02),
    "alibi-e-l-s": (2.856, 0.96, 0.00, 0.42, 0.00),
    "alibi-c-e-l-s": (2.855, 0.96, 0.00, 0.42, 0.00),
}
# published names of attentions that are not trained here
_OTHERS = ("ReLU", "Steep", "Safe", "Wide")
_LSSA_WORDS = "GPT-2 small with RoPE, trained at 1024 tokens"
_ALIBI_WORDS = "148M parameters, trained at 2048 tokens, mean of 3 seeds"


def _ours(rows: Mapping[str, tuple[float, ...]], index: int) -> dict[str, float]:
    """One column of a table, of the variants that are trained here."""
    return {name: row[index] for name, row in rows.items() if name not in _OTHERS}


def _others(rows: Mapping[str, tuple[float, ...]], index: int) -> dict[str, float]:
    return {name: row[index] for name, row in rows.items() if name in _OTHERS}


def _at(key: str, times: float, quantity: str, **columns: Any) -> Published:
    """A column of the paper on softplus attention, measured in windows of one multiple of the training length."""
    words = f"{_LSSA_WORDS}{', ablation' if columns.get('bounds') else ''}"
    low = 0 if columns.get("windows") else times
    return Published(key, LSSA, words=words, quantity=quantity, low=low, high=times, **columns)


def _of_lengths() -> tuple[Published, ...]:
    losses = (
        _at(f"loss-{n}T", n, "loss", values=_ours(_LOSSES, index), others=_others(_LOSSES, index))
        for index, n in enumerate((1, 2, 4, 8))
    )
    found = (
        _at(f"passkey-{n:g}T", n, "passkey", values=_ours(_PASSKEY, index), windows=True)
        for index, n in enumerate((1, 1.5))
    )
    ablation = _at("ablation-8T", 8, "loss", values=_ABLATION, bounds=("first-stage-relu-l1-p15",))
    return (*losses, ablation, *found)


def _of_positions() -> tuple[Published, ...]:
    places = {"loss": (1, 1), "passkey-in": (0, 1), "passkey-out": (1, 2), "needle-in": (0, 1), "needle-out": (1, 2)}
    return tuple(
        Published(
            f"alibi-{name}",
            ALIBI,
            words=_ALIBI_WORDS,
            quantity=name.partition("-")[0],
            low=low,
            high=high,
            values=_ours(_ALIBI, index),
            others=_others(_ALIBI, index),
        )
        for index, (name, (low, high)) in enumerate(places.items())
    )


PUBLISHED: tuple[Published, ...] = (*_of_lengths(), *_of_positions())
