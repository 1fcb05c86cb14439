"""Clicks: lines that were shown for a query, where on the page, how often, and how often people clicked on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log

from meristem.randomness import generator
from meristem.samples.microworld.dice import Dice
from meristem.samples.sets.asking import APART, Ask, Row
from meristem.samples.sets.preferring import best_rate, shortfall, true_rate
from meristem.samples.sets.searching import Search, best_line, drawn, line, search

__all__ = ["EXAMINED", "best_line", "best_rate", "optimal_fraction", "row", "search", "true_rate"]

EXAMINED = (1.0, 0.75, 0.58, 0.46, 0.38, 0.32)
"""How many of the people who see the first line of a page look at each of its lines."""
SHOWN = (80, 800)
"""How often a page is shown."""
DISORDER = 8.0
"""Better lines tend to stand higher; so far, in log-odds, chance moves them."""


def row(ask: Ask) -> Row:
    """One line of a page; a page has six, and its query is its own."""
    number, place = divmod(ask.number, len(EXAMINED))
    of, lines, shown = _page(ask.seed, number, ask.language)
    rate = EXAMINED[place] * true_rate(of.query, lines[place], ask.language)
    # Uniform draws are the same in every version of numpy, binomial ones need not be.
    clicked = int((generator(ask.seed + APART, "labelled clicked", 0, ask.number).random(shown) < rate).sum())
    return {"query": of.query, "text": lines[place], "position": place + 1, "shown": shown, "clicked": clicked}


@lru_cache(maxsize=4)
def _page(seed: int, number: int, language: str) -> tuple[Search, list[str], int]:
    """The query, its lines from the top, and how often people saw them."""
    dice = Dice(generator(seed + APART, "labelled pages", 0, number))
    of = drawn(seed, number, language)
    lines: dict[str, float] = {}
    while len(lines) < len(EXAMINED):
        text = line(of, dice)
        lines[text] = shortfall(of, text) + DISORDER * dice.roll()
    low, high = SHOWN
    shown = round(low * exp(dice.roll() * log(high / low)))
    return of, sorted(lines, key=lines.__getitem__), shown


def optimal_fraction(prompts: Sequence[str], completions: Sequence[str], **columns: object) -> list[float]:
    """The true rate of each text as a share of the best there can be, in whichever language the query is."""
    found = []
    for query, text in zip(prompts, completions, strict=True):
        language = "en" if query.isascii() else "zh"
        found.append(true_rate(query, text.strip(), language) / best_rate(query, language))
    return found
