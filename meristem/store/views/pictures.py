"""Pictures: an image and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.store.rows import content_length, ended, row_of
from meristem.store.store import Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class Pictures:
    """`image` [side, side, 3] in bytes, and `tokens`, the caption with its end token, cut to `length`.

    `spare` positions are left to what an objective adds.
    """

    shuffled: ClassVar[bool] = True

    def __init__(
        self, stream: Stream, tokenizer: Tokenizer, length: int, *, isolate: bool = False, spare: int = 0
    ) -> None:
        if not stream.pictured:
            raise MeristemError(
                f"{stream.place}: these documents have no pictures; name the column that does with "
                "corpus.picture, or use builtin:microworld-pictures"
            )
        self._stream, self._tokenizer = stream, tokenizer
        self._room = content_length(stream, tokenizer, length, spare)

    def __len__(self) -> int:
        return self._stream.documents

    def row(self, index: int, draw: Draws) -> Row:
        """One picture and its caption; nothing is drawn."""
        span = self._stream.document(index)
        caption = ended(self._stream.tokens(span.start, span.text_stop), self._tokenizer, self._room)
        return row_of(self._tokenizer, caption, {"image": self._stream.picture(index)}, index, document=index)
