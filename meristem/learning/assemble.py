"""A recipe made real: its objectives, its model, and the feeds that bring it text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from meristem.batch import TEXT_INPUTS, Backbone, Head, Model, Objective, View
from meristem.blocks.shapes import shapes_alone
from meristem.corpus.sides import KINDS, PAIR, PICTURE
from meristem.errors import RecipeError
from meristem.learning.combined import Combined
from meristem.learning.feed import Feed, SampleTokens, Viewed, sample_tokens
from meristem.learning.learner import Learner, agree, carries, heads_of
from meristem.learning.team import ALONE, Team
from meristem.randomness import key
from meristem.recipe import Recipe
from meristem.settings import find, names, whole_numbers
from meristem.store.letters import TokenLetters
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer

LARGE = 1 << 30
"""A product of sizes below which every model is small."""
WRITES = {"causal", "encoder_decoder"}
"""Abilities of which a backbone needs one to write texts for prompts."""
WORDS = TEXT_INPUTS
"""Inputs that hold words, and are padded with the tokenizer's own."""


def check(recipe: Recipe) -> None:
    """Refuse what cannot work, before any text is read."""
    family = find("models", recipe.model.family)
    if recipe.policy is not None:
        _writes(recipe, family)
        return
    if recipe.task is not None:
        carries(find("tasks", recipe.task.name), family, recipe.model.family)
        return
    for source in recipe.sources():
        for part in source.objective:
            agree(find("objectives", part.name), family, recipe.model.family)
            _two_sided(find("objectives", part.name), source.corpus.mark)
    if recipe.store.lanes and "memory" not in family.can:
        raise RecipeError(f"store.lanes: {recipe.model.family} has no memory, and only models with one read lanes")
    if "image" in family.can and recipe.model.picture != recipe.store.picture:
        raise RecipeError(
            f"model.picture={recipe.model.picture} and store.picture={recipe.store.picture} must be the same size"
        )
    train = recipe.train
    for name in ("batch_tokens", "micro_tokens"):
        tokens = getattr(train, name)
        if tokens is not None and tokens < recipe.model.length:
            raise RecipeError(
                f"train.{name}: {tokens} is less than one row of model.length={recipe.model.length} tokens"
            )


def _writes(recipe: Recipe, family: type[Backbone]) -> None:
    """Refuse to reward a model that writes nothing, or whose weights no process holds as a whole."""
    if not WRITES & family.can:
        able = [name for name in names("models") if WRITES & find("models", name).can]
        raise RecipeError(
            f"policy: {recipe.model.family} writes no texts for prompts; families that do: {', '.join(able)}"
        )
    if recipe.train.shard:
        raise RecipeError("train.shard: texts are written by whole models; leave it out, --processes alone shares them")


def _two_sided(objective: Objective, mark: str) -> None:
    """An objective that reads pairs or pictures is refused on a corpus of something else."""
    wanted = {"examples": PAIR, "pictures": PICTURE}.get(objective.view.kind, mark)
    if mark != wanted:
        how = "corpus.target=COLUMN or FILE" if wanted == PAIR else "corpus.picture=COLUMN"
        raise RecipeError(
            f"objective {objective.name} reads {KINDS[wanted]}, and this corpus is {KINDS[mark]}: "
            f"set {how}, or corpus.source=builtin:microworld-{KINDS[wanted]}"
        )


def objectives_of(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Objective]:
    """Per source what it predicts; several on one encoding are combined."""
    made: dict[str, Objective] = {}
    for source in recipe.sources():
        parts = [find(source.room, part.name)(part, tokenizer) for part in source.objective]
        made[source.name] = parts[0] if len(parts) == 1 else Combined(parts)
    return made


def needs_of(recipe: Recipe) -> list[frozenset[str]]:
    """Per objective or task of a recipe the abilities it uses."""
    parts = [(find(source.room, part.name), part) for source in recipe.sources() for part in source.objective]
    return [kind.needs | ({part.way} if getattr(part, "way", None) else set()) for kind, part in parts]


