"""Unicode character classes: white space, CJK ideographs, characters that continue a word."""

from __future__ import annotations

import unicodedata

from meristem.data.text_units import BASIC_HAN, is_ideograph

SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode white space, for use inside a regular-expression class; Python's \\s adds four control characters."""
CHINESE = BASIC_HAN + "\U00020000-\U0002a6df"
"""Ideographs that BERT surrounds with spaces, for use inside a regular-expression class."""

_WIDE_MARKS = ((0x3000, 0x303F), (0xFF01, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65))


def is_wide(character: str) -> bool:
    """Whether it is an ideograph or full-width punctuation, written without spaces around it."""
    return is_ideograph(character) or any(low <= ord(character) <= high for low, high in _WIDE_MARKS)


def continues_word(character: str) -> bool:
    """Whether it continues a word: a letter, digit or combining mark of a script with spaces between words."""
    return unicodedata.category(character)[0] in "LNM" and not is_ideograph(character)
