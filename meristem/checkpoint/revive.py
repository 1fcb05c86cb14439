"""A run folder becomes a model again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.blocks import low_rank
from meristem.blocks.shapes import shapes_alone
from meristem.checkpoint import layout, manifest, transfer
from meristem.checkpoint.load import Pointer, load
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.learning.assemble import learner_of
from meristem.learning.learner import Learner
from meristem.recipe import Recipe, parse, resolve
from meristem.recipe_differences import differing_settings
from meristem.settings import whole_numbers
from meristem.tokenizers.tokenizer import Tokenizer

FACTOR, SPARE = 4, 64 << 20
"""How much larger than its weights a model may be: tables of positions are computed and not saved."""
SHOWN = 4  # changed settings, of a message
UNUSED_SECTIONS = ("train.", "corpus.", "store.", "data.", "rewards.", "judge.")
"""Settings that a loaded model does not depend on; whoever trains on has them compared as well."""


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
    notices = (*loaded.notices, *_edited_recipe(run, recipe, loaded.path))
    if strange := transfer.not_finite(loaded.snapshot.model):
        notices = (*notices, f"{loaded.path.name}: weights that are not finite, so answers mean nothing: {strange}")
    return Revived(learner=learner, tokenizer=tokenizer, recipe=recipe, run=run, step=loaded.snapshot.step,
                   state=loaded.snapshot.state, notices=notices, finite=not strange)


def _edited_recipe(run: Run, recipe: Recipe, checkpoint: Path) -> Iterator[str]:
    """What to say where the run's recipe describes another model than the copy that its checkpoint was sealed with."""
    sealed = checkpoint / manifest.RECIPE
    if sealed.read_bytes() == run.recipe_path.read_bytes():
        return
    try:
        differing = differing_settings(resolve(recipe.name, parse(sealed)), recipe)
    except MeristemError as error:
        yield f"{sealed} cannot be compared with {run.recipe_path}: {error}"
        return
    changed = [
        f"{key} is {new} there and {old} in the checkpoint"
        for key, (old, new) in differing.items()
        if not key.startswith(UNUSED_SECTIONS)
    ]
    if changed:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        yield (
            f"{run.recipe_path} was changed after {checkpoint.name} was written, so answers may be wrong: "
            f"{'; '.join(changed[:SHOWN])}{more}. To undo it, copy {sealed} over it"
        )


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
