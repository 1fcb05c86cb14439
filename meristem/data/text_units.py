"""Text units: scripts without spaces, words, n-grams and distinct-n, sentence ends, texts of bounded length."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

BASIC_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
HAN = BASIC_HAN + "\U00020000-\U0003ffff"
"""Ideographs; this and the following are ranges of characters for use inside a regular-expression class."""
KANA = "\u3040-\u30ff\u31f0-\u31ff"
HALF_WIDTH_KANA = "\uff66-\uff9f"
BOPOMOFO = "\u3105-\u312f"
HANGUL = "\uac00-\ud7af"
CJK_SYMBOLS = "\u2e80-\u303f\uff00-\uff65"
"""Radicals, CJK punctuation and full-width forms."""
SOUTHEAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer: no spaces between words, about four letters a word."""
SINGLE_CHARACTER_WORDS = KANA + BOPOMOFO + HAN
"""Ideographs, kana and bopomofo, each counted as a word."""
UNSPACED_WORD = re.compile(
    f"[{SINGLE_CHARACTER_WORDS}]|[{SOUTHEAST_ASIAN}]{{1,4}}|[^\\s{SINGLE_CHARACTER_WORDS}{SOUTHEAST_ASIAN}]+"
)
UNSPACED_CHAR = re.compile(f"[{SINGLE_CHARACTER_WORDS}{SOUTHEAST_ASIAN}]")

_HAN = re.compile(f"[{HAN}]")
_KANA = re.compile(f"[{KANA}{HALF_WIDTH_KANA}]")
_HAN_OR_KANA = re.compile(f"[{HAN}{KANA}{HALF_WIDTH_KANA}]")
_JOINS_WITHOUT_SPACE = re.compile(f"[{CJK_SYMBOLS}{KANA}{HAN}]")
_LETTER = re.compile(r"[^\W\d_]")

MAX_TEXT_CHARS = 1_000_000
"""Characters of the longest text that is kept in one piece; longer ones are cut."""
BREAK_CHARS = (" ", "\n", "\t", "。")

TokenSequence = Sequence[str]
Offsets = tuple[tuple[int, int], ...]
"""(start, end) of each word, in characters of its text."""
Unit = TypeVar("Unit")


def code_point_ranges(characters: str) -> list[tuple[int, int]]:
    """The first and last code point of each range of a class such as `HAN`."""
    return [(ord(characters[start]), ord(characters[start + 2])) for start in range(0, len(characters), 3)]


def is_ideograph(character: str) -> bool:
    """Whether it is a Chinese character, which counts as one word."""
    return _HAN.match(character) is not None


def is_unspaced(text: str) -> bool:
    """Whether some of it is Chinese or Japanese, without spaces between words."""
    return _HAN_OR_KANA.search(text) is not None


def main_script(texts: Iterable[str]) -> str:
    """The main script of texts: han, kana (Japanese, which mixes both), latin for plain a to z, or other."""
    letters = _LETTER.findall("".join(texts))
    han, kana = (sum(pattern.match(letter) is not None for letter in letters) for pattern in (_HAN, _KANA))
    if 3 * (han + kana) > len(letters):  # an ideograph carries as much as a few letters
        return "kana" if 10 * kana > han else "han"
    return "latin" if sum(map(str.isascii, letters)) >= 0.99 * len(letters) else "other"


def split_words(text: str) -> list[str]:
    """Words separated by white space; each ideograph and kana is a word of its own."""
    return _HAN_OR_KANA.sub(r" \g<0> ", text).split()


def split_tokens(text: str) -> list[str]:
    """Lower-case words; each punctuation mark, ideograph and kana is a token of its own."""
    return split_words("".join(f" {letter} " if _is_punctuation(letter) else letter for letter in text.casefold()))


def split_spoken_words(text: str) -> list[str]:
    """The same without punctuation, to compare texts regardless of it."""
    return [token for token in split_tokens(text) if not _is_punctuation(token[0])]


