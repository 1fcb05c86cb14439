"""Pretraining: a recipe run on text."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from meristem.errors import RecipeError
from meristem.recipe import Recipe
from meristem.training.ending import Ended
from meristem.training.running import run_recipe
from meristem.training.shards import gather


def pretrain(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> Ended:
    """Train on text, or go on training, until the budget is used up."""
    if recipe.task is not None:
        raise RecipeError(f"{recipe.name} is a recipe for a task: meristem finetune {recipe.name}")
    return run_recipe(recipe, out, gather=gather, fresh=fresh, console=console)
