"""Repetition in a text: duplicate lines and paragraphs, the most frequent n-gram, duplicate n-grams (Gopher rules)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

HASH_FACTOR = 0x9E3779B97F4A7C15
"""Base of a polynomial hash modulo 2⁶⁴: odd and without pattern."""

FACTOR_INVERSE = pow(HASH_FACTOR, -1, 1 << 64)
MIN_POWERS = 4096


def count_repeats(parts: Sequence[str]) -> tuple[int, int]:
    """The number of parts that are repeats of an earlier one, and their characters."""
    distinct = set(parts)
    if len(distinct) == len(parts):
        return 0, 0
    return len(parts) - len(distinct), sum(map(len, parts)) - sum(map(len, distinct))


@cache
def _powers(factor: int, size: int) -> NDArray[np.uint64]:
    powers = np.full(size, factor, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _max_count(ordered: NDArray[np.uint64]) -> int:
    """The count of the most frequent value in a sorted array."""
    edges = np.flatnonzero(ordered[1:] != ordered[:-1])
    if not len(edges):
        return len(ordered)
    between = int((edges[1:] - edges[:-1]).max()) if len(edges) > 1 else 0
    return max(int(edges[0]) + 1, between, len(ordered) - 1 - int(edges[-1]))


class PhraseRepetition:
    """Repeated n-grams of a text, given its words joined by single spaces; counted only if bounds do not decide."""

    def __init__(self, joined: str) -> None:
        code_points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        size = max(MIN_POWERS, 1 << len(code_points).bit_length())
        spaces = np.flatnonzero(code_points == ord(" "))
        self._starts = np.concatenate(([0], spaces + 1))
        self._stops = np.append(spaces, len(code_points))
        # Prefix sums: a phrase's hash is a difference of two, times an inverse power of the base.
        self._sums = np.zeros(len(code_points) + 1, np.uint64)
        np.cumsum(code_points * _powers(HASH_FACTOR, size)[: len(code_points)], out=self._sums[1:])
        self._inverse_powers = _powers(FACTOR_INVERSE, size)
        self._max_occurrences = len(self._starts)
        self.characters = len(code_points) - len(spaces)
        """Characters of all words together."""

    def _phrases(self, size: int) -> NDArray[np.uint64]:
        """A hash for every n-gram of `size` words."""
        starts = self._starts[: max(len(self._starts) - size + 1, 0)]
        phrases: NDArray[np.uint64] = (self._sums[self._stops[size - 1 :]] - self._sums[starts]) * self._inverse_powers[
            starts
        ]
        return phrases

    def _lengths(self, size: int) -> NDArray[np.int64]:
        """The characters of every n-gram of `size` words."""
        return self._stops[size - 1 :] - self._starts[: len(self._stops) - size + 1] - (size - 1)

    def top_phrase_exceeds(self, size: int, limit: float) -> bool:
        """Whether the most frequent n-gram of this size exceeds this share of characters; ask small sizes first."""
        if len(self._starts) <= size:
            return False
        lengths, max_characters = self._lengths(size), limit * self.characters
        max_length = int(lengths.max())
        if self._max_occurrences * max_length <= max_characters:  # it is no more frequent than shorter n-grams in it
            return False
        phrases = self._phrases(size)
        self._max_occurrences = _max_count(np.sort(phrases))
        if self._max_occurrences * max_length <= max_characters:
            return False
        _, first, counts = np.unique(phrases, return_index=True, return_counts=True)
        return bool(((counts > 1) * counts * lengths[first]).max() > max_characters)

    def first_size_exceeding(self, limits: Mapping[int, float]) -> int:
        """The first size whose duplicate n-grams exceed its share of characters; 0 if none does."""
        min_characters = min(limits.values(), default=0.0) * self.characters
        for size in sorted(limits):
            if len(self._starts) <= size:
                return 0
            phrases = self._phrases(size)
            ordered = np.sort(phrases)  # many times faster than argsort
            later = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
            num_repeated = (
                self._repeated_characters(phrases, size)
                if later * int(self._lengths(size).max()) > min_characters
                else 0
            )
            if num_repeated > limits[size] * self.characters:
                return size
            # Words of a repeated longer n-gram are also in a repeated shorter one: an upper bound.
            if num_repeated <= min_characters:
                return 0
        return 0

    def _repeated_characters(self, phrases: NDArray[np.uint64], size: int) -> int:
        """Characters of the words in duplicate n-grams; a word in several of them counts once."""
        order = np.argsort(phrases, kind="stable")
        ordered = phrases[order]
        later = order[1:][ordered[1:] == ordered[:-1]]
        edges = np.zeros(len(self._starts) + 1, np.int64)
        edges[later] += 1
        edges[later + size] -= 1
        return int((self._stops - self._starts)[np.cumsum(edges[:-1]) > 0].sum())
