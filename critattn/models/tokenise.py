"""Tokens of a model: byte-level BPE from GGUF fields, tokenizer.json, WordPiece, amino acids, bytes."""

import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from critattn.errors import SpecError

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LINES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TIKTOKEN = SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s|" + LINES
DIGIT_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
# Where words are cut before merging, by the field tokenizer.ggml.pre [ggml-org/llama.cpp, src/llama-vocab.cpp].
PATTERNS = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais"), (GPT2,)),
    **dict.fromkeys(DIGIT_BY_DIGIT, (r"\p{N}", GPT2)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), (TIKTOKEN % r"\p{N}",)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), (TIKTOKEN % r"\p{N}{1,3}",)),
}
COMPOSED = ("qwen2", "deepseek-r1-qwen")
# Words that are tokens whole skip the merges.
WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3")
NEEDED = "reading a tokeniser needs the package tokenizers: pip install 'critattn[models]'"
SPECIAL = ("[CLS]", "[SEP]", "[MASK]")
JSON = "tokenizer.json"
BESIDE = f"or a {JSON} beside it"
BYTES = 256
BYTES_KEY = ("tokeniser", "bytes")


@dataclass(frozen=True)
class Tokeniser:
    """Text to tokens and back.

    Attributes:
        kind: how, for a person.
        size: number of different tokens, special ones included.
        before: special tokens that open a sequence, such as [CLS]; empty where the model has none.
        after: special tokens that close it.
        mask: the token that hides another, None where there is none.
        to_tokens: characters to a list of tokens, none of them special.
        to_text: a list of tokens to characters.
    """

    kind: str
    size: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    mask: int | None
    to_tokens: Callable[[str], Sequence[int]]
    to_text: Callable[[list[int]], str]

    def encode(self, text: str, *, special: bool = False) -> np.ndarray:
        """Tokens of a text.

        Args:
            text: any characters.
            special: with the special tokens that open and close a sequence of this model.

        Returns:
            (n,) int32.

        Raises:
            SpecError: where the text holds too little that the tokeniser knows.
        """
        tokens = np.asarray(self.to_tokens(text), dtype=np.int32)
        return self.framed(tokens) if special else tokens

    def framed(self, tokens: np.ndarray) -> np.ndarray:
        """The special tokens that open and close a sequence around a window: (before + n + after,) int32."""
        return np.concatenate([self.before, tokens, self.after]).astype(np.int32)

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The characters of tokens (n,); special tokens are left out where the tokeniser knows them as such."""
        return self.to_text([int(token) for token in tokens])


def tokeniser(model: Any) -> Tokeniser:
    """The tokeniser of a loaded model: from its GGUF fields, else from files beside its weights.

    Args:
        model: with `source` (path, metadata) and `config` (vocabulary).

    Raises:
        SpecError: where there is none, where it cannot be understood, where it has tokens the model does not know, and
            without the package `tokenizers`.
    """
    path = Path(model.source.path)
    folder = path if path.is_dir() else path.parent
    metadata = model.source.metadata
    if metadata.get(BYTES_KEY[0]) == BYTES_KEY[1]:
        return of_bytes(model.config.vocabulary)
    made = _of_gguf(metadata, path) or _of_folder(folder, model.config.vocabulary)
    if made is None:
        places = "tokenizer.json or vocab.txt beside the weights, or fields of a GGUF file"
        raise SpecError(f"{path}: has no tokeniser; allowed: {places}")
    if made.size > model.config.vocabulary:
        known = f"the model knows {model.config.vocabulary}"
        raise SpecError(f"{path}: its tokeniser ({made.kind}) has {made.size} tokens, but {known}")
    return made


def from_gguf(metadata: Mapping[str, Any], file: str) -> Tokeniser:
    """Byte-level BPE from the fields `tokenizer.ggml.*` of a GGUF file.

    Args:
        metadata: the file's fields.
        file: what errors call the file.

    Raises:
        SpecError: for another kind of tokeniser, an unknown way to cut words, or fields that do not fit together.
    """
    kind, pre = (metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if kind != "gpt2":
        raise SpecError(f"{file}: tokenizer.ggml.model is {_short(kind)}; allowed: 'gpt2' (byte-level BPE), {BESIDE}")
    if not isinstance(pre, str) or pre not in PATTERNS:
        raise SpecError(f"{file}: tokenizer.ggml.pre is {_short(pre)}; known: {', '.join(PATTERNS)}, {BESIDE}")
    tokens, merges = (_strings(metadata, f"tokenizer.ggml.{key}", file) for key in ("tokens", "merges"))
    before, after = _ends(metadata, pre, file)
    made = _byte_level(tokens, merges, pre, file)
    return Tokeniser(f"byte-level BPE, {pre}", len(tokens), before, after, None, _encoder(made, file), _decoder(made))


def from_json(file: Path) -> Tokeniser:
    """The tokeniser of a tokenizer.json; its truncation and padding are switched off.

    Raises:
        SpecError: for a file that `tokenizers` cannot read.
    """
    made = _guarded(file.name, lambda: _library().Tokenizer.from_file(str(file)))
    made.no_truncation()
    made.no_padding()
    one = _guarded(file.name, lambda: made.encode("a"))
    inner = [place for place, special in enumerate(one.special_tokens_mask) if not special] or [len(one.ids)]
    before, after = tuple(one.ids[: inner[0]]), tuple(one.ids[inner[-1] + 1 :])
    mask = next((made.token_to_id(name) for name in ("[MASK]", "<mask>") if made.token_to_id(name) is not None), None)
    return Tokeniser(JSON, made.get_vocab_size(), before, after, mask, _encoder(made, file.name), _decoder(made))


def from_vocabulary(file: Path) -> Tokeniser:
    """WordPiece, or single amino acids, from a vocab.txt with one token a line.

    All tokens single capital letters (special ones in brackets apart) make a tokeniser of amino acids; else it is
    BERT's, without cases where no token has a capital letter of A to Z.

    Raises:
        SpecError: for a file without [UNK], or with a token twice.
    """
    tokens = _lines(file)
    places = {token: place for place, token in enumerate(tokens)}
    if "[UNK]" not in places or len(places) < len(tokens):
        reason = "lacks [UNK]" if "[UNK]" not in places else "has a token twice"
        raise SpecError(f"{file}: {reason}; allowed: one token a line, such as BERT's vocab.txt")
    plain = [token for token in tokens if not (token.startswith("[") and token.endswith("]"))]
    single = all(len(token) == 1 and token.isalpha() and token.isupper() for token in plain)
    return _amino_acids(places) if plain and single else _wordpiece(places, plain, file.name)


def of_bytes(size: int) -> Tokeniser:
    """Bytes of UTF-8: tokens 0 to 255, and where there are more, 256 opens a sequence (257 may stand for nothing)."""
    before = (BYTES,) if size > BYTES else ()

    def text(tokens: list[int]) -> str:
        return bytes(token for token in tokens if token < BYTES).decode("utf-8", "replace")

    return Tokeniser("bytes", size, before, (), None, lambda content: list(content.encode("utf-8", "replace")), text)


def _of_gguf(metadata: Mapping[str, Any], path: Path) -> Tokeniser | None:
    kind, pre = (metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    known = kind == "gpt2" and isinstance(pre, str) and pre in PATTERNS
    if kind is None or (not known and path.with_name(JSON).is_file()):
        return None
    return from_gguf(metadata, path.name)


def _of_folder(folder: Path, vocabulary: int) -> Tokeniser | None:
    if (folder / JSON).is_file():
        return from_json(folder / JSON)
    # AntiBERTy keeps its vocabulary one folder above the weights.
    for file in (folder / "vocab.txt", folder.parent / "vocab.txt"):
        if file.is_file():
            return from_vocabulary(file)
    return of_bytes(vocabulary) if BYTES <= vocabulary <= BYTES + 2 and _says_bytes(folder) else None


def _says_bytes(folder: Path) -> bool:
    key, value = BYTES_KEY
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get(key) == value


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise SpecError(NEEDED) from None
    return tokenizers


def _guarded(file: str, make: Callable[[], Any]) -> Any:
    """What `make` returns; `tokenizers` raises bare exceptions, which become one line."""
    try:
        return make()
    except SpecError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise SpecError(f"{file}: its tokeniser cannot be understood: {reason}") from error


def _byte_level(tokens: Sequence[str], merges: Sequence[str], pre: str, file: str) -> Any:
    library = _library()
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens) or any(len(pair) != 2 for pair in pairs):
        raise SpecError(f"{file}: tokenizer.ggml.tokens has a token twice, or a merge is no pair of tokens")
    parts = library.pre_tokenizers
    cuts = [parts.Split(library.Regex(pattern), "isolated") for pattern in PATTERNS[pre]]

    def make() -> Any:
        whole = pre in WHOLE_WORDS
        made = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=whole))
        made.pre_tokenizer = parts.Sequence([*cuts, parts.ByteLevel(add_prefix_space=False, use_regex=False)])
        made.decoder = library.decoders.ByteLevel()
        if pre in COMPOSED:
            made.normalizer = library.normalizers.NFC()
        return made

    return _guarded(file, make)


def _ends(metadata: Mapping[str, Any], pre: str, file: str) -> list[tuple[int, ...]]:
    """The tokens that open and close a sequence, where the file says that they are added."""
    ends: list[tuple[int, ...]] = []
    for name, default in (("bos", pre in WHOLE_WORDS), ("eos", False)):
        key = f"tokenizer.ggml.{name}_token_id"
        token, added = metadata.get(key), metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        size = len(metadata["tokenizer.ggml.tokens"])
        if added and token is not None and not (isinstance(token, int) and 0 <= token < size):
            raise SpecError(f"{file}: {key} is {_short(token)}; allowed: 0 to {size - 1}")
        ends.append((token,) if added and token is not None else ())
    return ends


def _strings(metadata: Mapping[str, Any], key: str, file: str) -> list[str]:
    values = metadata.get(key)
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise SpecError(f"{file}: {key} is {_short(values)}; allowed: a list of strings")
    return list(values)


def _short(value: object) -> str:
    return "missing" if value is None else repr(value)[:80]


def _lines(file: Path) -> list[str]:
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{file}: is no UTF-8 (byte {error.start}: {error.reason})") from None
    # not splitlines: rarer separators than the line feed are tokens of their own
    return content.removesuffix("\n").split("\n")


def _wordpiece(places: Mapping[str, int], plain: Sequence[str], file: str) -> Tokeniser:
    library = _library()
    uncased = not any(letter in string.ascii_uppercase for token in plain for letter in token)
    made = _guarded(file, lambda: library.Tokenizer(library.models.WordPiece(vocab=dict(places), unk_token="[UNK]")))
    made.normalizer = library.normalizers.BertNormalizer(lowercase=uncased)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    made.decoder = library.decoders.WordPiece()
    kind = "WordPiece, lower case" if uncased else "WordPiece"
    return Tokeniser(kind, len(places), *_brackets(places), _encoder(made, file), _decoder(made))


def _amino_acids(places: Mapping[str, int]) -> Tokeniser:
    names = {place: token for token, place in places.items() if len(token) == 1}

    def tokens(text: str) -> list[int]:
        letters = "".join(line for line in text.splitlines() if not line.startswith(">")).split()
        found = [places.get(letter, places["[UNK]"]) for letter in "".join(letters)]
        unknown = found.count(places["[UNK]"])
        if 2 * unknown > len(found):
            raise SpecError(f"text: {unknown} of {len(found)} letters are no amino acids; allowed: protein sequences")
        return found

    def text(found: list[int]) -> str:
        return "".join(names.get(token, "") for token in found)

    return Tokeniser("amino acids", len(places), *_brackets(places), tokens, text)


def _brackets(places: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    first, last, mask = (places.get(name) for name in SPECIAL)
    return (() if first is None else (first,)), (() if last is None else (last,)), mask


def _encoder(made: Any, file: str) -> Callable[[str], Sequence[int]]:
    return lambda text: _guarded(file, lambda: made.encode(text, add_special_tokens=False).ids)


def _decoder(made: Any) -> Callable[[list[int]], str]:
    return lambda tokens: made.decode(tokens)
