"""What a run folder names is never imported, however the folder is referred to, unless the person names it too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from meristem.config.errors import MeristemError, RecipeError
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.reinforce_resolution import resolve_policy_recipe

RECIPE = """\
policy: {}
rewards: [{name: function, call: "planted_module:score"}, {name: length, target: 5}]
judge: [{name: function, call: "planted_module:judge"}]
data: {train: prompts.txt}
from: nowhere
"""
QUIET = Console(quiet=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's run with a module beside its recipe; the person stands in its folder."""
    folder = tmp_path / "run"
    (folder / "checkpoints" / "step-00000001").mkdir(parents=True)
    for recipe_folder in (folder, folder / "checkpoints" / "step-00000001"):
        (recipe_folder / "recipe.yaml").write_text(RECIPE)
    (folder / "planted_module.py").write_text("open('imported', 'w').close()\nscore = judge = len\n")
    monkeypatch.chdir(folder)
    return folder


def resolved(recipe: str | Path, *overrides: str) -> object:
    return resolve_policy_recipe(recipe, overrides, Path("start"), QUIET)


@pytest.mark.parametrize("refer", [
    lambda run: resolved(run),
    lambda run: resolved("."),
    lambda run: resolved("recipe.yaml"),
    lambda run: resolved(run / "recipe.yaml"),
    lambda run: resolved("../run/recipe.yaml"),
    lambda run: resolved("checkpoints/step-00000001/recipe.yaml"),
    lambda run: resolved("recipe.yaml", "rewards.function.weight=2"),
    lambda run: resolved("recipe.yaml", "rewards.length.target=9", "policy.eval_prompts=3"),
    lambda run: resolved(".", "rewards.length.target=9"),
    lambda run: resolved("recipe.yaml", "rewards=[{name: length, target: 3}]"),  # the judge is a function too
    lambda run: parse_reward_specs(str(run)),
    lambda run: parse_reward_specs("recipe.yaml"),
    lambda run: parse_reward_specs(Path("checkpoints/step-00000001/recipe.yaml")),
])  # fmt: skip
def test_a_run_s_own_word_is_not_enough(run: Path, refer: Callable[[Path], object]) -> None:
    with pytest.raises(RecipeError, match=r"planted_module:\w+, and a run's own word is not enough to execute it"):
        refer(run)
    assert "planted_module" not in sys.modules and not (run / "imported").exists()


def test_whoever_names_the_functions_is_let_through(run: Path) -> None:
    named = ["rewards.function.call=planted_module:score", "judge.function.call=planted_module:judge"]
    with pytest.raises(MeristemError, match="nowhere"):  # only the start is missing
        resolved("recipe.yaml", *named)
    with pytest.raises(RecipeError, match="planted_module:judge, and a run's own word"):
        resolved("recipe.yaml", named[0])


def test_a_recipe_of_one_s_own_may_name_functions(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    with pytest.raises(MeristemError, match="nowhere"):
        resolved(tmp_path / "mine.yaml")
