"""Word splitting by white space, and by character in scripts without spaces (Chinese, Japanese)."""

from __future__ import annotations

import re
from collections.abc import Iterable

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_HAN = re.compile(f"[{HAN}]")
_KANA = re.compile(f"[{KANA}]")
_UNSPACED = re.compile(f"[{HAN}{KANA}]")
_LETTER = re.compile(r"[^\W\d_]")


def split_words(text: str) -> list[str]:
    """Words separated by white space; each ideograph and kana is a word of its own."""
    return _UNSPACED.sub(r" \g<0> ", text).split()


def is_unspaced(text: str) -> bool:
    """Whether some of it is in a script without spaces between words."""
    return _UNSPACED.search(text) is not None


def main_script(texts: Iterable[str]) -> str:
    """The main script of texts: han, kana (Japanese, which mixes both), latin for plain a to z, or other."""
    letters = _LETTER.findall("".join(texts))
    han, kana = (sum(pattern.match(letter) is not None for letter in letters) for pattern in (_HAN, _KANA))
    if 3 * (han + kana) > len(letters):  # an ideograph carries as much as a few letters
        return "kana" if 10 * kana > han else "han"
    return "latin" if sum(map(str.isascii, letters)) >= 0.99 * len(letters) else "other"
