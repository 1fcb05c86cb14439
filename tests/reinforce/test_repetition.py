"""Repetition penalty: zero for a varied text, lower the more it repeats."""

from __future__ import annotations

import pytest
from example_rewards import attempts, build_combined_reward, sentences, values
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import RecipeError
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.reinforce.word_ngrams import CopyDetector, min_distinct_share, normalized_words, repeated_ngram_share


@pytest.fixture
def rewards() -> CombinedReward:
    return build_combined_reward("repetition")


def test_the_more_is_repeated_the_worse(rewards: CombinedReward) -> None:
    unrepeated, repeated, often_repeated = values(
        rewards, "a boat came in at noon today", "a boat a boat a boat", "boat " * 50
    )
    assert 0.0 == unrepeated > repeated > often_repeated > -1.0 and often_repeated < -0.9


def test_an_ordinary_story_loses_little(rewards: CombinedReward) -> None:
    assert -0.1 < values(rewards, " ".join(sentences(8)))[0] <= 0.0


def test_shares_are_reported_by_size(rewards: CombinedReward) -> None:
    details = rewards.score(attempts("go on go on go on")).why[0]["repetition"]
    assert details == {
        "words": 6.0,
        "runs of 2": pytest.approx(0.6),
        "runs of 3": 0.5,
        "runs of 4": pytest.approx(1 / 3),
    }
    assert values(build_combined_reward("repetition,ngram_sizes=[1]"), "a a b b")[0] == -0.5


def test_capitals_punctuation_and_ideographs() -> None:
    assert normalized_words("The boat—the “Boat”, isn't 3.5 m! 船在。") == [
        "the",
        "boat—the",
        "boat",
        "isn't",
        "3.5",
        "m",
        "船",
        "在",
    ]
    assert normalized_words("…!? — ，。") == []
    assert repeated_ngram_share(normalized_words("海海海海"), 2) == pytest.approx(2 / 3)


def test_variety_looks_at_the_dullest_stretch() -> None:
    distinct_words = [f"word{number}" for number in range(200)]
    assert min_distinct_share(distinct_words) == 1.0 and min_distinct_share([]) == 1.0
    assert min_distinct_share([*distinct_words, *["and", "so"] * 25]) < 0.1


def test_copies_are_known_by_runs_of_words() -> None:
    copy_detector = CopyDetector(["one two three four five six", "short one"], 4)
    assert copy_detector.copied_share(normalized_words("One, two, three, four.")) == 1.0
    assert copy_detector.copied_share(normalized_words("so: two three four five, or not")) == pytest.approx(4 / 7)
    assert (
        copy_detector.copied_share(normalized_words("short one")) == 1.0
        and copy_detector.copied_share(normalized_words("one short")) == copy_detector.copied_share([]) == 0.0
    )


@given(st.text())
def test_between_minus_one_and_nothing(text: str) -> None:
    assert -1 <= values(build_combined_reward("repetition"), text, text * 50)[1] <= 0


@pytest.mark.parametrize("sizes", ["[]", "[0]", "two"])
def test_sizes_that_are_none(sizes: str) -> None:
    with pytest.raises(RecipeError, match=r"reward\.0\.ngram_sizes"):
        parse_reward_specs(f"repetition,ngram_sizes={sizes}")
