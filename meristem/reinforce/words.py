"""The words of a text as rewards count them, and how often it repeats or copies runs of them."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from meristem.corpus.words import DENSE

PUNCTUATION = string.punctuation + "“”‘’„‚«»‹›…—–·•。，、！？；：（）「」『』《》〈〉【】〔〕～｡｢｣、،؛؟"
WINDOW = 40
"""Words that variety is measured on: over a whole book no text is varied."""


def words(text: str) -> list[str]:
    """In small letters and without punctuation round them; where none stand between spaces, each ideograph is one."""
    return as_written(text.lower())


def as_written(text: str) -> list[str]:
    """The same with the capitals they have."""
    return [bare for word in DENSE.findall(text) if (bare := word.strip(PUNCTUATION))]


def runs(text: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Every run of so many words, in order."""
    return [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]


def repeated(text: Sequence[str], size: int) -> float:
    """The share of runs that were there before; none where there are fewer than two."""
    found = runs(text, size)
    return 1 - len(set(found)) / len(found) if found else 0.0


def variety(text: Sequence[str], size: int = 2) -> float:
    """The share of different runs in the least varied stretch of a text."""
    starts = range(0, max(1, len(text) - WINDOW + 1), WINDOW // 2)
    last = max(0, len(text) - WINDOW)
    return min(1 - repeated(text[at : at + WINDOW], size) for at in (*starts, last))


class Known:
    """Texts that somebody else wrote, by their runs of words."""

    def __init__(self, texts: Iterable[str], size: int) -> None:
        self.size = size
        each = [tuple(words(text)) for text in texts]
        self._whole = {text for text in each if text}
        self._runs = {run for text in each for run in runs(text, size)}

    def share(self, text: Sequence[str]) -> float:
        """The share of a text's words that stand in a run which is known; a known text is known whole."""
        if tuple(text) in self._whole:
            return 1.0
        copied = set[int]()
        for at, run in enumerate(runs(text, self.size)):
            if run in self._runs:
                copied.update(range(at, at + self.size))
        return len(copied) / len(text) if text else 0.0
