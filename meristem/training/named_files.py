"""Files and folders that a recipe names: what is missing is named before any work, and before anything else."""

from __future__ import annotations

from pathlib import Path

from meristem.checkpoint.run import Run
from meristem.corpus.sources import missing, survey
from meristem.errors import MeristemError
from meristem.recipe import Recipe


def refuse_missing(recipe: Recipe) -> None:
    """Refuse a recipe whose text, tokenizer, vectors or starting point is not there, with the nearest name that is."""
    for setting, named in (("tokenizer.path", recipe.tokenizer.path), ("from.vectors", recipe.start.vectors)):
        if named is not None and not Path(named).expanduser().exists():
            raise MeristemError(f"{setting}: {missing(Path(named).expanduser())}")
    if recipe.start.path is not None and not Path(recipe.start.path).exists():
        Run.open(Path(recipe.start.path))
    if recipe.task is None and recipe.policy is None:
        for source in recipe.sources():
            survey(source.corpus)
