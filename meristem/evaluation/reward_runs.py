"""Reward runs measured on held-out text: the objectives and the corpus of the run that they started from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from meristem.checkpoint.revive import Revived, recipe_of
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.learning.assemble import objectives_of
from meristem.learning.learner import Learner


def with_start_objectives(revived: Revived) -> Revived:
    """A reward run's weights under the pretraining objectives and corpus of its start, so that both can be compared."""
    run = revived.run
    recipe = revived.recipe
    while recipe.policy is not None:  # a start may have been rewarded itself
        start = recipe.start.path
        if start is None or not Run(Path(start)).exists():
            raise MeristemError(
                f"{revived.run.path} learned from rewards after {start}, which is gone: held-out text is measured as "
                "that run was trained"
            )
        run = Run.open(Path(start))
        recipe = recipe_of(run)
    objectives = objectives_of(recipe, revived.tokenizer)
    return replace(revived, run=run, recipe=recipe, learner=Learner(revived.learner.model, objectives))
