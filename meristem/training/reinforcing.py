"""Reinforcement: a run that writes goes on learning from rewards, held near where it started."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem import samples
from meristem.checkpoint.layout import folder_name
from meristem.checkpoint.revive import Revived, revive
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, RecipeError
from meristem.generation.way import ways
from meristem.labelled.reading import splits
from meristem.labelled.settings import DataSettings
from meristem.learning.team import Team
from meristem.recipe import HeadSettings, Recipe
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
            same_start(before.shards(), began, str(recipe.start.path))
        policy = find("reinforce", "policy")(recipe.policy, start.tokenizer)
        found = splits(recipe.data, "picture_prompt" if recipe.policy.way == "image" else "prompt")
        material = Prompts(
            tokenizer=start.tokenizer,
            samples=found.samples,
            policy=policy,
            rewards=rewards,
            judge=judge,
            reference=start.learner.model,
            began=began,
            task=recipe.task.name if recipe.task is not None else None,
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
    """The recipe with what the start tells: what it writes from, after which tokens, how much it holds.

    Heads of the start that rewards do not train come along, so that a multi-task model stays one.
    """
    model, before = start.learner.model, start.recipe
    way = writing_way(recipe, start)
    task, policy = before.task, before.policy
    framed = policy.framed if policy is not None else way == "causal" and task is not None
    found = {
        "way": way,
        "framed": framed,
        "begin": model.opening if way == "causal" else model.begin,
        "length": recipe.policy.length or recipe.model.length,
        "picture": (recipe.policy.picture or recipe.model.picture) if way == "image" else None,
    }
    return replace(recipe, task=task, policy=recipe.policy.model_copy(update=found), heads=_other_heads(start, way))


def writing_way(recipe: Recipe, start: Revived) -> str:
    """What texts are written from, as policy.way has it: a text they continue, a source, or a picture.

    Unless it is set: a picture where the data are pictures or the model has learned nothing else, else the text that
    a causal head continues, else a source.
    """
    able = _writing_ways(start)
    if not able:
        kind = " and ".join(ways(start.learner.model)) or "reading"
        raise MeristemError(
            f"{start.run.path} is a {kind} model, and rewards need one that writes from left to right: "
            "objective=clm, objective=seq2seq, objective=denoising or objective=caption"
        )
    wanted = recipe.policy.way or ("image" if "image" in able and pictured(recipe.data) else able[0])
    if wanted not in able:
        raise MeristemError(
            f"policy.way={wanted}: {start.run.path} has not learned to write from that; it can {' or '.join(able)}"
        )
    if wanted != "image" and pictured(recipe.data):
        raise MeristemError(f"data: the prompts are pictures, and {start.run.path} writes from texts alone; give texts")
    return wanted


def _writing_ways(start: Revived) -> list[str]:
    """Every value of policy.way that the start was trained for: causal first, pictures last."""
    model, before = start.learner.model, start.recipe
    parts = [find(source.room, part.name) for source in before.sources() for part in source.objective]
    if before.policy is not None:  # a reinforced run: its other heads tell what it could do before
        image = "image" in model.backbone.can and (before.policy.way == "image" or bool(before.heads))
        captions_only = before.policy.way == "image" and not before.heads
    else:
        image = any("image" in part.needs for part in parts)
        captions_only = all("image" in part.needs for part in parts)
    causal, encodes = "clm" in model.heads, "seq2seq" in model.heads
    trained = {"causal": causal, "encoder_decoder": encodes and not captions_only, "image": encodes and image}
    return [way for way, there in trained.items() if there]


def pictured(data: DataSettings) -> bool:
    """Whether prompts are pictures: their column is named, or the source is a folder or a built-in set of pictures."""
    sources = [data.train] if isinstance(data.train, str) else data.train or []
    return data.picture is not None or any(_holds_pictures(one) for one in sources)


def _holds_pictures(source: str) -> bool:
    if source.startswith("builtin:"):
        return samples.kind(source.removeprefix("builtin:")) == "pictures"
    return Path(source).expanduser().is_dir()


def _other_heads(start: Revived, way: str) -> dict[str, HeadSettings]:
    """Heads of the start that the policy neither trains nor makes anew."""
    used = {"clm" if way == "causal" else "seq2seq", "leash", "value"}
    kept = {name: head for name, head in start.learner.model.declared.items() if name not in used}
    return {
        name: start.recipe.heads.get(name) or HeadSettings(kind=head.kind, sizes=dict(head.sizes))
        for name, head in kept.items()
    }


def _digest(start: Revived) -> str:
    """Of the start's checkpoint, by what its manifest says of every file."""
    manifest = start.run.checkpoints / folder_name(start.step) / "manifest.json"
    return hashlib.sha256(manifest.read_bytes()).hexdigest()[:20]
