"""Character offsets of words: joining words into a text, and locating words in a given text."""

from __future__ import annotations

import re
from collections.abc import Sequence

IDEOGRAPHS = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff65\U00020000-\U0003ffff"
IDEOGRAPH_PATTERN = re.compile(f"[{IDEOGRAPHS}]")

Offsets = tuple[tuple[int, int], ...]
"""(start, end) of each word, in characters of its text."""


def join_words(words: Sequence[str]) -> tuple[str, Offsets]:
    """The words as one text, and their offsets: no spaces between ideographs, or if each character is a word."""
    joined_text = "".join(words)
    non_ascii = not joined_text.isascii()
    char_per_word = (
        non_ascii
        and sum(len(word) == 1 for word in words) >= 0.9 * len(words)
        and IDEOGRAPH_PATTERN.search(joined_text)
    )
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    position, previous_word = 0, ""
    for word in words:
        if (
            previous_word
            and not char_per_word
            and not (non_ascii and IDEOGRAPH_PATTERN.match(previous_word[-1]) and IDEOGRAPH_PATTERN.match(word))
        ):
            parts.append(" ")
            position += 1
        parts.append(word)
        offsets.append((position, position + len(word)))
        position, previous_word = position + len(word), word
    return "".join(parts), tuple(offsets)


def locate_words(words: Sequence[str], text: str) -> Offsets | None:
    """Offsets of consecutive words in a text; None if the text is not exactly these words and white space."""
    offsets, position = [], 0
    for word in words:
        start = text.find(word, position)
        if start < 0 or text[position:start].strip():  # only white space may be between words
            return None
        position = start + len(word)
        offsets.append((start, position))
    return tuple(offsets) if not text[position:].strip() else None


def split_words(text: str) -> tuple[tuple[str, ...], Offsets]:
    """The words of a text, split at white space, and their offsets."""
    matches = list(re.finditer(r"\S+", text))
    return tuple(match.group() for match in matches), tuple(match.span() for match in matches)
