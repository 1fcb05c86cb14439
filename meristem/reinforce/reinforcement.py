"""Reinforcement runs: train a generating model with rewards, regularized towards its starting weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from meristem import samples
from meristem.checkpoint.folder_layout import folder_name
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import ReinforceRecipe
from meristem.config.recipe_parts import HeadSettings
from meristem.distributed.process_group import DistributedContext
from meristem.generation.head_selection import lm_kinds
from meristem.labelled.load import load_splits
from meristem.labelled.settings import DataSettings
from meristem.learning.build import objective_class
from meristem.models.settings import ImageModelSettings
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.objectives.policy import PolicyObjective
from meristem.reinforce.prompt_data import PromptData, refuse_changed_start
from meristem.training.run_result import RunResult
from meristem.training.trainer import run_recipe


def reinforce(
    recipe: ReinforceRecipe,
    out: Path,
    *,
    rewards: CombinedReward,
    judge: CombinedReward | None,
    fresh: bool,
    console: Console,
) -> RunResult:
    """Train with rewards, or resume, until the budget is used up, the KL diverges or diversity collapses."""
    start_run = load_start_run(recipe)
    recipe = complete_policy_recipe(recipe, start_run)

    def load_data(
        recipe: ReinforceRecipe, existing_run: RunFolder | None, console: Console, distributed: DistributedContext
    ) -> PromptData:
        start_digest = _checkpoint_digest(start_run)
        if existing_run is not None:
            refuse_changed_start(existing_run.shard_keys(), start_digest, str(recipe.start.path))
        policy = PolicyObjective(recipe.policy, start_run.tokenizer)
        data_splits = load_splits(recipe.data, "image_prompt" if recipe.policy.generation_mode == "image" else "prompt")
        training_data = PromptData(
            recipe=recipe,
            tokenizer=start_run.tokenizer,
            samples=data_splits.samples,
            policy=policy,
            rewards=rewards,
            judge=judge,
            reference=start_run.learner.model,
            start_digest=start_digest,
            task=recipe.task.name if recipe.task is not None else None,
            notices=data_splits.notices,
            distributed=distributed,
        )
        for split in data_splits.samples:
            rewards.check([piece.features["attempt"] for piece in training_data.pieces(split)])
        return training_data

    return run_recipe(recipe, out, load_data=load_data, fresh=fresh, console=console)


def load_start_run(recipe: ReinforceRecipe) -> LoadedRun:
    """The run that the policy starts from."""
    if recipe.start.path is None:
        raise RecipeError("from: rewards need a model that generates: from=RUN, or from.recipe=NAME to train one first")
    return load_run(Path(recipe.start.path))


def complete_policy_recipe(recipe: ReinforceRecipe, start_run: LoadedRun) -> ReinforceRecipe:
    """The recipe completed from the starting run: generation mode, start tokens and maximum length.

    Heads of the starting run that rewards do not train are kept, so that a multi-task model stays one.
    """
    model, start_recipe = start_run.learner.model, start_run.recipe
    mode = generation_mode(recipe, start_run)
    task = start_recipe.tuned_task
    is_framed = mode == "causal" and task is not None
    if isinstance(start_recipe, ReinforceRecipe):
        is_framed = start_recipe.policy.use_delimiter
    image_size = recipe.model.image_size if isinstance(recipe.model, ImageModelSettings) else None
    policy_update = {
        "generation_mode": mode,
        "use_delimiter": is_framed,
        "start_ids": model.causal_start_ids if mode == "causal" else model.decoder_start_ids,
        "max_length": recipe.policy.max_length or recipe.model.max_length,
        "image_size": (recipe.policy.image_size or image_size) if mode == "image" else None,
    }
    return replace(
        recipe,
        task=task,
        policy=recipe.policy.model_copy(update=policy_update),
        heads=_untouched_heads(start_run, mode),
    )


def generation_mode(recipe: ReinforceRecipe, start_run: LoadedRun) -> str:
    """What completions are generated from, as in policy.generation_mode: a text to continue, a source, or an image.

    Unless set: an image if the data are images or the model was trained on nothing else; otherwise a text to continue
    if the model has a causal head; otherwise a source.
    """
    available = _generation_modes(start_run)
    if not available:
        kind = " and ".join(lm_kinds(start_run.learner.model)) or "reading"
        raise MeristemError(
            f"{start_run.run.path} is a {kind} model, and rewards need one that generates from left to right: "
            "objective=clm, objective=seq2seq, objective=denoising or objective=caption"
        )
    mode = recipe.policy.generation_mode or (
        "image" if "image" in available and has_image_prompts(recipe.data) else available[0]
    )
    if mode not in available:
        raise MeristemError(
            f"policy.generation_mode={mode}: {start_run.run.path} was not trained for that; it can do "
            f"{' or '.join(available)}"
        )
    if mode != "image" and has_image_prompts(recipe.data):
        raise MeristemError(
            f"data: the prompts are images, and {start_run.run.path} generates from text only; give text prompts"
        )
    return mode


def _generation_modes(start_run: LoadedRun) -> list[str]:
    """Every value of policy.generation_mode that the starting run was trained for: causal first, image last."""
    model, start_recipe = start_run.learner.model, start_run.recipe
    parts = [objective_class(part) for source in start_recipe.objectives.values() for part in source]
    if isinstance(start_recipe, ReinforceRecipe):  # a reward run: its other heads show what it was trained for before
        from_image = "image" in model.backbone.capabilities and (
            start_recipe.policy.generation_mode == "image" or bool(start_recipe.heads)
        )
        captions_only = start_recipe.policy.generation_mode == "image" and not start_recipe.heads
    else:
        from_image = any("image" in part.requires for part in parts)
        captions_only = all("image" in part.requires for part in parts)
    has_causal, has_encoder_decoder = "clm" in model.heads, "seq2seq" in model.heads
    trained_modes = {
        "causal": has_causal,
        "encoder_decoder": has_encoder_decoder and not captions_only,
        "image": has_encoder_decoder and from_image,
    }
    return [mode for mode, is_trained in trained_modes.items() if is_trained]


def has_image_prompts(data: DataSettings) -> bool:
    """Whether prompts are images: their column is named, or the source is a folder or a built-in set of images."""
    sources = [data.train] if isinstance(data.train, str) else data.train or []
    return data.image is not None or any(_is_image_source(source) for source in sources)


def _is_image_source(source: str) -> bool:
    if source.startswith("builtin:"):
        return samples.corpus_kind(source.removeprefix("builtin:")) == "pictures"
    return Path(source).expanduser().is_dir()


def _untouched_heads(start_run: LoadedRun, mode: str) -> dict[str, HeadSettings]:
    """Heads of the starting run that the policy neither trains nor creates."""
    policy_heads = {"clm" if mode == "causal" else "seq2seq", "leash", "value"}
    other_heads = {name: head for name, head in start_run.learner.model.head_specs.items() if name not in policy_heads}
    return {
        name: start_run.recipe.heads.get(name) or HeadSettings(kind=head.kind, sizes=dict(head.sizes))
        for name, head in other_heads.items()
    }


def _checkpoint_digest(start_run: LoadedRun) -> str:
    """A digest of the starting checkpoint, from its manifest."""
    manifest = start_run.run.checkpoints / folder_name(start_run.step) / "manifest.json"
    return hashlib.sha256(manifest.read_bytes()).hexdigest()[:20]
