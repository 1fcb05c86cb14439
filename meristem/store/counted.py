"""Documents give one or more samples each: which document is sample n from, in flat memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from meristem.store.store import Ints, Stream

BLOCK = 64  # documents whose counts are made again at a look-up: microseconds there, an eighth of a byte each here
BLOCKS = 1024  # made together when a view begins


class Share(NamedTuple):
    """One of the samples a document gives."""

    document: int
    part: int
    parts: int


class Counted:
    """Sample → document and part, from a rule that says how many samples a document of so many tokens gives."""

    def __init__(self, stream: Stream, rule: Callable[[Ints], Ints]) -> None:
        self._stream, self._rule = stream, rule
        sums = [np.zeros(1, np.int64)]
        for first in range(0, stream.documents, BLOCK * BLOCKS):
            counts = self._counts(first, BLOCK * BLOCKS)
            sums.append(np.add.reduceat(counts, np.arange(0, len(counts), BLOCK)))
        self._before = np.cumsum(np.concatenate(sums))

    def __len__(self) -> int:
        return int(self._before[-1])

    def __call__(self, sample: int) -> Share:
        """The document of a sample, and which of the document's samples it is."""
        if not 0 <= sample < len(self):
            raise IndexError(f"samples run from 0 to {len(self) - 1}, not {sample}")
        block = int(self._before.searchsorted(sample, side="right")) - 1
        counts = self._counts(block * BLOCK, BLOCK)
        ends = counts.cumsum()
        inside = sample - int(self._before[block])
        number = int(ends.searchsorted(inside, side="right"))
        parts = int(counts[number])
        return Share(block * BLOCK + number, inside - int(ends[number]) + parts, parts)

    def _counts(self, first: int, how_many: int) -> Ints:
        return self._rule(self._stream.lengths(first, min(first + how_many, self._stream.documents)))
