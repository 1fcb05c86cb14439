"""Groups of random texts, or of text pairs, as one sample: the in-batch negatives of contrastive objectives."""

from __future__ import annotations

import numpy as np

from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, make_row
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer


class TextGroupsView(TokenView):
    """Sample n is `size` documents drawn without replacement, each with its special tokens, one after the other.

    A document longer than `longest` tokens is cut from one of its sentences. In a corpus of pairs a document is two
    texts, which follow each other. `metadata["starts"]` are the first positions of the texts, and `metadata["pairs"]`
    says whether they are pairs.
    """

    shuffled = True

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        size: int = 32,
        longest: int = 64,
    ) -> None:
        template = InputTemplate(tokenizer, "bidirectional")
        self._stream, self._tokenizer = stream, tokenizer
        self._prefix, self._suffix = template.prefix_ids, template.suffix_ids
        num_special = len(self._prefix) + len(self._suffix)
        self._longest = content_length(stream, tokenizer, min(length, longest + num_special), num_special)
        self._size = min(size, stream.documents)

    def __len__(self) -> int:
        return max(1, self._stream.documents // self._size)

    def row(self, index: int, draw: RngFactory) -> Row:
        """One group of texts."""
        rng = draw("text groups")
        texts: list[IntArray] = []
        for number in rng.choice(self._stream.documents, self._size, replace=False).tolist():
            span = self._stream.document(number)
            if self._stream.has_pairs:
                target_start = self._stream.target_start(number)
                texts += [self._cut(span.start, target_start, 0.0), self._cut(target_start, span.text_stop, 0.0)]
            else:
                texts.append(self._cut(span.start, span.text_stop, rng.random()))
        rows = [np.concatenate([self._prefix, text, self._suffix]) for text in texts]
        starts = np.cumsum([0, *(len(text) for text in rows[:-1])])
        return make_row(self._tokenizer, np.concatenate(rows), {}, index, starts=starts, pairs=self._stream.has_pairs)

    def _cut(self, start: int, stop: int, share: float) -> IntArray:
        """The text from start to stop; a longer one from the sentence at this share of those that leave enough text."""
        if stop - start > self._longest:
            sentences = self._stream.sentences(start, max(start + 1, stop - self._longest + 1))
            starts = np.unique(np.append(sentences, start))
            start = int(starts[int(share * len(starts))])
        return self._stream.tokens(start, min(stop, start + self._longest))
