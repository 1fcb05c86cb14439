"""Splits a text into words, once for all quality rules; in scripts without spaces each Chinese character is a word."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from meristem.data.text_units import UNSPACED_CHAR, UNSPACED_WORD

GOPHER_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_LINES = Path(__file__).with_name("stop_words.tsv").read_text(encoding="utf-8").splitlines()[1:]
STOP_WORDS = {language: frozenset(words.split()) for language, words in (line.split("\t") for line in _LINES)} | {
    "en": GOPHER_STOP_WORDS,  # Rae et al. 2021, §A1.1
    "zh": frozenset("的一是不了在有和人这這中大为為个個以到也之而其就与與上"),
    "ja": frozenset("のにはをたがでてとしれさるいもな"),
}
"""Very frequent words per language; languages that attach them to other words have no list."""


class SplitText:
    """The words, lines and paragraphs of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Chinese characters have three bytes: a text with hardly more bytes than characters has few.
        is_long = not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > 1.5 * len(text)
        self.is_unspaced = is_long and self._mostly_ideographs()
        self.words = UNSPACED_WORD.findall(text) if self.is_unspaced else text.split()
        self.joined = " ".join(self.words)
        self.lines = [line.strip() for line in text.split("\n") if line and not line.isspace()]

    def _mostly_ideographs(self) -> bool:
        """Whether a quarter of the first characters are of a script without spaces."""
        start = self.text[:2000]
        return 4 * len(UNSPACED_CHAR.findall(start)) > len(start)

    @cached_property
    def paragraphs(self) -> list[str]:
        """Blocks separated by blank lines."""
        return [part for part in self.text.split("\n\n") if part and not part.isspace()]
