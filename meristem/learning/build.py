"""Build a learner from a recipe: check it, build objectives and model, and build the feeds that batch its data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from meristem.blocks.meta_init import on_meta_device
from meristem.config.errors import RecipeError
from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, Recipe, ReinforceRecipe
from meristem.config.settings import iter_integers
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, SEPARATOR_KINDS
from meristem.dataset.dataset_view import DATASET_VIEWS, DatasetView
from meristem.dataset.feed import Feed, SampleTokens, sample_tokens
from meristem.dataset.poisson_feed import PoissonFeed, poisson_feed
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.dataset.unit_rows import unit_view
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.inputs.batch import TEXT_INPUTS
from meristem.inputs.char_ids import TokenCharIds
from meristem.interfaces.backbone import MODEL_FAMILIES, Backbone, Head, Model
from meristem.interfaces.objective import OBJECTIVES, POLICY_OBJECTIVES, Objective, ViewSpec
from meristem.interfaces.task import TASKS
from meristem.learning.learner import Learner, check_objective, check_task, collect_heads
from meristem.learning.multi_objective import MultiObjective
from meristem.models.settings import ImageModelSettings
from meristem.objectives.settings import ObjectiveSettings
from meristem.reinforce.settings import PolicySettings
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import stream_key

SMALL_MODEL_LIMIT = 1 << 30
"""Product of the two largest sizes and the vocabulary below which the memory check is skipped."""
GENERATIVE_CAPABILITIES = {"causal", "encoder_decoder"}
"""A backbone needs one of these capabilities to generate text for prompts."""
MAX_SEED = 1 << 31
"""Later phases have seeds of their own below this: they read the text in another order than the phase before."""
TOKEN_INPUTS = TEXT_INPUTS
"""Inputs that hold token ids and are padded with the tokenizer's pad token."""


def check_recipe(recipe: Recipe) -> None:
    """Raise on combinations that cannot work, before any data is read."""
    family = MODEL_FAMILIES[recipe.model.family]
    if isinstance(recipe, ReinforceRecipe):
        _check_can_generate(recipe, family)
    elif isinstance(recipe, FinetuneRecipe):
        check_task(TASKS[recipe.task.name], family, recipe.model.family)
    elif isinstance(recipe, PretrainRecipe):
        _check_pretrain_recipe(recipe, family)


def _check_pretrain_recipe(recipe: PretrainRecipe, family: type[Backbone]) -> None:
    """Raise if model, objectives, corpora, dataset or batch size do not go together."""
    for source in recipe.sources():
        for settings in source.objective:
            check_objective(OBJECTIVES[settings.name], family, recipe.model.family)
            _check_corpus_kind(OBJECTIVES[settings.name], source.corpus.side_separator)
    if recipe.dataset.contiguous_batches and "memory" not in family.capabilities:
        raise RecipeError(
            f"dataset.contiguous_batches: {recipe.model.family} has no segment memory, which they are for; "
            "leave dataset.contiguous_batches out"
        )
    _check_shuffled_documents(recipe)
    if isinstance(recipe.model, ImageModelSettings) and recipe.model.image_size != recipe.dataset.image_size:
        raise RecipeError(
            f"model.image_size={recipe.model.image_size} and dataset.image_size={recipe.dataset.image_size} must "
            "be the same size"
        )
    train = recipe.train
    for name, tokens in (("batch_tokens", train.batch_tokens), ("micro_batch_tokens", train.micro_batch_tokens)):
        if tokens is not None and tokens < recipe.model.max_length:
            raise RecipeError(
                f"train.{name}: {tokens} is less than one row of model.max_length={recipe.model.max_length} tokens; "
                f"set train.{name}={recipe.model.max_length} or more, or a smaller model.max_length"
            )


def _check_shuffled_documents(recipe: PretrainRecipe) -> None:
    """Raise if documents are to be shuffled where rows are not windows of packed text."""
    for source in recipe.sources() if recipe.dataset.shuffle_documents else ():
        kinds = {select_view(OBJECTIVES[settings.name], recipe).kind for settings in source.objective}
        if other_kinds := kinds - {"windows"} or {"nsp"} & {settings.name for settings in source.objective}:
            raise RecipeError(
                f"dataset.shuffle_documents: only packed text is cut elsewhere in another order, and rows of "
                f"{source.name} are not ({', '.join(other_kinds)}); leave it out"
            )


