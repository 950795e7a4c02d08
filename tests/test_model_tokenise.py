"""Tokenisers: byte-level BPE against its definition, files beside the weights, the packaged models."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from critattn.errors import SpecError
from critattn.models import installed, texts, tokenise

GROUPS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
GROUPS["llama-bpe"] = GROUPS["qwen2"].replace("|[0-9]|", "|[0-9]{1,3}|")


def model_of(path, *, metadata=None, vocabulary=50_000):
    return SimpleNamespace(
        source=SimpleNamespace(path=Path(path), metadata=metadata or {}),
        config=SimpleNamespace(vocabulary=vocabulary),
    )


# byte-level BPE


def alphabet():
    """GPT-2's map of bytes to characters: those that print stand for themselves, the others come after 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + at) for at, byte in enumerate(others)}}


MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ a", "1 2", "12 3", "Ġ Ġ", "' s", "h e", "Ċ Ċ"]
TEXT = "the thing, the 123 and 12345 in  a   line's THE'S\n\n  end.\n1 a\t"


def fields(pre, **more):
    tokens = list(alphabet().values()) + [merge.replace(" ", "") for merge in MERGES] + ["<s>", "hello"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": MERGES,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def merged(word):
    """Merge the pair of lowest rank again and again: the definition of BPE."""
    parts = [alphabet()[byte] for byte in word.encode()]
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(MERGES)}
    while pairs := [pair for pair in zip(parts, parts[1:], strict=False) if pair in ranks]:
        best = min(pairs, key=ranks.__getitem__)
        at = next(place for place in range(len(parts) - 1) if (parts[place], parts[place + 1]) == best)
        parts[at : at + 2] = ["".join(best)]
    return parts


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_byte_level_bpe_is_its_definition(pre):
    made = tokenise.tokeniser(model_of("a.gguf", metadata=fields(pre)))
    words = re.findall(GROUPS.get(pre, GROUPS["gpt-2"]), TEXT)
    if pre == "smollm":
        pieces = re.findall(r"[0-9]|[^0-9]+", TEXT)
        words = [word for piece in pieces for word in re.findall(GROUPS["gpt-2"], piece)]
    places = {token: place for place, token in enumerate(fields(pre)["tokenizer.ggml.tokens"])}
    expected = [places[part] for word in words for part in merged(word)]
    found = made.encode(TEXT)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    assert made.decode(found) == TEXT
    assert made.decode(made.encode("déjà ∂x 数")) == "déjà ∂x 数"


def test_the_ways_to_cut_differ_where_they_should():
    number = {pre: len(tokenise.from_gguf(fields(pre), "a.gguf").encode("123")) for pre in tokenise.PATTERNS}
    assert {pre for pre, count in number.items() if count == 3} >= {"smollm", "qwen2", "starcoder"}
    assert number["gpt-2"] == number["llama-bpe"] == 1
    whole = [len(tokenise.from_gguf(fields(pre), "a.gguf").encode("hello")) for pre in ("llama-bpe", "gpt-2")]
    assert whole == [1, 4]


def test_special_tokens_come_where_the_file_says():
    bos = len(fields("gpt-2")["tokenizer.ggml.tokens"]) - 2
    plain = tokenise.from_gguf(fields("smollm", bos_token_id=bos), "a.gguf")
    assert (plain.before, plain.after) == ((), ())
    llama = tokenise.from_gguf(fields("llama-bpe", bos_token_id=bos), "a.gguf")
    assert llama.encode("the", special=True).tolist() == [bos, *llama.encode("the")]
    both = tokenise.from_gguf(
        fields("gpt-2", bos_token_id=bos, eos_token_id=7, add_bos_token=True, add_eos_token=True), "a.gguf"
    )
    assert (both.before, both.after) == ((bos,), (7,))
    assert both.framed(np.array([1, 2])).tolist() == [bos, 1, 2, 7]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model is 'llama'; allowed: 'gpt2'"),
        ({"model": ["x"]}, "tokenizer.ggml.model is"),
        ({"pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; known: gpt-2, mpt"),
        ({"pre": None}, "tokenizer.ggml.pre is missing"),
        ({"pre": ["smollm"]}, "tokenizer.ggml.pre is"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokens": [1, 2]}, "allowed: a list of strings"),
        ({"tokens": ["a", "a"]}, "a token twice"),
        ({"merges": ["ab"]}, "is no pair of tokens"),
        ({"merges": ["never there"]}, "cannot be understood"),
        ({"bos_token_id": "x", "add_bos_token": True}, "bos_token_id is 'x'"),
        ({"eos_token_id": 10**9, "add_eos_token": True}, "eos_token_id is 1000000000"),
    ],
)
def test_fields_that_do_not_fit_are_one_line(change, said):
    with pytest.raises(SpecError, match=said) as caught:
        tokenise.from_gguf(fields(**{"pre": "smollm", **change}), "a.gguf")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# files beside the weights


