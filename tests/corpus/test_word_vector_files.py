"""Word vectors from every supported file format, and from broken files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_files import (
    WORDS,
    Words,
    glove,
    random_vectors,
    word2vec_binary,
    word2vec_binary_without_newlines,
    word2vec_text,
)

from meristem.config.errors import MeristemError
from meristem.corpus.word_vector_files import read_vectors


@pytest.fixture
def words() -> Words:
    return random_vectors()


@pytest.mark.parametrize("write", [glove, word2vec_text, word2vec_binary, word2vec_binary_without_newlines])
def test_every_kind_of_file_gives_the_same_words(write: object, words: Words, tmp_path: Path) -> None:
    vectors = dict(read_vectors(write(tmp_path / "vectors", words)))  # type: ignore[operator]  # one of the writers above
    assert [word.replace("_", " ") for word in vectors] == list(WORDS)
    np.testing.assert_allclose(np.stack(list(vectors.values())), np.stack(list(words.values())), rtol=1e-6)


# ------------------------------------------------------------ broken files


def _refusal(path: Path) -> str:
    with pytest.raises(MeristemError) as error:
        list(read_vectors(path))
    return str(error.value)


def test_no_such_file(tmp_path: Path) -> None:
    assert "no file of word vectors" in _refusal(tmp_path / "absent.txt")


def test_a_line_with_too_few_numbers_is_named(tmp_path: Path, words: Words) -> None:
    path = glove(tmp_path / "glove.txt", words)
    path.write_text(path.read_text(encoding="utf-8") + "short 0.1 0.2\n", encoding="utf-8")
    assert _refusal(path).startswith(f"{path}:10: expected a word and 32 numbers")


def test_a_line_that_is_no_numbers_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prose.txt"
    path.write_text("this is only a story about boats\n", encoding="utf-8")
    assert f"{path}:1: expected a word and" in _refusal(path)


def test_a_truncated_binary_file(tmp_path: Path, words: Words) -> None:
    path = word2vec_binary(tmp_path / "cut.bin", words)
    path.write_bytes(path.read_bytes()[:-70])
    assert "ends inside word 9 of 9; the file is truncated" in _refusal(path)


def test_a_header_that_promises_more_words_than_there_are(tmp_path: Path, words: Words) -> None:
    path = word2vec_binary(tmp_path / "more.bin", words)
    path.write_bytes(path.read_bytes().replace(b"9 32\n", b"12 32\n", 1))
    assert "ends inside word 10 of 12" in _refusal(path)


def test_noise_after_a_header_is_not_a_word(tmp_path: Path) -> None:
    path = tmp_path / "noise.bin"
    path.write_bytes(b"10 32\n" + bytes([255]) * 5000)
    assert "has no end; is it a word2vec file?" in _refusal(path)


@pytest.mark.parametrize("number", ["nan", "inf", "1e39"])
def test_numbers_that_are_not_finite_are_named(tmp_path: Path, words: Words, number: str) -> None:
    path = glove(tmp_path / "glove.txt", words)
    path.write_text(path.read_text(encoding="utf-8") + f"bad {number}{' 0.5' * 31}\n", encoding="utf-8")
    assert f"{path}:10:" in _refusal(path)


def test_a_binary_number_that_is_not_finite_is_named(tmp_path: Path, words: Words) -> None:
    path = word2vec_binary(tmp_path / "bad.bin", {**words, "boats": np.full(32, np.nan, np.float32)})
    assert "word 4 of 9 has a number that is not finite" in _refusal(path)
