"""Words of a text with their character spans: as in tag files in English, per character in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

WORD_PATTERN = re.compile(r"'s\b|[^\W\d_一-鿿]+(?:-[^\W\d_一-鿿]+)*|\d+|[一-鿿]|[^\s\w]", re.UNICODE)

Word = tuple[str, int, int]
"""A word with its start and end offset."""


def split_words(text: str) -> list[Word]:
    """Each word with its start and end offset."""
    return [(match[0], match.start(), match.end()) for match in WORD_PATTERN.finditer(text)]


def tagged_row(words: Sequence[Word], tags: Sequence[str], text: str) -> dict[str, Any]:
    """A row of a labelled set with a tag for each word."""
    return {"words": [word for word, *_ in words], "tags": list(tags), "text": text}


def bio_tags(words: Sequence[Word], spans: Iterable[tuple[int, int, str]]) -> list[str]:
    """BIO tags: B- at the start of a span, I- inside it, O elsewhere."""
    tags = ["O"] * len(words)
    for start, end, kind in spans:
        inside = [number for number, (_, begin, stop) in enumerate(words) if start <= begin and stop <= end]
        for number in inside:
            tags[number] = f"{'B' if number == inside[0] else 'I'}-{kind}"
    return tags
