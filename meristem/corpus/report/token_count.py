"""Token counts of a corpus under a given tokenizer, and how many tokens are unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from meristem.corpus.document import Document
from meristem.corpus.paired_text import tokenizer_texts

BATCH_CHARACTERS = 1 << 20
"""Characters tokenized at once."""

CountTokensFn = Callable[[list[str]], tuple[int, int]]
"""Texts → (tokens, unknown tokens)."""


@dataclass
class TokenCount:
    """Token counts of a corpus under one tokenizer."""

    tokenizer: str
    tokens: int = 0
    unknown: int = 0

    @property
    def unknown_share(self) -> float:
        """Share of unknown tokens."""
        return self.unknown / max(1, self.tokens)


class TokenCounter:
    """Counts the tokens of documents passing through."""

    def __init__(self, tokenizer: str, count_tokens: CountTokensFn) -> None:
        self.total, self._count_tokens = TokenCount(tokenizer), count_tokens
        self._texts: list[str] = []
        self._characters = 0

    def observe(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yields the documents unchanged."""
        for document in documents:
            for text in tokenizer_texts(document.text):
                self._texts.append(text)
                self._characters += len(text)
            if self._characters >= BATCH_CHARACTERS:
                self._flush()
            yield document
        self._flush()

    def _flush(self) -> None:
        tokens, unknown = self._count_tokens(self._texts) if self._texts else (0, 0)
        self.total.tokens += tokens
        self.total.unknown += unknown
        self._texts, self._characters = [], 0
