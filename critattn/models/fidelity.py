"""How close a loaded model is to the original: recorded values of the packaged models, perplexity for the others."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from critattn.errors import SpecError
from critattn.models import texts
from critattn.models.tokenise import Tokeniser, tokeniser

REFERENCES = Path(__file__).with_name("references.json")
LENGTH = 128
# Mean loss in nats on the same tokens. Float32 here and in torch agree to 1e-6; the smallest mistake that was tried, a
# base of the rotation of 1e4 for 1e5, costs 3e-3, the rotation of the wrong halves 2.4.
SAME_TOKENS = 1e-3
# On other tokens of the same text the loss has the spread of its windows.
SIGMAS = 4
# Two float32 evaluations of six layers, entries up to 5.5: 5e-6 between numpy and torch.
STATE = 1e-5
# The same guesses: the closest first guess leads by 0.07 nats, far above round-off.
SAME_GUESSES = 0.5
ANTIBODY = "trastuzumab VH"
EVERY = 4
SENTENCES = (
    "Attention is a competition between keys.",
    "The quick brown fox jumps over the lazy dog, and 3.14159 is almost pi.",
    "Long contexts dilute each weight: every head must sharpen with the logarithm of its length, or lose the needle.",
)


@dataclass(frozen=True)
class Fidelity:
    """The outcome of a gate.

    Attributes:
        kind: `perplexity`, `state` (largest difference of the last hidden states), `masked` (share of hidden tokens
            guessed), or `none`.
        measured: with this package; None where nothing could be measured.
        expected: with the original code; None without a reference.
        tolerance: what the difference may be; in nats per token for a perplexity; None without a reference.
        passed: None without a reference.
        text: a sentence for a person.
    """

    kind: str
    measured: float | None
    expected: float | None
    tolerance: float | None
    passed: bool | None
    text: str


def check(model: Any, *, length: int = LENGTH) -> Fidelity:
    """Hold a loaded model against the original, or say how well it predicts where no reference is known.

    The packaged models are known by the checksum of their weights: SmolLM2 by its perplexity on Python's topics,
    MiniLM by its last hidden states of three sentences, AntiBERTy by the amino acids it guesses in an antibody. Their
    references come from torch and transformers (benchmarks/record_references.py).

    Args:
        model: a loaded model.
        length: tokens for a perplexity; references exist for 128 and 1024.

    Raises:
        SpecError: where the weights cannot be read.
    """
    reference = known(Path(model.source.path))
    if reference is not None:
        return GATES[reference["kind"]](model, reference, length)
    if not model.layout.has_head:
        return _none("the model has no output head")
    try:
        made = tokeniser(model)
        text = texts.proteins()[0] if made.kind == "amino acids" else texts.texts(["topics"])[0]
    except SpecError as error:
        return _none(str(error))
    return _guesses(model, made, text, length)


def known(file: Path) -> Mapping[str, Any] | None:
    """The reference of a file of weights, by size and checksum; None where there is none."""
    size = file.stat().st_size
    for reference in json.loads(REFERENCES.read_text(encoding="utf-8"))["models"]:
        if reference["bytes"] == size and reference["sha256"] == checksum(file):
            return reference
    return None


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(tokens: np.ndarray) -> str:
    """SHA-256 of tokens (n,) as little-endian 32-bit integers."""
    return hashlib.sha256(np.ascontiguousarray(tokens, dtype="<i4").tobytes()).hexdigest()


def _perplexity(model: Any, reference: Mapping[str, Any], length: int) -> Fidelity:
    recorded = reference["lengths"]
    kept = recorded.get(str(length), recorded[str(LENGTH)])
    length = length if str(length) in recorded else LENGTH
    tokens = texts.excerpts(tokeniser(model).encode, texts.texts(["topics"])[0], length)[0]
    same = digest(tokens) == kept["tokens"]
    tolerance = SAME_TOKENS if same else SIGMAS * kept["deviation"]
    loss = _loss(model, tokens)
    passed = abs(loss - kept["nats"]) <= tolerance
    measured, expected = math.exp(loss), math.exp(kept["nats"])
    why = "" if same else f" (this Python's topics are others: {SIGMAS} standard deviations between windows)"
    said = f"within {tolerance:.2g} nats per token{why}: {'passed' if passed else 'FAILED'}"
    line = f"perplexity {measured:.2f} on {length} tokens of Python's topics, {expected:.2f} in the original, {said}"
    return Fidelity("perplexity", measured, expected, tolerance, passed, line)


def _loss(model: Any, tokens: np.ndarray) -> float:
    """Mean loss per predicted token, nats."""
    from critattn.models import forward, loss

    finals = forward.run(model, [tokens])
    return float(np.mean(loss.losses(model, finals, [tokens])[0]))


def _states(model: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Last hidden states (n, width) of each sequence."""
    from critattn.models import forward

    return [np.asarray(state) for state in forward.run(model, sequences)]