def _check_can_generate(recipe: Recipe, family: type[Backbone]) -> None:
    """Raise if the model cannot generate text, or if its weights would be sharded."""
    if not GENERATIVE_CAPABILITIES & family.capabilities:
        generative_families = [
            name for name, family_class in MODEL_FAMILIES.items() if GENERATIVE_CAPABILITIES & family_class.capabilities
        ]
        raise RecipeError(
            f"policy: {recipe.model.family} cannot generate text for prompts; families that do: "
            f"{', '.join(generative_families)}"
        )
    if recipe.train.fsdp:
        raise RecipeError(
            "train.fsdp: rollouts need unsharded weights; leave train.fsdp out (--processes still splits the prompts)"
        )


def _check_corpus_kind(objective: type[Objective], corpus_mark: str) -> None:
    """Raise if an objective needs a corpus of text pairs or captioned images and this one is of another kind."""
    expected_mark = {"examples": PAIR_SEPARATOR, "images": IMAGE_SEPARATOR}.get(objective.view.kind, corpus_mark)
    if corpus_mark != expected_mark:
        setting_hint = "corpus.target=COLUMN or FILE" if expected_mark == PAIR_SEPARATOR else "corpus.image=COLUMN"
        raise RecipeError(
            f"objective {objective.name} reads {SEPARATOR_KINDS[expected_mark]}, and this corpus is "
            f"{SEPARATOR_KINDS[corpus_mark]}: set {setting_hint}, or "
            f"corpus.source=builtin:microworld-{SEPARATOR_KINDS[expected_mark]}"
        )


def objective_class(settings: ObjectiveSettings) -> type[Objective]:
    """The class of an objective, a task or a policy objective with these settings."""
    if isinstance(settings, TaskSettings):
        return TASKS[settings.name]
    return (POLICY_OBJECTIVES if isinstance(settings, PolicySettings) else OBJECTIVES)[settings.name]


def build_objectives(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Objective]:
    """Source name → objective; several objectives of one source become a `MultiObjective`."""
    objectives: dict[str, Objective] = {}
    for name, parts in recipe.objectives.items():
        built = [objective_class(settings)(settings, tokenizer) for settings in parts]
        objectives[name] = built[0] if len(built) == 1 else MultiObjective(built)
    return objectives


def describe_objectives(recipe: Recipe, objectives: Mapping[str, Objective]) -> str:
    """The names of all objectives; of phases in their order, with their share of the steps."""
    if not isinstance(recipe, PretrainRecipe) or not recipe.phases:
        return ", ".join(objective.name for objective in objectives.values())
    total = sum(recipe.source_weights.values())
    shares = [f"{objectives[name].name} ({weight / total:.0%})" for name, weight in recipe.source_weights.items()]
    return ", then ".join(shares).replace("%", " %")


def required_capabilities(recipe: Recipe) -> list[frozenset[str]]:
    """The capabilities that each objective or task of a recipe uses."""
    parts = [settings for source in recipe.objectives.values() for settings in source]
    return [
        objective_class(settings).requires | ({settings.required_mode} if settings.required_mode else set())
        for settings in parts
    ]


