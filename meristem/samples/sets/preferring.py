"""What people of the small world like to click on: the true rate of any text for a query, and the best there is.

Every query has a best rate. A text falls short of it by what it lacks or spoils, in log-odds, each at least 0; a line
that lacks and spoils nothing exists for every query (`best_line`), so that no text has a higher rate.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp

from meristem.samples.sets.searching import Search, search, subjects, towns
from meristem.samples.sets.splitting import split
from meristem.samples.sets.tables import groups

BEST = {"gift": 0.60, "buy": 0.55, "fresh": 0.52, "repair": 0.48, "borrow": 0.45}
"""The rate of the best text, by what is searched for."""
LOWEST = 0.02
"""So often people click whatever it says."""
SUBJECT, OTHER_SUBJECT, TOWN, OTHER_TOWN, WORD = 1.4, 0.5, 0.8, 0.8, 0.6
"""What it costs not to name the subject, to name another, and so on, and to say nothing of what is to be done."""
PRICE = {"cheap": 0.0, "fair": 0.3, "": 0.5, "dear": 0.9}
TONE = {"friendly": 0.0, "plain": 0.4, "": 0.4, "gloomy": 0.9}
LENGTH = {"en": (8, 13), "zh": (14, 26)}
"""Words, in Chinese signs, that a line may have."""
TOO_LONG, MOST_LENGTH = 0.2, 1.0
"""What each word too many or too few costs, and the most that costs."""
AGAIN = 4.0
"""What it costs to say everything again; a part of that for a part."""


def true_rate(query: str, text: str, language: str = "en") -> float:
    """How often people who search for this click on this text where they see it."""
    of = search(query, language)
    best = BEST[of.kind]
    return max(LOWEST, best / (best + (1 - best) * exp(shortfall(of, text))))


def best_rate(query: str, language: str = "en") -> float:
    """The rate of the best text that there can be for a query."""
    return BEST[search(query, language).kind]


def shortfall(of: Search, text: str) -> float:
    """By how much log-odds a text is worse than the best; never below 0."""
    words = [word.lower() for word, *_ in split(text) if word[0].isalnum()]
    said = _Said(words, of.language)
    table = groups("clicks", of.language)
    others = [name for name in subjects(of.kind, of.language) if name not in of.subject]
    costs = (
        SUBJECT * (of.subject not in said),
        OTHER_SUBJECT * any(name in said for name in others if of.subject not in name),
        TOWN * (of.town not in said),
        OTHER_TOWN * any(town in said for town in towns(of.language) if town != of.town),
        WORD * all(word not in said for word in table[f"words {of.kind}"]),
        max(PRICE[name] for name in said.named(("cheap", "fair", "dear"), table)),
        max(TONE[name] for name in said.named(("friendly", "plain", "gloomy"), table)),
        min(MOST_LENGTH, TOO_LONG * _outside(len(words), *LENGTH[of.language])),
        AGAIN * _again(words),
    )
    return sum(costs)


class _Said:
    """The words of a text, asked whether it says something."""

    def __init__(self, words: list[str], language: str) -> None:
        self._edge = " " if language == "en" else ""
        self._text = self._edge + self._edge.join(words) + self._edge

    def __contains__(self, phrase: str) -> bool:
        return f"{self._edge}{phrase.lower()}{self._edge}" in self._text

    def named(self, groups_: tuple[str, ...], table: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The groups of which it says something, or "" where it says nothing of any."""
        return tuple(name for name in groups_ if any(phrase in self for phrase in table[name])) or ("",)


def _outside(count: int, least: int, most: int) -> int:
    return max(least - count, count - most, 0)


def _again(words: list[str]) -> float:
    """The share of neighbouring words that stand side by side again."""
    pairs = list(pairwise(words))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0