def _state(model: Any, reference: Mapping[str, Any], length: int) -> Fidelity:
    made = tokeniser(model)
    sequences = [made.encode(sentence, special=True) for sentence in SENTENCES]
    kept = reference["sentences"]
    if any(digest(tokens) != digest(np.array(one["tokens"])) for tokens, one in zip(sequences, kept, strict=True)):
        return Fidelity("state", None, 0.0, STATE, False, "the tokeniser gives other tokens than the original: FAILED")
    pairs = zip(_states(model, sequences), kept, strict=True)
    # numpy's maximum, unlike Python's, keeps a NaN
    worst = float(np.max([_distance(state, one) for state, one in pairs]))
    passed = worst <= STATE
    said = f"{STATE:g} allowed: {'passed' if passed else 'FAILED'}"
    return Fidelity("state", worst, 0.0, STATE, passed, f"last hidden states differ by {worst:.1e} at most, {said}")


def _distance(state: np.ndarray, recorded: Mapping[str, Any]) -> float:
    rows, columns = np.transpose(recorded["places"])
    return float(np.max(np.abs(state[rows, columns] - np.array(recorded["values"]))))


def _masked(model: Any, reference: Mapping[str, Any], length: int) -> Fidelity:
    made = tokeniser(model)
    tokens = made.encode(texts.PROTEINS[ANTIBODY], special=True)
    measured = _share(model, made, tokens)
    expected = reference["hits"] / reference["positions"]
    tolerance = SAME_GUESSES / reference["positions"]
    passed = abs(measured - expected) <= tolerance
    said = f"{expected:.3f} in the original: {'passed' if passed else 'FAILED'}"
    line = f"guesses {measured:.3f} of {reference['positions']} hidden amino acids of {ANTIBODY}, {said}"
    return Fidelity("masked", measured, expected, tolerance, passed, line)


def _share(model: Any, made: Tokeniser, tokens: np.ndarray) -> float:
    """Share of every fourth token, special ones apart, that is guessed where it alone is hidden."""
    from critattn.models import loss

    if made.mask is None:
        raise SpecError(f"{model.name}: its tokeniser has no token that hides others, such as [MASK]")
    places = range(len(made.before), len(tokens) - len(made.after), EVERY)
    return loss.masked_top1(model, tokens, made.mask, list(places))


def _guesses(model: Any, made: Tokeniser, text: texts.Text, length: int) -> Fidelity:
    room = min(length, model.config.max_length) - len(made.before) - len(made.after)
    # one token a letter, where a text may be shorter than that
    room = min(room, len(text.content))
    tokens = made.framed(texts.excerpts(made.encode, text, room)[0])
    where = f"{len(tokens)} tokens of {text.name}"
    if model.config.causal:
        measured, uniform = math.exp(_loss(model, tokens)), model.config.vocabulary
        verdict = "no reference" if measured < uniform else "no better than chance: not trained, or not read right"
        line = f"perplexity {measured:.4g} on {where}, {uniform} by chance; {verdict}"
        return Fidelity("perplexity", measured, None, None, None, line)
    if made.mask is None:
        return _none("an encoder whose tokeniser has no token that hides others")
    share = _share(model, made, tokens)
    return Fidelity("masked", share, None, None, None, f"guesses {share:.3f} of hidden tokens in {where}; no reference")


def _none(why: str) -> Fidelity:
    return Fidelity("none", None, None, None, None, f"no gate: {why}")


GATES: dict[str, Callable[[Any, Mapping[str, Any], int], Fidelity]] = {
    "perplexity": _perplexity,
    "state": _state,
    "masked": _masked,
}
