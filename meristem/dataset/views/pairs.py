"""Sentence pairs for next-sentence (BERT) and sentence-order prediction (ALBERT): [start] A [end] B [end]."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, make_row
from meristem.dataset.sample_index import SampleIndex, SampleLocation
from meristem.dataset.token_dataset import DocumentSpan, IntArray, TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer

MAX_TRIES = 4  # attempts to draw another document that is long enough to replace B


class PairBoundaries(NamedTuple):
    """A range of the stream and where it is split into A and B."""

    start: int
    middle: int
    stop: int


class PairsView(TokenView):
    """Pairs as long as their document allows; a share of `rate` is negative, with `notes["pair"]` = 1.

    In a negative pair, B comes from another document, or A and B are swapped ("swap", as in ALBERT). If there is only
    one document, B comes from elsewhere in it.
    """

    shuffled = True

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        negatives: Literal["other", "swap"] = "other",
        rate: float = 0.5,
    ) -> None:
        if tokenizer.start is None or tokenizer.end is None:
            raise MeristemError("sentence pairs need a tokenizer with start and end tokens ([CLS] and [SEP])")
        self._stream, self._tokenizer, self._isolate = stream, tokenizer, isolate
        self._template = InputTemplate(tokenizer, "bidirectional", length)
        self._negatives, self._rate = negatives, rate
        num_special = self._template.num_special_tokens(2)
        self._content_length = content_length(stream, tokenizer, length, num_special + 1) + 1  # one token per text
        self._samples = SampleIndex(stream, self._counts)
        if not len(self._samples):
            raise MeristemError(f"{stream.path}: no document has the two tokens a pair needs; use longer documents")

    def _counts(self, lengths: IntArray) -> IntArray:
        """Rows per document: as many as fit, rounded, so that an epoch covers about the whole stream."""
        return np.where(lengths < 2, 0, np.maximum(1, (lengths + self._content_length // 2) // self._content_length))

    def __len__(self) -> int:
        return len(self._samples)

    def rows_per_document(self) -> IntArray:
        """Number of rows of each document."""
        return self._samples.counts()

    def row(self, index: int, draw: RngFactory) -> Row:
        """Split a range of a document into A and B, and make the pair negative with probability `rate`."""
        generator = draw("pairs")
        location = self._samples(index)
        is_negative = bool(generator.random() < self._rate)
        span = self._stream.document(location.document)
        bounds = self._choose_boundaries(span, location, generator)
        first, second = (bounds.start, bounds.middle), (bounds.middle, bounds.stop)
        if is_negative and self._negatives == "swap":
            first, second = second, first
        elif is_negative and self._stream.documents > 1:
            second = self._sample_other_document(span, bounds.stop - bounds.middle, generator)
        elif is_negative:
            first, second = self._sample_same_document(span, bounds, generator)
        return self._make_row(self._stream.tokens(*first), self._stream.tokens(*second), int(is_negative), index)

    def _make_row(self, a: IntArray, b: IntArray, label: int, index: int) -> Row:
        encoded = self._template.build_input(TokenizedText.from_ids(a), TokenizedText.from_ids(b))
        tokens, extra = encoded.inputs["tokens"], {"segments": encoded.inputs["segments"]}
        if self._isolate:
            extra["documents"] = np.zeros_like(tokens)  # a pair counts as one document, wherever its halves came from
        return make_row(self._tokenizer, tokens, extra, index, pair=label, summary=encoded.summary_position)

    def _choose_boundaries(self, span: DocumentSpan, location: SampleLocation, generator: Generator) -> PairBoundaries:
        """A range that begins at a sentence in this part of the document, full length if there is enough text."""
        starts = max(1, span.text_stop - span.start - self._content_length + 1)
        low, high = (span.start + number * starts // location.parts for number in (location.part, location.part + 1))
        start = self._random_choice(self._stream.sentences(low, high), generator)
        if start is None:
            start = self._stream.sentence_start_at(low)
            start = start if low - start < self._content_length else low  # within a sentence longer than a row: `low`
        stop = min(start + self._content_length, span.text_stop)
        middle = self._random_choice(self._stream.sentences(start + 1, stop), generator)
        return PairBoundaries(start, int(generator.integers(start + 1, stop)) if middle is None else middle, stop)

    def _sample_other_document(self, own_span: DocumentSpan, length: int, generator: Generator) -> tuple[int, int]:
        """A range of another document that starts at a sentence, `length` long if possible, to give no hint."""
        best = (0, 0)
        for _ in range(MAX_TRIES):
            position = int(generator.integers(len(self._stream) - (own_span.stop - own_span.start)))
            position += (own_span.stop - own_span.start) * (position >= own_span.start)
            span = self._stream.document(self._stream.document_at(position))
            latest = max(span.start, span.text_stop - length)
            start = self._stream.sentence_start_at(min(position, latest))
            stop = min(start + length, span.text_stop)
            if stop - start > best[1] - best[0]:
                best = (start, stop)
            if stop - start == length:
                break
        return best

    def _sample_same_document(
        self, span: DocumentSpan, bounds: PairBoundaries, generator: Generator
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """A, and a range as long as B that does not overlap the pair; A and B swapped if the document is too short."""
        length = bounds.stop - bounds.middle
        before = self._stream.sentences(span.start, max(span.start, bounds.start - length) + 1)
        after = self._stream.sentences(bounds.stop, max(bounds.stop, span.text_stop - length) + 1)
        starts = [*before[before + length <= bounds.start], *after[after + length <= span.text_stop]]
        if not starts:
            return (bounds.middle, bounds.stop), (bounds.start, bounds.middle)
        start = int(starts[int(generator.integers(len(starts)))])
        return (bounds.start, bounds.middle), (start, start + length)

    @staticmethod
    def _random_choice(positions: IntArray, generator: Generator) -> int | None:
        return int(positions[generator.integers(len(positions))]) if len(positions) else None
