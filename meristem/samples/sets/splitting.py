"""Words of a text with their places: as tag files have them in English, one sign each in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WORD = re.compile(r"'s\b|[^\W\d_一-鿿]+(?:-[^\W\d_一-鿿]+)*|\d+|[一-鿿]|[^\s\w]", re.UNICODE)

Span = tuple[int, int]


def split(text: str) -> list[tuple[str, int, int]]:
    """Each word with its first character and the one after its last."""
    return [(found[0], found.start(), found.end()) for found in WORD.finditer(text)]


def outside_in(words: Sequence[tuple[str, int, int]], spans: Iterable[tuple[int, int, str]]) -> list[str]:
    """BIO tags: B- where a span begins, I- while it goes on, O elsewhere."""
    tags = ["O"] * len(words)
    for start, end, kind in spans:
        inside = [number for number, (_, begin, stop) in enumerate(words) if start <= begin and stop <= end]
        for number in inside:
            tags[number] = f"{'B' if number == inside[0] else 'I'}-{kind}"
    return tags
