"""Shuffled stream: the documents of a token stream in a new order in each epoch, so that windows are cut elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import numpy as np

from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.utils.randomness import KeyedPermutation, stream_key

SEED_RANGE = 1 << 31


class TokenReader(Protocol):
    """What views read of a stream: the whole token stream, one in another order, or a single document."""

    @property
    def has_spellings(self) -> bool:
        """Whether the dataset kept the spelling of each token."""

    def tokens(self, start: int, stop: int) -> IntArray:
        """The token ids in [start, stop)."""

    def sentences(self, start: int, stop: int) -> IntArray:
        """The positions in [start, stop) where a sentence begins."""

    def documents_at(self, start: int, stop: int) -> IntArray:
        """The document of each position in [start, stop), the first one counted as 0."""

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token."""


class ShuffledStream:
    """The tokens of a stream in the order of one epoch; 16 bytes of memory per document."""

    def __init__(self, stream: TokenStream, seed: int, epoch: int) -> None:
        self._stream = stream
        key = stream_key(seed, "documents") % SEED_RANGE  # not the order in which windows are read
        self._order = KeyedPermutation(stream.documents, key, epoch)(np.arange(stream.documents))
        lengths = stream.lengths(0, stream.documents) + 1  # with the separator
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[self._order])])

    @property
    def has_spellings(self) -> bool:
        """Whether the dataset kept the spelling of each token."""
        return self._stream.has_spellings

    def tokens(self, start: int, stop: int) -> IntArray:
        """The token ids in [start, stop)."""
        return _concatenate([self._stream.tokens(first, last) for first, last, _ in self._pieces(start, stop)])

    def sentences(self, start: int, stop: int) -> IntArray:
        """The positions in [start, stop) where a sentence begins."""
        pieces = self._pieces(start, stop)
        return _concatenate([self._stream.sentences(first, last) + at - first for first, last, at in pieces])

    def documents_at(self, start: int, stop: int) -> IntArray:
        """The document of each position in [start, stop), the first one counted as 0."""
        sizes = [last - first for first, last, _ in self._pieces(start, stop)]
        return np.repeat(np.arange(len(sizes)), sizes)

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token."""
        return [word for first, last, _ in self._pieces(start, stop) for word in self._stream.spellings(first, last)]

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The documents in [start, stop): range in the stream's own order, and position in this one."""
        number = int(self._starts.searchsorted(start, side="right")) - 1
        while start < stop:
            span = self._stream.document(int(self._order[number]))
            offset = start - int(self._starts[number])
            size = min(stop, int(self._starts[number + 1])) - start
            yield span.start + offset, span.start + offset + size, start
            start, number = start + size, number + 1


@lru_cache(maxsize=4)
def shuffled_stream(stream: TokenStream, seed: int, epoch: int) -> ShuffledStream:
    """The stream in the order of an epoch; the last few are kept."""
    return ShuffledStream(stream, seed, epoch)


def _concatenate(chunks: list[IntArray]) -> IntArray:
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)
