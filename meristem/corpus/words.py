"""A text split into words, once for all rules; where words stand without spaces, each ideograph is one."""

from __future__ import annotations

import re
from functools import cached_property

from meristem.corpus.profiles import PROFILES

# Ideographs, kana and bopomofo are a word each; Thai, Lao, Burmese and Khmer have about four letters a word.
IDEOGRAPHS = "\u3040-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
DENSE = re.compile(f"[{IDEOGRAPHS}]|[{UNSPACED}]{{1,4}}|[^\\s{IDEOGRAPHS}{UNSPACED}]+")
IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}{UNSPACED}]")

GOPHER = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
STOP_WORDS = {language: frozenset(profile.words[:24]) for language, profile in PROFILES.items()} | {
    "en": GOPHER,  # Rae et al. 2021, §A1.1
    "zh": frozenset("的一是不了在有和人这這中大为為个個以到也之而其就与與上"),
    "ja": frozenset("のにはをたがでてとしれさるいもな"),
}
"""Words of which nearly every text in a language has some; languages that glue them to others have no list."""


class Words:
    """A text taken apart: words, lines, paragraphs."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Ideographs are three bytes each: a text that is hardly longer in bytes has few.
        is_long = not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > 1.5 * len(text)
        self.is_dense = is_long and self._mostly_ideographs()
        self.words = DENSE.findall(text) if self.is_dense else text.split()
        self.joined = " ".join(self.words)
        self.lines = [line.strip() for line in text.split("\n") if line and not line.isspace()]

    def _mostly_ideographs(self) -> bool:
        """Whether a quarter of the first characters belong to a script without spaces."""
        start = self.text[:2000]
        return 4 * len(IDEOGRAPH.findall(start)) > len(start)

    @cached_property
    def paragraphs(self) -> list[str]:
        """What blank lines keep apart."""
        return [part for part in self.text.split("\n\n") if part and not part.isspace()]
