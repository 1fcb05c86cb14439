"""Text similarity by word vectors: SIF-weighted centroids and soft alignment, with a fallback for unknown words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.corpus.word_vector_files import read_vectors
from meristem.data.text_units import UNSPACED_CHAR
from meristem.reinforce.word_ngrams import cased_words

Matrix = NDArray[np.float32]
SIF_SMOOTHING = 1e-3  # a in Arora et al. 2017
MIN_PREFIX_SHARE = 0.7
"""The common prefix, as a share of an unknown word's letters (and at least four), that a substitute must have."""
MAX_CJK_WORD = 8
"""Longest word, in ideographs, that is looked up in text without spaces."""


@dataclass(frozen=True)
class VectorizedText:
    """A text as rows of a table of vectors, and its words without a vector."""

    rows: NDArray[np.int64]
    unknown: list[str]
    replaced: int
    """Unknown words that were replaced by similar known ones; their rows are among the others."""


class WordVectors:
    """A table of centred unit vectors, with SIF weights by frequency (Arora et al. 2017)."""

    def __init__(
        self, words: Sequence[str], vectors: Matrix, frequencies: NDArray[np.float64], *, prefix_fallback: bool
    ) -> None:
        centred = vectors - frequencies.astype(np.float32) @ vectors  # the common mean carries no information
        self.table: Matrix = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        self.weights = SIF_SMOOTHING / (SIF_SMOOTHING + frequencies)
        self.index = {word: index for index, word in reversed(list(enumerate(words)))}  # the first of duplicates
        self._sorted_words = sorted(word for word in self.index if word.isalpha()) if prefix_fallback else []
        self._max_cjk_word = min(MAX_CJK_WORD, max((len(word) for word in self.index if _is_cjk(word)), default=1))
        self._cached_lookup = lru_cache(maxsize=1 << 16)(self._lookup)

    @classmethod
    def read(cls, path: Path, max_vectors: int, *, prefix_fallback: bool) -> WordVectors:
        """The first words of a file, which are sorted by frequency; frequencies follow Zipf's law."""
        entries = list(islice(read_vectors(path), max_vectors))
        if not entries:
            raise MeristemError(f"{path} contains no words")
        frequencies = 1 / np.arange(1, len(entries) + 1)
        words, vectors = [word for word, _ in entries], np.stack([vector for _, vector in entries])
        return cls(words, vectors, frequencies / frequencies.sum(), prefix_fallback=prefix_fallback)

    def vectorize(self, text: str, max_words: int) -> VectorizedText:
        """The first `max_words` words of a text as rows of the table."""
        rows: list[int] = []
        unknown: list[str] = []
        replaced = 0
        for word in islice(self._merge_cjk_words(cased_words(text)), max_words):
            row, exact = self._cached_lookup(word)
            if row is not None:
                rows.append(row)
                replaced += not exact
            elif parts := self._subword_rows(word):
                rows += parts
                replaced += 1
            else:
                unknown.append(word)
        return VectorizedText(np.array(rows, np.int64), unknown, replaced)

    def _merge_cjk_words(self, characters: Sequence[str]) -> Iterator[str]:
        """Words, with adjacent ideographs merged into known words, longest match first."""
        position = 0
        while position < len(characters):
            size = next(
                (n for n in range(self._max_cjk_word, 1, -1) if self._is_word(characters[position : position + n], n)),
                1,
            )
            yield "".join(characters[position : position + size])
            position += size

    def _is_word(self, characters: Sequence[str], size: int) -> bool:
        return len(characters) == size and all(map(_is_cjk, characters)) and "".join(characters) in self.index

    def _subword_rows(self, word: str) -> list[int]:
        """The rows of the parts of a compound such as `well-known`."""
        parts = [part for part in re.split(r"\W+", word) if part != word]
        return [row for row, _ in map(self._cached_lookup, parts) if row is not None]

    def _lookup(self, word: str) -> tuple[int | None, bool]:
        """A word's row and whether it is exact: as written, lower-cased, capitalized, or a word with its prefix."""
        for form in (word, word.lower(), word.capitalize()):
            if form in self.index:
                return self.index[form], True
        match = self._prefix_match(word.lower())
        return (None if match is None else self.index[match]), False

    def _prefix_match(self, word: str) -> str | None:
        """The known word with the longest common prefix: `gardener` for `gardeners`."""
        if not word.isalpha() or _is_cjk(word):
            return None
        position = bisect_left(self._sorted_words, word)
        neighbors = self._sorted_words[max(0, position - 1) : position + 1]
        prefix_length, _, best = max(
            ((_common_prefix(word, other), -len(other), other) for other in neighbors), default=(0, 0, None)
        )
        return best if prefix_length >= max(4, MIN_PREFIX_SHARE * len(word)) else None


def _common_prefix(word: str, other: str) -> int:
    """Length of the common prefix."""
    return next(
        (position for position, (a, b) in enumerate(zip(word, other, strict=False)) if a != b),
        min(len(word), len(other)),
    )


def _is_cjk(word: str) -> bool:
    """Whether it is written in ideographs or another script without spaces."""
    return UNSPACED_CHAR.match(word) is not None


def similarity(
    table: WordVectors, rows_a: Iterable[int], rows_b: Iterable[int], *, uniform: bool
) -> tuple[float, float]:
    """The cosine of two texts' centroids, and their soft alignment.

    Alignment: the similarity of every word to its nearest in the other text, weighted, in both directions; the
    harmonic mean of the two.
    """
    (a, wa), (b, wb) = (_weighted_vectors(table, rows, uniform) for rows in (rows_a, rows_b))
    centre_a, centre_b = wa @ a, wb @ b
    scale = float(np.linalg.norm(centre_a) * np.linalg.norm(centre_b))
    cosine = float(centre_a @ centre_b) / scale if scale > 1e-12 else 0.0
    similarities = a @ b.T
    a_to_b, b_to_a = max(0.0, float(wa @ similarities.max(1))), max(0.0, float(wb @ similarities.max(0)))
    return float(np.clip(cosine, -1, 1)), min(1.0, 2 * a_to_b * b_to_a / (a_to_b + b_to_a)) if a_to_b + b_to_a else 0.0


def _weighted_vectors(
    table: WordVectors, rows: Iterable[int], uniform: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Vectors and their weights, which sum to one."""
    indices = np.fromiter(rows, np.int64)
    weights = np.ones(len(indices)) if uniform else table.weights[indices]
    return table.table[indices].astype(np.float64), weights / weights.sum()
