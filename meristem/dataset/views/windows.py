"""Packed windows: the stream cut into rows of full length without padding, as in RoBERTa and GPT-2."""

from __future__ import annotations

import numpy as np

from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, document_ids, make_row
from meristem.dataset.shuffled_stream import TokenReader, shuffled_stream
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import Array, Row
from meristem.inputs.char_ids import token_char_ids
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


class WindowsView(TokenView):
    """Window n is the n-th range of `length` tokens; with `ahead`, followed by as many tokens as prediction targets.

    With `characters` a row also has the character ids of each token, for models that read words by their characters.
    `spare` positions are reserved for tokens that an objective adds; with `sentences` the notes contain the sentence
    starts. With `shuffle_documents` the stream has its documents in another order in each epoch.
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
        shuffle_documents: bool = False,
    ) -> None:
        self._shuffles_documents = shuffle_documents
        self._stream, self._tokenizer, self._isolate, self._ahead = stream, tokenizer, isolate, ahead
        template = InputTemplate(tokenizer, "bidirectional", special_ids=None if frame else ((), ()))
        self._prefix, self._suffix = template.prefix_ids, template.suffix_ids
        self._stride = content_length(stream, tokenizer, length, len(self._prefix) + len(self._suffix) + spare)
        self._characters, self._sentences = characters, sentences

    def __len__(self) -> int:
        return max(1, -(-(len(self._stream) - self._ahead) // self._stride))

    def row(self, index: int, draw: SampleRng) -> Row:
        """One window; of `draw` only the epoch matters, and only with `shuffle_documents`."""
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} is out of range; there are {len(self):,}")
        return self._make_row(index, *self._window_bounds(index), self._stream_of(draw))

    def row_part(self, index: int, part: int, parts: int, draw: SampleRng) -> Row:
        """A part of a window with special tokens of its own. Parts are equally long, so that no row needs padding:
        where the window cannot be divided, they overlap by a token or two."""
        start, stop = self._window_bounds(index)
        content = stop - self._ahead - start
        size = -(-content // parts)
        first = start + min(part * size, content - size)
        return self._make_row(index, first, first + size + self._ahead, self._stream_of(draw))

    def _stream_of(self, draw: SampleRng) -> TokenReader:
        """The stream in the order of the epoch."""
        return shuffled_stream(self._stream, draw.seed, draw.epoch) if self._shuffles_documents else self._stream

    def _window_bounds(self, index: int) -> tuple[int, int]:
        """The positions of a window in the stream, including the `ahead` tokens after it."""
        return self._bounds_in(index, len(self._stream))

    def _bounds_in(self, index: int, num_tokens: int) -> tuple[int, int]:
        """The positions of a window in a stream of so many tokens."""
        start, size = index * self._stride, self._stride + self._ahead
        if not self._ahead:  # with `ahead` the last row is shorter: every token is predicted exactly once
            start = max(0, min(start, num_tokens - size))
        return start, min(start + size, num_tokens)

    def _make_row(self, index: int, start: int, stop: int, stream: TokenReader) -> Row:
        tokens = np.concatenate([self._prefix, stream.tokens(start, stop), self._suffix])
        extra: dict[str, Array] = {}
        if self._isolate:
            extra["documents"] = document_ids(stream, start, stop, len(self._prefix), len(self._suffix))
        if self._characters:
            extra["characters"] = token_char_ids(tokens, self._spellings(tokens, start, stop, stream), self._tokenizer)
        notes: dict[str, Array] = {}
        if self._sentences:
            notes["sentences"] = stream.sentences(start, stop) - start + len(self._prefix)
        return make_row(self._tokenizer, tokens, extra, index, **notes)

    def _spellings(self, tokens: IntArray, start: int, stop: int, stream: TokenReader) -> list[bytes]:
        """The bytes of text behind each token of a row; from the vocabulary if the dataset has no spellings."""
        if not stream.has_spellings:
            return [self._tokenizer.id_to_token(token).encode("utf-8", "surrogatepass") for token in tokens.tolist()]
        return [b""] * len(self._prefix) + stream.spellings(start, stop) + [b""] * len(self._suffix)
