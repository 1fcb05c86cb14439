"""Description of a recipe: parameters and FLOPs counted, time and memory measured in a few steps on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.config.errors import RecipeError
from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, Recipe, builtin_recipes, read_recipe, resolve_recipe
from meristem.corpus.document import Document
from meristem.corpus.paired_text import PAIR_SEPARATOR
from meristem.data.images import builtin_image_reference
from meristem.dataset.build import build_dataset
from meristem.dataset.feed import Feed
from meristem.dataset.step_ramp import StepWork
from meristem.dataset.token_dataset import TokenDataset
from meristem.describe.parallel_memory import DeviceCost, count_sizes, device_cost
from meristem.finetune.finetuning import build_labelled_data, build_tokenizer, prepare_task
from meristem.learning.build import build_feeds, build_learner, check_recipe, describe_objectives
from meristem.learning.learner import Learner
from meristem.samples import paired_documents
from meristem.training.budget import StepCost, StepFlops, measure_step_cost, peak_flops, step_flops, total_step_flops
from meristem.training.freezing import prepare_trainable
from meristem.training.precision import choose_precision, product_dtype
from meristem.training.privacy.privacy_checks import refuse_shared_samples
from meristem.training.ramp_planning import part_work, plan_ramp
from meristem.training.step import resolve_device
from meristem.utils.result_tables import Tabular

MAX_TRIAL_FLOPS = 4e11  # a larger step is measured on fewer rows and scaled
BYTES_PER_TOKEN = 4.2  # English text under an 8k–50k vocabulary, for corpus sizes only
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022


@dataclass(frozen=True)
class BlankTokenizer:
    """A stand-in tokenizer with a vocabulary size and special tokens only: costs depend on shapes alone."""

    vocab_size: int
    digest: str = "blank"
    pad: int = 0
    unknown: None = None  # no token is unknown
    start: int = 2
    end: int = 3
    mask: int = 4
    sentinels: tuple[int, ...] = ()
    single_template: None = None
    special_mask: NDArray[np.bool_] = field(init=False)
    word_start_mask: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "special_mask", np.arange(self.vocab_size) < 5)
        object.__setattr__(self, "word_start_mask", np.arange(self.vocab_size) % 3 != 0)

    def id_to_token(self, token_id: int) -> str:
        """A string of the length of a word."""
        return f"{token_id:06d}"

    def encode_with_boundaries(
        self, texts: Sequence[str], boundaries: Sequence[Any]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """One token per character, spread evenly over the vocabulary."""
        return [
            ((5 + np.arange(len(text)) * 7919 % (self.vocab_size - 5)).astype(np.int32), np.asarray(offsets, np.int64))
            for text, offsets in zip(texts, boundaries, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class RecipeDescription(Tabular):
    """What `meristem describe` prints; the field names are its JSON keys."""

    name: str
    family: str
    objective: str
    parameters: int
    learning: int
    """Trainable parameters; the rest are frozen."""
    backbone: int
    vocabulary: int
    tokens_per_step: int
    flops_per_token: float
    seconds_per_step: float
    memory: int
    steps: int | None
    seconds: float
    device: str
    peak: float
    shared: DeviceCost | None = None
    """Memory and communication of each of several devices, if requested."""


def describe_recipe(recipe: Recipe, *, vocab_size: int | None = None, devices: int | None = None) -> RecipeDescription:
    """Build the model, run it for a few seconds, and return counts and measurements."""
    check_recipe(recipe)
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(recipe, FinetuneRecipe):
            learner, source, feed, tokens_per_step = build_task_trial(recipe)
        elif isinstance(recipe, PretrainRecipe):
            learner, feeds = build_trial(recipe, vocab_size or recipe.tokenizer.vocab_size, Path(folder))
            source, feed = next(iter(feeds.items()))
            tokens_per_step = feed.batch_size * feed.tokens_per_sample
        else:
            raise RecipeError(f"{recipe.name}: the cost of a rollout is not measured before its model is trained")
        device = resolve_device(recipe.train)
        works = {
            kind: part_work(recipe.train, {source: feed}, {source: 1.0}, partial(_part_flops, learner, feed), kind)
            for kind in (recipe.train.budget[0], "flops")
        }
        row_flops = total_step_flops(learner, source, [feed.batch_at(0, 1)])
        trial_rows = max(1, min(feed.micro_batch_size, int(MAX_TRIAL_FLOPS / row_flops)))
        cost = measure_step_cost(
            learner,
            source,
            lambda step: [feed.batch_at(step * trial_rows, trial_rows)],
            recipe.train,
            device,
            choose_precision(recipe, device, learner.model.backbone),
        )
    scale = feed.batch_size / trial_rows
    steps_per_epoch = len(feed.view) / feed.batch_size if isinstance(recipe, FinetuneRecipe) else None
    description = _build_description(
        recipe,
        learner,
        cost,
        scale,
        device,
        tokens_per_step=round(tokens_per_step),
        steps_per_epoch=steps_per_epoch,
        works=works,
    )
    if devices is None:
        return description
    if feed.batch_size < devices:
        raise RecipeError(f"--devices {devices}: a step has only {feed.batch_size} rows (train.batch_tokens)")
    sizes = count_sizes(learner, recipe.train)
    activation_bytes = max(0, cost.memory_bytes - sizes.state_bytes) / trial_rows
    device_rows = min(feed.micro_batch_size, -(-feed.batch_size // devices))
    return replace(
        description,
        shared=device_cost(sizes, devices, sharded=recipe.train.fsdp, activations=activation_bytes * device_rows),
    )


def _build_description(
    recipe: Recipe,
    learner: Learner,
    cost: StepCost,
    scale: float,
    device: torch.device,
    *,
    tokens_per_step: int,
    steps_per_epoch: float | None,
    works: Mapping[str, Mapping[int, float]],
) -> RecipeDescription:
    """Scale the measured cost to a full step; `steps_per_epoch` is None if it is not known. `works` are those of the
    budget and in FLOPs (`part_work`)."""
    step_seconds = cost.seconds * scale
    kind, value = recipe.train.budget
    steps_by_budget = {
        "steps": value,
        "tokens": value / tokens_per_step,
        "flops": value / (cost.flops * scale),
        "minutes": value * 60 / step_seconds,
        **({} if steps_per_epoch is None else {"epochs": value * steps_per_epoch}),
    }
    steps, seconds = None, 0.0
    if (full_steps := steps_by_budget.get(kind)) is not None:
        steps, ramp = plan_ramp(recipe.train, max(1, round(full_steps)), works[kind])
        seconds = StepWork(ramp, works["flops"]).until(steps) * step_seconds
    model = learner.model
    precision = choose_precision(recipe, device, learner.model.backbone)
    return RecipeDescription(
        name=recipe.name,
        family=recipe.model.family,
        objective=describe_objectives(recipe, learner.objectives),
        parameters=sum(p.numel() for p in model.parameters()),
        learning=sum(p.numel() for p in model.parameters() if p.requires_grad),
        backbone=sum(p.numel() for p in model.backbone.parameters()),
        vocabulary=model.backbone.embedding().num_embeddings,
        tokens_per_step=tokens_per_step,
        flops_per_token=cost.flops / cost.tokens,
        seconds_per_step=step_seconds,
        memory=cost.memory_bytes,
        steps=steps,
        seconds=seconds,
        device=str(device),
        peak=max(peak_flops(device, dtype=product_dtype(precision)), cost.flops / cost.seconds),
    )


def _part_flops(learner: Learner, feed: Feed, source: str, parts: int) -> StepFlops:
    """FLOPs of one sample in so many parts."""
    return step_flops(learner, source, [feed.batch_at(0, 1, parts)])


def build_task_trial(recipe: FinetuneRecipe) -> tuple[Learner, str, Feed, float]:
    """A task on its own samples: the learner, its source and feed, and the tokens of a step."""
    recipe, task, data_splits = prepare_task(recipe)
    training_data = build_labelled_data(recipe, task, data_splits, build_tokenizer(recipe, task, data_splits))
    learner = build_learner(recipe, training_data.tokenizer)
    prepare_trainable(learner.model, recipe.start)
    ((name, feed),) = training_data.build_feeds(recipe, learner.objectives, split="train", seed=0).items()
    return learner, name, feed, training_data.tokens_per_step(feed)


def build_trial(recipe: PretrainRecipe, vocab_size: int, folder: Path) -> tuple[Learner, dict[str, Feed]]:
    """The learner, and feeds of placeholder documents that are cut and corrupted like real ones; those of private
    training are packed, since a few placeholders cannot be sampled as it does."""
    refuse_shared_samples(recipe)
    recipe = replace(recipe, train=recipe.train.model_copy(update={"privacy": None}))
    tokenizer: Any = BlankTokenizer(
        vocab_size, sentinels=tuple(range(vocab_size - recipe.tokenizer.sentinels, vocab_size))
    )
    learner = build_learner(recipe, tokenizer)
    prepare_trainable(learner.model, recipe.start)
    rows = max(4, recipe.train.batch_tokens // recipe.model.max_length)
    dataset_by_separator: dict[str, TokenDataset] = {}
    for side_separator in {source.corpus.side_separator for source in recipe.sources()}:
        texts = _blank_texts(side_separator, rows, recipe.model.max_length)
        documents = [Document(text, f"blank:{number}") for number, text in enumerate(texts)]
        dataset_by_separator[side_separator] = build_dataset(
            documents, tokenizer, folder / (side_separator.encode().hex() or "text"), recipe.dataset, processes=1
        )
    datasets = {source.name: dataset_by_separator[source.corpus.side_separator] for source in recipe.sources()}
    return learner, build_feeds(recipe, learner.objectives, tokenizer, datasets, split="train", seed=0)


def _blank_texts(side_separator: str, rows: int, length: int) -> list[str]:
    """Placeholder texts of full length: two long ones, or for each row a source and target or an image and caption."""
    sentence = "a" * 19 + ". "
    if not side_separator:
        return [sentence * (-(-rows * length // 40) + 8)] * 2
    target = (sentence * -(-length // len(sentence)))[:length]
    source = (
        target
        if side_separator == PAIR_SEPARATOR
        else builtin_image_reference(next(paired_documents("microworld-pictures?size=1"))[0])
    )
    return [side_separator.join((source, target))] * rows


@dataclass(frozen=True, kw_only=True)
class RecipeFit:
    """What a recipe could be trained on in a number of hours."""

    name: str
    parameters: int
    tokens: float
    megabytes: float
    enough: bool
    """Whether the time suffices for 20 tokens per parameter (Hoffmann et al. 2022)."""


def find_fits(hours: float, flops_per_second: float) -> list[RecipeFit]:
    """Tokens that every built-in recipe could read in `hours` at `flops_per_second`, by number of parameters."""
    recipe_fits = []
    for name in builtin_recipes():
        recipe = resolve_recipe(*read_recipe(name))
        assert isinstance(recipe, PretrainRecipe)  # built-in recipes that are no tasks and have no rewards
        flops, parameters = count_flops_and_parameters(recipe)
        tokens = hours * 3600 * flops_per_second / flops
        target_tokens = TOKENS_PER_PARAMETER * parameters
        recipe_fits.append(
            RecipeFit(
                name=name,
                parameters=parameters,
                tokens=tokens,
                enough=tokens >= target_tokens,
                megabytes=min(tokens, target_tokens) * BYTES_PER_TOKEN / 1e6,
            )
        )
    return sorted(recipe_fits, key=lambda fit: fit.parameters)


def count_flops_and_parameters(recipe: PretrainRecipe) -> tuple[float, int]:
    """FLOPs per token and number of parameters, from one row on the meta device."""
    train = recipe.train.model_copy(update={"batch_tokens": recipe.model.max_length, "micro_batch_tokens": None})
    recipe = replace(recipe, train=train)
    with tempfile.TemporaryDirectory() as folder:
        with torch.device("meta"):
            learner, feeds = build_trial(recipe, recipe.tokenizer.vocab_size, Path(folder))
        name, feed = next(iter(feeds.items()))
        row_flops = step_flops(learner, name, [feed.batch_at(0, 1)])
    return row_flops.per_token, sum(p.numel() for p in learner.model.parameters())
