"""Loading a run: recipe, tokenizer and checkpoint weights of a run folder, as a model ready for inference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.blocks import lora
from meristem.blocks.meta_init import on_meta_device
from meristem.checkpoint import folder_layout, manifest, weight_transfer
from meristem.checkpoint.load import PointerName, load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe, parse_recipe_file, resolve_recipe
from meristem.config.recipe_diff import differing_settings
from meristem.config.recipe_format import recipe_version
from meristem.config.settings import iter_integers
from meristem.interfaces.backbone import Backbone
from meristem.interfaces.task import TASKS
from meristem.learning.build import build_learner
from meristem.learning.inference_options import InferencePrecision, set_inference_options
from meristem.learning.learner import Learner
from meristem.learning.quantization import Quantization
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils import untrusted_files

MAX_SIZE_RATIO, SIZE_MARGIN_BYTES = 4, 64 << 20
"""How much larger than its saved weights a model may be: position tables are computed, not saved."""
MAX_SHOWN_SETTINGS = 4  # changed settings listed in a message
UNUSED_SECTIONS = ("train.", "corpus.", "dataset.", "data.", "rewards.", "judge.")
"""Settings that a loaded model does not depend on; resuming compares them as well."""


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A model with its weights, its tokenizer and its recipe."""

    learner: Learner
    tokenizer: Tokenizer
    recipe: Recipe
    run: RunFolder
    step: int
    state: dict[str, Any]
    notices: tuple[str, ...]
    weights_finite: bool = True
    """Whether all weights are finite numbers."""


def load_recipe(run: RunFolder) -> Recipe:
    """The resolved recipe in a run folder."""
    run.refuse_links()
    return resolve_recipe(run.path.name, parse_recipe_file(run.recipe_path))


def load_run(path: Path, *, which: PointerName | None = None, step: int | None = None) -> LoadedRun:
    """Load a run for inference: its best weights if it finishes with them, else the latest; LoRA is merged."""
    run = RunFolder.open(path)
    recipe = load_recipe(run)
    has_best = recipe.uses_best_checkpoint and folder_layout.read_pointer(run.checkpoints, "best") is not None
    which = which or ("best" if has_best else "latest")
    checkpoint = load_checkpoint(run.checkpoints, which=which, step=step, weights_only=True)
    if checkpoint is None:
        raise MeristemError(f"{path} has no checkpoint yet: train it until its first checkpoint is saved")
    tokenizer = Tokenizer.load(checkpoint.snapshot.tokenizer or run.tokenizer_path)
    _check_model_size(recipe, tokenizer, checkpoint.snapshot.model, run)
    learner = build_learner(recipe, tokenizer)
    _refuse_earlier_inputs(run, recipe, learner.model.backbone, tokenizer)
    if (lora_settings := recipe.start.lora) is not None:
        lora.add_lora(learner.model.backbone, lora_settings.rank, lora_settings.alpha, lora_settings.target_modules)
    weight_transfer.load_exact(learner.model, checkpoint.snapshot.model)
    lora.merge_lora(learner.model.backbone)
    learner.eval()
    learner.model.untrained_heads = frozenset(map(str, checkpoint.snapshot.state.get("new", ())))
    notices = (*checkpoint.notices, *_recipe_change_notices(run, recipe, checkpoint.path))
    if nonfinite := weight_transfer.nonfinite_names(checkpoint.snapshot.model):
        warning = f"{checkpoint.path.name}: weights are not finite, so predictions are meaningless: {nonfinite}"
        notices = (*notices, warning)
    return LoadedRun(
        learner=learner,
        tokenizer=tokenizer,
        recipe=recipe,
        run=run,
        step=checkpoint.snapshot.step,
        state=checkpoint.snapshot.state,
        notices=notices,
        weights_finite=not nonfinite,
    )


def apply_inference_options(
    loaded_run: LoadedRun, precision: InferencePrecision = "auto", quantize: Quantization | None = None
) -> LoadedRun:
    """The run with these options applied to its model; a notice says how it computes, where not in plain float32."""
    description = set_inference_options(loaded_run.learner.model, precision, quantize)
    if description is None:
        return loaded_run
    return replace(loaded_run, notices=(*loaded_run.notices, f"{loaded_run.run.path.name}: {description}"))


def _refuse_earlier_inputs(run: RunFolder, recipe: Recipe, backbone: Backbone, tokenizer: Tokenizer) -> None:
    """Raise for a task whose inputs were built differently when it was fine-tuned.

    Until recipe format 2, tasks on the encoder of an encoder-decoder trained here read `start A end`; now they read
    `A end`, as in pretraining.
    """
    if recipe.tuned_task is None or TASKS[recipe.tuned_task.name].signature.output == "text":
        return
    if "encoder_decoder" not in backbone.capabilities:
        return
    if tokenizer.single_template is not None or tokenizer.start is None:
        return
    if recipe_version(untrusted_files.read_yaml(run.recipe_path), run.recipe_path) == 1:
        raise MeristemError(
            f"{run.path} was fine-tuned by an earlier version, which began the inputs of this task with "
            f"{tokenizer.id_to_token(tokenizer.start)!r}; this version does not: fine-tune it again"
        )


def _recipe_change_notices(run: RunFolder, recipe: Recipe, checkpoint: Path) -> Iterator[str]:
    """Warnings if the run's recipe describes another model than the copy of it in the checkpoint."""
    saved_recipe = checkpoint / manifest.RECIPE
    if saved_recipe.read_bytes() == run.recipe_path.read_bytes():
        return
    try:
        differences = differing_settings(resolve_recipe(recipe.name, parse_recipe_file(saved_recipe)), recipe)
    except MeristemError as error:
        yield f"{saved_recipe} cannot be compared with {run.recipe_path}: {error}"
        return
    changes = [
        f"{key} is {new} there and {old} in the checkpoint"
        for key, (old, new) in differences.items()
        if not key.startswith(UNUSED_SECTIONS)
    ]
    if changes:
        more = f" and {len(changes) - MAX_SHOWN_SETTINGS} more" if len(changes) > MAX_SHOWN_SETTINGS else ""
        yield (
            f"{run.recipe_path} was changed after {checkpoint.name} was written, so predictions may be wrong: "
            f"{'; '.join(changes[:MAX_SHOWN_SETTINGS])}{more}. To undo it, copy {saved_recipe} over it"
        )


def _check_model_size(recipe: Recipe, tokenizer: Tokenizer, weights: dict[str, Tensor], run: RunFolder) -> None:
    """Raise if a recipe's model is far larger than its saved weights, before memory is allocated for it."""
    if 4 * prod(sorted(iter_integers(recipe.model.model_dump()))[-2:]) < SIZE_MARGIN_BYTES:
        return  # no tensor is large
    with on_meta_device():
        model = build_learner(recipe, tokenizer).model
    model_bytes = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    checkpoint_bytes = sum(tensor.nbytes for tensor in weights.values())
    if model_bytes > MAX_SIZE_RATIO * checkpoint_bytes + SIZE_MARGIN_BYTES:
        raise MeristemError(
            f"{run.recipe_path} describes a model of {model_bytes / 1e6:,.0f} MB, and its checkpoint holds "
            f"{checkpoint_bytes / 1e6:,.1f} MB: the two do not belong together"
        )
