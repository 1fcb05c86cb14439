"""Maps sample numbers to documents that give one or more samples each, in little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from meristem.dataset.token_dataset import IntArray, TokenStream

DOCUMENTS_PER_BLOCK = 64  # recounted at each lookup: costs microseconds, and 1/8 byte of memory per document
BLOCKS_PER_PASS = 1024  # counted at once when a view is created


class SampleLocation(NamedTuple):
    """One of the samples of a document."""

    document: int
    part: int
    parts: int


class SampleIndex:
    """Sample → document and part, from a function that returns the number of samples for documents of given lengths."""

    def __init__(self, stream: TokenStream, samples_per_document: Callable[[IntArray], IntArray]) -> None:
        self._stream, self._samples_per_document = stream, samples_per_document
        sums = [np.zeros(1, np.int64)]
        for first in range(0, stream.documents, DOCUMENTS_PER_BLOCK * BLOCKS_PER_PASS):
            counts = self._counts(first, DOCUMENTS_PER_BLOCK * BLOCKS_PER_PASS)
            sums.append(np.add.reduceat(counts, np.arange(0, len(counts), DOCUMENTS_PER_BLOCK)))
        self._cumulative = np.cumsum(np.concatenate(sums))

    def __len__(self) -> int:
        return int(self._cumulative[-1])

    def __call__(self, sample: int) -> SampleLocation:
        """The document of a sample, and which of the document's samples it is."""
        if not 0 <= sample < len(self):
            raise IndexError(f"sample {sample} is out of range; there are {len(self):,}")
        block = int(self._cumulative.searchsorted(sample, side="right")) - 1
        counts = self._counts(block * DOCUMENTS_PER_BLOCK, DOCUMENTS_PER_BLOCK)
        ends = counts.cumsum()
        offset = sample - int(self._cumulative[block])
        position = int(ends.searchsorted(offset, side="right"))
        parts = int(counts[position])
        return SampleLocation(block * DOCUMENTS_PER_BLOCK + position, offset - int(ends[position]) + parts, parts)

    def counts(self) -> IntArray:
        """Number of samples of every document."""
        blocks = range(0, self._stream.documents, DOCUMENTS_PER_BLOCK * BLOCKS_PER_PASS)
        parts = [self._counts(first, DOCUMENTS_PER_BLOCK * BLOCKS_PER_PASS) for first in blocks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _counts(self, first: int, limit: int) -> IntArray:
        return self._samples_per_document(self._stream.lengths(first, min(first + limit, self._stream.documents)))
