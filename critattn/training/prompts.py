"""Retrieval prompts with synthetic keys: a pass key in repeated filler, and a needle in a text.

The wording is that of the published prompts, shortened to fit into 128 bytes [arXiv 2501.13428, arXiv 2608.03994].
"""

from typing import Literal, NamedTuple

import numpy as np

from critattn.errors import DomainError, SpecError

Kind = Literal["passkey", "needle"]
KINDS: tuple[Kind, ...] = ("passkey", "needle")
DIGITS = 4
FILLER = b"The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
CITIES = (b"bern", b"cairo", b"delhi", b"havana", b"kyiv", b"lima", b"oslo", b"paris", b"quito", b"rome", b"seoul")


class Wording(NamedTuple):
    """The parts of a prompt around the filler.

    Attributes:
        stated: what stands before the key where it is stated.
        after: what stands after it.
        asked: what stands before the answer, which ends the prompt.
    """

    stated: bytes
    after: bytes
    asked: bytes

    @property
    def nearest(self) -> int:
        """The smallest distance from the first digit of the key to that of the answer."""
        return DIGITS + len(self.after) + len(self.asked)

    def farthest(self, length: int) -> int:
        """The largest such distance in a prompt of that many bytes."""
        return length - DIGITS - len(self.stated)


def wording(kind: Kind, rng: np.random.Generator) -> Wording:
    """The wording of a prompt; that of a needle names a city.

    Raises:
        SpecError: for an unknown kind.
    """
    if kind == "passkey":
        return Wording(b"The pass key is ", b". ", b"What is the pass key? The pass key is ")
    if kind == "needle":
        city = CITIES[rng.integers(len(CITIES))]
        stated = b" The magic number of " + city + b" is "
        return Wording(stated, b". ", stated)
    raise SpecError(f"prompt {kind!r} is unknown; known: {', '.join(KINDS)}")


def make(
    kind: Kind, rng: np.random.Generator, length: int, *, text: np.ndarray, distance: int | None = None
) -> np.ndarray:
    """A prompt of that many bytes, uint8, whose last four are the answer.

    Args:
        kind: "passkey" for repeated filler, "needle" for a stretch of the text.
        rng: draws the key, the filler and, where none is given, the distance.
        length: bytes.
        text: where the filler of a needle comes from, uint8.
        distance: bytes from the first digit of the stated key to the first digit of the answer.

    Raises:
        DomainError: where the distance does not fit.
    """
    words = wording(kind, rng)
    least, most = words.nearest, words.farthest(length)
    if distance is None and least <= most:
        distance = int(rng.integers(least, most + 1))
    if distance is None or not least <= distance <= most:
        raise DomainError(f"distance = {distance}: must be from {least} to {most} in a prompt of {length} bytes")
    key = b"".join(b"%d" % digit for digit in rng.integers(0, 10, DIGITS))
    stated, answer = words.stated + key + words.after, words.asked + key
    before = length - distance - DIGITS - len(words.stated)
    filler = _filler(kind, rng, length - len(stated) - len(answer), text)
    return np.frombuffer(filler[:before] + stated + filler[before:] + answer, np.uint8)


def _filler(kind: Kind, rng: np.random.Generator, count: int, text: np.ndarray) -> bytes:
    if kind == "passkey":
        begin = int(rng.integers(len(FILLER)))
        return (FILLER * (2 + count // len(FILLER)))[begin : begin + count]
    begin = int(rng.integers(text.size - count + 1))
    return text[begin : begin + count].tobytes()
