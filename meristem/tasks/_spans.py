"""Stretches of a text: from characters to tokens and back, never cutting through a character or a word."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

JOINER = "\u200d"
SPACED = "\u0530"
"""Letters before this one are Latin, Greek or Cyrillic, whose words are told apart by spaces."""


def tokens_of(offsets: NDArray[Any], start: int, stop: int) -> tuple[int, int] | None:
    """The first and the last token that have some of these characters; none where no token has."""
    inside = np.flatnonzero((offsets[:, 0] < stop) & (offsets[:, 1] > start) & (offsets[:, 1] > offsets[:, 0]))
    return (int(inside[0]), int(inside[-1])) if len(inside) and start < stop else None


def characters_of(text: str, offsets: NDArray[Any], first: int, last: int) -> tuple[int, int]:
    """Where the text of some tokens stands: whole characters and words, white space at its ends left out."""
    start, stop = int(offsets[first : last + 1, 0].min()), int(offsets[first : last + 1, 1].max())
    while start < stop and text[start].isspace():
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    if start == stop:
        return start, start
    while start and _joined(text, start):
        start -= 1
    while stop < len(text) and _joined(text, stop):
        stop += 1
    return start, stop


def _joined(text: str, at: int) -> bool:
    """Whether a character and the one before it are seen as one: of a word, marks, skin tones, emoji with a joiner."""
    character, before = text[at], text[at - 1]
    if before.isspace() or character.isspace():
        return False
    if character.isalpha() and before.isalpha() and max(character, before) < SPACED:
        return True
    mark = unicodedata.category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"
    return mark or character == JOINER or before == JOINER
