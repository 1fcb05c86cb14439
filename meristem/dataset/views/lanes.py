"""Contiguous batches for models with memory (Transformer-XL): row i continues row i of the previous batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.rows import content_length, document_ids, make_row
from meristem.dataset.token_dataset import TokenStream
from meristem.interfaces.batch import RngFactory, Row

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class LanesView:
    """The stream in `lanes` equal parts; sample n is segment n

    lanes of lane n % lanes.

    With `both_ways` every second lane is read backwards, and its rows have `backwards` set.
    """

    shuffled: ClassVar[bool] = False

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        lanes: int,
        ahead: int = 1,
        both_ways: bool = False,
    ) -> None:
        self._stream, self._tokenizer, self._isolate, self._both_ways = stream, tokenizer, isolate, both_ways
        self._lanes, self._ahead = lanes, ahead
        self._length = content_length(stream, tokenizer, length, 0)
        self._lane_tokens = (
            len(stream) - ahead
        ) // lanes  # equal, so that all batches have the same size; the remainder is left out
        if self._lane_tokens < 1:
            raise MeristemError(
                f"{stream.path}: {len(stream):,} tokens are too few for {lanes} lanes; "
                f"add more text, or use a smaller train.batch_tokens"
            )

    def __len__(self) -> int:
        return self._lanes * -(-self._lane_tokens // self._length)

    def row(self, index: int, draw: RngFactory) -> Row:
        """A segment of a lane; `fresh` is true for a lane's first one."""
        if not 0 <= index < len(self):
            raise IndexError(f"segment {index} is out of range; there are {len(self):,}")
        segment, lane = divmod(index, self._lanes)
        backwards = self._both_ways and lane % 2 == 1
        start, stop = self._segment_bounds(lane, segment, backwards)
        direction = slice(None, None, -1) if backwards else slice(None)
        extra = {"fresh": np.array([segment == 0])}
        if self._both_ways:
            extra["backwards"] = np.array([backwards])
        if self._isolate:
            extra["documents"] = document_ids(self._stream, start, stop, 0, 0)[direction]
        return make_row(self._tokenizer, self._stream.tokens(start, stop)[direction], extra, index)

    def _segment_bounds(self, lane: int, segment: int, backwards: bool) -> tuple[int, int]:
        """The positions of a segment in the stream, including the `ahead` tokens after it."""
        first, last = lane * self._lane_tokens, (lane + 1) * self._lane_tokens
        if backwards:
            stop = last - segment * self._length
            return max(stop - self._length, first) - self._ahead, stop
        start = first + segment * self._length
        return start, min(start + self._length, last) + self._ahead
