"""Document windows: rows as of packed windows, but each of one document only; sample n is document n."""

from __future__ import annotations

from typing import Any

import numpy as np

from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.dataset.unit_rows import UnitView
from meristem.dataset.views.windows import WindowsView
from meristem.inputs.batch import Row
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


class DocumentStream:
    """The tokens of one document as a stream of its own.

    With `separators` the document stands between two separators, as in packed text, where the one before it belongs to
    the document before: the separator itself says nothing about that document.
    """

    def __init__(self, stream: TokenStream, number: int, *, separators: bool) -> None:
        self._stream, self._span = stream, stream.document(number)
        self._before = int(separators)
        self._num_tokens = (self._span.stop if separators else self._span.text_stop) - self._span.start + self._before
        self.has_spellings = stream.has_spellings

    def __len__(self) -> int:
        return self._num_tokens

    def _bounds(self, start: int, stop: int) -> tuple[int, int]:
        """The positions in the whole stream, without the separator before the document."""
        offset = self._span.start - self._before
        return max(start + offset, self._span.start), max(stop + offset, self._span.start)

    def tokens(self, start: int, stop: int) -> IntArray:
        """The token ids in [start, stop)."""
        tokens = self._stream.tokens(*self._bounds(start, stop))
        if self._before and start == 0 < stop:
            tokens = np.concatenate([self._stream.tokens(self._span.text_stop, self._span.stop), tokens])
        return tokens

    def sentences(self, start: int, stop: int) -> IntArray:
        """The positions in [start, stop) where a sentence begins."""
        return self._stream.sentences(*self._bounds(start, stop)) - self._span.start + self._before

    def documents_at(self, start: int, stop: int) -> IntArray:
        """The document of each position in [start, stop): always the same."""
        return np.zeros(stop - start, np.int64)

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token."""
        own = self._stream.spellings(*self._bounds(start, stop))
        is_padded = self._before and start == 0 < stop
        return [*(self._stream.spellings(self._span.text_stop, self._span.stop) if is_padded else []), *own]


class DocumentWindowsView(WindowsView, UnitView):
    """Windows of single documents, with the options of packed windows."""

    def __init__(self, stream: TokenStream, tokenizer: Tokenizer, length: int, **options: Any) -> None:
        super().__init__(stream, tokenizer, length, **options)
        self._separators = not (len(self._prefix) or len(self._suffix))

    def __len__(self) -> int:
        return self._stream.documents

    def num_rows(self, unit: int) -> int:
        """Windows of a document."""
        span = self._stream.document(unit)
        num_tokens = span.stop - span.start + 1 if self._separators else span.text_stop - span.start
        return max(0, -(-(num_tokens - self._ahead) // self._stride))

    def unit_row(self, unit: int, number: int, draw: SampleRng) -> Row:
        """One window of a document."""
        stream = DocumentStream(self._stream, unit, separators=self._separators)
        start, stop = self._bounds_in(number, len(stream))
        return self._make_row(unit, start, stop, stream)

    def row(self, index: int, draw: SampleRng) -> Row:
        """One window of a document, drawn at random."""
        return UnitView.row(self, index, draw)

    def row_part(self, index: int, part: int, parts: int, draw: SampleRng) -> Row:
        """One of several windows of a document, drawn at random without replacement."""
        return UnitView.row_part(self, index, part, parts, draw)
