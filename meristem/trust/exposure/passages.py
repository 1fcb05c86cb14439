"""Random passages of a split: token windows within documents, canaries left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from meristem.dataset.token_dataset import DocumentSpan, IntArray, TokenStream
from meristem.utils.randomness import KeyedPermutation, generator

DOCUMENTS_PER_PASSAGE = 8
"""Documents looked at for each passage, at most; some are too short."""
LENGTH_SAMPLE = 2000
SHORT_SHARE = 0.25
"""Share of the documents that may be too short for a passage."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Tokens of one document."""

    ids: IntArray
    document: int
    """Its number in the split."""
    position: int
    """Where it begins in the stream of the split."""


Skipped = Collection[tuple[int, ...]]
"""Tokens of documents that are left out."""


def passage_size(stream: TokenStream, max_tokens: int, skipped: Skipped) -> int:
    """Tokens of a passage: `max_tokens`, or fewer where more than a quarter of the documents are shorter."""
    filtered = _DocumentFilter(skipped)
    spans = [stream.document(number) for number in _document_order(stream, LENGTH_SAMPLE, seed=0)]
    lengths = [span.text_stop - span.start for span in spans if not filtered.skips(stream, span)]
    return min(max_tokens, int(np.quantile(lengths, SHORT_SHARE, method="lower"))) if lengths else 0


class _DocumentFilter:
    """Which documents are left out."""

    def __init__(self, skipped: Skipped) -> None:
        self._skipped, self._sizes = set(skipped), {len(ids) for ids in skipped}

    def skips(self, stream: TokenStream, span: DocumentSpan) -> bool:
        """Whether a document is one of them."""
        length = span.text_stop - span.start
        return length in self._sizes and tuple(stream.tokens(span.start, span.text_stop).tolist()) in self._skipped


def sample_passages(stream: TokenStream, size: int, count: int, *, seed: int, skipped: Skipped = ()) -> list[Passage]:
    """`count` windows of `size` tokens that do not overlap, of as many documents as possible; fewer if there are."""
    filtered = _DocumentFilter(skipped)
    ranked: list[tuple[int, int, Passage]] = []
    for order, number in enumerate(_document_order(stream, DOCUMENTS_PER_PASSAGE * count, seed)):
        span = stream.document(number)
        num_windows, rest = divmod(span.text_stop - span.start, size)
        if not num_windows or filtered.skips(stream, span):
            continue
        rng = generator(seed, "passage", 0, number)
        offset = span.start + int(rng.integers(rest + 1))
        for turn, window in enumerate(rng.permutation(num_windows)[:count].tolist()):
            start = offset + window * size
            passage = Passage(ids=stream.tokens(start, start + size), document=number, position=start)
            ranked.append((turn, order, passage))
    ranked.sort(key=lambda item: item[:2])
    return [passage for _, _, passage in ranked[:count]]


def _document_order(stream: TokenStream, count: int, seed: int) -> list[int]:
    """Up to `count` documents in random order."""
    order: list[int] = KeyedPermutation(stream.documents, seed, 0)(np.arange(min(stream.documents, count))).tolist()
    return order