def build_learner(recipe: Recipe, tokenizer: Tokenizer) -> Learner:
    """A learner with objectives and a model whose initial weights depend only on the recipe and its seed."""
    objectives = build_objectives(recipe, tokenizer)
    _check_fits_memory(recipe, tokenizer)
    torch.default_generator.manual_seed(stream_key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    backbone = MODEL_FAMILIES[recipe.model.family](
        recipe.model, max(tokenizer.vocab_size, recipe.tokenizer.padded_vocab_size or 0)
    )
    if "characters" in backbone.capabilities:
        backbone.spell = TokenCharIds(tokenizer)
    recipe_heads = {name: Head(head.kind, tuple(head.sizes.items())) for name, head in recipe.heads.items()}
    return Learner(Model(backbone, {**recipe_heads, **collect_heads(objectives)}), objectives)


def _check_fits_memory(recipe: Recipe, tokenizer: Tokenizer) -> None:
    """Raise if the weights do not fit into the machine's memory; large models are first built on the meta device."""
    vocab_size = max(tokenizer.vocab_size, recipe.tokenizer.padded_vocab_size or 0)
    sizes = sorted(iter_integers(recipe.model.model_dump()))
    if prod((*sizes[-2:], vocab_size)) < SMALL_MODEL_LIMIT:
        return
    with on_meta_device():
        parameters = sum(p.numel() for p in MODEL_FAMILIES[recipe.model.family](recipe.model, vocab_size).parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * parameters > memory:
        raise RecipeError(
            f"model: {parameters:,} parameters take {parameters / 2.5e8:,.0f} GB, and this machine has "
            f"{memory / 1e9:,.0f} GB: choose a smaller model.hidden_size, model.layers or vocabulary"
        )


def pad_values(tokenizer: Tokenizer) -> dict[str, int]:
    """Input name → padding id."""
    return dict.fromkeys(TOKEN_INPUTS, tokenizer.pad or 0)


def build_feeds(
    recipe: PretrainRecipe,
    objectives: Mapping[str, Objective],
    tokenizer: Tokenizer,
    stores: Mapping[str, TokenDataset],
    *,
    split: str,
    seed: int,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> dict[str, Feed]:
    """Source name → feed of the batches of one split; sources without that split are left out."""
    max_length, train = recipe.model.max_length, recipe.train
    feeds: dict[str, Feed] = {}
    for name, objective in objectives.items():
        if split not in stores[name].splits:
            continue
        view_spec = select_view(objective, recipe)
        if train.privacy is not None and split == "train":
            stream = stores[name].split(split)
            source_seed = stream_key(seed, "source", len(feeds))
            feeds[name] = private_feed(recipe, objective, view_spec, stream, tokenizer, source_seed, distributed)
            continue
        options: dict[str, Any] = dict(view_spec.options)
        if view_spec.kind == "contiguous":
            options["num_rows"] = max(1, train.batch_tokens // max_length)
        if recipe.dataset.shuffle_documents and split == "train":
            options["shuffle_documents"] = True
        view = DATASET_VIEWS[view_spec.kind](
            stores[name].split(split), tokenizer, max_length, isolate=recipe.dataset.intra_document_mask, **options
        )
        tokens = sample_size(view, objective, view_spec, max_length)
        batch_size = max(1, int(train.batch_tokens / tokens.mean))
        micro_batch_size = (
            max(1, min(batch_size, train.micro_batch_tokens // tokens.maximum))
            if train.micro_batch_tokens is not None
            else batch_size
        )
        is_later_phase = split == "train" and len(feeds) > 0 and bool(recipe.phases)
        feeds[name] = Feed(
            view=view,
            objective=objective,
            seed=stream_key(seed, "phase", len(feeds)) % MAX_SEED if is_later_phase else seed,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            pad_values=pad_values(tokenizer),
            tokens_per_sample=tokens.mean,
            distributed=distributed,
        )
    return feeds


def private_feed(
    recipe: PretrainRecipe,
    objective: Objective,
    view_spec: ViewSpec,
    stream: TokenStream,
    tokenizer: Tokenizer,
    seed: int,
    distributed: DistributedContext,
) -> PoissonFeed:
    """Poisson-sampled documents: in the mean as many as full rows in `batch_tokens`, which the text has no part in."""
    train, max_length = recipe.train, recipe.model.max_length
    assert train.privacy is not None
    return poisson_feed(
        unit_view(view_spec, stream, tokenizer, max_length, isolate=recipe.dataset.intra_document_mask),
        objective,
        seed=seed,
        units_per_step=max(1, train.batch_tokens // max_length),
        max_rows=train.privacy.max_rows_per_document,
        micro_batch_tokens=train.micro_batch_tokens,
        vocab_size=tokenizer.vocab_size,
        pad_values=pad_values(tokenizer),
        distributed=distributed,
        unit="document",
    )


def sample_size(view: DatasetView, objective: Objective, view_spec: ViewSpec, length: int) -> SampleTokens:
    """Tokens per sample: `length` where text is packed into full rows that the objective keeps as they are, else
    counted."""
    is_one_full_row = objective.max_rows_per_sample == 1 and not isinstance(objective, MultiObjective)
    if view_spec.kind in ("windows", "contiguous") and is_one_full_row and "encoder_decoder" not in objective.requires:
        return SampleTokens(float(length), length)
    return sample_tokens(view, objective)


def select_view(objective: Objective | type[Objective], recipe: PretrainRecipe) -> ViewSpec:
    """How the dataset is cut into samples: contiguous for a backbone with segment memory, or if the recipe says so.

    A two-stream backbone (XLNet) may read half of the rows backwards.
    A character-level backbone (ELMo) also gets character ids.
    """
    family = MODEL_FAMILIES[recipe.model.family]
    capabilities = family.capabilities
    requested = recipe.dataset.contiguous_batches
    is_contiguous = recipe.model.carries_memory if requested is None else requested
    view = objective.memory_view if is_contiguous and objective.memory_view is not None else objective.view
    if view.kind == "contiguous" and recipe.model.reads_both_ways:
        view = ViewSpec(view.kind, (*view.options, ("both_ways", True)))
    return ViewSpec(view.kind, (*view.options, ("characters", True))) if "characters" in capabilities else view
