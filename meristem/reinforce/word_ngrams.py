"""Word n-grams of a text: normalization, repeated n-grams and n-grams copied from other texts."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from meristem.data.text_units import UNSPACED_WORD, distinct_share, ngrams

PUNCTUATION = string.punctuation + "“”‘’„‚«»‹›…—–·•。，、！？；：（）「」『』《》〈〉【】〔〕～｡｢｣、،؛؟"
DISTINCT_WINDOW = 40
"""Window in words for measuring diversity: over a whole book no text is diverse."""


def normalized_words(text: str) -> list[str]:
    """Lower-case words without surrounding punctuation; in scripts without spaces each ideograph is a word."""
    return cased_words(text.lower())


def cased_words(text: str) -> list[str]:
    """The same without lower-casing."""
    return [stripped for word in UNSPACED_WORD.findall(text) if (stripped := word.strip(PUNCTUATION))]


def repeated_ngram_share(tokens: Sequence[str], size: int) -> float:
    """The share of n-grams that occurred before in the text; 0 where there are fewer than two."""
    return 1 - distinct_share([tokens], size)


def min_distinct_share(tokens: Sequence[str], size: int = 2) -> float:
    """The share of distinct n-grams in the least diverse window of a text."""
    starts = range(0, max(1, len(tokens) - DISTINCT_WINDOW + 1), DISTINCT_WINDOW // 2)
    last = max(0, len(tokens) - DISTINCT_WINDOW)
    return min(1 - repeated_ngram_share(tokens[start : start + DISTINCT_WINDOW], size) for start in (*starts, last))


class CopyDetector:
    """Finds n-grams copied from a set of texts."""

    def __init__(self, texts: Iterable[str], size: int) -> None:
        self.size = size
        token_lists = [tuple(normalized_words(text)) for text in texts]
        self._texts = {text for text in token_lists if text}
        self._ngrams = {ngram for text in token_lists for ngram in ngrams(text, size)}

    def copied_share(self, tokens: Sequence[str]) -> float:
        """The share of a text's words that lie in a copied n-gram; 1 for a text that is copied as a whole."""
        if tuple(tokens) in self._texts:
            return 1.0
        copied = set[int]()
        for start, ngram in enumerate(ngrams(tokens, self.size)):
            if ngram in self._ngrams:
                copied.update(range(start, start + self.size))
        return len(copied) / len(tokens) if tokens else 0.0
