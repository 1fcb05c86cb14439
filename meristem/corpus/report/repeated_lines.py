"""Lines that occur in many documents, counted in bounded memory (Misra-Gries)."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

from meristem.data.text_units import HAN, HANGUL, KANA

MAX_LINES = 1 << 15
"""Lines kept when pruning; up to twice as many in between, about 20 MB."""

MIN_LINE_CHARS, MIN_IDEOGRAPHS = 40, 15
"""Minimum length of a counted line, in characters or in Chinese characters."""

MAX_LINE_CHARS = 200
"""Characters of a line that are compared."""

IDEOGRAPH = re.compile(f"[{KANA}{HAN}{HANGUL}]")


def candidate_lines(text: str) -> set[str]:
    """The lines of a document that are long enough not to repeat by chance, without duplicates."""
    return {
        line.strip()[:MAX_LINE_CHARS]
        for line in text.split("\n")
        if len(line) >= MIN_LINE_CHARS
        or (len(line) >= MIN_IDEOGRAPHS and not line.isascii() and _has_enough_ideographs(line))
    }


def prune_counts(counts: Counter[str]) -> Counter[str]:
    """The counts, or if there are too many, the highest ones, reduced by the highest count removed.

    Misra and Gries (1982): with N lines counted in total, a line that occurs in more than N / MAX_LINES documents is
    never lost, and its count is at most that much too low, never too high; also when parts are counted separately and
    added.
    """
    if len(counts) <= 2 * MAX_LINES:
        return counts
    threshold = sorted(counts.values(), reverse=True)[MAX_LINES]
    return Counter({line: count - threshold for line, count in counts.items() if count > threshold})


def _has_enough_ideographs(line: str) -> bool:
    return next(islice(IDEOGRAPH.finditer(line), MIN_IDEOGRAPHS - 1, None), None) is not None
