"""Documents: no row holds text of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.store.counted import Counted
from meristem.store.rows import content_length, frame_of, row_of
from meristem.store.store import Ints, Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Documents:
    """A document in one row, or in several that share `overlap` tokens; with `first`, only the first of them."""

    shuffled: ClassVar[bool] = True

    def __init__(self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False,
                 frame: bool = True, overlap: int = 0, first: bool = False) -> None:
        nothing = np.zeros(0, np.int64)
        self._stream, self._tokenizer, self._isolate, self._first = stream, tokenizer, isolate, first
        self._before, self._after = frame_of(tokenizer) if frame else (nothing, nothing)
        self._separator = 0 if len(self._after) else 1  # in a row without a frame it says that the document ends
        self._content = content_length(stream, tokenizer, length, len(self._before) + len(self._after))
        self._stride = self._content - overlap
        if overlap < 0 or self._stride < 1:
            raise MeristemError(f"overlap: {overlap} must lie between 0 and {self._content - 1}, "
                                f"the text of a row of {length} less one")
        self._samples = Counted(stream, self._windows)

    def _windows(self, lengths: Ints) -> Ints:
        """How many rows documents of these lengths give."""
        beyond = np.zeros_like(lengths) if self._first else lengths + self._separator - self._content
        return 1 + np.maximum(0, -(-beyond // self._stride))

    def __len__(self) -> int:
        return len(self._samples)

    def row(self, index: int, draw: Draws) -> Row:
        """One stretch of one document; nothing is drawn."""
        document, window, _ = self._samples(index)
        span = self._stream.document(document)
        start = span.start + window * self._stride
        stop = min(start + self._content, span.text_stop + self._separator)
        tokens = np.concatenate([self._before, self._stream.tokens(start, stop), self._after])
        extra = {"documents": np.zeros_like(tokens)} if self._isolate else {}
        return row_of(self._tokenizer, tokens, extra, index, document=document, window=window)
