"""Helper: tiny runs of text generation tasks, on samples made in the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console

from meristem import api
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.evaluation.task_predictions import predict
from meristem.finetune.finetuning import build_tokenizer, complete_recipe
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS
from meristem.labelled.load import DatasetSplits
from meristem.learning.build import build_learner, pad_values
from meristem.learning.learner import Learner
from meristem.utils.randomness import SampleRng

MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer", "norm_position": "pre", "output_init": "zero"},
    "bart": {"family": "transformer", "activation": "gelu", "position_encoding": "learned", "scale_embeddings": False},
    "t5": {
        "family": "transformer", "activation": "geglu", "norm": "rms", "norm_position": "pre", "bias": False,
        "position_encoding": "none", "relative_buckets": 8, "scale_embeddings": False, "scale_attention": False,
    },
    "rnn": {"family": "rnn", "init_range": 0.2},
    "gpt2": {"family": "gpt2"},
    "transformer_xl": {"family": "transformer_xl", "memory_length": 8},
    "modern": {"family": "modern"},
}  # fmt: skip
"""Model settings by name, all of them small."""
BYTES = {"kind": "bpe", "vocab_size": 400}
TOKENIZERS = {"t5": {**BYTES, "sentinels": 4}, "bart": BYTES, "gpt2": BYTES}
WORDS = {"kind": "words", "vocab_size": 200}


def pairs(texts: Sequence[tuple[str, str]]) -> list[Sample]:
    """Sources with one gold each."""
    return [
        Sample(inputs={"source": source}, gold=(target,), location=f"pairs.tsv:{number}")
        for number, (source, target) in enumerate(texts, 2)
    ]


def plain(task: str, model: str) -> dict[str, Any]:
    """A recipe for a small model."""
    shape = MODELS[model]
    size = {} if shape["family"] == "rnn" else {"heads": 4}
    return {
        "task": {"name": task, "label_smoothing": 0.0, "max_tokens": 30, "beams": 3},
        "tokenizer": TOKENIZERS.get(model, WORDS),
        "model": {"layers": 2, "hidden_size": 48, "max_length": 64, "dropout": 0.0, **size, **shape},
        "train": {
            "steps": 6,
            "batch_samples": 4,
            "learning_rate": 3e-3,
            "schedule": "constant",
            "warmup": 0,
            "threads": 1,
        },
    }


def recipe_of(task: str, model: str, samples: Sequence[Sample], settings: Mapping[str, Any] | None = None) -> Recipe:
    """The same, resolved, with what the samples tell."""
    recipe = resolve_recipe("tiny", plain(task, model), settings or {})
    return complete_recipe(recipe, TASKS[task], DatasetSplits(samples={"train": list(samples)}))


def finetuned(task: str, model: str, file: Path, out: Path, settings: Mapping[str, Any]) -> str:
    """A whole run on a file; what it said."""
    recipe_values = {**plain(task, model), "data": {"train": str(file)}}
    recipe = out.parent / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(recipe_values), encoding="utf-8")
    console = Console(file=StringIO(), width=400)
    api.finetune(recipe, settings, out=out, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]  # it is the one above


def fresh(recipe: Recipe, samples: Sequence[Sample]) -> Learner:
    """A learner with weights that know nothing yet."""
    splits = DatasetSplits(samples={"train": list(samples)})
    return build_learner(recipe, build_tokenizer(recipe, TASKS[recipe.task.name], splits))


def batch_of(learner: Learner, samples: Sequence[Sample]) -> Batch:
    """All samples as one batch."""
    task: Any = learner.objectives["task"]
    rows = []
    for number, piece in enumerate(task.encode_samples(samples)):
        rows.append(task.prepare(Row(inputs={}, metadata={"piece": piece}), SampleRng(0, 0, number)))
        rows[-1].sample = number
    return collate(rows, task, pad_values(task.tokenizer))


def learned(learner: Learner, samples: Sequence[Sample], steps: int = 80, rate: float = 5e-3) -> float:
    """The loss after some steps on all samples at once."""
    batch, last_loss = batch_of(learner, samples), torch.zeros(())
    optimizer = torch.optim.AdamW(learner.parameters(), rate, weight_decay=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = learner("task", batch, {term: max(1, count) for term, count in batch.target_counts.items()}).loss
        assert loss is not None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        last_loss = loss.detach()
    learner.eval()
    return float(last_loss)


def overfitted(
    task: str, model: str, samples: Sequence[Sample], settings: Mapping[str, Any] | None = None, steps: int = 80
) -> Learner:
    """A learner that knows its samples by heart."""
    learner = fresh(recipe_of(task, model, samples, settings), samples)
    assert learned(learner, samples, steps, rate=2e-2 if model == "rnn" else 5e-3) < 0.1
    return learner


def written(learner: Learner, samples: Sequence[Sample]) -> list[str]:
    """What is written for samples."""
    return [prediction.text for prediction in predict(learner, samples).predictions]
