"""Length reward: 1 within the range, smoothly less outside."""

from __future__ import annotations

import math

import pytest
from example_rewards import build_combined_reward, values
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import RecipeError
from meristem.reinforce.reward_specs import parse_reward_specs


def test_the_nearer_the_better_and_the_target_is_best() -> None:
    scores = values(build_combined_reward("length,target=8"), *("word " * number for number in range(17)))
    assert scores.index(max(scores)) == 8 and scores[8] == 1.0
    assert scores[:9] == sorted(scores[:9]) and scores[8:] == sorted(scores[8:], reverse=True)
    assert len(set(scores)) > 8 and scores[10] == pytest.approx(math.exp(-0.5))


def test_a_range_is_level_inside() -> None:
    low, inside, ends, high = values(
        build_combined_reward("length,target=[3,5]"), "a b", "a b c d", "a b c", "a b c d e f"
    )
    assert inside == ends == 1.0 and 0 < low < 1 and 0 < high < 1


def test_ideographs_are_words_and_characters_can_be_counted() -> None:
    assert values(build_combined_reward("length,target=6"), "船在港口里。") == [
        pytest.approx(values(build_combined_reward("length,target=6"), "a b c d e")[0])
    ]
    assert values(build_combined_reward("length,target=3,unit=characters"), " abc ") == [1.0]


def test_why_says_what_was_counted() -> None:
    from example_rewards import attempts

    assert build_combined_reward("length,target=[3,5]").score(attempts("a b, c")).why[0]["length"] == {
        "words": 3.0,
        "wanted": "3 to 5",
    }


@given(st.text(), st.integers(1, 50), st.integers(0, 50))
def test_between_nothing_and_one(text: str, low: int, width: int) -> None:
    assert 0 <= values(build_combined_reward({"name": "length", "target": (low, low + width)}), text)[0] <= 1


def test_very_long_texts_are_finite() -> None:
    assert values(build_combined_reward("length,target=10"), "a " * 50_000, "a" * 100_000) == [
        0.0,
        pytest.approx(math.exp(-6.48)),
    ]


@pytest.mark.parametrize("target", ["[5,3]", "0", "-2", "[-1,3]", "many", "[1,2,3]"])
def test_no_length_at_all(target: str) -> None:
    with pytest.raises(RecipeError, match="target"):
        parse_reward_specs(f"length,target={target}")
    with pytest.raises(RecipeError, match=r"reward\.0\.target: Field required"):
        parse_reward_specs("length")