def learner_of(recipe: Recipe, tokenizer: Tokenizer) -> Learner:
    """The model with fresh weights that follow from the seed, and its objectives."""
    objectives = objectives_of(recipe, tokenizer)
    _refuse_what_no_memory_holds(recipe, tokenizer)
    torch.default_generator.manual_seed(key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    backbone = find("models", recipe.model.family)(recipe.model, max(tokenizer.size, recipe.tokenizer.room or 0))
    if "characters" in backbone.can:
        backbone.spell = TokenLetters(tokenizer)
    brought = {name: Head(head.kind, tuple(head.sizes.items())) for name, head in recipe.heads.items()}
    return Learner(Model(backbone, {**brought, **heads_of(objectives)}), objectives)


def _refuse_what_no_memory_holds(recipe: Recipe, tokenizer: Tokenizer) -> None:
    """Refuse a model that is larger than the machine; one that may be is first made without its memory."""
    rows = max(tokenizer.size, recipe.tokenizer.room or 0)
    sizes = sorted(whole_numbers(recipe.model.model_dump()))
    if prod((*sizes[-2:], rows)) < LARGE:
        return
    with shapes_alone():
        parameters = sum(p.numel() for p in find("models", recipe.model.family)(recipe.model, rows).parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * parameters > memory:
        raise RecipeError(
            f"model: {parameters:,} parameters take {parameters / 2.5e8:,.0f} GB, and this machine has "
            f"{memory / 1e9:,.0f} GB: choose a smaller model.width, model.layers or vocabulary"
        )


def fill_of(tokenizer: Tokenizer) -> dict[str, int]:
    """What the words of short rows are filled up with."""
    return dict.fromkeys(WORDS, tokenizer.pad or 0)


def feeds_of(
    recipe: Recipe,
    objectives: Mapping[str, Objective],
    tokenizer: Tokenizer,
    stores: Mapping[str, Store],
    *,
    split: str,
    seed: int,
    team: Team = ALONE,
) -> dict[str, Feed]:
    """Per source the batches of one split; sources without that split are left out."""
    length, train = recipe.model.length, recipe.train
    feeds = {}
    for name, objective in objectives.items():
        if split not in stores[name].splits:
            continue
        wanted = view_of(objective, recipe)
        options: dict[str, Any] = dict(wanted.options)
        if wanted.kind == "lanes":
            options["lanes"] = max(1, train.batch_tokens // length)
        view = find("store.views", wanted.kind)(
            stores[name].split(split), tokenizer, length, isolate=recipe.store.isolate, **options
        )
        size = sample_size(view, objective, wanted, length)
        rows = max(1, int(train.batch_tokens / size.mean))
        micro = max(1, min(rows, train.micro_tokens // size.most)) if train.micro_tokens is not None else rows
        feeds[name] = Feed(
            view=view,
            objective=objective,
            seed=seed,
            rows=rows,
            micro=micro,
            fill=fill_of(tokenizer),
            tokens_per_sample=size.mean,
            team=team,
        )
    return feeds


def sample_size(view: Viewed, objective: Objective, wanted: View, length: int) -> SampleTokens:
    """The tokens of a sample: `length` where text is packed into full rows that are read as they are, else counted."""
    one_full_row = objective.rows_per_sample == 1 and not isinstance(objective, Combined)
    if wanted.kind in ("windows", "lanes") and one_full_row and "encoder_decoder" not in objective.needs:
        return SampleTokens(float(length), length)
    return sample_tokens(view, objective)


def view_of(objective: Objective, recipe: Recipe) -> View:
    """How the text is cut: in lanes where the backbone's memory is on, or where the recipe says so.

    A backbone of two streams may want half of the lanes backwards.
    A backbone that reads words by their letters gets them beside the tokens.
    """
    can = find("models", recipe.model.family).can
    remembers = "memory" in can and recipe.model.memory > 0
    wanted = remembers if recipe.store.lanes is None else recipe.store.lanes
    view = objective.lanes if wanted and objective.lanes is not None else objective.view
    if view.kind == "lanes" and "two_stream" in can and recipe.model.both_ways:
        view = View(view.kind, (*view.options, ("both_ways", True)))
    return View(view.kind, (*view.options, ("characters", True))) if "characters" in can else view