@cache
def _is_punctuation(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "PS"


def ngrams(units: Sequence[Unit], size: int) -> list[tuple[Unit, ...]]:
    """Every n-gram of `size` units, in order."""
    return [tuple(units[start : start + size]) for start in range(len(units) - size + 1)]


def distinct_share(texts: Iterable[TokenSequence], size: int) -> float:
    """distinct-n (Li et al. 2016): distinct n-grams of that size as a share of all; 1 where there are none."""
    all_ngrams = [ngram for tokens in texts for ngram in ngrams(tokens, size)]
    return len(set(all_ngrams)) / len(all_ngrams) if all_ngrams else 1.0


def join_words(words: Sequence[str]) -> tuple[str, Offsets]:
    """The words as one text, and their offsets: no spaces between ideographs, or if each character is a word."""
    joined_text = "".join(words)
    non_ascii = not joined_text.isascii()
    char_per_word = (
        non_ascii
        and sum(len(word) == 1 for word in words) >= 0.9 * len(words)
        and _JOINS_WITHOUT_SPACE.search(joined_text)
    )
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    position, previous_word = 0, ""
    for word in words:
        if (
            previous_word
            and not char_per_word
            and not (non_ascii and _JOINS_WITHOUT_SPACE.match(previous_word[-1]) and _JOINS_WITHOUT_SPACE.match(word))
        ):
            parts.append(" ")
            position += 1
        parts.append(word)
        offsets.append((position, position + len(word)))
        position, previous_word = position + len(word), word
    return "".join(parts), tuple(offsets)


JOINER = "\u200d"
"""Joins emoji into one."""


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, stop) of the words of a raw text.

    Letters and digits with their combining marks form a word; a punctuation mark, symbol or ideograph is one of its
    own, as is a joined emoji; white space and control characters belong to none.
    """
    spans: list[tuple[int, int]] = []
    kind, last = "space", ""
    for position, character in enumerate(text):
        kind_before, kind = kind, _character_kind(character)
        joins = kind == "mark" or last == JOINER or kind == kind_before == "letter"
        if kind != "space":
            if joins and kind_before != "space":
                spans[-1] = (spans[-1][0], position + 1)
                kind = kind_before if kind == "mark" else kind
            else:
                spans.append((position, position + 1))
        last = character
    return spans


def is_mark(character: str) -> bool:
    """Whether it changes the character before it: a combining mark or a skin tone."""
    return unicodedata.category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"


def _character_kind(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category in ("Cc", "Cs", "Zl", "Zp"):
        return "space"
    if category == "Cf" or is_mark(character):
        return "mark"
    return "letter" if category[0] in "LN" and not is_ideograph(character) else "alone"


def locate_words(words: Sequence[str], text: str) -> Offsets | None:
    """Offsets of consecutive words in a text; None if the text is not exactly these words and white space."""
    offsets, position = [], 0
    for word in words:
        start = text.find(word, position)
        if start < 0 or text[position:start].strip():  # only white space may be between words
            return None
        position = start + len(word)
        offsets.append((start, position))
    return tuple(offsets) if not text[position:].strip() else None


def split_at_spaces(text: str) -> tuple[tuple[str, ...], Offsets]:
    """The words of a text, split at white space, and their offsets."""
    matches = list(re.finditer(r"\S+", text))
    return tuple(match.group() for match in matches), tuple(match.span() for match in matches)


def cut_position(text: str) -> int:
    """Where to cut a text that is too long: after the last line or word break in its second half, else at the limit."""
    last = max(text.rfind(char, MAX_TEXT_CHARS // 2, MAX_TEXT_CHARS) for char in BREAK_CHARS)
    return last + 1 if last >= 0 else MAX_TEXT_CHARS


def cut_text(text: str) -> Iterator[str]:
    """The text, or its pieces if it is too long for one."""
    while len(text) > MAX_TEXT_CHARS:
        position = cut_position(text)
        yield text[:position]
        text = text[position:]
    yield text


CLOSING = "\"'”’»)\\]」』）】》〉"
OPENING = "\"'“‘«(\\[「『（【《〈¿¡*"
LOWER = "".join(letter for letter in map(chr, range(0x590)) if letter.islower())

# Grouped by length: a lookbehind has a fixed width. Left out: "etc.", "Inc." and others that often end a sentence.
TITLE_ABBREVIATIONS = (
    "Mr|Ms|Dr|St|Mt|Ft|Lt|Fr|vs|cf|al|ca",
    "Mrs|Rev|Hon|Gen|Col|Maj|Sgt|Cpl|Adm|Gov|Sen|Mme|Mgr|viz",
    "Prof|Capt|Mlle",
    "Messrs|approx",
)
NUMBER_ABBREVIATIONS = (
    "No|no|Eq|eq|Ch|ch|pp",
    "Nos|nos|Fig|fig|Eqs|eqs|Sec|sec|Vol|vol|Art|art",
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
    "Figs|figs|Sept",
)

_NO_NAME_FOLLOWS = "".join(rf"(?<!\b(?:{words})\.)" for words in TITLE_ABBREVIATIONS)
_NO_NUMBER_FOLLOWS = "".join(rf"(?!(?<=\b(?:{words})\.)\s+\d)" for words in NUMBER_ABBREVIATIONS)

# Runs are possessive and begin at their first mark, so that a line of a million dots takes linear time.
_SENTENCE_END = re.compile(
    rf"""[.!?。！？｡…\n]
    (?: (?<=\n) [^\S\n]*+ \n \s*+                                      # a blank line
      | (?<=[。！？｡]) [。！？｡…!?]*+ [{CLOSING}]*+ \s*+
      | (?<=…) (?<!….) …*+ [{CLOSING}]*+ \s*+ (?![{LOWER}，、])
      | (?<=[.!?]) (?=[.!?…{CLOSING}\s]) (?<![.!?].)
        (?<![\s.("“‘\[-][^\W\d_I]\.) (?<!^[^\W\d_I]\.)                # initials, and e.g. or U.S.
        (?<!^\d\.) (?<!^\d\d\.)                                        # a numbered line
        {_NO_NAME_FOLLOWS} {_NO_NUMBER_FOLLOWS}
        [.!?…]*+ [{CLOSING}]*+ \s++ (?= [{OPENING}]*+ (?![{LOWER}_]) \w)
    )""",
    re.VERBOSE | re.MULTILINE,
)


def find_sentence_starts(text: str) -> NDArray[np.int64]:
    """The character positions where sentences begin, 0 first, each at a character that is not whitespace."""
    starts = [match.end() for match in _SENTENCE_END.finditer(text)]
    if starts and starts[-1] == len(text):
        starts.pop()
    if starts and text[: starts[0]].isspace():
        starts.pop(0)
    return np.array([0, *starts], dtype=np.int64)
