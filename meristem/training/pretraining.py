"""Pretraining on text: start or resume a run, then train the single-task baselines if requested."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from meristem.config.errors import RecipeError
from meristem.config.recipe import PretrainRecipe, Recipe
from meristem.training import single_task_baselines
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.run_result import RunResult
from meristem.training.trainer import run_recipe
from meristem.utils.shell_quoting import shell_path


def pretrain(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> RunResult:
    """Train on text until the budget is used up, resuming if the run exists; then the single-task baselines."""
    if not isinstance(recipe, PretrainRecipe):
        raise RecipeError(f"{recipe.name} is a recipe for a task: meristem finetune {shell_path(recipe.name)}")
    single_task_baselines.refuse_without_mix(recipe)
    result = run_recipe(recipe, out, load_data=load_pretraining_data, fresh=fresh, console=console)
    if recipe.train.single_task_baselines:
        single_task_baselines.train_single_tasks(recipe, result, console)
    return result
