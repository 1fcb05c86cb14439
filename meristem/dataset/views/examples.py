"""Source-target examples for encoder-decoder models, from corpora of pairs."""

from __future__ import annotations

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, make_row
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer


class ExamplesView(TokenView):
    """`source` and `tokens` (the target), each with its end token; truncated to `length`, then without one.

    `spare` positions of the target are reserved for tokens that an objective adds.
    """

    shuffled = True

    def __init__(
        self, stream: TokenStream, tokenizer: Tokenizer, length: int, *, isolate: bool = False, spare: int = 0
    ) -> None:
        if not stream.has_pairs:
            raise MeristemError(
                f"{stream.path}: these documents have no targets; set "
                "corpus.target (a column, or a file of as many lines), or use builtin:microworld-pairs"
            )
        self._stream, self._tokenizer = stream, tokenizer
        self._template = InputTemplate(tokenizer, "encoder_decoder", closes_cut_texts=False)
        self._source_length = content_length(stream, tokenizer, length, 0)
        self._target_length = content_length(stream, tokenizer, length, spare)

    def __len__(self) -> int:
        return self._stream.documents

    def rows_per_document(self) -> IntArray:
        """Number of rows of each document."""
        return np.ones(self._stream.documents, np.int64)

    def row(self, index: int, draw: RngFactory) -> Row:
        """One pair; `draw` is not used."""
        span, target_start = self._stream.document(index), self._stream.target_start(index)
        source = self._template.source_ids(self._stream.tokens(span.start, target_start), self._source_length)
        target = self._template.target_ids(self._stream.tokens(target_start, span.text_stop), self._target_length)
        special = self._tokenizer.special_mask[source]
        return make_row(self._tokenizer, target, {"source": source}, index, document=index, source_special=special)
