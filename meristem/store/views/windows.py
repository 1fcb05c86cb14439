"""Packed windows: the stream cut into rows without padding, as RoBERTa and GPT-2 read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from meristem.batch import Array, Draws, Row
from meristem.store.letters import spelled
from meristem.store.rows import content_length, documents_in, frame_of, row_of
from meristem.store.store import Ints, Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Windows:
    """Window n holds the n-th stretch of the stream, and with `ahead` as many tokens more to be predicted.

    With `characters` a row also has the letters of each token, for families that read words by their letters.
    `spare` positions are left to what an objective adds; with `sentences` the notes say where those begin.
    """

    shuffled: ClassVar[bool] = True

    def __init__(self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False,
                 frame: bool = True, ahead: int = 0, characters: bool = False, spare: int = 0,
                 sentences: bool = False) -> None:
        self._stream, self._tokenizer, self._isolate, self._ahead = stream, tokenizer, isolate, ahead
        nothing = np.zeros(0, np.int64)
        self._before, self._after = frame_of(tokenizer) if frame else (nothing, nothing)
        self._stride = content_length(stream, tokenizer, length, len(self._before) + len(self._after) + spare)
        self._characters, self._sentences = characters, sentences

    def __len__(self) -> int:
        return max(1, -(-(len(self._stream) - self._ahead) // self._stride))

    def row(self, index: int, draw: Draws) -> Row:
        """The stretch itself; nothing is drawn."""
        if not 0 <= index < len(self):
            raise IndexError(f"windows run from 0 to {len(self) - 1}, not {index}")
        start, size = index * self._stride, self._stride + self._ahead
        if not self._ahead:  # with it the last row is shorter instead, and every token is predicted exactly once
            start = max(0, min(start, len(self._stream) - size))
        stop = min(start + size, len(self._stream))
        tokens = np.concatenate([self._before, self._stream.tokens(start, stop), self._after])
        extra: dict[str, Array] = {}
        if self._isolate:
            extra["documents"] = documents_in(self._stream, start, stop, len(self._before), len(self._after))
        if self._characters:
            extra["characters"] = spelled(tokens, self._words(tokens, start, stop), self._tokenizer)
        notes: dict[str, Array] = {}
        if self._sentences:
            notes["sentences"] = self._stream.sentences(start, stop) - start + len(self._before)
        return row_of(self._tokenizer, tokens, extra, index, **notes)

    def _words(self, tokens: Ints, start: int, stop: int) -> list[bytes]:
        """How each token of a row was written, or its name in the vocabulary where the store kept no spellings."""
        if not self._stream.spelled:
            return [self._tokenizer.token(token).encode("utf-8", "surrogatepass") for token in tokens.tolist()]
        return [b""] * len(self._before) + self._stream.spellings(start, stop) + [b""] * len(self._after)
