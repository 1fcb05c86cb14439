"""Files of word vectors, as the tools that people use write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

Words = Mapping[str, np.ndarray]
WORDS = ("the", "harbour", "garden", "boats", "letters", "painter", "garden gate", "naïve", "苹果")


def random_vectors() -> Words:
    """A vector of 32 numbers for each word."""
    rng = np.random.default_rng(0)
    return {word: rng.standard_normal(32).astype(np.float32) for word in WORDS}


def glove(path: Path, words: Words) -> Path:
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in words.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def word2vec_text(path: Path, words: Words) -> Path:
    glove(path, words)
    path.write_text(f"{len(words)} 32\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    return path


def word2vec_binary(path: Path, words: Words, *, newline: bytes = b"\n") -> Path:
    """A space ends a word in this format, so that none can be inside one."""
    names = [word.replace(" ", "_").encode() for word in words]
    vectors = [vector.astype("<f4").tobytes() for vector in words.values()]
    parts = [name + b" " + vector + newline for name, vector in zip(names, vectors, strict=True)]
    path.write_bytes(f"{len(words)} 32\n".encode() + b"".join(parts))
    return path


def word2vec_binary_without_newlines(path: Path, words: Words) -> Path:
    return word2vec_binary(path, words, newline=b"")
