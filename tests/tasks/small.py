"""Helper: a tiny model of any family with a task, trained on a handful of samples in a second, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.recipe import Recipe, resolve_recipe
from meristem.evaluation.task_predictions import predict
from meristem.finetune.finetuning import build_tokenizer, complete_recipe
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS, Task
from meristem.labelled.load import DatasetSplits
from meristem.learning.build import build_learner, pad_values
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

NARROW = {"layers": 2, "hidden_size": 32, "heads": 4}
LETTERS = {
    "layers": 2,
    "hidden_size": 24,
    "cell_size": 48,
    "char_embedding_size": 4,
    "char_filters": ((1, 8), (2, 8), (3, 16)),
}
BACKBONES: dict[str, dict[str, Any]] = {
    "bert": NARROW,
    "roberta": {**NARROW, "tokenizer": "bpe"},
    "modern": NARROW,
    "modern causal": {**NARROW, "task": {"backbone_mode": "causal"}, "tokenizer": "bpe"},
    "gpt": {**NARROW, "tokenizer": "bpe"},
    "gpt2": {**NARROW, "tokenizer": "bpe"},
    "transformer_xl": {**NARROW, "memory_length": 16, "tokenizer": "words"},
    "xlnet": {**NARROW, "memory_length": 0, "init_std": 0.1, "tokenizer": "unigram"},
    "electra": {**NARROW, "embedding_size": 16},
    "elmo": {**LETTERS, "tokenizer": "words"},
    "elmo recurrent": {
        **LETTERS,
        "tokenizer": "words",
        "task": {"network": "recurrent", "network_hidden_size": 24, "output_scalar_mix": True},
    },
    "transformer": NARROW,
    "rnn": {"layers": 1, "hidden_size": 32, "init_range": 0.3},
}
"""Every kind of text backbone, by a name that starts with its family."""
FEW = ("bert", "modern causal", "gpt2", "xlnet", "elmo recurrent", "transformer")
"""One for each backbone mode."""
FEW_FIRST = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in BACKBONES]
"""All of them; those only for `make test-all` are marked slow."""


@dataclass(frozen=True, kw_only=True)
class Small:
    """A task on a small model with its samples."""

    recipe: Recipe
    learner: Learner
    tokenizer: Tokenizer
    samples: Sequence[Sample]

    @property
    def task(self) -> Any:
        """The task itself."""
        return self.learner.objectives["task"]

    def batch(self, numbers: Sequence[int] | None = None) -> Batch:
        """Some of the samples, or all of them, as one batch."""
        pieces, rows = self.task.encode_samples(self.samples), list[Row]()
        for number in range(len(pieces)) if numbers is None else numbers:
            prepared = self.task.prepare(Row(inputs={}, metadata={"piece": pieces[number]}), SampleRng(0, 0, number))
            for row in prepared if isinstance(prepared, list) else [prepared]:
                row.sample_id = number
                rows.append(row)
        return collate(rows, self.task, pad_values(self.tokenizer))

    def learn(self, steps: int = 60, rate: float = 3e-3, *, until: float = 0.0, frozen: bool = False) -> float:
        """Train on all samples at once, at the most until the loss is that low; the last loss."""
        batch = self.batch()
        totals = {term: max(1, count) for term, count in batch.target_counts.items()}
        self.learner.model.backbone.requires_grad_(not frozen)
        learned = [parameter for parameter in self.learner.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learned, rate, weight_decay=0.0)
        loss = torch.zeros(())
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of_step = self.learner("task", batch, totals).loss
            assert loss_of_step is not None
            loss = loss_of_step.detach()
            if loss < until:
                break
            loss_of_step.backward()
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            optimizer.step()
        return float(loss)

    def answers(self, samples: Sequence[Sample] | None = None) -> list[Any]:
        """What it says of its samples, or of others."""
        return predict(self.learner, self.samples if samples is None else samples).predictions

    def score(self) -> dict[str, float]:
        """Its numbers on its own samples."""
        metrics: dict[str, float] = self.task.metrics.compute(self.answers(), self.samples)
        return metrics


def small(
    name: str,
    samples: Sequence[Sample],
    backbone: str = "bert",
    *,
    max_length: int = 32,
    seed: int = 1,
    **task_settings: Any,
) -> Small:
    """A task on a backbone, with a tokenizer trained on its samples; `told` are settings of the task."""
    backbone_settings = dict(BACKBONES[backbone])
    kind, settings = backbone_settings.pop("tokenizer", "wordpiece"), backbone_settings.pop("task", {})
    recipe = resolve_recipe(
        "small",
        {
            "task": {"name": name, "dropout": 0.0, **settings, **task_settings},
            "tokenizer": {"kind": kind, "vocab_size": 300},
            "model": {"family": backbone.split()[0], "max_length": max_length, "dropout": 0.0, **backbone_settings},
            "train": {"seed": seed},
        },
    )
    task: type[Task] = TASKS[name]
    splits = DatasetSplits(samples={"train": list(samples)})
    recipe = complete_recipe(recipe, task, splits)
    tokenizer = build_tokenizer(recipe, task, splits)
    return Small(recipe=recipe, learner=build_learner(recipe, tokenizer), tokenizer=tokenizer, samples=samples)


def close(first: Sequence[Any], second: Sequence[Any], bound: float = 1e-5) -> bool:
    """Whether answers agree within a bound."""
    return all(np.allclose(a, b, rtol=0, atol=bound) for a, b in zip(first, second, strict=True))
