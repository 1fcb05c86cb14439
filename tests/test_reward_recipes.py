"""Every recipe with rewards: it says what it is, resolves, and runs from built-in data to a report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from meristem import api
from meristem.config.recipe import (
    builtin_recipes,
    builtin_reward_recipes,
    builtin_task_recipes,
    parse_recipe_file,
    recipe_summary,
)
from meristem.reinforce.reward_base import REWARDS
from meristem.reinforce.settings import PolicySettings

RECIPES = builtin_reward_recipes()
TINY = {"model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "tokenizer.vocab_size": 500, "train.steps": 6,
        "train.threads": 1}  # fmt: skip
SHORT = {"train.steps": 2, "train.batch_samples": 4, "train.evaluate_every": 2, "train.log_every": 1,
         "train.threads": 1, "policy.eval_prompts": 4, "policy.num_generations": 2,
         "policy.max_new_tokens": 8}  # fmt: skip

pytestmark = pytest.mark.usefixtures("small_peak")


def fewer(value: Any) -> Any:
    """The same settings with little data."""
    if isinstance(value, dict):
        return {key: fewer(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [fewer(inner) for inner in value]
    return re.sub(r"size=\d+", "size=120", value) if isinstance(value, str) else value


def start_of(recipe: str, out: Path) -> Path:
    """What a recipe begins from, much smaller."""
    name = parse_recipe_file(RECIPES[recipe])["from"]["recipe"]
    quiet = Console(quiet=True)
    if name in builtin_task_recipes():
        data = {
            f"data.{key}": fewer(value)
            for key, value in parse_recipe_file(builtin_task_recipes()[name])["data"].items()
        }
        return api.finetune(name, {**TINY, **data, "train.evaluate_every": 6}, out=out, console=quiet).run
    settings = {**TINY, "train.batch_tokens": 192, "corpus.processes": 1, "corpus.validation": 0.1}
    source = parse_recipe_file(builtin_recipes()[name])["corpus"]["source"]
    return api.pretrain(name, settings, source=re.sub(r"size=\d+", "size=60", source), out=out, console=quiet).run


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_what_it_is_and_names_what_there_is(recipe: str) -> None:
    plain = parse_recipe_file(RECIPES[recipe])
    assert len(recipe_summary(RECIPES[recipe])) > 15 and recipe not in builtin_recipes()
    assert plain["from"]["recipe"] in {*builtin_recipes(), *builtin_task_recipes()}
    for reward_settings in (*plain["rewards"], *plain["judge"]):
        assert REWARDS[reward_settings["name"]].Settings.model_validate(reward_settings)
    assert PolicySettings.model_validate(plain["policy"])
    assert len({plain["data"][split] for split in ("train", "validation", "test")}) == 3


@pytest.mark.parametrize(
    "recipe",
    [recipe if recipe.startswith("clicks") else pytest.param(recipe, marks=pytest.mark.slow) for recipe in RECIPES],
)
def test_a_recipe_runs_from_nothing_to_a_report(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # over 10 s where a judge is trained: a start, two judges and the run itself
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    plain = parse_recipe_file(RECIPES[recipe])
    judge = {**TINY, "train.batch_tokens": 192, "corpus.processes": 1, "corpus.validation": 0.2}
    data = {f"data.{key}": fewer(value) for key, value in plain["data"].items()}
    settings: dict[str, Any] = {**SHORT, **data, "from": str(start_of(recipe, tmp_path / "start"))}
    for section in ("rewards", "judge"):
        small = [
            {"judge_settings": judge} if reward_settings["name"] == "grammar" else {}
            for reward_settings in plain[section]
        ]
        settings[section] = [
            {**fewer(reward_settings), **overrides}
            for reward_settings, overrides in zip(plain[section], small, strict=True)
        ]
    result = api.reinforce(recipe, settings, out=tmp_path / "run", console=Console(quiet=True))
    report = json.loads((tmp_path / "run" / "report.json").read_bytes())
    assert result.step == 2 and report["prompts"] == 4
    assert any(judge["independent"] for judge in report["judges"])
    titles = [judge_settings.get("title", judge_settings["name"]) for judge_settings in plain["judge"]]
    assert [f"judge.{title}" for title in titles] == [name for name in result.metrics if name.startswith("judge.")]


def test_the_best_that_there_can_be_is_all_of_it() -> None:
    from meristem.samples.sets.clicks import best_line, optimal_fraction, parse_query

    queries = ["rent a lamp in Thornbury", "clock repair in Larkspur"]
    best = [best_line(parse_query(query, "en")) for query in queries]
    assert optimal_fraction(queries, best) == pytest.approx([1.0, 1.0])
    assert max(optimal_fraction(queries, ["", "nothing at all"])) < 0.2
