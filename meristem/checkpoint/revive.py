"""A run folder becomes a model again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.blocks import low_rank
from meristem.checkpoint import layout, transfer
from meristem.checkpoint.load import Pointer, load
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.learning.assemble import learner_of
from meristem.learning.learner import Learner
from meristem.recipe import Recipe, parse, resolve
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Revived:
    """A model with its weights, its words and the recipe it came from."""

    learner: Learner
    tokenizer: Tokenizer
    recipe: Recipe
    run: Run
    step: int
    state: dict[str, Any]
    notices: tuple[str, ...]


def recipe_of(run: Run) -> Recipe:
    """The resolved recipe a run keeps."""
    run.refuse_links()
    return resolve(run.path.name, parse(run.recipe_path))


def revive(path: Path, *, which: Pointer | None = None, step: int | None = None) -> Revived:
    """Open a run for use: its best weights where it ends with them, else its latest; low-rank parts are merged."""
    run = Run.open(path)
    recipe = recipe_of(run)
    best = recipe.ends_best and layout.pointed(run.checkpoints, "best") is not None
    which = which or ("best" if best else "latest")
    loaded = load(run.checkpoints, which=which, step=step)
    if loaded is None:
        raise MeristemError(f"{path} has no checkpoint yet: let it train until its first save")
    tokenizer = Tokenizer.load(loaded.snapshot.tokenizer or run.tokenizer_path)
    learner = learner_of(recipe, tokenizer)
    if (lora := recipe.start.lora) is not None:
        low_rank.add(learner.model.backbone, lora.rank, lora.alpha, lora.layers)
    transfer.restore(learner.model, loaded.snapshot.model)
    low_rank.merge(learner.model.backbone)
    learner.eval()
    return Revived(learner=learner, tokenizer=tokenizer, recipe=recipe, run=run, step=loaded.snapshot.step,
                   state=loaded.snapshot.state, notices=loaded.notices)
