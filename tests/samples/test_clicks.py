"""Built-in click data: drawn from known preferences with a known optimum."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.sets.click_preferences import BEST_RATES, MIN_RATE
from meristem.samples.sets.clicks import EXAMINATION_RATES, best_rate, true_rate
from meristem.samples.sets.search_queries import all_intents, best_line, draw_line
from meristem.utils.randomness import generator

LANGUAGES = ("en", "zh")
QUERY = "repair a lamp in Oakham"
GOOD = "We repair your lovely lamp in Oakham at half price today."


@cache
def rows(name: str, language: str, seed: int, size: int) -> list[dict[str, Any]]:
    return list(samples.labelled_rows(f"microworld-{name}?size={size}&seed={seed}&language={language}"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_queries_have_a_text_that_reaches_the_best_rate(language: str) -> None:
    intents = all_intents(language)
    assert len(intents) > 5000
    for query, intent in list(intents.items())[::3]:
        assert true_rate(query, best_line(intent), language) == best_rate(query, language) == BEST_RATES[intent.kind]


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_line_of_the_grammar_beats_it_and_the_average_is_far_below(language: str) -> None:
    rates, best = [], []
    for number, intent in enumerate(list(all_intents(language).values())[::61]):
        dice = BlockRandom(generator(5, "test lines", 0, number))
        for _ in range(4):
            rates.append(true_rate(intent.query, draw_line(intent, dice), language))
            best.append(best_rate(intent.query, language))
    assert all(MIN_RATE <= rate <= best_rate_of_query for rate, best_rate_of_query in zip(rates, best, strict=True))
    assert 0.3 < np.mean(rates) / np.mean(best) < 0.6
    assert max(rates) == 0.6
    assert min(rates) == MIN_RATE


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120) | st.lists(st.sampled_from(GOOD.split()), max_size=30).map(" ".join))
def test_any_text_has_a_rate_below_the_best(text: str) -> None:
    assert MIN_RATE <= true_rate(QUERY, text) <= best_rate(QUERY)


@pytest.mark.parametrize("worse", [
    "We repair your lovely clock in Oakham at half price today.",
    "We repair your lovely lamp in Riverton at half price today.",
    "We repair your lovely lamp and a clock in Oakham at half price today.",
    "We repair your lovely lamp in Oakham and Riverton at half price today.",
    "We like your lovely lamp in Oakham at half price today.",
    "We repair your lovely lamp in Oakham at a high price today.",
    "We repair your gloomy lamp in Oakham at half price today.",
    "Repair lovely lamp Oakham at half price",
    f"{GOOD} {GOOD}",
])  # fmt: skip
def test_every_flaw_costs_clicks(worse: str) -> None:
    assert true_rate(QUERY, worse) < true_rate(QUERY, GOOD) == best_rate(QUERY)


def test_a_query_of_another_world_is_named() -> None:
    with pytest.raises(MeristemError, match="'cheap flights' is not a query of the microworld"):
        true_rate("cheap flights", GOOD)


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_have_six_lines_and_their_clicks_follow_the_preferences(language: str) -> None:
    clicked: dict[int, float] = defaultdict(float)
    expected: dict[int, float] = defaultdict(float)
    rates: dict[int, list[float]] = defaultdict(list)
    rows_drawn = rows("clicks", language, 1, 1200)
    for number, row in enumerate(rows_drawn):
        assert row["position"] == number % 6 + 1
        assert row["query"] == rows_drawn[number - number % 6]["query"]
        assert 0 <= row["clicked"] <= row["shown"]
        clicked[row["position"]] += row["clicked"]
        rates[row["position"]].append(true_rate(row["query"], row["text"], language))
        expected[row["position"]] += row["shown"] * rates[row["position"]][-1]
    for position, share in enumerate(EXAMINATION_RATES, 1):
        assert clicked[position] / expected[position] == pytest.approx(share, rel=0.06)
    assert np.mean(rates[1]) > np.mean(rates[6]) * 1.2  # better lines tend to stand higher
    assert len({row["text"] for row in rows_drawn}) > 1000


@pytest.mark.parametrize("language", LANGUAGES)
def test_seeds_and_sets_keep_their_queries_apart(language: str) -> None:
    train, test = ({row["query"] for name in ("clicks", "queries") for row in rows(name, language, seed, 300)}
                   for seed in (1, 3))  # fmt: skip
    assert not train & test
    assert len(train) > 200


def test_lines_are_short_sentences() -> None:
    lengths = [len(row["text"].split()) for row in rows("queries", "en", 1, 400)]
    assert np.mean([5 <= length <= 14 for length in lengths]) > 0.85
    assert all(row["text"].endswith(".") for row in rows("queries", "en", 1, 50))
