"""Sentence pairs, BERT's next sentences: [start] A [end] B [end], where B may not be what followed A."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.store.counted import Counted, Share
from meristem.store.rows import content_length, row_of
from meristem.store.store import Ints, Span, Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer

FRAME = 3
TRIES = 4  # looks for another document long enough for the segment it replaces


class Cut(NamedTuple):
    """A stretch of the stream and where it falls into A and B."""

    start: int
    middle: int
    stop: int


class Pairs:
    """Pairs as long as their document allows; a share of `rate` is false, and `notes["pair"]` is 1 there.

    A false pair has its B from another document, or its halves in the wrong order ("swap", as in ALBERT). Where there
    is only one document, B comes from elsewhere in it.
    """

    shuffled: ClassVar[bool] = True

    def __init__(self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False,
                 negatives: Literal["other", "swap"] = "other", rate: float = 0.5) -> None:
        if tokenizer.start is None or tokenizer.end is None:
            raise MeristemError("sentence pairs need a tokenizer with start and end tokens ([CLS] and [SEP])")
        self._stream, self._tokenizer, self._isolate = stream, tokenizer, isolate
        self._start, self._end = np.array([tokenizer.start]), np.array([tokenizer.end])
        self._negatives, self._rate = negatives, rate
        self._room = content_length(stream, tokenizer, length, FRAME + 1) + 1  # one token for each segment
        self._samples = Counted(stream, self._counts)
        if not len(self._samples):
            raise MeristemError(f"{stream.place}: no document has the two tokens a pair needs; give longer documents")

    def _counts(self, lengths: Ints) -> Ints:
        """Rows per document: as many as fit, rounded, so that an epoch is about as long as the stream."""
        return np.where(lengths < 2, 0, np.maximum(1, (lengths + self._room // 2) // self._room))

    def __len__(self) -> int:
        return len(self._samples)

    def row(self, index: int, draw: Draws) -> Row:
        """Cut a stretch of a document in two, and perhaps make the pair a false one."""
        generator = draw("pairs")
        share = self._samples(index)
        false = bool(generator.random() < self._rate)
        span = self._stream.document(share.document)
        cut = self._cut(span, share, generator)
        first, second = (cut.start, cut.middle), (cut.middle, cut.stop)
        if false and self._negatives == "swap":
            first, second = second, first
        elif false and self._stream.documents > 1:
            second = self._elsewhere(span, cut.stop - cut.middle, generator)
        elif false:
            first, second = self._apart(span, cut, generator)
        return self._row(self._stream.tokens(*first), self._stream.tokens(*second), int(false), index)

    def _row(self, a: Ints, b: Ints, label: int, index: int) -> Row:
        tokens = np.concatenate([self._start, a, self._end, b, self._end])
        extra = {"segments": (np.arange(len(tokens)) >= len(a) + 2).astype(np.int64)}
        if self._isolate:
            extra["documents"] = np.zeros_like(tokens)  # a pair is read as one, wherever its halves came from
        return row_of(self._tokenizer, tokens, extra, index, pair=label)

    def _cut(self, span: Span, share: Share, generator: Generator) -> Cut:
        """A stretch that begins at a sentence of this share of the document, full where the document is long enough."""
        starts = max(1, span.text_stop - span.start - self._room + 1)
        low, high = (span.start + number * starts // share.parts for number in (share.part, share.part + 1))
        start = self._one_of(self._stream.sentences(low, high), generator)
        if start is None:
            start = self._stream.sentence_before(low)
            start = start if low - start < self._room else low  # inside a sentence longer than a row: anywhere
        stop = min(start + self._room, span.text_stop)
        middle = self._one_of(self._stream.sentences(start + 1, stop), generator)
        return Cut(start, int(generator.integers(start + 1, stop)) if middle is None else middle, stop)

    def _elsewhere(self, own: Span, wanted: int, generator: Generator) -> tuple[int, int]:
        """A stretch of another document from a sentence on, `wanted` long where it can be: length must tell nothing."""
        best = (0, 0)
        for _ in range(TRIES):
            position = int(generator.integers(len(self._stream) - (own.stop - own.start)))
            position += (own.stop - own.start) * (position >= own.start)
            span = self._stream.document(self._stream.document_at(position))
            latest = max(span.start, span.text_stop - wanted)
            start = self._stream.sentence_before(min(position, latest))
            stop = min(start + wanted, span.text_stop)
            if stop - start > best[1] - best[0]:
                best = (start, stop)
            if stop - start == wanted:
                break
        return best

    def _apart(self, span: Span, cut: Cut, generator: Generator) -> tuple[tuple[int, int], tuple[int, int]]:
        """A, and a stretch as long as B that does not touch the pair; the two swapped where the text is too short."""
        wanted = cut.stop - cut.middle
        before = self._stream.sentences(span.start, max(span.start, cut.start - wanted) + 1)
        behind = self._stream.sentences(cut.stop, max(cut.stop, span.text_stop - wanted) + 1)
        starts = [*before[before + wanted <= cut.start], *behind[behind + wanted <= span.text_stop]]
        if not starts:
            return (cut.middle, cut.stop), (cut.start, cut.middle)
        start = int(starts[int(generator.integers(len(starts)))])
        return (cut.start, cut.middle), (start, start + wanted)

    @staticmethod
    def _one_of(positions: Ints, generator: Generator) -> int | None:
        return int(positions[generator.integers(len(positions))]) if len(positions) else None
