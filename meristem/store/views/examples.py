"""Examples: a source and its target, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.store.rows import content_length, ended, row_of
from meristem.store.store import Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Examples:
    """`source` and `tokens`, each with its end token and cut to `length`; a text that was cut does not end.

    `spare` positions of the target are left to what an objective adds.
    """

    shuffled: ClassVar[bool] = True

    def __init__(
        self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False, spare: int = 0
    ) -> None:
        if not stream.paired:
            raise MeristemError(
                f"{stream.place}: these documents have no targets; say where they are with "
                "corpus.target (a column, or a file of as many lines), or use builtin:microworld-pairs"
            )
        self._stream, self._tokenizer = stream, tokenizer
        self._length = content_length(stream, tokenizer, length, 0)
        self._room = content_length(stream, tokenizer, length, spare)

    def __len__(self) -> int:
        return self._stream.documents

    def row(self, index: int, draw: Draws) -> Row:
        """One pair; nothing is drawn."""
        span, middle = self._stream.document(index), self._stream.middle(index)
        source = ended(self._stream.tokens(span.start, middle), self._tokenizer, self._length)
        target = ended(self._stream.tokens(middle, span.text_stop), self._tokenizer, self._room)
        special = self._tokenizer.specials[source]
        return row_of(self._tokenizer, target, {"source": source}, index, document=index, source_special=special)
