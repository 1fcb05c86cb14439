"""History of generated texts of the click reward: what is kept, and comparison with it."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.validation import build_settings
from meristem.reinforce.clicks import generated_history
from meristem.reinforce.clicks.generated_history import update_history
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import PromptCompletion, RewardContext
from meristem.reinforce.rewards.clicks import ClicksReward, ClicksRewardSettings

TABLE = "builtin:microworld-clicks?size=300&seed=1"
FIT = {"prior_precisions": [3.0], "folds": 3}
SEEN = [("q", "a", 1.0, 0.1), ("q", "b", 2.0, 0.2), ("q", "c", 2.0, 0.1), ("r", "a", 0.5, 0.1), ("q", "a", 1.5, 0.3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


def build_reward(folder: Path, **settings_overrides: Any) -> ClicksReward:
    settings = ClicksRewardSettings.model_validate({"table": TABLE, "click_model": FIT, **settings_overrides})
    return ClicksReward(settings, RewardContext(folder=folder, say=lambda _: None))


def test_the_best_of_each_query_are_kept_in_whatever_order_they_were_seen() -> None:
    for permutation in permutations(SEEN):
        history = update_history(update_history(None, permutation[:2], 2), permutation[2:], 2)
        assert history == {"q": [["b", 2.0, 0.2], ["c", 2.0, 0.1]], "r": [["a", 0.5, 0.1]]}
    assert update_history({"q": [["z", 9.0, 0.1]]}, SEEN, 2)["q"] == [["z", 9.0, 0.1], ["b", 2.0, 0.2]]
    assert update_history(json.loads(json.dumps(update_history(None, SEEN, 3))), [], 3) == update_history(None, SEEN, 3)


def test_queries_that_were_not_asked_for_long_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_history, "MAX_CHARACTERS", 12)
    history = update_history(None, [(f"q{n}", "text", 1.0, 0.1) for n in range(3)], 5)
    assert list(history) == ["q1", "q2"]
    history = update_history(history, [("q1", "text", 1.0, 0.1)], 5)
    assert list(update_history(history, [("new", "t", 1.0, 0.1)], 5)) == ["q1", "new"]


@pytest.mark.parametrize("against", ["generated", "both"])
def test_a_text_is_compared_with_what_was_generated_before(folder: Path, against: str) -> None:
    plain, reward = build_reward(folder, top_k=3), build_reward(folder, top_k=3, compare_with=against)
    query = reward.table.queries[0]
    attempts = [PromptCompletion(prompt=query, text=f"A lovely new lamp for {n} coins.") for n in (2, 3)]
    first = reward.score(attempts)
    assert [reward_score.value for reward_score in first] == [
        reward_score.value for reward_score in plain.score(attempts)
    ]  # nothing was generated yet
    assert [reward_score.observation for reward_score in plain.score(attempts)] == [None, None]
    history = reward.remember(None, [reward_score.observation for reward_score in first])
    after = reward.with_history(json.loads(json.dumps(history)))
    odds = [float(reward_score.observation[2]) for reward_score in first]
    rivals = (
        odds
        if against == "generated"
        else [*odds, *(observation.log_odds for _, observation in reward.model.table_texts(query)[:3])]
    )
    assert [reward_score.value for reward_score in after.score(attempts)] == pytest.approx(
        [o - np.mean(rivals) for o in odds]
    )
    assert "best generated so far" in str(after.score(attempts)[0].why["held against"])
    other = PromptCompletion(prompt=reward.table.queries[1], text="A lamp.")
    assert after.score([other])[0].value == plain.score([other])[0].value
    assert [reward_score.value for reward_score in reward.score(attempts)] == [
        reward_score.value for reward_score in first
    ]  # it stays as it was


def test_several_rewards_remember_each_its_own(folder: Path) -> None:
    clicks_settings = {"name": "clicks", "table": TABLE, "click_model": FIT, "compare_with": "generated"}
    reward_settings = [
        ClicksRewardSettings.model_validate(clicks_settings),
        ClicksRewardSettings.model_validate({**clicks_settings, "compare_with": "table"}),
    ]
    rewards = CombinedReward.from_settings(reward_settings, RewardContext(folder=folder, say=lambda _: None))
    query = build_reward(folder).table.queries[0]
    verdict = rewards.score([PromptCompletion(prompt=query, text="A lamp."), PromptCompletion(prompt=query, text="")])
    assert rewards.keeps_history and [list(observation) for observation in verdict.observations] == [["clicks"], []]
    history = rewards.remember(None, [observation for observation in verdict.observations if observation])
    assert list(history) == ["clicks"] and list(history["clicks"]) == [query]
    assert rewards.with_history(history).score([PromptCompletion(prompt=query, text="A lamp.")]).parts[
        "clicks"
    ] == pytest.approx(0)
    assert rewards.remember(history, []) == history


@pytest.mark.parametrize("wrong", [[], {"q": 1}, {"q": [["a", 1.0]]}, {"q": [["a", "b", 0.1]]}, {"q": [["a", 1.0, 0]]}])
def test_an_invalid_history_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(MeristemError, match="the history of clicks is invalid"):
        build_reward(folder, compare_with="both").with_history(wrong)


def test_a_rate_alone_is_compared_with_nothing() -> None:
    with pytest.raises(RecipeError, match="score_by=rate is a text's rate alone"):
        build_settings(ClicksRewardSettings, {"table": TABLE, "score_by": "rate", "compare_with": "both"}, "reward")
