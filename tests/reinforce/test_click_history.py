"""Clicks against generated texts: what is remembered of them, and what a text is then held against."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meristem.errors import MeristemError, RecipeError
from meristem.reinforce.clicks import history
from meristem.reinforce.clicks.history import updated
from meristem.reinforce.combined import Rewards
from meristem.reinforce.reward import Attempt, Desk
from meristem.reinforce.rewards.clicks import Clicks, ClicksSettings
from meristem.settings import build

TABLE = "builtin:microworld-clicks?size=300&seed=1"
FIT = {"strengths": [3.0], "parts": 3}
SEEN = [("q", "a", 1.0, 0.1), ("q", "b", 2.0, 0.2), ("q", "c", 2.0, 0.1), ("r", "a", 0.5, 0.1), ("q", "a", 1.5, 0.3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


def made(folder: Path, **told: Any) -> Clicks:
    given = ClicksSettings.model_validate({"table": TABLE, "fit": FIT, **told})
    return Clicks(given, Desk(folder=folder, say=lambda _: None))


def test_the_best_of_each_query_are_kept_in_whatever_order_they_were_seen() -> None:
    for some in permutations(SEEN):
        found = updated(updated(None, some[:2], 2), some[2:], 2)
        assert found == {"q": [["b", 2.0, 0.2], ["c", 2.0, 0.1]], "r": [["a", 0.5, 0.1]]}
    assert updated({"q": [["z", 9.0, 0.1]]}, SEEN, 2)["q"] == [["z", 9.0, 0.1], ["b", 2.0, 0.2]]
    assert updated(json.loads(json.dumps(updated(None, SEEN, 3))), [], 3) == updated(None, SEEN, 3)


def test_queries_that_were_not_asked_for_long_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHARACTERS", 12)
    found = updated(None, [(f"q{n}", "text", 1.0, 0.1) for n in range(3)], 5)
    assert list(found) == ["q1", "q2"]
    found = updated(found, [("q1", "text", 1.0, 0.1)], 5)
    assert list(updated(found, [("new", "t", 1.0, 0.1)], 5)) == ["q1", "new"]


@pytest.mark.parametrize("against", ["generated", "both"])
def test_a_text_is_held_against_what_was_generated_before(folder: Path, against: str) -> None:
    plain, reward = made(folder, top=3), made(folder, top=3, against=against)
    query = reward.table.queries[0]
    attempts = [Attempt(prompt=query, text=f"A lovely new lamp for {n} coins.") for n in (2, 3)]
    first = reward.judge(attempts)
    assert [one.value for one in first] == [one.value for one in plain.judge(attempts)]  # nothing was generated yet
    assert [one.observation for one in plain.judge(attempts)] == [None, None]
    told = reward.remember(None, [one.observation for one in first])
    after = reward.with_history(json.loads(json.dumps(told)))
    odds = [float(one.observation[2]) for one in first]
    rivals = odds if against == "generated" else [*odds, *(what.odds for _, what in reward.model.known(query)[:3])]
    assert [one.value for one in after.judge(attempts)] == pytest.approx([o - np.mean(rivals) for o in odds])
    assert "best generated so far" in str(after.judge(attempts)[0].why["held against"])
    other = Attempt(prompt=reward.table.queries[1], text="A lamp.")
    assert after.judge([other])[0].value == plain.judge([other])[0].value
    assert [one.value for one in reward.judge(attempts)] == [one.value for one in first]  # it stays as it was


def test_several_rewards_remember_each_its_own(folder: Path) -> None:
    told = {"name": "clicks", "table": TABLE, "fit": FIT, "against": "generated"}
    both = [ClicksSettings.model_validate(told), ClicksSettings.model_validate({**told, "against": "table"})]
    rewards = Rewards.of(both, Desk(folder=folder, say=lambda _: None))
    query = made(folder).table.queries[0]
    verdict = rewards.judge([Attempt(prompt=query, text="A lamp."), Attempt(prompt=query, text="")])
    assert rewards.keeps_history and [list(one) for one in verdict.observations] == [["clicks"], []]
    kept = rewards.remember(None, [one for one in verdict.observations if one])
    assert list(kept) == ["clicks"] and list(kept["clicks"]) == [query]
    assert rewards.with_history(kept).judge([Attempt(prompt=query, text="A lamp.")]).parts["clicks"] == pytest.approx(0)
    assert rewards.remember(kept, []) == kept


@pytest.mark.parametrize("wrong", [[], {"q": 1}, {"q": [["a", 1.0]]}, {"q": [["a", "b", 0.1]]}, {"q": [["a", 1.0, 0]]}])
def test_a_history_that_no_run_wrote_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(MeristemError, match="the history of clicks is not what a run writes"):
        made(folder, against="both").with_history(wrong)


def test_a_rate_alone_is_held_against_nothing() -> None:
    with pytest.raises(RecipeError, match="by=rate is a text's rate alone"):
        build(ClicksSettings, {"table": TABLE, "by": "rate", "against": "both"}, "reward")