def bert_json(tmp_path):
    import tokenizers as library

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "hello", "world"]
    made = library.Tokenizer(library.models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.post_processor = library.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(4)
    made.enable_padding(length=4)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_tokenizer_json_without_its_truncation_and_padding(tmp_path):
    made = tokenise.tokeniser(model_of(bert_json(tmp_path) / "model.safetensors"))
    assert (made.kind, made.size, made.before, made.after, made.mask) == ("tokenizer.json", 8, (2,), (3,), 4)
    assert made.encode("hello").tolist() == [6]
    assert made.encode("hello world " * 4, special=True).tolist() == [2, *[6, 7] * 4, 3]
    assert tokenise.tokeniser(model_of(tmp_path)).size == 8
    with pytest.raises(SpecError, match="has 8 tokens, but the model knows 7"):
        tokenise.tokeniser(model_of(tmp_path, vocabulary=7))
    unknown = model_of(tmp_path / "a.gguf", metadata=fields("tekken"))
    assert tokenise.tokeniser(unknown).kind == "tokenizer.json"
    known = model_of(tmp_path / "a.gguf", metadata=fields("smollm"))
    assert tokenise.tokeniser(known).kind == "byte-level BPE, smollm"
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(SpecError, match="tokenizer.json: its tokeniser cannot be understood"):
        tokenise.tokeniser(model_of(tmp_path))
    unknown_words = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    text = json.dumps({"version": "1.0", "model": {**unknown_words, "max_input_chars_per_word": 100}})
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(SpecError, match="tokenizer.json: its tokeniser cannot be understood: .*UNK"):
        tokenise.tokeniser(model_of(tmp_path)).encode("b")


def test_wordpiece_takes_the_longest_piece(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "##a", "cafe", ".", "\u2028"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    made = tokenise.tokeniser(model_of(tmp_path / "model.safetensors"))
    assert (made.kind, made.size) == ("WordPiece, lower case", 12)
    assert made.encode("UNaffable. Café xyz").tolist() == [5, 6, 7, 10, 9, 1]
    assert made.encode("un", special=True).tolist() == [2, 5, 3]
    assert made.decode([5, 6, 7]) == "unaffable"
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "Un"]), encoding="utf-8")
    cased = tokenise.tokeniser(model_of(tmp_path))
    assert (cased.kind, cased.encode("Unaffable café").tolist()) == ("WordPiece", [12, 6, 7, 1])


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"a\nb\n", r"lacks \[UNK\]"), (b"[UNK]\na\na\n", "a token twice"), (b"[UNK]\n\xff", "is no UTF-8")],
)
def test_a_vocabulary_that_is_none(tmp_path, content, said):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(SpecError, match=said):
        tokenise.tokeniser(model_of(tmp_path))


def test_amino_acids_one_folder_above_the_weights(tmp_path):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
    (tmp_path / "vocab.txt").write_text("\n".join(names))
    (tmp_path / "weights").mkdir()
    made = tokenise.tokeniser(model_of(tmp_path / "weights", vocabulary=25))
    assert (made.kind, made.before, made.after, made.mask) == ("amino acids", (2,), (3,), 4)
    chain = texts.proteins()[0].content
    expected = [names.index(letter) for letter in chain]
    assert made.encode(f">sp|trastuzumab VH\n{chain[:60]}\n{chain[60:]}\n", special=True).tolist() == [2, *expected, 3]
    assert made.decode(made.encode(chain, special=True)) == chain
    assert made.encode("AXA").tolist() == [5, 1, 5]
    with pytest.raises(SpecError, match="4 of 4 letters are no amino acids"):
        made.encode("text")


