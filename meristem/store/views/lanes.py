"""Lanes: each row of a batch reads on where it stopped in the batch before, for models with memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from meristem.batch import Draws, Row
from meristem.settings import MeristemError
from meristem.store.rows import content_length, documents_in, row_of
from meristem.store.store import Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Lanes:
    """The stream in `lanes` equal parts; sample n is segment n // lanes of lane n % lanes."""

    shuffled: ClassVar[bool] = False

    def __init__(self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False,
                 lanes: int, ahead: int = 1) -> None:
        self._stream, self._tokenizer, self._isolate = stream, tokenizer, isolate
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
        start = lane * self._size + segment * self._length
        stop = min(start + self._length, (lane + 1) * self._size) + self._ahead
        extra = {"fresh": np.array([segment == 0])}
        if self._isolate:
            extra["documents"] = documents_in(self._stream, start, stop, 0, 0)
        return row_of(self._tokenizer, self._stream.tokens(start, stop), extra, index)
