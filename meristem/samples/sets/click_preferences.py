"""Click preferences of the microworld: the true click rate of any text for a query, and the best possible one.

Every query has a best rate. The flaws of a text lower it, in log-odds, each by at least 0; for every query there is a
line without flaws (`best_line`), so that no text has a higher rate.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp

from meristem.samples.sets.search_queries import SearchIntent, parse_query, query_subjects, town_names
from meristem.samples.sets.template_tables import read_groups
from meristem.samples.sets.word_spans import split_words

BEST_RATES = {"gift": 0.60, "buy": 0.55, "fresh": 0.52, "repair": 0.48, "borrow": 0.45}
"""The rate of the best text, by kind of query."""
MIN_RATE = 0.02
"""The click rate of even the worst text."""
NO_SUBJECT_COST, OTHER_SUBJECT_COST, NO_TOWN_COST, OTHER_TOWN_COST, NO_ACTION_COST = 1.4, 0.5, 0.8, 0.8, 0.6
"""Costs of not naming the subject, of naming another one, the same for the town, and of naming no action."""
PRICE_COSTS = {"cheap": 0.0, "fair": 0.3, "": 0.5, "dear": 0.9}
TONE_COSTS = {"friendly": 0.0, "plain": 0.4, "": 0.4, "gloomy": 0.9}
LENGTH_RANGE = {"en": (8, 13), "zh": (14, 26)}
"""Words (characters in Chinese) that a line should have."""
LENGTH_COST, MAX_LENGTH_COST = 0.2, 1.0
"""Cost per word too many or too few, and its maximum."""
REPETITION_COST = 4.0
"""Cost of full repetition; proportional for a part."""


def true_rate(query: str, text: str, language: str = "en") -> float:
    """The probability that people who search for this query and see this text click on it."""
    intent = parse_query(query, language)
    best = BEST_RATES[intent.kind]
    return max(MIN_RATE, best / (best + (1 - best) * exp(log_odds_cost(intent, text))))


def best_rate(query: str, language: str = "en") -> float:
    """The rate of the best possible text for a query."""
    return BEST_RATES[parse_query(query, language).kind]


def log_odds_cost(intent: SearchIntent, text: str) -> float:
    """By how much a text is worse than the best, in log-odds; at least 0."""
    words = [word.lower() for word, *_ in split_words(text) if word[0].isalnum()]
    text_words = _TextWords(words, intent.language)
    table = read_groups("clicks", intent.language)
    other_subjects = [name for name in query_subjects(intent.kind, intent.language) if name not in intent.subject]
    costs = (
        NO_SUBJECT_COST * (intent.subject not in text_words),
        OTHER_SUBJECT_COST * any(name in text_words for name in other_subjects if intent.subject not in name),
        NO_TOWN_COST * (intent.town not in text_words),
        OTHER_TOWN_COST * any(town in text_words for town in town_names(intent.language) if town != intent.town),
        NO_ACTION_COST * all(word not in text_words for word in table[f"words {intent.kind}"]),
        max(PRICE_COSTS[name] for name in text_words.matching_groups(("cheap", "fair", "dear"), table)),
        max(TONE_COSTS[name] for name in text_words.matching_groups(("friendly", "plain", "gloomy"), table)),
        min(MAX_LENGTH_COST, LENGTH_COST * _distance_outside(len(words), *LENGTH_RANGE[intent.language])),
        REPETITION_COST * _repeated_bigrams(words),
    )
    return sum(costs)


class _TextWords:
    """The words of a text, for phrase lookup."""

    def __init__(self, words: list[str], language: str) -> None:
        self._edge = " " if language == "en" else ""
        self._text = self._edge + self._edge.join(words) + self._edge

    def __contains__(self, phrase: str) -> bool:
        return f"{self._edge}{phrase.lower()}{self._edge}" in self._text

    def matching_groups(self, group_names: tuple[str, ...], table: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The groups with a phrase in the text, or "" if there are none."""
        return tuple(name for name in group_names if any(phrase in self for phrase in table[name])) or ("",)


def _distance_outside(count: int, least: int, most: int) -> int:
    return max(least - count, count - most, 0)


def _repeated_bigrams(words: list[str]) -> float:
    """The share of repeated bigrams."""
    pairs = list(pairwise(words))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0
