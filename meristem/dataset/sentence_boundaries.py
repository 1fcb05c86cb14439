"""Sentence splitting for English, Chinese and other languages that end sentences in . ! ? 。 ！ ？ or blank lines."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

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
