"""How much of a text repeats: lines and paragraphs, one phrase again and again, phrases that come twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

FACTOR = 0x9E3779B97F4A7C15
"""Odd and without pattern: a phrase's number is the sum of its characters times powers of it, modulo 2⁶⁴."""

INVERSE = pow(FACTOR, -1, 1 << 64)
SMALLEST = 4096


def repeats(parts: Sequence[str]) -> tuple[int, int]:
    """How many parts have come before, and their characters."""
    distinct = set(parts)
    if len(distinct) == len(parts):
        return 0, 0
    return len(parts) - len(distinct), sum(map(len, parts)) - sum(map(len, distinct))


@cache
def _powers(factor: int, size: int) -> NDArray[np.uint64]:
    powers = np.full(size, factor, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _most(ordered: NDArray[np.uint64]) -> int:
    """How often the most frequent of ordered numbers comes."""
    edges = np.flatnonzero(ordered[1:] != ordered[:-1])
    if not len(edges):
        return len(ordered)
    between = int((edges[1:] - edges[:-1]).max()) if len(edges) > 1 else 0
    return max(int(edges[0]) + 1, between, len(ordered) - 1 - int(edges[-1]))


class Repetition:
    """The repeated phrases of a text, its words joined by single spaces; what cannot be many is not counted out."""

    def __init__(self, joined: str) -> None:
        signs = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        size = max(SMALLEST, 1 << len(signs).bit_length())
        spaces = np.flatnonzero(signs == ord(" "))
        self._starts = np.concatenate(([0], spaces + 1))
        self._stops = np.append(spaces, len(signs))
        # Sums up to each character: a phrase's own is a difference, brought to the front by the inverse power.
        self._sums = np.zeros(len(signs) + 1, np.uint64)
        np.cumsum(signs * _powers(FACTOR, size)[: len(signs)], out=self._sums[1:])
        self._back = _powers(INVERSE, size)
        self._times = len(self._starts)
        self.characters = len(signs) - len(spaces)
        """Of all words together."""

    def _phrases(self, size: int) -> NDArray[np.uint64]:
        """A number for every run of so many words, the same for the same words."""
        starts = self._starts[: max(len(self._starts) - size + 1, 0)]
        phrases: NDArray[np.uint64] = (self._sums[self._stops[size - 1 :]] - self._sums[starts]) * self._back[starts]
        return phrases

    def _lengths(self, size: int) -> NDArray[np.int64]:
        """The characters of every run of so many words."""
        return self._stops[size - 1 :] - self._starts[: len(self._stops) - size + 1] - (size - 1)

    def top(self, size: int, limit: float) -> bool:
        """Whether the most frequent phrase of this size makes up more than this share; asked for small sizes first."""
        if len(self._starts) <= size:
            return False
        lengths, most = self._lengths(size), limit * self.characters
        longest = int(lengths.max())
        if self._times * longest <= most:  # it comes no more often than the shorter ones in it
            return False
        phrases = self._phrases(size)
        self._times = _most(np.sort(phrases))
        if self._times * longest <= most:
            return False
        _, first, counts = np.unique(phrases, return_index=True, return_counts=True)
        return bool(((counts > 1) * counts * lengths[first]).max() > most)

    def again(self, limits: Mapping[int, float]) -> int:
        """The first size whose phrases, where they come again, make up more than its share; 0 where none does."""
        least = min(limits.values(), default=0.0) * self.characters
        for size in sorted(limits):
            if len(self._starts) <= size:
                return 0
            phrases = self._phrases(size)
            ordered = np.sort(phrases)  # many times as fast as an order that remembers places
            later = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
            covered = self._covered(phrases, size) if later * int(self._lengths(size).max()) > least else 0
            if covered > limits[size] * self.characters:
                return size
            # Words in a longer phrase that comes again are in a shorter one that does: they are no more.
            if covered <= least:
                return 0
        return 0

    def _covered(self, phrases: NDArray[np.uint64], size: int) -> int:
        """Characters of the words in phrases that have come before; a word in several of them counts once."""
        order = np.argsort(phrases, kind="stable")
        ordered = phrases[order]
        later = order[1:][ordered[1:] == ordered[:-1]]
        edges = np.zeros(len(self._starts) + 1, np.int64)
        edges[later] += 1
        edges[later + size] -= 1
        return int((self._stops - self._starts)[np.cumsum(edges[:-1]) > 0].sum())
