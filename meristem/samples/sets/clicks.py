"""Click table: lines that were shown for a query, with their position, impressions and clicks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.sets.click_preferences import best_rate, log_odds_cost, true_rate
from meristem.samples.sets.sample_request import SEED_OFFSET, Row, SampleRequest
from meristem.samples.sets.search_queries import SearchIntent, best_line, draw_intent, draw_line, parse_query
from meristem.utils.randomness import generator

__all__ = ["EXAMINATION_RATES", "best_line", "best_rate", "optimal_fraction", "parse_query", "row", "true_rate"]

EXAMINATION_RATES = (1.0, 0.75, 0.58, 0.46, 0.38, 0.32)
"""Examination rates: the share of people who look at each position of a page, relative to the first."""
IMPRESSIONS = (80, 800)
"""Range of the impressions of a page."""
RANKING_NOISE = 8.0
"""Random part of the ranking, in log-odds; better lines tend to rank higher."""


def row(request: SampleRequest) -> Row:
    """One line of a page; a page has six lines and its own query."""
    number, position = divmod(request.number, len(EXAMINATION_RATES))
    intent, lines, impressions = _page(request.seed, number, request.language)
    rate = EXAMINATION_RATES[position] * true_rate(intent.query, lines[position], request.language)
    # Uniform draws are the same in every version of numpy, binomial ones need not be.
    draws = generator(request.seed + SEED_OFFSET, "labelled clicked", 0, request.number).random(impressions)
    counts = {"position": position + 1, "shown": impressions, "clicked": int((draws < rate).sum())}
    return {"query": intent.query, "text": lines[position], **counts}


@lru_cache(maxsize=4)
def _page(seed: int, number: int, language: str) -> tuple[SearchIntent, list[str], int]:
    """The query, its lines in order, and their impressions."""
    rng = BlockRandom(generator(seed + SEED_OFFSET, "labelled pages", 0, number))
    intent = draw_intent(seed, number, language)
    lines: dict[str, float] = {}
    while len(lines) < len(EXAMINATION_RATES):
        text = draw_line(intent, rng)
        lines[text] = log_odds_cost(intent, text) + RANKING_NOISE * rng.random()
    low, high = IMPRESSIONS
    impressions = round(low * exp(rng.random() * log(high / low)))
    return intent, sorted(lines, key=lines.__getitem__), impressions


def optimal_fraction(prompts: Sequence[str], completions: Sequence[str], **columns: object) -> list[float]:
    """The true rate of each text as a share of the best possible one, in the language of the query."""
    fractions = []
    for query, text in zip(prompts, completions, strict=True):
        language = "en" if query.isascii() else "zh"
        fractions.append(true_rate(query, text.strip(), language) / best_rate(query, language))
    return fractions
