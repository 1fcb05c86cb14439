"""Click reward: a text compared with the best texts shown for its query."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.reinforce.reward_base import REWARDS, PromptCompletion, RewardContext
from meristem.reinforce.rewards.clicks import ClicksReward, ClicksRewardSettings
from meristem.samples.sets.clicks import best_line, parse_query, true_rate

TABLE = "builtin:microworld-clicks?size=600&seed=1"
FIT = {"prior_precisions": [3.0], "folds": 3}
NEW = "repair a lamp in Oakham"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="module")
def rewards(folder: Path) -> dict[str, ClicksReward]:
    return {comparison: build_reward(folder, score_by=comparison) for comparison in ("margin", "rank", "rate")}


def build_reward(folder: Path, **settings_overrides: Any) -> ClicksReward:
    settings = ClicksRewardSettings.model_validate({"table": TABLE, "click_model": FIT, **settings_overrides})
    return ClicksReward(settings, RewardContext(folder=folder, say=lambda _: None))


def known_query(reward: ClicksReward) -> str:
    return next(query for query in reward.table.queries if " lamp" not in query)


def test_it_is_found_by_name() -> None:
    assert REWARDS["clicks"] is ClicksReward


@pytest.mark.parametrize("comparison", ["margin", "rank", "rate"])
def test_better_texts_earn_more(rewards: dict[str, ClicksReward], comparison: str) -> None:
    reward = rewards[comparison]
    for query in (known_query(reward), NEW):
        intent = parse_query(query, "en")
        good, bad = best_line(intent), "Look at the dull place at a high price."
        first, second = reward.score([PromptCompletion(prompt=query, text=text) for text in (good, bad)])
        assert true_rate(query, good) > true_rate(query, bad)
        assert first.value > second.value
        if comparison != "margin":
            assert 0 <= second.value <= first.value <= 1


def test_the_margin_is_over_the_top_of_its_query(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["margin"]
    query = known_query(reward)
    table_texts = reward.model.table_texts(query)
    margins = [
        reward_score.value
        for reward_score in reward.score([PromptCompletion(prompt=query, text=text) for text, _ in table_texts])
    ]
    assert margins == sorted(margins, reverse=True)
    top = np.mean([observation.log_odds for _, observation in table_texts[:5]])
    assert margins == pytest.approx([observation.log_odds - top for _, observation in table_texts])


def test_why_has_the_prediction_and_the_comparison_texts(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["margin"]
    query = known_query(reward)
    text, observation = reward.model.table_texts(query)[0]
    (new_score,) = reward.score([PromptCompletion(prompt=query, text="A lovely new line in Oakham.")])
    assert 0 < float(new_score.why["expected rate"]) < 1
    assert " and " in str(new_score.why["nine of ten between"])
    assert new_score.why["text"] == "new"
    assert new_score.why["held against"] == "its query's best"
    assert new_score.why["best of these"] == text
    assert new_score.why["its rate"] == observation.rate
    (known_score,) = reward.score([PromptCompletion(prompt=query, text=text)])
    assert known_score.why["text"] == "in the table"


def test_an_unknown_query_is_compared_with_similar_ones(rewards: dict[str, ClicksReward], folder: Path) -> None:
    attempt = PromptCompletion(prompt=NEW, text="We mend a lovely lamp.")
    (similar_query,) = rewards["margin"].score([attempt])
    assert str(similar_query.why["held against"]).startswith("an unknown query; the best of '")
    assert "Oakham" in str(similar_query.why["held against"]) or "lamp" in str(similar_query.why["held against"])
    (unlike_query,) = rewards["margin"].score([PromptCompletion(prompt="☃☃☃", text="We mend a lovely lamp.")])
    assert unlike_query.why["held against"] == "an unknown query; the best of all queries"
    assert isfinite(unlike_query.value)
    (overall,) = build_reward(folder, unseen_query="overall").score([attempt])
    assert overall.why["held against"] == "an unknown query; the best of all queries"


def test_the_query_may_be_in_a_column(rewards: dict[str, ClicksReward]) -> None:
    reward, text = rewards["rate"], "We mend a lovely lamp."
    query = known_query(reward)
    plain = PromptCompletion(prompt=query, text=text)
    prompt_completion = PromptCompletion(prompt=f"Query: {query}\nLine:", text=f" {text}\n", columns={"query": query})
    assert reward.score([plain]) == reward.score([prompt_completion])


def test_caution_subtracts_the_uncertainty(rewards: dict[str, ClicksReward], folder: Path) -> None:
    careful = build_reward(folder, score_by="margin", uncertainty_penalty=1.0)
    attempts = [PromptCompletion(prompt=NEW, text=text) for text in ("We mend a lovely lamp in Oakham.", "zxq wvk jjj")]
    bold, shy = (
        np.array([reward_score.value for reward_score in reward.score(attempts)])
        for reward in (rewards["margin"], careful)
    )
    assert (shy < bold).all()
    assert (bold - shy)[1] > (bold - shy)[0]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60) | st.sampled_from(["", " ", "a" * 100_000, "\ud800", "🙂" * 50, "灯" * 500]))
def test_any_text_has_a_finite_value(rewards: dict[str, ClicksReward], text: str) -> None:
    for comparison, reward in rewards.items():
        first, second = (reward.score([PromptCompletion(prompt=NEW, text=text)])[0] for _ in range(2))
        assert isfinite(first.value), comparison
        assert first == second


def test_no_words_earn_no_more_than_the_worst(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["rate"]
    worst = min(
        observation.rate for query in reward.table.queries for _, observation in reward.model.table_texts(query)
    )
    (empty,) = reward.score([PromptCompletion(prompt=NEW, text=" ")])
    assert empty.value == pytest.approx(worst)


def test_prompts_that_cannot_be_scored_are_refused_before_training(
    rewards: dict[str, ClicksReward], folder: Path
) -> None:
    reward = rewards["margin"]
    reward.check([PromptCompletion(prompt=NEW, text="")])
    with pytest.raises(MeristemError, match=r"prompts\.tsv:4: clicks: the query is empty"):
        reward.check([PromptCompletion(prompt=" ", text="", location="prompts.tsv:4")])
    strict = build_reward(folder, unseen_query="refuse")
    strict.check([PromptCompletion(prompt=known_query(strict), text="")])
    with pytest.raises(MeristemError, match=f"prompts.tsv:5: clicks: the query '{NEW}' is not in"):
        strict.check([PromptCompletion(prompt=NEW, text="", location="prompts.tsv:5")])


def test_a_bad_table_is_refused_when_the_reward_is_made(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("query,text,shown,clicked\ntea,Hot tea,3,4\ncake,A cake,3,1\n")
    with pytest.raises(MeristemError, match=r"clicks\.csv:2: clicked 4 times, but shown 3 times"):
        build_reward(tmp_path, table=str(path))
