"""Lines that stand in many documents, counted in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

MOST = 1 << 15
"""Lines remembered; up to twice as many between two prunings, which is about 20 MB."""

SHORTEST, IDEOGRAPHS = 40, 15
"""Characters, or ideographs, of the shortest line that counts as a passage."""

LONGEST = 200
"""Characters by which a passage is known."""

IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def passages(text: str) -> set[str]:
    """The lines of a document that are long enough to be told from chance, each once."""
    return {
        line.strip()[:LONGEST]
        for line in text.split("\n")
        if len(line) >= SHORTEST or (len(line) >= IDEOGRAPHS and not line.isascii() and _dense(line))
    }


def pruned(counts: Counter[str]) -> Counter[str]:
    """The counts, or, where there are too many, the highest of them, less what the first to go had.

    Misra and Gries (1982): with N lines counted in all, a line that stands in more than N / MOST documents is never
    lost, and its count is at most that much too low, never too high; also when parts are counted apart and added.
    """
    if len(counts) <= 2 * MOST:
        return counts
    taken = sorted(counts.values(), reverse=True)[MOST]
    return Counter({line: count - taken for line, count in counts.items() if count > taken})


def _dense(line: str) -> bool:
    return next(islice(IDEOGRAPH.finditer(line), IDEOGRAPHS - 1, None), None) is not None
