"""How often words occur in a sample: what kinds that learn from words are given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import tokenizers

from meristem.tokenizers.pieces import BERT_CHINESE

LOT = 10_000  # words handed to a trainer in one string


def words(library: tokenizers.Tokenizer, texts: Iterable[str],
          pattern: re.Pattern[str] = BERT_CHINESE) -> Counter[str]:
    """Words as the tokenizer cuts them with their counts; each distinct piece of text is normalised and cut once."""
    pieces: Counter[str] = Counter()
    for text in texts:
        pieces.update(pattern.findall(text))
    out: Counter[str] = Counter()
    for piece, count in pieces.items():
        for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(piece)):
            out[word] += count
    return out


def commonest(counts: Counter[str], limit: int) -> list[str]:
    """The most frequent first, ties in the order of their characters, so that the same text gives the same list."""
    return sorted(counts, key=lambda item: (-counts[item], item))[:max(limit, 0)]


def repeated(counts: Counter[str]) -> Iterator[str]:
    """A text in which each word occurs as often as it was counted."""
    for word in sorted(counts):
        whole, rest = divmod(counts[word], LOT)
        yield from [f"{word} " * LOT] * whole
        yield f"{word} " * rest
