"""Resolution of reward recipes: the start run is trained first if it is a recipe, and rewards are fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.overrides import apply_overrides, expand_shorthands, parse_overrides
from meristem.config.recipe import ReinforceRecipe, builtin_reward_recipes, read_recipe, resolve_recipe
from meristem.finetune import finetuning
from meristem.interop.cached_import import resolve_run
from meristem.labelled.load import check_sources
from meristem.recipe_resolution import (
    SECTIONS_FROM_START,
    Overrides,
    check_ignored_settings,
    drop_builtin_data,
    resolve_pretrain_recipe,
    resolve_task_recipe,
    sections_from_start,
    user_file_settings,
)
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_setup import build_rewards, check_rewards, rewards_cache
from meristem.reinforce.reward_specs import enclosing_run, functions_in_overrides, reject_untrusted_functions
from meristem.training import pretraining


def resolve_policy_recipe(
    recipe: str | Path, overrides: Overrides, start_path: Path, console: Console
) -> ReinforceRecipe:
    """A reward recipe with the model of `from`; a start recipe is trained first, into `start_path`."""
    name, mapping = read_recipe(recipe)
    mapping = drop_builtin_data(mapping, overrides)
    config = apply_overrides(mapping, overrides)
    if (run := enclosing_run(Path(recipe))) is not None:
        for section in ("rewards", "judge"):
            reject_untrusted_functions(
                config.get(section), run, allowed=functions_in_overrides(parse_overrides(overrides))
            )
    if "policy" not in config:
        raise RecipeError(
            f"{name} has no policy section; built-in recipes with rewards: {', '.join(builtin_reward_recipes())}"
        )
    start_config = config.get("start") or {}
    if start_config.get("path") is None and start_config.get("recipe") is None:
        raise RecipeError(
            "from: missing; give a generative model with from=RUN, or train one first with from.recipe=NAME"
        )
    path = resolve_run(
        start_config["path"]
        if start_config.get("path")
        else _train_start_run(start_config["recipe"], start_path, console)
    )
    start_recipe = load_recipe(RunFolder.open(path))
    sections = sections_from_start(start_recipe)
    # no dropout: the log-probabilities of a rollout must be those of the forward pass that trains on it
    sections["model"] |= {key: 0.0 for key in sections["model"] if key.endswith("dropout")}
    resolved = resolve_recipe(name, {**expand_shorthands(mapping), **sections}, overrides)
    check_ignored_settings(resolved, overrides, None)
    assert isinstance(resolved, ReinforceRecipe)  # it has a policy section
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


@dataclass(frozen=True, kw_only=True)
class ReinforceSetup:
    """A resolved reward recipe with its fitted rewards and judge."""

    recipe: ReinforceRecipe
    rewards: CombinedReward
    judge: CombinedReward | None


def prepare_reinforce(recipe: str | Path, overrides: Overrides, out: Path, console: Console) -> ReinforceSetup:
    """Train the start model and fit the rewards if necessary: the start next to the run, rewards in the shared cache.

    Errors in the recipe are reported before anything is trained.
    """
    check_reinforce_recipe(recipe, overrides)
    resolved = resolve_policy_recipe(recipe, overrides, Path(f"{out}-start"), console)
    rewards = build_rewards(resolved.rewards, rewards_cache(), console)
    judge = build_rewards(resolved.judge, rewards_cache(), console) if resolved.judge else None
    return ReinforceSetup(recipe=resolved, rewards=rewards, judge=judge)


def check_reinforce_recipe(recipe: str | Path, overrides: Overrides) -> None:
    """Refuse wrong settings, missing prompts and invalid rewards, as far as possible without a model."""
    name, mapping = read_recipe(recipe)
    config = apply_overrides(drop_builtin_data(mapping, overrides), overrides)
    if "policy" not in config or (Path(recipe) / "recipe.yaml").is_file():
        return  # resolve_policy_recipe reports it, and refuses functions named by a run before any is imported
    # the start run's model and tokenizer are not known yet; every other section is checked
    placeholder = {"model": {"family": "gpt2"}, "tokenizer": {}}
    resolved = resolve_recipe(name, {**config, **placeholder})
    own_overrides = {
        key: value for key, value in parse_overrides(overrides).items() if key.split(".")[0] not in SECTIONS_FROM_START
    }
    check_ignored_settings(resolved, own_overrides, user_file_settings(recipe, mapping, SECTIONS_FROM_START))
    assert isinstance(resolved, ReinforceRecipe)  # it has a policy section
    if resolved.data.train is None:
        raise RecipeError(
            "data.train: missing; give a file of prompts: one prompt per line, or columns prompt and target"
        )
    check_sources(resolved.data)
    check_rewards([*resolved.rewards, *resolved.judge])


def _train_start_run(recipe: str, out: Path, console: Console) -> Path:
    """Train the start model of a reward run, or resume its training; returns its run folder."""
    if RunFolder(out).exists() and RunFolder(out).finish_record is not None:
        return out
    console.print(f"Training the start model first: {recipe} in {out}", highlight=False, markup=False, soft_wrap=True)
    if "task" in read_recipe(recipe)[1]:
        return finetuning.finetune(resolve_task_recipe(recipe), out, fresh=False, console=console).run
    return pretraining.pretrain(resolve_pretrain_recipe(recipe), out, fresh=False, console=console).run
