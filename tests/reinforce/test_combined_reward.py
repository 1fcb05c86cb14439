"""Combined rewards: weights, names and validation; reward specifications; best-of-N."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_rewards import attempts, build_combined_reward, values

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.registry import module_names
from meristem.generation.generated_text import GeneratedText
from meristem.reinforce import rewards
from meristem.reinforce.best_of_n import best_of_n
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import REWARDS, PromptCompletion, Reward, RewardScore
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.reinforce.settings import RewardSettings


@dataclass
class Odd(Reward):
    """A reward that says what it is told to say."""

    answers: Any
    Settings = RewardSettings
    name = "odd"

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """One after the other."""
        return [RewardScore(value=self.answers(completion.text)) for completion in completions]


def function_reward(answers: Any) -> CombinedReward:
    return CombinedReward([Odd(answers)], [1.0])


# ------------------------------------------------------------ summing


def test_values_are_weighed_summed_and_kept_apart() -> None:
    rewards = build_combined_reward(
        "length,target=2,weight=0.5", {"name": "includes", "required": ["sea"], "weight": -2}
    )
    verdict = rewards.score(attempts("a sea", "a boat"))
    assert verdict.parts["length"].tolist() == [1.0, 1.0] and verdict.parts["includes"].tolist() == [1.0, 0.0]
    assert verdict.total.tolist() == [-1.5, 0.5] and verdict.total.dtype == np.float64
    assert verdict.why[0] == {
        "length": {"words": 2.0, "wanted": "2"},
        "includes": {"found": "1 of 1", "missing": "none"},
    }
    assert [reward_score.why for reward_score in verdict.reward_scores()] == [
        {"length": 1.0, "includes": 1.0},
        {"length": 1.0, "includes": 0.0},
    ]


def test_a_repeated_reward_has_two_names() -> None:
    rewards = build_combined_reward("length,target=2", "repetition", "length,target=9", "length,target=4")
    assert list(rewards.score(attempts("a b")).parts) == ["length", "repetition", "length-2", "length-3"]
    assert rewards.weights["length-3"] == 1.0


def test_no_completions_and_no_rewards() -> None:
    assert build_combined_reward("length,target=2").score([]).total.shape == (0,)
    with pytest.raises(RecipeError, match="rewards: none given"):
        build_combined_reward()


# ------------------------------------------------------------ what must not happen


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_is_reported_with_its_text(wrong: float) -> None:
    rewards = function_reward(lambda text: wrong if text == "bad" else 1.0)
    with pytest.raises(MeristemError) as error:
        rewards.score([*attempts("good"), *attempts("bad", prompt="why", location="data.tsv:5")])
    assert str(error.value) == f"reward odd: its value is {wrong}\n  data.tsv:5: prompt 'why'\n  text 'bad'"


def test_an_exception_is_reported_with_the_text_that_caused_it() -> None:
    def answers(text: str) -> float:
        return 1 / (len(text) - 3)

    with pytest.raises(MeristemError) as error:
        function_reward(answers).score(
            [*attempts("good", "fine"), *attempts("bad", location="data.tsv:5"), *attempts("well")]
        )
    assert "reward odd: ZeroDivisionError" in str(error.value) and "data.tsv:5: prompt ''\n  text 'bad'" in str(
        error.value
    )
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_too_few_scores_are_reported() -> None:
    rewards = function_reward(len)
    rewards.rewards["odd"].score = lambda attempts: []  # type: ignore[method-assign]
    with pytest.raises(MeristemError, match="reward odd: 0 scores for 2 texts"):
        rewards.score(attempts("a", "b"))


def test_long_texts_are_shown_by_their_beginning() -> None:
    with pytest.raises(MeristemError) as error:
        function_reward(lambda text: float("nan")).score(attempts("x" * 10_000))
    assert len(str(error.value)) < 200 and "x…" in str(error.value)


def test_the_reward_that_cannot_score_a_prompt_is_named() -> None:
    rewards = build_combined_reward(
        "length,target=3", "includes,required_column=words", "includes,required_column=other"
    )
    with pytest.raises(MeristemError, match=r"^p:1: includes: the column 'words'"):
        rewards.check(attempts("", location="p:1"))


# ------------------------------------------------------------ names


def test_every_reward_is_found_and_says_what_it_is() -> None:
    for name in REWARDS:
        reward = REWARDS[name]
        assert issubclass(reward, Reward) and reward.name == name and reward.__doc__
        assert reward.Settings.model_fields["name"].default == name


def test_reward_specs_are_strings_mappings_files_and_runs(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("rewards: [repetition, {name: length, target: [2, 3], weight: 0.5}]\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("rewards: [{name: length, target: 7}]\n")
    reward_specs = parse_reward_specs(
        [
            {"name": "length", "target": 4},
            tmp_path / "my.yaml",
            str(tmp_path / "my.yaml"),
            tmp_path / "run",
            "includes,required=[a,b],weight=2",
            parse_reward_specs("repetition")[0],
        ]
    )
    assert [reward_spec.name for reward_spec in reward_specs] == [
        "length",
        "repetition",
        "length",
        "repetition",
        "length",
        "length",
        "includes",
        "repetition",
    ]
    plain = [reward_spec.model_dump() for reward_spec in reward_specs]
    assert plain[2]["target"] == (2, 3) and plain[5]["target"] == 7
    assert (plain[6]["weight"], plain[6]["required"]) == (2.0, ("a", "b"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lenght,target=3", r"reward\.0\.name: no 'lenght', did you mean length\?"),
        ("length,traget=3", r"reward\.0\.traget: unknown setting, did you mean target\?"),
        ("length,target=3,weight=nan", r"reward\.0\.weight"),
        ({"target": 3}, r"reward\.0\.name: missing; known: .*grammar"),
        (Path("absent.yaml"), r"no such file of rewards: absent\.yaml"),
    ],
)
def test_a_wrong_name_is_reported_with_the_right_one(spec: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_reward_specs(spec)


def test_a_file_without_rewards(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("corpus: {source: a.txt}\n")
    with pytest.raises(RecipeError, match=r"my\.yaml has no rewards; add a list"):
        parse_reward_specs(tmp_path / "my.yaml")


def test_the_reward_on_the_page_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# meristem/reinforce/rewards/shouting.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shouting.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(rewards, "__path__", [*rewards.__path__, str(tmp_path)])
    module_names.cache_clear()
    try:
        page_rewards = build_combined_reward("shouting,weight=2", "repetition")
        assert values(page_rewards, "GO home NOW I say", "go home") == [pytest.approx(-0.8), 0.0]
        assert page_rewards.score(attempts("GO home")).why[0]["shouting"] == {"loud": "GO"}
    finally:
        module_names.cache_clear()
        sys.modules.pop("meristem.reinforce.rewards.shouting", None)


# ------------------------------------------------------------ the best of N


def completions(*texts: str) -> list[GeneratedText]:
    return [
        GeneratedText(text=text, tokens=(), score=-1.0, finished="length" if "…" in text else "end") for text in texts
    ]


def test_the_best_of_each_prompt_come_first_and_level_ones_in_order() -> None:
    prompts = [
        PromptCompletion(prompt="p", text="", columns={"words": "sea"}, seed=4),
        PromptCompletion(prompt="q", text="", columns={"words": "sun"}),
    ]
    best_completions = best_of_n(
        lambda number: [completions("a", "sea", "b"), completions("c", "d", "the sun")],
        prompts,
        build_combined_reward("includes,required_column=words"),
        count=3,
        keep=2,
    )
    assert [
        [completion.text for completion in completions_of_prompt] for completions_of_prompt in best_completions
    ] == [["sea", "a"], ["the sun", "c"]]
    assert (
        best_completions[0][0].value == 1.0
        and best_completions[0][0].parts == {"includes": 1.0}
        and best_completions[0][1].value == 0.0
    )


def test_rewards_see_the_seed_and_whether_a_text_ended() -> None:
    scored_completions: list[PromptCompletion] = []
    rewards = function_reward(len)
    rewards.rewards["odd"].score = lambda batch: (
        scored_completions.extend(batch) or [RewardScore(value=0.0) for _ in batch]
    )  # type: ignore[method-assign,func-returns-value]
    best_of_n(
        lambda number: [completions("so on…", "done")],
        [PromptCompletion(prompt="p", text="", seed=4, location="x:1")],
        rewards,
        count=2,
    )
    assert [
        (completion.text, completion.ended, completion.seed, completion.location) for completion in scored_completions
    ] == [
        ("so on…", False, 4, "x:1"),
        ("done", True, 4, "x:1"),
    ]


def test_prompts_are_checked_before_anything_is_generated() -> None:
    def write(number: int) -> list[list[GeneratedText]]:
        raise AssertionError("nothing should be written")

    with pytest.raises(MeristemError, match="has no words for this prompt"):
        best_of_n(
            write,
            [PromptCompletion(prompt="p", text="")],
            build_combined_reward("includes,required_column=words"),
            count=2,
        )
    with pytest.raises(MeristemError, match="between 1 and 2 texts can be kept, not 3"):
        best_of_n(write, [], build_combined_reward("length,target=2"), count=2, keep=3)


def test_values_of_a_batch_are_those_of_its_texts() -> None:
    rewards = build_combined_reward("length,target=3", "repetition")
    texts = ["a b c", "a a a a", "", "x y"]
    assert values(rewards, *texts) == [values(rewards, text)[0] for text in texts]
