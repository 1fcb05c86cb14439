"""Words as directions: what a text is about, by word vectors, and what to do with words that have none."""

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

from meristem.corpus.vectors import read_vectors
from meristem.corpus.words import IDEOGRAPH
from meristem.errors import MeristemError
from meristem.reinforce.words import as_written

Matrix = NDArray[np.float32]
SIF = 1e-3  # a in Arora et al. 2017
ALIKE = 0.7
"""The share of an unknown word's letters, and at least four, with which a known one must begin to stand for it."""
LONGEST = 8
"""Ideographs of the longest word that is looked for in text without spaces."""


@dataclass(frozen=True)
class Laid:
    """A text as rows of a table of vectors, and the words that it has none for."""

    rows: NDArray[np.int64]
    unknown: list[str]
    replaced: int
    """Unknown words that a known one stands for; their rows are among the others."""


class Vectors:
    """A table of words: unit vectors around their common mean, the most frequent ones weighing least."""

    def __init__(self, words: Sequence[str], vectors: Matrix, shares: NDArray[np.float64], *, alike: bool) -> None:
        centred = vectors - shares.astype(np.float32) @ vectors  # what all words share says nothing of any
        self.table: Matrix = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        self.weights = SIF / (SIF + shares)
        self.index = {word: number for number, word in reversed(list(enumerate(words)))}  # the first of equal ones
        self._ordered = sorted(word for word in self.index if word.isalpha()) if alike else []
        self._longest = min(LONGEST, max((len(word) for word in self.index if _dense(word)), default=1))
        self._found = lru_cache(maxsize=1 << 16)(self._look)

    @classmethod
    def read(cls, path: Path, most: int, *, alike: bool) -> Vectors:
        """The first words of a file; files have them by frequency, and Zipf tells the rest."""
        found = list(islice(read_vectors(path), most))
        if not found:
            raise MeristemError(f"{path} holds no word")
        shares = 1 / np.arange(1, len(found) + 1)
        words, vectors = [word for word, _ in found], np.stack([vector for _, vector in found])
        return cls(words, vectors, shares / shares.sum(), alike=alike)

    def lay(self, text: str, most: int) -> Laid:
        """The first words of a text, each as it is known."""
        rows: list[int] = []
        unknown: list[str] = []
        replaced = 0
        for word in islice(self._joined(as_written(text)), most):
            at, exact = self._found(word)
            if at is not None:
                rows.append(at)
                replaced += not exact
            elif parts := self._parts(word):
                rows += parts
                replaced += 1
            else:
                unknown.append(word)
        return Laid(np.array(rows, np.int64), unknown, replaced)

    def _joined(self, text: Sequence[str]) -> Iterator[str]:
        """Ideographs that make up a known word put together, the longest first; all else as it is."""
        at = 0
        while at < len(text):
            size = next((n for n in range(self._longest, 1, -1) if self._is_word(text[at : at + n], n)), 1)
            yield "".join(text[at : at + size])
            at += size

    def _is_word(self, parts: Sequence[str], size: int) -> bool:
        return len(parts) == size and all(map(_dense, parts)) and "".join(parts) in self.index

    def _parts(self, word: str) -> list[int]:
        """The rows of what `well-known` is put together from."""
        parts = [part for part in re.split(r"\W+", word) if part != word]
        return [at for at, _ in map(self._found, parts) if at is not None]

    def _look(self, word: str) -> tuple[int | None, bool]:
        """A word's row: as it is written, in small letters, with a capital, or that of one which begins alike."""
        for form in (word, word.lower(), word.capitalize()):
            if form in self.index:
                return self.index[form], True
        alike = self._alike(word.lower())
        return (None if alike is None else self.index[alike]), False

    def _alike(self, word: str) -> str | None:
        """The known word with the same beginning: `gardeners` is taken for `gardener`."""
        if not word.isalpha() or _dense(word):
            return None
        at = bisect_left(self._ordered, word)
        near = self._ordered[max(0, at - 1) : at + 1]
        shared, _, best = max(((_shared(word, other), -len(other), other) for other in near), default=(0, 0, None))
        return best if shared >= max(4, ALIKE * len(word)) else None


def _shared(one: str, other: str) -> int:
    """Letters with which both begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _dense(word: str) -> bool:
    """Whether it is written in ideographs or other letters without spaces."""
    return IDEOGRAPH.match(word) is not None


def similarity(table: Vectors, one: Iterable[int], other: Iterable[int], *, even: bool) -> tuple[float, float]:
    """The cosine of two texts' centroids, and their soft alignment.

    Alignment: every word's nearest in the other text, by weight, in both directions; the harmonic mean of the two.
    """
    (a, wa), (b, wb) = (_weighed(table, rows, even) for rows in (one, other))
    centre_a, centre_b = wa @ a, wb @ b
    scale = float(np.linalg.norm(centre_a) * np.linalg.norm(centre_b))
    cosine = float(centre_a @ centre_b) / scale if scale > 1e-12 else 0.0
    near = a @ b.T
    there, back = max(0.0, float(wa @ near.max(1))), max(0.0, float(wb @ near.max(0)))
    return float(np.clip(cosine, -1, 1)), min(1.0, 2 * there * back / (there + back)) if there + back else 0.0


def _weighed(table: Vectors, rows: Iterable[int], even: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Vectors and their weights, which sum to one."""
    at = np.fromiter(rows, np.int64)
    weights = np.ones(len(at)) if even else table.weights[at]
    return table.table[at].astype(np.float64), weights / weights.sum()
