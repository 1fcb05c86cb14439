"""Contiguous batches for models with memory (Transformer-XL): row i continues row i of the previous batch."""

from __future__ import annotations

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, document_ids, make_row
from meristem.dataset.token_dataset import TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.tokenizers.tokenizer import Tokenizer


class ContiguousView(TokenView):
    """The stream in `num_rows` equal parts, one per row of a batch.

    Sample n is segment n // num_rows of part n % num_rows.

    With `both_ways` every second part is read backwards, and its rows have `backwards` set.
    """

    shuffled = False

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        num_rows: int,
        ahead: int = 1,
        both_ways: bool = False,
    ) -> None:
        self._stream, self._tokenizer, self._isolate, self._both_ways = stream, tokenizer, isolate, both_ways
        self._num_rows, self._ahead = num_rows, ahead
        self._length = content_length(stream, tokenizer, length, 0)
        # equal, so that all batches have the same size; the remainder is left out
        self._part_tokens = (len(stream) - ahead) // num_rows
        if self._part_tokens < 1:
            raise MeristemError(
                f"{stream.path}: {len(stream):,} tokens are too few for {num_rows} rows of contiguous text; "
                f"add more text, or use a smaller train.batch_tokens"
            )

    def __len__(self) -> int:
        return self._num_rows * -(-self._part_tokens // self._length)

    def row(self, index: int, draw: RngFactory) -> Row:
        """A segment of a part; `fresh` is true for the first one of each part."""
        if not 0 <= index < len(self):
            raise IndexError(f"segment {index} is out of range; there are {len(self):,}")
        segment, part = divmod(index, self._num_rows)
        backwards = self._both_ways and part % 2 == 1
        start, stop = self._segment_bounds(part, segment, backwards)
        direction = slice(None, None, -1) if backwards else slice(None)
        extra = {"fresh": np.array([segment == 0])}
        if self._both_ways:
            extra["backwards"] = np.array([backwards])
        if self._isolate:
            extra["documents"] = document_ids(self._stream, start, stop, 0, 0)[direction]
        return make_row(self._tokenizer, self._stream.tokens(start, stop)[direction], extra, index)

    def _segment_bounds(self, part: int, segment: int, backwards: bool) -> tuple[int, int]:
        """The positions of a segment in the stream, including the `ahead` tokens after it."""
        first, last = part * self._part_tokens, (part + 1) * self._part_tokens
        if backwards:
            stop = last - segment * self._length
            return max(stop - self._length, first) - self._ahead, stop
        start = first + segment * self._length
        return start, min(start + self._length, last) + self._ahead