@pytest.mark.parametrize(("size", "before"), [(256, ()), (257, (256,)), (258, (256,))])
def test_bytes_where_the_configuration_says_so(tmp_path, size, before):
    for config in ({}, [], {"tokeniser": "other"}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(SpecError, match="has no tokeniser; allowed: tokenizer.json or vocab.txt"):
            tokenise.tokeniser(model_of(tmp_path, vocabulary=size))
    (tmp_path / "config.json").write_text('{"tokeniser": "bytes"}')
    made = tokenise.tokeniser(model_of(tmp_path, vocabulary=size))
    assert made.before == before
    assert made.encode("é!").tolist() == [0xC3, 0xA9, 0x21]
    assert made.decode(made.encode("déjà", special=True)) == "déjà"
    with pytest.raises(SpecError, match="has no tokeniser"):
        tokenise.tokeniser(model_of(tmp_path, vocabulary=512))


def test_the_package_that_is_needed_is_named(tmp_path, monkeypatch):
    (tmp_path / "vocab.txt").write_text("[UNK]\nab\n")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SpecError, match=r"pip install 'critattn\[models\]'"):
        tokenise.tokeniser(model_of(tmp_path))
    with pytest.raises(SpecError, match=r"pip install 'critattn\[models\]'"):
        tokenise.from_gguf(fields("smollm"), "a.gguf")


def test_importing_loads_no_tokeniser():
    code = "import critattn.models.tokenise, critattn.models.texts, critattn.models.installed, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tokenizers", "gguf", "torch", "jax"} & set(done.stdout.split())


# the packaged models


def here(name):
    return pytest.mark.skipif(
        importlib.util.find_spec(installed.MODELS[name].module) is None, reason=f"critattn models install {name}"
    )


# printed by another implementation of this tokeniser (a GGUF converter's self-check), and read in its public source
PUBLISHED = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "\n": [198],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
}


@pytest.mark.slow
@here("smollm2")
def test_the_tokens_of_smollm2_are_the_published_ones():
    import gguf
    import tokenizers as library

    file = installed.find("smollm2")
    metadata = {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}
    made = tokenise.tokeniser(model_of(file, metadata=metadata, vocabulary=49_152))
    assert (made.size, made.before, made.after) == (49_152, (), ())
    for text, expected in PUBLISHED.items():
        assert made.encode(text).tolist() == expected
    # the same cuts from the parts that tokenizers itself has for them
    parts = library.pre_tokenizers
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: at for at, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    other = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=merges))
    other.pre_tokenizer = parts.Sequence(
        [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)]
    )
    topics = texts.texts(["topics"])[0]
    assert made.encode(topics.content).tolist() == other.encode(topics.content).ids
    assert made.decode(made.encode(topics.content)) == topics.content
    first, last = texts.excerpts(made.encode, topics, 1024, 2)
    assert np.array_equal(first, made.encode(topics.content)[:1024])
    assert made.decode(last) in topics.content


@pytest.mark.slow
@here("minilm")
def test_the_two_tokenisers_of_minilm_agree():
    folder = installed.find("minilm")
    one = tokenise.tokeniser(model_of(folder / "model.safetensors", vocabulary=30_522))
    other = tokenise.from_vocabulary(folder / "vocab.txt")
    assert (one.kind, other.kind) == ("tokenizer.json", "WordPiece, lower case")
    assert (one.before, one.after, one.mask) == (other.before, other.after, other.mask) == ((101,), (102,), 103)
    for text in texts.texts(["topics", "licence"]):
        assert np.array_equal(one.encode(text.content), other.encode(text.content))


@pytest.mark.slow
@here("antiberty")
def test_the_tokeniser_of_antiberty():
    folder = installed.find("antiberty")
    made = tokenise.tokeniser(model_of(folder / "pytorch_model.bin", vocabulary=25))
    found = made.encode(texts.proteins()[0].content, special=True)
    assert (made.kind, len(found), found[0], found[-1]) == ("amino acids", 122, 2, 3)
    assert found[1:4].tolist() == [8, 22, 18]
