"""Keyword reward: required words from the settings or the prompt's row, and forbidden words."""

from __future__ import annotations

from typing import Any

import pytest
from example_rewards import attempts, build_combined_reward, values
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.reinforce.reward_specs import parse_reward_specs


def test_the_share_of_words_that_are_there() -> None:
    rewards = build_combined_reward("includes,required=[sea,old boat,苹果]")
    assert values(rewards, "The SEA, an old boat and 苹果树.", "seaside, old; boat", "old boats", "苹果") == [
        1.0,
        pytest.approx(1 / 3),
        0.0,
        pytest.approx(1 / 3),
    ]


def test_forbidden_words_lower_the_value() -> None:
    rewards = build_combined_reward("includes,required=[sea],forbidden=[war,the end]")
    assert values(rewards, "sea", "the sea, the end", "war at sea: the end", "war") == [1.0, 0.5, 0.0, -0.5]
    assert values(build_combined_reward("includes,forbidden=[war]"), "peace", "war") == [0.0, -1.0]


@pytest.mark.parametrize("cell", ["sea, boat", ["sea", "boat"], "sea，boat"])
def test_each_prompt_has_its_own_words(cell: Any) -> None:
    rewards = build_combined_reward("includes,required_column=words")
    assert values(rewards, "a boat at sea", "a boat", columns={"words": cell}) == [1.0, 0.5]


def test_why_names_what_is_missing() -> None:
    rewards = build_combined_reward("includes,required=[sea,boat],forbidden=[war]")
    details = rewards.score(attempts("a boat")).why[0]["includes"]
    assert details == {"found": "1 of 2", "missing": "sea", "unwanted": "none"}


@given(st.text())
def test_finite_for_any_text(text: str) -> None:
    assert -1 <= values(build_combined_reward("includes,required=[a,b],forbidden=[c]"), text)[0] <= 1


@pytest.mark.parametrize(
    "columns", [{}, {"wrods": "sea"}, {"words": ""}, {"words": []}, {"words": "!, ?"}, {"words": 3}]
)
def test_a_prompt_without_words_is_refused_before_generation(columns: dict[str, Any]) -> None:
    rewards = build_combined_reward("includes,required_column=words")
    with pytest.raises(MeristemError, match=r"p\.tsv:4: includes: the column 'words' has no words for this prompt"):
        rewards.check(attempts("", columns=columns, location="p.tsv:4"))
    if "wrods" in columns:
        with pytest.raises(MeristemError, match="did you mean wrods"):
            values(rewards, "sea", columns=columns)


def test_some_words_must_be_given() -> None:
    with pytest.raises(RecipeError, match=r"give required=\[…\], required_column=NAME or forbidden=\[…\]"):
        parse_reward_specs("includes")
    with pytest.raises(RecipeError, match=r"'!' has no word in it"):
        parse_reward_specs("includes,required=['!']")
