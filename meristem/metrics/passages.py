"""Passages: runs of words that a text says again, or that it took from somewhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby

from meristem.metrics.words import words

Words = Sequence[str]
_STUTTER = re.compile(r"([^\W\d_]{1,6}?)\1{5}")


def pieces(text: str) -> list[str]:
    """Words in lower case; each mark of punctuation, ideograph and kana by itself."""
    return words("".join(f" {letter} " if _mark(letter) else letter for letter in text.casefold()))


def spoken(text: str) -> list[str]:
    """The same without punctuation: what two texts have in common whoever set the commas."""
    return [piece for piece in pieces(text) if not _mark(piece[0])]


def stutters(text: str) -> bool:
    """Whether some letters stand six times in a row inside a word, as no language has them."""
    return _STUTTER.search(text) is not None


def runs(said: Words, size: int) -> list[tuple[str, ...]]:
    """Every passage of so many words, in its order."""
    return [tuple(said[at : at + size]) for at in range(len(said) - size + 1)]


def distinct(texts: Iterable[Words], size: int) -> float:
    """Different passages of that size as a share of all; 1 where there are none."""
    found = [run for said in texts for run in runs(said, size)]
    return len(set(found)) / len(found) if found else 1.0


def repeats(said: Words, size: int) -> bool:
    """Whether some passage of that size stands there twice."""
    return distinct([said], size) < 1


def longest_run(said: Words) -> int:
    """How often one word is said in a row, at the most."""
    return max((sum(1 for _ in same) for _, same in groupby(said)), default=0)


def copied(said: Words, sources: Sequence[Words], size: int) -> tuple[int, int]:
    """How many of a text's passages of that size stand verbatim in a source, and how many there are."""
    theirs = {run for source in sources for run in runs(source, size)}
    mine = runs(said, size)
    return sum(run in theirs for run in mine), len(mine)


def longest_copied(said: Words, sources: Sequence[Words]) -> tuple[str, ...]:
    """The longest passage that stands verbatim in a source."""
    best: tuple[str, ...] = ()
    short, long = 0, min(len(said), max(map(len, sources), default=0))
    while short < long:  # each part of a copied passage is copied too, so that halving finds the longest
        size = (short + long + 1) // 2
        theirs = {run for source in sources for run in runs(source, size)}
        found = next((run for run in runs(said, size) if run in theirs), None)
        if found is None:
            long = size - 1
        else:
            best, short = found, size
    return best


@cache
def _mark(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "PS"
