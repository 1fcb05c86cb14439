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
from meristem.config.settings import find_class
from meristem.reinforce.reward_base import PromptCompletion, RewardContext
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
    return {by: made(folder, score_by=by) for by in ("margin", "rank", "rate")}


def made(folder: Path, **told: Any) -> ClicksReward:
    given = ClicksRewardSettings.model_validate({"table": TABLE, "click_model": FIT, **told})
    return ClicksReward(given, RewardContext(folder=folder, say=lambda _: None))


def known(reward: ClicksReward) -> str:
    return next(query for query in reward.table.queries if " lamp" not in query)


def test_it_is_found_by_name() -> None:
    assert find_class("reinforce.rewards", "clicks") is ClicksReward


@pytest.mark.parametrize("by", ["margin", "rank", "rate"])
def test_better_texts_earn_more(rewards: dict[str, ClicksReward], by: str) -> None:
    reward = rewards[by]
    for query in (known(reward), NEW):
        of = parse_query(query, "en")
        good, bad = best_line(of), "Look at the dull place at a high price."
        first, second = reward.score([PromptCompletion(prompt=query, text=text) for text in (good, bad)])
        assert true_rate(query, good) > true_rate(query, bad)
        assert first.value > second.value
        if by != "margin":
            assert 0 <= second.value <= first.value <= 1


def test_the_margin_is_over_the_top_of_its_query(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["margin"]
    query = known(reward)
    shown = reward.model.table_texts(query)
    judged = [one.value for one in reward.score([PromptCompletion(prompt=query, text=text) for text, _ in shown])]
    assert judged == sorted(judged, reverse=True)
    top = np.mean([what.log_odds for _, what in shown[:5]])
    assert judged == pytest.approx([what.log_odds - top for _, what in shown])


def test_why_has_the_prediction_and_the_comparison_texts(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["margin"]
    query = known(reward)
    text, what = reward.model.table_texts(query)[0]
    (seen,) = reward.score([PromptCompletion(prompt=query, text="A lovely new line in Oakham.")])
    assert 0 < float(seen.why["expected rate"]) < 1
    assert " and " in str(seen.why["nine of ten between"])
    assert seen.why["text"] == "new"
    assert seen.why["held against"] == "its query's best"
    assert seen.why["best of these"] == text
    assert seen.why["its rate"] == what.rate
    (shown,) = reward.score([PromptCompletion(prompt=query, text=text)])
    assert shown.why["text"] == "in the table"


def test_an_unknown_query_is_compared_with_similar_ones(rewards: dict[str, ClicksReward], folder: Path) -> None:
    attempt = PromptCompletion(prompt=NEW, text="We mend a lovely lamp.")
    (near,) = rewards["margin"].score([attempt])
    assert str(near.why["held against"]).startswith("an unknown query; the best of '")
    assert "Oakham" in str(near.why["held against"]) or "lamp" in str(near.why["held against"])
    (strange,) = rewards["margin"].score([PromptCompletion(prompt="☃☃☃", text="We mend a lovely lamp.")])
    assert strange.why["held against"] == "an unknown query; the best of all queries"
    assert isfinite(strange.value)
    (overall,) = made(folder, unseen_query="overall").score([attempt])
    assert overall.why["held against"] == "an unknown query; the best of all queries"


def test_the_query_may_be_in_a_column(rewards: dict[str, ClicksReward]) -> None:
    reward, text = rewards["rate"], "We mend a lovely lamp."
    query = known(reward)
    plain = PromptCompletion(prompt=query, text=text)
    prompt_completion = PromptCompletion(prompt=f"Query: {query}\nLine:", text=f" {text}\n", columns={"query": query})
    assert reward.score([plain]) == reward.score([prompt_completion])


def test_caution_subtracts_the_uncertainty(rewards: dict[str, ClicksReward], folder: Path) -> None:
    careful = made(folder, score_by="margin", uncertainty_penalty=1.0)
    attempts = [PromptCompletion(prompt=NEW, text=text) for text in ("We mend a lovely lamp in Oakham.", "zxq wvk jjj")]
    bold, shy = (np.array([one.value for one in reward.score(attempts)]) for reward in (rewards["margin"], careful))
    assert (shy < bold).all()
    assert (bold - shy)[1] > (bold - shy)[0]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60) | st.sampled_from(["", " ", "a" * 100_000, "\ud800", "🙂" * 50, "灯" * 500]))
def test_any_text_has_a_finite_value(rewards: dict[str, ClicksReward], text: str) -> None:
    for by, reward in rewards.items():
        first, second = (reward.score([PromptCompletion(prompt=NEW, text=text)])[0] for _ in range(2))
        assert isfinite(first.value), by
        assert first == second


def test_no_words_earn_no_more_than_the_worst(rewards: dict[str, ClicksReward]) -> None:
    reward = rewards["rate"]
    worst = min(what.rate for query in reward.table.queries for _, what in reward.model.table_texts(query))
    (empty,) = reward.score([PromptCompletion(prompt=NEW, text=" ")])
    assert empty.value == pytest.approx(worst)


def test_prompts_that_cannot_be_scored_are_refused_before_training(
    rewards: dict[str, ClicksReward], folder: Path
) -> None:
    reward = rewards["margin"]
    reward.check([PromptCompletion(prompt=NEW, text="")])
    with pytest.raises(MeristemError, match=r"prompts\.tsv:4: clicks: the query is empty"):
        reward.check([PromptCompletion(prompt=" ", text="", location="prompts.tsv:4")])
    strict = made(folder, unseen_query="refuse")
    strict.check([PromptCompletion(prompt=known(strict), text="")])
    with pytest.raises(MeristemError, match=f"prompts.tsv:5: clicks: the query '{NEW}' is not in"):
        strict.check([PromptCompletion(prompt=NEW, text="", location="prompts.tsv:5")])


def test_a_bad_table_is_refused_when_the_reward_is_made(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("query,text,shown,clicked\ntea,Hot tea,3,4\ncake,A cake,3,1\n")
    with pytest.raises(MeristemError, match=r"clicks\.csv:2: clicked 4 times, but shown 3 times"):
        made(tmp_path, table=str(path))
