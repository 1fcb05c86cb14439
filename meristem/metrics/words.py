"""Words to count in: as white space has them, and one by one in scripts that are written without it."""

from __future__ import annotations

import re
from collections.abc import Iterable

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_HAN = re.compile(f"[{HAN}]")
_KANA = re.compile(f"[{KANA}]")
_UNSPACED = re.compile(f"[{HAN}{KANA}]")
_LETTER = re.compile(r"[^\W\d_]")


def words(text: str) -> list[str]:
    """What white space separates, each ideograph and kana by itself."""
    return _UNSPACED.sub(r" \g<0> ", text).split()


def unspaced(text: str) -> bool:
    """Whether some of it is written without white space between words."""
    return _UNSPACED.search(text) is not None


def script(texts: Iterable[str]) -> str:
    """What texts are mostly written in: han, kana (Japanese, which mixes both), latin for plain a to z, or other."""
    letters = _LETTER.findall("".join(texts))
    han, kana = (sum(pattern.match(letter) is not None for letter in letters) for pattern in (_HAN, _KANA))
    if 3 * (han + kana) > len(letters):  # an ideograph says as much as a few letters
        return "kana" if 10 * kana > han else "han"
    return "latin" if sum(map(str.isascii, letters)) >= 0.99 * len(letters) else "other"
