"""Conversion between character spans and token spans, without splitting characters or words."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

JOINER = "\u200d"
FIRST_UNSPACED_LETTER = "\u0530"
"""Letters before this one are Latin, Greek or Cyrillic, whose words are separated by spaces."""


def char_span_to_tokens(offsets: NDArray[Any], start: int, stop: int) -> tuple[int, int] | None:
    """The first and last token that overlap the characters [start, stop); None if no token does."""
    inside = np.flatnonzero((offsets[:, 0] < stop) & (offsets[:, 1] > start) & (offsets[:, 1] > offsets[:, 0]))
    return (int(inside[0]), int(inside[-1])) if len(inside) and start < stop else None


def token_span_to_chars(text: str, offsets: NDArray[Any], first: int, last: int) -> tuple[int, int]:
    """The character span of the tokens `first` to `last`, extended to complete characters and words, and stripped."""
    start, stop = int(offsets[first : last + 1, 0].min()), int(offsets[first : last + 1, 1].max())
    while start < stop and text[start].isspace():
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    if start == stop:
        return start, start
    while start and _is_inside_unit(text, start):
        start -= 1
    while stop < len(text) and _is_inside_unit(text, stop):
        stop += 1
    return start, stop


def _is_inside_unit(text: str, index: int) -> bool:
    """Whether a character belongs to the one before it: the same word, a combining mark, skin tone or joined emoji."""
    character, before = text[index], text[index - 1]
    if before.isspace() or character.isspace():
        return False
    if character.isalpha() and before.isalpha() and max(character, before) < FIRST_UNSPACED_LETTER:
        return True
    mark = unicodedata.category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"
    return mark or character == JOINER or before == JOINER
