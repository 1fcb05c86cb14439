"""Pretraining: a recipe run on text."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from meristem.errors import RecipeError
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.training import single_task
from meristem.training.ending import Ended
from meristem.training.running import run_recipe
from meristem.training.shards import gather


def pretrain(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> Ended:
    """Train on text, or go on training, until the budget is used up; then the single-task baselines, if wanted."""
    if recipe.task is not None:
        raise RecipeError(f"{recipe.name} is a recipe for a task: meristem finetune {shell_path(recipe.name)}")
    single_task.refuse_without_mix(recipe)
    ended = run_recipe(recipe, out, gather=gather, fresh=fresh, console=console)
    if recipe.train.single_task_baselines:
        single_task.train_single_tasks(recipe, ended, console)
    return ended
