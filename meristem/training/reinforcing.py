"""Reinforcement: a run that writes goes on learning from rewards, held near where it started."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint.layout import folder_name
from meristem.checkpoint.revive import Revived, revive
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, RecipeError
from meristem.generation.way import way_for
from meristem.labelled.reading import splits
from meristem.learning.team import Team
from meristem.recipe import Recipe
from meristem.settings import find
from meristem.training.ending import Ended
from meristem.training.prompts import Prompts, same_start
from meristem.training.running import run_recipe


def reinforce(recipe: Recipe, out: Path, *, rewards: Any, judge: Any, fresh: bool, console: Console) -> Ended:
    """Learn from rewards, or go on learning, until the budget is used up or the leash breaks."""
    start = started(recipe)
    recipe = completed(recipe, start)

    def gather(recipe: Recipe, before: Run | None, console: Console, team: Team) -> Prompts:
        began = _digest(start)
        if before is not None:
            same_start(json.loads(before.shards_path.read_bytes()), began, str(recipe.start.path))
        policy = find("reinforce", "policy")(recipe.policy, start.tokenizer)
        found = splits(recipe.data, "prompt")
        material = Prompts(
            tokenizer=start.tokenizer,
            samples=found.samples,
            policy=policy,
            rewards=rewards,
            judge=judge,
            reference=start.learner.model,
            began=began,
            notices=found.notices,
            team=team,
        )
        for split in found.samples:
            rewards.check([piece.parts["attempt"] for piece in material.pieces(split)])
        return material

    return run_recipe(recipe, out, gather=gather, fresh=fresh, console=console)


def started(recipe: Recipe) -> Revived:
    """The run that texts are written with at first."""
    if recipe.start.path is None:
        raise RecipeError("from: rewards need a model that writes: from=RUN, or from.recipe=NAME to train one first")
    return revive(Path(recipe.start.path))


def completed(recipe: Recipe, start: Revived) -> Recipe:
    """The recipe with what the start tells: how it writes, after which tokens, how much it holds."""
    model, before = start.learner.model, start.recipe
    way = way_for(model, "generate")
    if way not in ("causal", "source"):
        raise MeristemError(
            f"{start.run.path} is a {way} model, and rewards need one that writes from left to right: "
            "objective=clm, objective=seq2seq or objective=denoising"
        )
    task, policy = before.task, before.policy
    framed = policy.framed if policy is not None else way == "causal" and task is not None
    told = {
        "way": "causal" if way == "causal" else "encoder_decoder",
        "framed": framed,
        "begin": model.opening if way == "causal" else model.begin,
        "length": recipe.policy.length or recipe.model.length,
    }
    return replace(recipe, task=task, policy=recipe.policy.model_copy(update=told))


def _digest(start: Revived) -> str:
    """Of the start's checkpoint, by what its manifest says of every file."""
    manifest = start.run.checkpoints / folder_name(start.step) / "manifest.json"
    return hashlib.sha256(manifest.read_bytes()).hexdigest()[:20]
