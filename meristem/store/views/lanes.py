"""Lanes: each row of a batch reads on where it stopped in the batch before, for models with memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.store.rows import content_length, documents_in, row_of
from meristem.store.store import Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Lanes:
    """The stream in `lanes` equal parts; sample n is segment n // lanes of lane n % lanes.

    With `both_ways` every second lane is read from its end to its beginning, and its rows say so.
    """

    shuffled: ClassVar[bool] = False

    def __init__(self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False,
                 lanes: int, ahead: int = 1, both_ways: bool = False) -> None:
        self._stream, self._tokenizer, self._isolate, self._both_ways = stream, tokenizer, isolate, both_ways
        self._lanes, self._ahead = lanes, ahead
        self._length = content_length(stream, tokenizer, length, 0)
        self._size = (len(stream) - ahead) // lanes  # alike for all, so that no batch is ragged; the rest is left out
        if self._size < 1:
            raise MeristemError(f"{stream.place}: {len(stream):,} tokens are too few for {lanes} lanes; "
                                f"give more text, or a smaller train.batch_tokens")

    def __len__(self) -> int:
        return self._lanes * -(-self._size // self._length)

    def row(self, index: int, draw: Draws) -> Row:
        """The next segment of a lane; `fresh` at its first."""
        if not 0 <= index < len(self):
            raise IndexError(f"segments run from 0 to {len(self) - 1}, not {index}")
        segment, lane = divmod(index, self._lanes)
        backwards = self._both_ways and lane % 2 == 1
        start, stop = self._stretch(lane, segment, backwards)
        way = slice(None, None, -1) if backwards else slice(None)
        extra = {"fresh": np.array([segment == 0])}
        if self._both_ways:
            extra["backwards"] = np.array([backwards])
        if self._isolate:
            extra["documents"] = documents_in(self._stream, start, stop, 0, 0)[way]
        return row_of(self._tokenizer, self._stream.tokens(start, stop)[way], extra, index)

    def _stretch(self, lane: int, segment: int, backwards: bool) -> tuple[int, int]:
        """Where a segment lies in the stream, and what it looks ahead at."""
        first, last = lane * self._size, (lane + 1) * self._size
        if backwards:
            stop = last - segment * self._length
            return max(stop - self._length, first) - self._ahead, stop
        start = first + segment * self._length
        return start, min(start + self._length, last) + self._ahead
