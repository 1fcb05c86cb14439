"""A learner and its feed for every objective there is, small enough to run in a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from meristem.checkpoint import load, weight_transfer
from meristem.checkpoint.optimizer_state import flatten_state
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.corpus.document import Document
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, SEPARATOR_KINDS
from meristem.data.images import builtin_image_reference
from meristem.dataset.build import build_dataset
from meristem.dataset.feed import Feed
from meristem.dataset.length_buckets import LengthBucketedFeed as OfLikeLengths
from meristem.dataset.length_buckets import PieceView
from meristem.dataset.mixture import SourceMixture
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch, Row
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.sample import Sample
from meristem.learning.build import build_feeds, build_learner, select_view
from meristem.learning.learner import Learner
from meristem.reinforce.combined_reward import CombinedScores
from meristem.reinforce.reward_base import PromptCompletion
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.freezing import UnfreezeSchedule
from meristem.training.loop import TrainingLoop
from meristem.training.optim.param_groups import build_optimizers, parameter_names
from meristem.training.precision import Precision
from meristem.training.resume_state import restore_training
from meristem.training.run_logger import RunLogger
from meristem.training.settings import StartSettings, TrainSettings
from meristem.training.step import Stepper, StepResult
from meristem.training.train_state import TrainState
from meristem.utils.randomness import SampleRng

LENGTH, ROWS = 24, 8
SOURCE = "main"
NARROW = {"layers": 2, "hidden_size": 32, "heads": 4}
SMALL: dict[str, dict[str, Any]] = {
    "captioner": {**NARROW, "patch_size": 8},
    "electra": {**NARROW, "embedding_size": 16},
    "elmo": {
        "layers": 2,
        "hidden_size": 24,
        "cell_size": 48,
        "char_embedding_size": 4,
        "char_filters": ((1, 8), (2, 8), (3, 16)),
    },
    "mamba": {"layers": 2, "hidden_size": 32, "state_size": 4, "carry_state": True},
    "multitask": {**NARROW, "patch_size": 8},
    "rnn": {"layers": 2, "hidden_size": 48, "init_range": 0.3},
    "transformer_xl": {**NARROW, "memory_length": 16},
    "xlnet": {**NARROW, "memory_length": 16, "segments": False, "init_std": 0.1},
}
"""Families whose small selves are not simply two narrow layers: family → its settings."""


@dataclass(frozen=True)
class Case:
    """What is learned on which family."""

    objective: Any
    family: str

    def __str__(self) -> str:
        parts = self.objective if isinstance(self.objective, list) else [self.objective]
        return f"{'+'.join(p if isinstance(p, str) else p['name'] for p in parts)}@{self.family}"


def families(*abilities: str) -> list[str]:
    """Every family with these abilities."""
    return [family for family in MODEL_FAMILIES if set(abilities) <= MODEL_FAMILIES[family].capabilities]


HEADLESS = {"contrastive"}
"""Objectives that compare the vectors of the backbone: no head of the family learns."""


def _cover(product: list[Case]) -> list[Case]:
    """The first pair of every objective, and of every family the first in which its heads learn."""
    objectives = {case.objective: case for case in reversed(product)}
    carriers = {case.family: case for case in reversed(product) if case.objective not in HEADLESS}
    return [case for case in product if case in (objectives[case.objective], carriers[case.family])]


PRODUCT = [Case(name, family) for name in OBJECTIVES for family in families(*OBJECTIVES[name].requires)]
"""Every objective on every backbone that can carry it."""
REAL = [*_cover(PRODUCT), Case(["mlm", "nsp"], "bert")]
"""What `make test` runs of it: every objective on one backbone, and every backbone with one objective."""
REST = [pytest.param(case, marks=pytest.mark.slow, id=str(case)) for case in PRODUCT if case not in REAL]
"""The others, which `make test-all` adds."""
POLICIES = ["policy"]
TASKS = ["span"]
"""Tasks that cut a sample into several pieces, on BERT."""
SIDES = {"examples": PAIR_SEPARATOR, "images": IMAGE_SEPARATOR}
"""Views that read documents with two sides."""


def remembers(case: Case | str) -> bool:
    """Whether rows come in lanes, each going on where it ended."""
    if (
        isinstance(case, str)
        or not isinstance(case.objective, str)
        or "memory" not in MODEL_FAMILIES[case.family].capabilities
    ):
        return False
    return select_view(OBJECTIVES[case.objective], recipe_of(case)).kind == "contiguous"


class Ragged:
    """A view whose rows are cut to differing lengths, so that every batch has uneven counts; lanes stay even."""

    def __init__(self, view: Any) -> None:
        self.view, self.shuffled = view, view.shuffled

    def __len__(self) -> int:
        return len(self.view)

    def row(self, index: int, draw: SampleRng) -> Row:
        """The row, less up to ten tokens."""
        row = self.view.row(index, draw)
        keep = len(row.inputs["tokens"]) - index % 11
        inputs = {key: value if key == "image" else value[:keep] for key, value in row.inputs.items()}
        return Row(
            inputs=inputs, metadata={**row.metadata, "special": row.metadata["special"][:keep]}, sample_id=row.sample_id
        )


def recipe_of(case: Case, *, micro: int = ROWS, dropout: float = 0.0, **train: Any) -> Recipe:
    """A recipe of two narrow layers."""
    small = SMALL.get(case.family, NARROW)
    model = {"family": case.family, **small, "max_length": LENGTH, "dropout": dropout}
    settings = {
        "steps": 6,
        "batch_tokens": ROWS * LENGTH,
        "micro_batch_tokens": micro * LENGTH,
        "learning_rate": 1e-3,
        "seed": 3,
        **train,
    }
    return resolve_recipe("test", {"model": model, "objective": case.objective, "train": settings})


@cache
def two_sided(mark: str, tokenizer: Tokenizer, store: TokenDataset) -> TokenDataset:
    """The same sentences as pairs, one or two with the three after them, or those told of pictures."""
    stream, documents = store.split("train"), []
    for number in range(stream.documents):
        span = stream.document(number)
        sentences = tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist()).split(".")
        source_text = (
            ".".join(sentences[: 1 + number % 2])
            if mark == PAIR_SEPARATOR
            else builtin_image_reference(f"microworld:0:{number}")
        )
        documents.append(Document(mark.join((source_text, ".".join(sentences[3:6]))), f"test:{number}"))
    folder = store.folder.with_name(f"{store.folder.name}-{SEPARATOR_KINDS[mark]}")
    return build_dataset(documents, tokenizer, folder, DatasetSettings(shard_tokens=700), processes=1)


def real(
    case: Case,
    tokenizer: Tokenizer,
    store: TokenDataset,
    *,
    micro: int = ROWS,
    dropout: float = 0.0,
    ragged: bool = False,
    **train: Any,
) -> tuple[Learner, Feed, TrainSettings]:
    """A learner with fresh weights, its feed, and the settings of its training."""
    recipe = recipe_of(case, micro=micro, dropout=dropout, **train)
    learner = build_learner(recipe, tokenizer)
    mark = SIDES.get(learner.objectives[SOURCE].view.kind, "")
    fitting = two_sided(mark, tokenizer, store) if mark else store
    (feed,) = build_feeds(recipe, learner.objectives, tokenizer, {SOURCE: fitting}, split="train", seed=3).values()
    view = Ragged(feed.view) if ragged and not remembers(case) else feed.view
    full_feed = Feed(
        view=view, objective=feed.objective, seed=3, batch_size=ROWS, micro_batch_size=micro, pad_values=feed.pad_values
    )
    return learner, full_feed, recipe.train


class Letters:
    """A reward for every e."""

    def score(self, completions: Sequence[PromptCompletion]) -> CombinedScores:
        """Counted."""
        counts = np.array([float(attempt.text.count("e")) for attempt in completions])
        return CombinedScores(total=counts, parts={"letters": counts})


def policy(
    name: str,
    tokenizer: Tokenizer,
    store: TokenDataset,
    *,
    micro: int = ROWS,
    dropout: float = 0.0,
    ragged: bool = True,
    **train: Any,
) -> tuple[Learner, Feed, TrainSettings]:
    """The same for rewards: four short texts for the beginning of every document, held near the fresh model."""
    policy_settings = {
        "name": name,
        "generation_mode": "causal",
        "max_length": LENGTH,
        "num_generations": 4,
        "max_new_tokens": 4,
        "kl": {"coefficient": 0.0},
    }
    model = {"family": "gpt2", **NARROW, "max_length": LENGTH, "dropout": dropout}
    settings = {"steps": 6, "learning_rate": 1e-3, "seed": 3, **train}
    recipe = resolve_recipe(
        "test",
        {"model": model, "policy": policy_settings, "train": settings, "rewards": [{"name": "length", "target": 3}]},
    )
    learner = build_learner(recipe, tokenizer)
    objective: Any = learner.objectives["policy"]
    objective.attach(Letters(), build_learner(recipe, tokenizer).model)
    stream = store.split("train")
    spans = [stream.document(number) for number in range(stream.documents)]
    starts = [
        tokenizer.decode(stream.tokens(span.start, span.start + 3 + n % 4).tolist()) for n, span in enumerate(spans)
    ]
    samples = [Sample(inputs={"prompt": text, "columns": {}}) for text in starts]
    feed = OfLikeLengths(
        view=PieceView(objective.encode_samples(samples)),
        objective=objective,
        seed=3,
        batch_size=ROWS,
        micro_batch_size=micro,
        pad_values={"tokens": tokenizer.pad or 0},
    )
    return Learner(learner.model, {SOURCE: objective}), feed, recipe.train


def questions(tokenizer: Tokenizer, store: TokenDataset) -> list[Sample]:
    """After which sentence comes which, asked of every document."""
    stream, samples = store.split("train"), []
    for number in range(stream.documents):
        span = stream.document(number)
        passage = tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist())
        sentences = [sentence.strip() for sentence in passage.split(".") if sentence.strip()]
        question, right = sentences[number % 3], sentences[number % 3 + 1]
        inputs = {"question": question, "passage": passage, "id": str(number)}
        samples.append(Sample(inputs=inputs, gold=((right, passage.index(right)),), location=f"test:{number}"))
    return samples


def task(
    name: str,
    tokenizer: Tokenizer,
    store: TokenDataset,
    *,
    micro: int = ROWS,
    dropout: float = 0.0,
    ragged: bool = True,
    **train: Any,
) -> tuple[Learner, Feed, TrainSettings]:
    """The same for a task, whose pieces are ragged as they are."""
    task_settings = {
        "name": name,
        "backbone_mode": "bidirectional",
        "max_length": LENGTH,
        "stride": 5,
        "dropout": dropout,
    }
    model = {"family": "bert", **NARROW, "max_length": LENGTH, "dropout": dropout}
    settings = {"steps": 6, "learning_rate": 1e-3, "seed": 3, **train}
    recipe = resolve_recipe("test", {"model": model, "task": task_settings, "train": settings})
    learner = build_learner(recipe, tokenizer)
    objective = learner.objectives["task"]
    view = PieceView(objective.encode_samples(questions(tokenizer, store)))  # type: ignore[attr-defined]  # a task
    fill = {"tokens": tokenizer.pad or 0}
    feed = OfLikeLengths(
        view=view, objective=objective, seed=3, batch_size=ROWS, micro_batch_size=micro, pad_values=fill
    )
    return Learner(learner.model, {SOURCE: objective}), feed, recipe.train


def stepper_of(
    learner: Learner, settings: TrainSettings, *, plain: bool = False, precision: Precision = "float32"
) -> Stepper:
    """A stepper on the cpu; a plain one descends without an adaptive optimizer, which would amplify round-off."""
    optimizers = (
        [torch.optim.SGD(learner.parameters(), lr=settings.learning_rate)]
        if plain
        else build_optimizers(learner.model, settings)
    )
    for group in optimizers[0].param_groups:
        group.setdefault("peak", group["lr"])
        group.setdefault("initial_weight_decay", group["weight_decay"])
    return Stepper(
        learner=learner.train(),
        optimizers=optimizers,
        settings=settings,
        device=torch.device("cpu"),
        precision=precision,
    )


def batches(feed: Feed, use: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(use, micro) for micro in range(feed.micro_steps)]


def steps(stepper: Stepper, feed: Feed, span: range, total: int = 6) -> list[StepResult]:
    """Real steps."""
    return [stepper.train_step(step, total, SOURCE, batches(feed, step)) for step in span]


def gradients(learner: Learner, feed: Feed, use: int = 0) -> dict[str, torch.Tensor]:
    """The gradients of one step, whatever the number of its passes."""
    ready = [learner.explore(SOURCE, batch) for batch in batches(feed, use)]
    totals = {
        term: max(1, sum(b.target_counts.get(term, 0) for b in ready))
        for term in learner.objectives[SOURCE].loss_weights
    }
    learner.zero_grad()
    for batch in ready:
        outcome = learner(SOURCE, batch, totals)
        assert outcome.loss is not None
        outcome.loss.backward()
    return {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}


def loop_of(
    folder: Path, stepper: Stepper, feed: Feed, settings: TrainSettings, train_state: TrainState, **loop_options: Any
) -> TrainingLoop:
    """A loop in a run folder, which says nothing aloud."""
    run = RunFolder(folder) if RunFolder(folder).exists() else RunFolder.create(folder, "model: {}\n", None)
    if not run.tokenizer_path.exists():
        run.tokenizer_path.write_text("{}")
    unfreeze_schedule = UnfreezeSchedule(
        stepper.learner.model,
        StartSettings(embeddings_only_steps=loop_options.pop("frozen", 0)),
        len(feed.view) / feed.batch_size,
    )
    kind = {
        "evaluate": None,
        "selection_loss": lambda evaluation_result: evaluation_result["loss"],
        "preview_samples": lambda name, ids: [f"sample {number}" for number in ids],
        "unfreeze": unfreeze_schedule,
        **loop_options,
    }
    return TrainingLoop(
        run=run,
        recipe_yaml="model: {}\n",
        settings=settings,
        stepper=stepper,
        feeds={SOURCE: feed},
        mix=SourceMixture({SOURCE: 1.0}, 3),
        logger=RunLogger(folder, Console(quiet=True)),
        state=train_state,
        flops_per_token={SOURCE: 1.0},
        peak_flops=1e9,
        **kind,
    )


def save(folder: Path, stepper: Stepper, feed: Feed, settings: TrainSettings, step: int) -> None:
    """A checkpoint of this stepper, as the loop would write it."""
    loop_of(folder, stepper, feed, settings, TrainState(step=step, total=6, histories=stepper.histories)).save()


def resume(folder: Path, stepper: Stepper, feed: Feed) -> TrainState:
    """Everything back from the latest checkpoint."""
    checkpoint = load.load_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    weight_transfer.load_exact(stepper.learner.model, checkpoint.snapshot.model)
    restore_training(stepper, checkpoint.snapshot, {SOURCE: feed})
    state = TrainState.from_dict(checkpoint.snapshot.state)
    stepper.histories = state.histories
    return state


def bits(stepper: Stepper) -> dict[str, torch.Tensor]:
    """Weights, what optimizers remember, and memory."""
    tensors = dict(stepper.learner.model.state_dict())
    names = parameter_names(stepper.learner.model)
    for number, optimizer in enumerate(stepper.optimizers):
        tensors.update({f"optimizer/{number}/{key}": value for key, value in flatten_state(optimizer, names).items()})
    for source_key, state in stepper.memory.items():
        tensors.update({f"memory/{source_key}/{key}": value for key, value in state.items()})
    return tensors
