"""What a recipe is and what it would cost here: counted exactly, measured in a few steps, never guessed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.corpus.document import Document
from meristem.corpus.pictures import drawn
from meristem.corpus.sides import PAIR
from meristem.errors import RecipeError
from meristem.learning.assemble import check, feeds_of, learner_of
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.recipe import Recipe, read, resolve, shipped
from meristem.samples import pairs
from meristem.store.build import build
from meristem.store.store import Store
from meristem.tables import Tabular
from meristem.training.budget import Cost, flops_of, measure, peak_flops, step_flops
from meristem.training.finetuning import labelled, tokenizer_of, understood
from meristem.training.sharing import Shared, shared, sizes_of
from meristem.training.step import device_of, dtype_of
from meristem.training.thawing import prepare

MOST_FLOPS = 4e11  # a measured step larger than this is measured on fewer rows and scaled
BYTES_PER_TOKEN = 4.2  # English text under an 8k–50k vocabulary, for corpus sizes only
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022


@dataclass(frozen=True)
class Blank:
    """A tokenizer that has a size and special tokens and no words: costs depend on shapes alone."""

    size: int
    digest: str = "blank"
    pad: int = 0
    unknown: None = None  # every token it makes is known
    start: int = 2
    end: int = 3
    mask: int = 4
    sentinels: tuple[int, ...] = ()
    frame: None = None
    specials: NDArray[np.bool_] = field(init=False)
    starts_word: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specials", np.arange(self.size) < 5)
        object.__setattr__(self, "starts_word", np.arange(self.size) % 3 != 0)

    def token(self, number: int) -> str:
        """As long as a word."""
        return f"{number:06d}"

    def ids_with_boundaries(
        self, texts: Sequence[str], boundaries: Sequence[Any]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """As many tokens as characters, drawn evenly from the vocabulary."""
        return [
            ((5 + np.arange(len(text)) * 7919 % (self.size - 5)).astype(np.int32), np.asarray(places, np.int64))
            for text, places in zip(texts, boundaries, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Description(Tabular):
    """The facts `meristem describe` prints."""

    name: str
    family: str
    objective: str
    parameters: int
    learning: int
    """Parameters that learn; the rest are frozen."""
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
    shared: Shared | None = None
    """What each of several devices would hold and send, where that was asked for."""


def describe(recipe: Recipe, *, vocabulary: int | None = None, devices: int | None = None) -> Description:
    """Build it, run it for a few seconds, and say what was found."""
    check(recipe)
    with tempfile.TemporaryDirectory() as folder:
        if recipe.task is not None:
            learner, name, feed, tokens = _task_trial(recipe)
        else:
            learner, feeds = _trial(recipe, vocabulary or recipe.tokenizer.size, Path(folder))
            name, feed = next(iter(feeds.items()))
            tokens = feed.rows * feed.tokens_per_sample
        device = device_of(recipe.train)
        one = flops_of(learner, name, [feed.at(0, 1)])
        rows = max(1, min(feed.micro, int(MOST_FLOPS / one)))
        cost = measure(learner, name, lambda step: [feed.at(step * rows, rows)], recipe.train, device)
    scale = feed.rows / rows
    epoch = len(feed.view) / feed.rows if recipe.task is not None else None
    found = _described(recipe, learner, cost, scale, device, tokens=round(tokens), epoch=epoch)
    if devices is None:
        return found
    if feed.rows < devices:
        raise RecipeError(f"--devices {devices}: a step has only {feed.rows} rows to share (train.batch_tokens)")
    sizes = sizes_of(learner, recipe.train)
    each = max(0, cost.bytes - sizes.kept) / rows
    mine = min(feed.micro, -(-feed.rows // devices))
    return replace(found, shared=shared(sizes, devices, sharded=recipe.train.shard, activations=each * mine))


def _described(
    recipe: Recipe,
    learner: Learner,
    cost: Cost,
    scale: float,
    device: torch.device,
    *,
    tokens: int,
    epoch: float | None,
) -> Description:
    """`epoch` is how many steps one has, where that is known."""
    per_step = cost.seconds * scale
    kind, value = recipe.train.budget
    known = {
        "steps": value,
        "tokens": value / tokens,
        "flops": value / (cost.flops * scale),
        "minutes": value * 60 / per_step,
        **({} if epoch is None else {"epochs": value * epoch}),
    }
    steps = known.get(kind)
    model = learner.model
    return Description(
        name=recipe.name,
        family=recipe.model.family,
        objective=", ".join(o.name for o in learner.objectives.values()),
        parameters=sum(p.numel() for p in model.parameters()),
        learning=sum(p.numel() for p in model.parameters() if p.requires_grad),
        backbone=sum(p.numel() for p in model.backbone.parameters()),
        vocabulary=model.backbone.embedding().num_embeddings,
        tokens_per_step=tokens,
        flops_per_token=cost.flops / cost.tokens,
        seconds_per_step=per_step,
        memory=cost.bytes,
        steps=None if steps is None else max(1, round(steps)),
        seconds=0.0 if steps is None else steps * per_step,
        device=str(device),
        peak=max(peak_flops(device, dtype=dtype_of(recipe.train, device)), cost.flops / cost.seconds),
    )


def _task_trial(recipe: Recipe) -> tuple[Learner, str, Feed, float]:
    """A task on its own samples: the learner, its feed, and the tokens of a step."""
    recipe, task, found = understood(recipe)
    material = labelled(recipe, task, found, tokenizer_of(recipe, task, found))
    learner = learner_of(recipe, material.tokenizer)
    prepare(learner.model, recipe.start)
    ((name, feed),) = material.feeds(recipe, learner.objectives, split="train", seed=0).items()
    return learner, name, feed, material.step_tokens(feed)


def _trial(recipe: Recipe, vocabulary: int, folder: Path) -> tuple[Learner, dict[str, Feed]]:
    """The recipe on blank documents, as many as a step reads, cut and corrupted as the real ones would be."""
    blank: Any = Blank(vocabulary, sentinels=tuple(range(vocabulary - recipe.tokenizer.sentinels, vocabulary)))
    learner = learner_of(recipe, blank)
    prepare(learner.model, recipe.start)
    rows = max(4, recipe.train.batch_tokens // recipe.model.length)
    made: dict[str, Store] = {}
    for mark in {source.corpus.mark for source in recipe.sources()}:
        texts = _blank_texts(mark, rows, recipe.model.length)
        documents = [Document(text, f"blank:{number}") for number, text in enumerate(texts)]
        made[mark] = build(documents, blank, folder / (mark.encode().hex() or "text"), recipe.store, processes=1)
    stores = {source.name: made[source.corpus.mark] for source in recipe.sources()}
    return learner, feeds_of(recipe, learner.objectives, blank, stores, split="train", seed=0)


def _blank_texts(mark: str, rows: int, length: int) -> list[str]:
    """Two long texts, or for each row a source and a target, or a picture and a caption, of the full length."""
    sentence = "a" * 19 + ". "
    if not mark:
        return [sentence * (-(-rows * length // 40) + 8)] * 2
    told = (sentence * -(-length // len(sentence)))[:length]
    given = told if mark == PAIR else drawn(next(pairs("microworld-pictures?size=1"))[0])
    return [mark.join((given, told))] * rows


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a recipe could do in some hours."""

    name: str
    parameters: int
    tokens: float
    megabytes: float
    enough: bool
    """Whether the time pays for about 20 tokens a parameter."""


