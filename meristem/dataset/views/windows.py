"""Packed windows: the stream cut into rows of full length without padding, as in RoBERTa and GPT-2."""

from __future__ import annotations

import numpy as np

from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, document_ids, make_row
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import Array, RngFactory, Row
from meristem.inputs.char_ids import token_char_ids
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer


class WindowsView(TokenView):
    """Window n is the n-th range of `length` tokens; with `ahead`, followed by as many tokens as prediction targets.

    With `characters` a row also has the character ids of each token, for models that read words by their characters.
    `spare` positions are reserved for tokens that an objective adds; with `sentences` the notes contain the sentence
    starts.
    """

    shuffled = True

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: Tokenizer,
        length: int,
        *,
        isolate: bool = False,
        frame: bool = True,
        ahead: int = 0,
        characters: bool = False,
        spare: int = 0,
        sentences: bool = False,
    ) -> None:
        self._stream, self._tokenizer, self._isolate, self._ahead = stream, tokenizer, isolate, ahead
        template = InputTemplate(tokenizer, "bidirectional", special_ids=None if frame else ((), ()))
        self._prefix, self._suffix = template.prefix_ids, template.suffix_ids
        self._stride = content_length(stream, tokenizer, length, len(self._prefix) + len(self._suffix) + spare)
        self._characters, self._sentences = characters, sentences

    def __len__(self) -> int:
        return max(1, -(-(len(self._stream) - self._ahead) // self._stride))

    def row(self, index: int, draw: RngFactory) -> Row:
        """One window; `draw` is not used."""
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} is out of range; there are {len(self):,}")
        start, size = index * self._stride, self._stride + self._ahead
        if not self._ahead:  # with `ahead` the last row is shorter: every token is predicted exactly once
            start = max(0, min(start, len(self._stream) - size))
        stop = min(start + size, len(self._stream))
        tokens = np.concatenate([self._prefix, self._stream.tokens(start, stop), self._suffix])
        extra: dict[str, Array] = {}
        if self._isolate:
            extra["documents"] = document_ids(self._stream, start, stop, len(self._prefix), len(self._suffix))
        if self._characters:
            extra["characters"] = token_char_ids(tokens, self._spellings(tokens, start, stop), self._tokenizer)
        notes: dict[str, Array] = {}
        if self._sentences:
            notes["sentences"] = self._stream.sentences(start, stop) - start + len(self._prefix)
        return make_row(self._tokenizer, tokens, extra, index, **notes)

    def _spellings(self, tokens: IntArray, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token of a row; from the vocabulary if the dataset has no spellings."""
        if not self._stream.has_spellings:
            return [self._tokenizer.id_to_token(token).encode("utf-8", "surrogatepass") for token in tokens.tolist()]
        return [b""] * len(self._prefix) + self._stream.spellings(start, stop) + [b""] * len(self._suffix)
