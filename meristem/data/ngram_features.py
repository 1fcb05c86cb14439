"""Counted features of texts and words: n-grams of a text, the word, affixes and neighbours of each word; hashed."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meristem.data.text_units import split_tokens

BOUNDARY = "\x02"
"""Stands before the first and after the last word of a sentence."""
Texts = Sequence[str]
"""The text of a sample, or the two texts of a pair."""


def text_features(texts: Texts) -> list[str]:
    """The n-grams of a text; of a pair those of each text, and which of them are in both."""
    grams = [_ngrams(split_tokens(text)) for text in texts]
    if len(grams) == 1:
        return grams[0]
    first, second = set(grams[0]), set(grams[1])
    return [
        *(f"a {gram}" for gram in grams[0]),
        *(f"b {gram}" for gram in grams[1]),
        *(f"both {gram}" for gram in first & second),
        *(f"one {gram}" for gram in first ^ second),
        *("overlap" for _ in first & second),
        *("difference" for _ in first ^ second),
    ]


def _ngrams(words: Sequence[str]) -> list[str]:
    """All words and all pairs of neighbours."""
    return [*words, *(f"{left} {right}" for left, right in pairwise(words))]


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """Features of each word of a sentence."""
    lower = [BOUNDARY, BOUNDARY, *(word.casefold() for word in words), BOUNDARY, BOUNDARY]
    for position, word in enumerate(words, 2):
        before_last, last, own, following, second = lower[position - 2 : position + 3]
        yield [
            f"w {own}", f"exact {word}", f"shape {_shape(word)}",
            f"-1 {last}", f"-2 {before_last}", f"+1 {following}", f"+2 {second}",
            f"-1,0 {last} {own}", f"0,+1 {own} {following}", f"-1,+1 {last} {following}",
            *(f"prefix {own[:size]}" for size in (1, 2, 3)),
            *(f"suffix {own[-size:]}" for size in (1, 2, 3, 4)),
            f"+1 suffix {following[-2:]}", f"-1 suffix {last[-2:]}",
        ]  # fmt: skip


def _shape(word: str) -> str:
    """Upper case, digits and hyphens of a word: `Xx`, `XX`, `9`, `x-9`."""
    kinds = (
        "X" if letter.isupper() else "9" if letter.isdigit() else "x" if letter.isalpha() else letter for letter in word
    )
    shape = "".join(kinds)
    return "".join(letter for number, letter in enumerate(shape) if number == 0 or shape[number - 1] != letter)


def hash_features(features: Iterable[str], num_buckets: int) -> NDArray[np.int64]:
    """The bucket of each feature, 0 to `num_buckets` - 1: CRC-32, the same on every machine."""
    return np.array(
        [zlib.crc32(feature.encode("utf-8", "surrogatepass")) % num_buckets for feature in features], np.int64
    )


def hashed_counts(features: Iterable[str], num_buckets: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Buckets without repetition, and a weight of each: 1 + log(count), all divided by their Euclidean norm."""
    counts = Counter(hash_features(features, num_buckets).tolist())
    weights = 1.0 + np.log(np.array(list(counts.values()), np.float32))
    norm = max(float(np.linalg.norm(weights)), 1e-12)
    return np.array(list(counts), np.int64), (weights / norm).astype(np.float32)
