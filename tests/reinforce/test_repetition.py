"""Repetition: nothing for a varied text, less and less the more often it says the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judges import attempts, made, sentences, values

from meristem.errors import RecipeError
from meristem.reinforce.combined import Rewards
from meristem.reinforce.named import settings_of
from meristem.reinforce.words import Known, repeated, variety, words


@pytest.fixture
def rewards() -> Rewards:
    return made("repetition")


def test_the_more_is_repeated_the_worse(rewards: Rewards) -> None:
    varied, once, often = values(rewards, "a boat came in at noon today", "a boat a boat a boat", "boat " * 50)
    assert 0.0 == varied > once > often > -1.0 and often < -0.9


def test_an_ordinary_story_loses_little(rewards: Rewards) -> None:
    assert -0.1 < values(rewards, " ".join(sentences(8)))[0] <= 0.0


def test_shares_are_told_by_size(rewards: Rewards) -> None:
    why = rewards.judge(attempts("go on go on go on")).why[0]["repetition"]
    assert why == {"words": 6.0, "runs of 2": pytest.approx(0.6), "runs of 3": 0.5, "runs of 4": pytest.approx(1 / 3)}
    assert values(made("repetition,sizes=[1]"), "a a b b")[0] == -0.5


def test_capitals_punctuation_and_ideographs() -> None:
    assert words("The boat—the “Boat”, isn't 3.5 m! 船在。") == [
        "the",
        "boat—the",
        "boat",
        "isn't",
        "3.5",
        "m",
        "船",
        "在",
    ]
    assert words("…!? — ，。") == []
    assert repeated(words("海海海海"), 2) == pytest.approx(2 / 3)


def test_variety_looks_at_the_dullest_stretch() -> None:
    varied = [f"word{number}" for number in range(200)]
    assert variety(varied) == 1.0 and variety([]) == 1.0
    assert variety([*varied, *["and", "so"] * 25]) < 0.1


def test_copies_are_known_by_runs_of_words() -> None:
    known = Known(["one two three four five six", "short one"], 4)
    assert known.share(words("One, two, three, four.")) == 1.0
    assert known.share(words("so: two three four five, or not")) == pytest.approx(4 / 7)
    assert known.share(words("short one")) == 1.0 and known.share(words("one short")) == known.share([]) == 0.0


@given(st.text())
def test_between_minus_one_and_nothing(text: str) -> None:
    assert -1 <= values(made("repetition"), text, text * 50)[1] <= 0


@pytest.mark.parametrize("sizes", ["[]", "[0]", "two"])
def test_sizes_that_are_none(sizes: str) -> None:
    with pytest.raises(RecipeError, match=r"reward\.0\.sizes"):
        settings_of(f"repetition,sizes={sizes}")
