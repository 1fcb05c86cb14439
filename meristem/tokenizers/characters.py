"""What kind of character this is: white space, Chinese, part of a word."""

from __future__ import annotations

import unicodedata

SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's white space as the inside of a regular-expression class; Python's own adds four control characters."""
CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df"
"""Ideographs that BERT sets apart, as the inside of a regular-expression class."""

_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2EBEF), (0x2F800, 0x323AF))
_WIDE_MARKS = ((0x3000, 0x303F), (0xFF01, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65))


def is_chinese(character: str) -> bool:
    """Whether it is an ideograph: a word of its own."""
    return any(low <= ord(character) <= high for low, high in _IDEOGRAPHS)


def is_wide(character: str) -> bool:
    """Whether it is an ideograph or Chinese punctuation: written without spaces around it."""
    return is_chinese(character) or any(low <= ord(character) <= high for low, high in _WIDE_MARKS)


def continues_word(character: str) -> bool:
    """Whether it goes on with a word: a letter, digit or combining mark of a script that puts spaces between words."""
    return unicodedata.category(character)[0] in "LNM" and not is_chinese(character)
