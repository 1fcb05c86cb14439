"""A run folder becomes a model again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.blocks import low_rank
from meristem.blocks.shapes import shapes_alone
from meristem.checkpoint import layout, transfer
from meristem.checkpoint.load import Pointer, load
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.learning.assemble import learner_of
from meristem.learning.learner import Learner
from meristem.recipe import Recipe, parse, resolve
from meristem.settings import whole_numbers
from meristem.tokenizers.tokenizer import Tokenizer

FACTOR, SPARE = 4, 64 << 20
"""How much larger than its weights a model may be: tables of positions are computed and not saved."""


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
    finite: bool = True
    """Whether all weights are finite numbers."""


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
    loaded = load(run.checkpoints, which=which, step=step, weights_only=True)
    if loaded is None:
        raise MeristemError(f"{path} has no checkpoint yet: let it train until its first save")
    tokenizer = Tokenizer.load(loaded.snapshot.tokenizer or run.tokenizer_path)
    _refuse_other_sizes(recipe, tokenizer, loaded.snapshot.model, run)
    learner = learner_of(recipe, tokenizer)
    if (lora := recipe.start.lora) is not None:
        low_rank.add(learner.model.backbone, lora.rank, lora.alpha, lora.layers)
    transfer.restore(learner.model, loaded.snapshot.model)
    low_rank.merge(learner.model.backbone)
    learner.eval()
    learner.model.untrained = frozenset(map(str, loaded.snapshot.state.get("new", ())))
    notices = loaded.notices
    if strange := transfer.not_finite(loaded.snapshot.model):
        notices = (*notices, f"{loaded.path.name}: weights that are not finite, so answers mean nothing: {strange}")
    return Revived(learner=learner, tokenizer=tokenizer, recipe=recipe, run=run, step=loaded.snapshot.step,
                   state=loaded.snapshot.state, notices=notices, finite=not strange)


def _refuse_other_sizes(recipe: Recipe, tokenizer: Tokenizer, weights: dict[str, Tensor], run: Run) -> None:
    """Refuse a recipe whose model is far larger than the weights beside it, before memory is taken for it."""
    if 4 * prod(sorted(whole_numbers(recipe.model.model_dump()))[-2:]) < SPARE:
        return  # no tensor of it is large
    with shapes_alone():
        model = learner_of(recipe, tokenizer).model
    wanted = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    held = sum(tensor.nbytes for tensor in weights.values())
    if wanted > FACTOR * held + SPARE:
        raise MeristemError(
            f"{run.recipe_path} describes a model of {wanted / 1e6:,.0f} MB, and its checkpoint holds "
            f"{held / 1e6:,.1f} MB: the two do not belong together"
        )
