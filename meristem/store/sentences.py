"""Where sentences begin, in English, Chinese and whatever else ends them with . ! ? 。 ！ ？ or a blank line."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

CLOSING = "\"'”’»)\\]」』）】》〉"
OPENING = "\"'“‘«(\\[「『（【《〈¿¡*"
LOWER = "".join(letter for letter in map(chr, range(0x590)) if letter.islower())

# By length, since a look behind has one width. Left out: "etc.", "Inc." and others that often end a sentence.
BEFORE_NAMES = ("Mr|Ms|Dr|St|Mt|Ft|Lt|Fr|vs|cf|al|ca", "Mrs|Rev|Hon|Gen|Col|Maj|Sgt|Cpl|Adm|Gov|Sen|Mme|Mgr|viz",
                "Prof|Capt|Mlle", "Messrs|approx")
BEFORE_NUMBERS = ("No|no|Eq|eq|Ch|ch|pp", "Nos|nos|Fig|fig|Eqs|eqs|Sec|sec|Vol|vol|Art|art",
                  "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec", "Figs|figs|Sept")

_NO_NAME_FOLLOWS = "".join(rf"(?<!\b(?:{words})\.)" for words in BEFORE_NAMES)
_NO_NUMBER_FOLLOWS = "".join(rf"(?!(?<=\b(?:{words})\.)\s+\d)" for words in BEFORE_NUMBERS)

# Runs are possessive and begin at their first mark, so that a line of a million dots costs one pass, not a square.
_ENDS = re.compile(
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


def boundaries(text: str) -> NDArray[np.int64]:
    """The character positions where sentences begin, 0 first, each at a character that is no space."""
    ends = [match.end() for match in _ENDS.finditer(text)]
    if ends and ends[-1] == len(text):
        ends.pop()
    if ends and text[: ends[0]].isspace():
        ends.pop(0)
    return np.array([0, *ends], dtype=np.int64)
