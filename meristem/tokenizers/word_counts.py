"""Word counts of a text sample, for tokenizers that are trained on words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import tokenizers

from meristem.tokenizers.cached_encoding import BERT_CHINESE_PATTERN

WORDS_PER_CHUNK = 10_000  # words handed to a trainer in one string


def count_words(
    library: tokenizers.Tokenizer, texts: Iterable[str], pattern: re.Pattern[str] = BERT_CHINESE_PATTERN
) -> Counter[str]:
    """Counts of words after normalization and pre-tokenization; each distinct piece of text is processed once."""
    pieces: Counter[str] = Counter()
    for text in texts:
        pieces.update(pattern.findall(text))
    counts: Counter[str] = Counter()
    for piece, count in pieces.items():
        for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(piece)):
            counts[word] += count
    return counts


def count_characters(word_counts: Counter[str]) -> Counter[str]:
    """Counts of the characters in counted words."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    return counts


def most_common(counts: Counter[str], limit: int) -> list[str]:
    """The most frequent items, ties in alphabetical order, so that the result is deterministic."""
    return sorted(counts, key=lambda item: (-counts[item], item))[: max(limit, 0)]


def repeat_words(counts: Counter[str]) -> Iterator[str]:
    """Chunks of text in which each word occurs as often as it was counted."""
    for word in sorted(counts):
        full_chunks, remainder = divmod(counts[word], WORDS_PER_CHUNK)
        yield from [f"{word} " * WORDS_PER_CHUNK] * full_chunks
        yield f"{word} " * remainder