def fits(hours: float, speed: float) -> list[Fit]:
    """Every shipped recipe against a number of hours at `speed` operations a second."""
    found = []
    for name in shipped():
        recipe = resolve(*read(name))
        flops, parameters = _counted(recipe)
        tokens = hours * 3600 * speed / flops
        wanted = TOKENS_PER_PARAMETER * parameters
        found.append(
            Fit(
                name=name,
                parameters=parameters,
                tokens=tokens,
                enough=tokens >= wanted,
                megabytes=min(tokens, wanted) * BYTES_PER_TOKEN / 1e6,
            )
        )
    return sorted(found, key=lambda fit: fit.parameters)


def _counted(recipe: Recipe) -> tuple[float, int]:
    """Operations per token and parameters, from one row and without allocating the model."""
    one_row = recipe.train.model_copy(update={"batch_tokens": recipe.model.length, "micro_tokens": None})
    recipe = replace(recipe, train=one_row)
    with tempfile.TemporaryDirectory() as folder:
        with torch.device("meta"):
            learner, feeds = _trial(recipe, recipe.tokenizer.size, Path(folder))
        name, feed = next(iter(feeds.items()))
        one = step_flops(learner, name, [feed.at(0, 1)])
    return one.per_token, sum(p.numel() for p in learner.model.parameters())
