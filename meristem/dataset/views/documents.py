"""Document view: every row holds text of one document only."""

from __future__ import annotations

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, make_row
from meristem.dataset.sample_index import SampleIndex
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer


class DocumentsView(TokenView):
    """A document as one row, or as several that overlap by `overlap` tokens; with `first`, only the first of them."""

    shuffled = True

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        frame: bool = True,
        overlap: int = 0,
        first: bool = False,
    ) -> None:
        template = InputTemplate(tokenizer, "bidirectional", special_ids=None if frame else ((), ()))
        self._stream, self._tokenizer, self._isolate, self._first = stream, tokenizer, isolate, first
        self._prefix, self._suffix = template.prefix_ids, template.suffix_ids
        self._separator = 0 if len(self._suffix) else 1  # without special tokens, it marks the document's end
        self._content_length = content_length(stream, tokenizer, length, len(self._prefix) + len(self._suffix))
        self._stride = self._content_length - overlap
        if overlap < 0 or self._stride < 1:
            raise MeristemError(
                f"overlap: {overlap} must be between 0 and {self._content_length - 1}, "
                f"one less than the text tokens of a row of {length}"
            )
        self._samples = SampleIndex(stream, self._window_counts)

    def _window_counts(self, lengths: IntArray) -> IntArray:
        """Rows per document, given the documents' lengths."""
        overflow = np.zeros_like(lengths) if self._first else lengths + self._separator - self._content_length
        return 1 + np.maximum(0, -(-overflow // self._stride))

    def __len__(self) -> int:
        return len(self._samples)

    def rows_per_document(self) -> IntArray:
        """Number of rows of each document."""
        return self._samples.counts()

    def row(self, index: int, draw: RngFactory) -> Row:
        """One window of one document; `draw` is not used."""
        document, window, _ = self._samples(index)
        span = self._stream.document(document)
        start = span.start + window * self._stride
        stop = min(start + self._content_length, span.text_stop + self._separator)
        tokens = np.concatenate([self._prefix, self._stream.tokens(start, stop), self._suffix])
        extra = {"documents": np.zeros_like(tokens)} if self._isolate else {}
        return make_row(self._tokenizer, tokens, extra, index, document=document, window=window)
