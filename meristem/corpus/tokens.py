"""Tokens of a corpus under a given tokenizer: how many there are, and how many are unknown to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from meristem.corpus.document import Document
from meristem.corpus.sides import words

BATCH = 1 << 20
"""Characters that are tokenised together."""

Count = Callable[[list[str]], tuple[int, int]]
"""Texts → their tokens, and those of them that are unknown."""


@dataclass
class TokenCount:
    """What one tokenizer makes of a corpus."""

    tokenizer: str
    tokens: int = 0
    unknown: int = 0

    @property
    def unknown_share(self) -> float:
        """Unknown tokens among all."""
        return self.unknown / max(1, self.tokens)


class TokenCounter:
    """Counts the tokens of documents that pass."""

    def __init__(self, tokenizer: str, count: Count) -> None:
        self.found, self._count = TokenCount(tokenizer), count
        self._texts: list[str] = []
        self._characters = 0

    def watched(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, each counted."""
        for document in documents:
            for text in words(document.text):
                self._texts.append(text)
                self._characters += len(text)
            if self._characters >= BATCH:
                self._flush()
            yield document
        self._flush()

    def _flush(self) -> None:
        tokens, unknown = self._count(self._texts) if self._texts else (0, 0)
        self.found.tokens += tokens
        self.found.unknown += unknown
        self._texts, self._characters = [], 0
