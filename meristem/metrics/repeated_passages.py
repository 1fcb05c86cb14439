"""Repeated and copied n-grams: passages that a text repeats, or copies from its sources."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby

from meristem.metrics.word_split import split_words

TokenSequence = Sequence[str]
_STUTTER_PATTERN = re.compile(r"([^\W\d_]{1,6}?)\1{5}")


def split_tokens(text: str) -> list[str]:
    """Lower-case words; each punctuation mark, ideograph and kana is a token of its own."""
    return split_words("".join(f" {letter} " if _is_punctuation(letter) else letter for letter in text.casefold()))


def split_spoken_words(text: str) -> list[str]:
    """The same without punctuation, to compare texts regardless of it."""
    return [token for token in split_tokens(text) if not _is_punctuation(token[0])]


def has_stutter(text: str) -> bool:
    """Whether some letters occur six times in a row inside a word, as in no language."""
    return _STUTTER_PATTERN.search(text) is not None


def ngrams(tokens: TokenSequence, size: int) -> list[tuple[str, ...]]:
    """Every n-gram of `size` words, in order."""
    return [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]


def distinct_share(texts: Iterable[TokenSequence], size: int) -> float:
    """Distinct n-grams of that size as a share of all; 1 where there are none."""
    all_ngrams = [ngram for tokens in texts for ngram in ngrams(tokens, size)]
    return len(set(all_ngrams)) / len(all_ngrams) if all_ngrams else 1.0


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


@cache
def _is_punctuation(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "PS"
