"""Texts that are at hand without a network, and windows spread over them."""

import argparse
import hashlib
import inspect
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critattn.errors import DomainError, SpecError
from critattn.models import texts


def test_the_default_texts_are_what_they_say():
    topics, stdlib, licence = texts.texts()
    assert [one.name for one in (topics, stdlib, licence)] == list(texts.TEXTS)
    for one in (topics, stdlib, licence):
        assert one.sha256 == hashlib.sha256(one.content.encode()).hexdigest()
        assert one.source
    assert topics.content.count("\n\n") > 500
    assert "assert" in topics.content[:200]
    assert inspect.getsource(argparse) in stdlib.content
    assert len(licence.content) >= texts.MIN_LICENCE


def test_the_licence_is_found_without_debian_and_without_pythons_own(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "DEBIAN_LICENCES", tmp_path)
    monkeypatch.setattr(texts.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr(texts.sys, "base_prefix", str(tmp_path))
    found = texts.texts(["licence"])[0]
    assert "of jax" in found.source
    assert "Apache License" in found.content
    (tmp_path / "LICENSE.txt").write_text("PSF " * texts.MIN_LICENCE)
    assert texts.texts(["licence"])[0].source == str(tmp_path / "LICENSE.txt")
    (tmp_path / "GPL-3").write_text("GPL " * texts.MIN_LICENCE)
    assert texts.texts(["licence"])[0].source == str(tmp_path / "GPL-3")


def test_what_a_python_lacks_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(SpecError, match="no pydoc_data.topics; choose another --text"):
        texts.texts(["topics"])
    monkeypatch.setattr(texts, "_licences", lambda: iter([("short", "MIT")]))
    with pytest.raises(SpecError, match="no long licence"):
        texts.texts(["licence"])
    monkeypatch.setattr(texts.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(SpecError, match="no Python sources"):
        texts.texts(["stdlib"])


def test_a_file_is_read_with_single_line_feeds(tmp_path):
    file = tmp_path / "german.txt"
    file.write_bytes(b"\xef\xbb\xbfZwei\r\nZ\xc3\xa4hlen\r")
    found = texts.texts([file])[0]
    assert (found.name, found.content) == ("german.txt", "Zwei\nZählen\n")
    assert texts.texts([str(file)])[0].sha256 == hashlib.sha256("Zwei\nZählen\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), (b"", "is empty"), (b" \n\t ", "is empty"), (b"ab\xff", "no UTF-8 .byte 2")],
)
def test_files_that_are_no_texts_are_one_line(tmp_path, content, said):
    file = tmp_path / "a.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecError, match=said):
        texts.texts([file])


def test_a_folder_a_huge_file_and_unknown_names(tmp_path, monkeypatch):
    with pytest.raises(SpecError, match="is no file"):
        texts.texts([tmp_path])
    (tmp_path / "a.txt").write_text("hello")
    monkeypatch.setattr(texts, "MAX_BYTES", 4)
    with pytest.raises(SpecError, match="has 5 bytes; allowed: 4"):
        texts.read(tmp_path / "a.txt")
    with pytest.raises(SpecError, match="did you mean 'topics'"):
        texts.texts(["topic"])
    with pytest.raises(SpecError, match="known: topics, stdlib, licence, or the path"):
        texts.texts(["zzz"])


def test_proteins_are_chains_of_the_twenty():
    assert [len(one.content) for one in texts.proteins()] == [120, 107, 121]
    assert all(set(one.content) <= set("ACDEFGHIKLMNPQRSTVWY") for one in texts.proteins())


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 200))
def test_windows_are_disjoint_and_spread(length, count, more):
    total = length * count + more
    found = texts.windows(np.arange(total), length, count)
    assert len(found) == count
    assert found[0][0] == 0
    assert count == 1 or found[-1][-1] == total - 1
    for one, after in zip(found, found[1:], strict=False):
        assert after[0] > one[-1]
        assert abs((after[0] - one[0]) - (total - length) / (count - 1)) < 1
    assert all(np.array_equal(one, one[0] + np.arange(length)) for one in found)


def test_windows_say_what_is_wrong():
    with pytest.raises(SpecError, match="3 disjoint windows of 4 tokens"):
        texts.windows(np.arange(11), 4, 3)
    with pytest.raises(SpecError, match="licence: has 3 tokens, too short for 4 tokens"):
        texts.windows(np.arange(3), 4, name="licence")
    for wrong in ({"length": 0}, {"length": 1, "count": 0}):
        with pytest.raises(DomainError):
            texts.windows(np.arange(3), **wrong)


def letters(content):
    letters.read += len(content)
    return np.array([ord(letter) for letter in content])


def test_excerpts_of_a_long_text_read_stretches_of_it():
    lines = [f"line {number:05d} {'x' * (number % 37)}\n" for number in range(20_000)]
    text = texts.Text.of("lines", "made", "".join(lines))
    letters.read = 0
    found = ["".join(map(chr, one)) for one in texts.excerpts(letters, text, 200, 4)]
    assert letters.read == 4 * 200 * texts.CHARACTERS_PER_TOKEN
    assert all(one.startswith("line ") and one in text.content for one in found)
    starts = [text.content.index(one) for one in found]
    assert starts[0] == 0
    assert starts[-1] > len(text.content) - 2 * 200 * texts.CHARACTERS_PER_TOKEN
    assert all(after - one > 200 for one, after in zip(starts, starts[1:], strict=False))
    short = texts.excerpts(letters, texts.Text.of("short", "made", "".join(lines[:30])), 50, 3)
    whole = texts.windows(letters("".join(lines[:30])), 50, 3)
    assert all(np.array_equal(one, other) for one, other in zip(short, whole, strict=True))
    with pytest.raises(SpecError, match="text 'short'"):
        texts.excerpts(letters, texts.Text.of("short", "made", "abc"), 50)


def test_a_text_without_lines_and_a_tokeniser_of_long_words_are_windows_too():
    text = texts.Text.of("digits", "made", "0123456789" * 5_000)
    for one in texts.excerpts(letters, text, 100, 3):
        assert "".join(map(chr, one)) in text.content
    found = texts.excerpts(lambda content: letters(content[::64]), text, 100, 3)
    assert [len(one) for one in found] == [100, 100, 100]
