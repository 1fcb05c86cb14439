"""Held-out evaluation of reward-trained runs, with the objectives and corpus of the run they were initialised from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from meristem.checkpoint.load_run import LoadedRun, load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import ReinforceRecipe
from meristem.learning.build import build_objectives
from meristem.learning.learner import Learner


def with_start_objectives(loaded_run: LoadedRun) -> LoadedRun:
    """A reward run's weights with the pretraining objectives and corpus of its initial run, for comparison."""
    run = loaded_run.run
    recipe = loaded_run.recipe
    while isinstance(recipe, ReinforceRecipe):  # the initial run may be reward-trained itself
        start = recipe.start.path
        if start is None or not RunFolder(Path(start)).exists():
            raise MeristemError(
                f"{loaded_run.run.path} was trained with rewards from {start}, which no longer exists: held-out "
                "evaluation needs the objectives and corpus of that run"
            )
        run = RunFolder.open(Path(start))
        recipe = load_recipe(run)
    objectives = build_objectives(recipe, loaded_run.tokenizer)
    return replace(loaded_run, run=run, recipe=recipe, learner=Learner(loaded_run.learner.model, objectives))
