"""Repeated and copied n-grams: passages that a text repeats, or copies from its sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from meristem.data.text_units import TokenSequence, distinct_share, ngrams

_STUTTER_PATTERN = re.compile(r"([^\W\d_]{1,6}?)\1{5}")


def has_stutter(text: str) -> bool:
    """Whether some letters occur six times in a row inside a word, as in no language."""
    return _STUTTER_PATTERN.search(text) is not None


def has_repeated_ngram(tokens: TokenSequence, size: int) -> bool:
    """Whether some n-gram of that size occurs twice."""
    return distinct_share([tokens], size) < 1


def longest_word_run(tokens: TokenSequence) -> int:
    """The most times that one word is repeated in a row."""
    return max((sum(1 for _ in group) for _, group in groupby(tokens)), default=0)


def count_copied_ngrams(tokens: TokenSequence, sources: Sequence[TokenSequence], size: int) -> tuple[int, int]:
    """How many of a text's n-grams of that size occur verbatim in a source, and how many there are."""
    source_ngrams = {ngram for source in sources for ngram in ngrams(source, size)}
    text_ngrams = ngrams(tokens, size)
    return sum(ngram in source_ngrams for ngram in text_ngrams), len(text_ngrams)


def longest_copied_passage(tokens: TokenSequence, sources: Sequence[TokenSequence]) -> tuple[str, ...]:
    """The longest passage that occurs verbatim in a source."""
    best: tuple[str, ...] = ()
    low, high = 0, min(len(tokens), max(map(len, sources), default=0))
    while low < high:  # each part of a copied passage is copied too, so binary search finds the longest
        size = (low + high + 1) // 2
        source_ngrams = {ngram for source in sources for ngram in ngrams(source, size)}
        match = next((ngram for ngram in ngrams(tokens, size) if ngram in source_ngrams), None)
        if match is None:
            high = size - 1
        else:
            best, low = match, size
    return best
