"""Wide part of a task's head: logits of a linear model of hashed n-grams, beside those of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.hashed_linear import HashedLinear
from meristem.blocks.precision import at_least_float32
from meristem.data.ngram_features import hash_features, hashed_counts, text_features, word_features
from meristem.inputs.batch import Array, Batch
from meristem.interfaces.backbone import Head, Model
from meristem.tasks.settings import TaskSettings

TERM = "ngrams"
"""Its head, and its inputs among the targets of a batch."""
TEXT_SCALE, WORD_SCALE = 30, 3
"""Learning rate of these weights relative to the others."""
MAX_WEIGHTS = 1 << 22
"""Buckets times classes are at most this, so that a step with many classes stays fast."""
LOG_WEIGHT_PRIOR = 0.5
"""Penalty on the squared logarithm of a mixture weight relative to one half, in nats; many samples outweigh it."""


class NgramSettings(TaskSettings):
    """Settings of tasks whose head can count n-grams."""

    added: ClassVar[frozenset[str]] = frozenset({"ngram_buckets"})

    ngram_buckets: int = Field(0, ge=0, le=1 << 24)
    """Buckets of a linear model of hashed n-grams beside the states; 0 for none, as exports need."""

    @property
    def privacy_obstacle(self) -> str | None:
        """Gradients of single samples have no formula for the weights of n-grams."""
        if self.ngram_buckets:
            return "ghost clipping has no formula for a linear model of n-grams; set task.ngram_buckets=0"
        return super().privacy_obstacle


class NgramLogits:
    """Features of texts or words as inputs of a batch, and their logits."""

    export_obstacles = ("a linear model of n-grams (task.ngram_buckets)",)

    def __init__(self, num_buckets: int, num_classes: int, scale: int) -> None:
        self.num_buckets = num_buckets
        self.heads = {TERM: Head("ngrams", (("rows", num_buckets), ("classes", num_classes), ("scale", scale)))}

    @classmethod
    def build(cls, settings: NgramSettings, num_classes: int, scale: int) -> NgramLogits | None:
        """None if the settings ask for no n-grams."""
        num_buckets = min(settings.ngram_buckets, MAX_WEIGHTS // num_classes)
        return cls(num_buckets, num_classes, scale) if num_buckets else None

    def of_texts(self, texts: Sequence[str]) -> dict[str, Array]:
        """The n-grams of a text or a pair, as the target of a row."""
        buckets, weights = hashed_counts(text_features(texts), self.num_buckets)
        return {"at": np.zeros(len(buckets), np.int64), "buckets": buckets, "weights": weights}

    def of_words(self, words: Sequence[str]) -> list[Array]:
        """The buckets of each word's features: the word, its affixes and its neighbours."""
        return [hash_features(features, self.num_buckets) for features in word_features(words)]

    def word_targets(self, positions: Array, buckets: Sequence[Array]) -> dict[str, Array]:
        """The features of the words at `positions`, as the target of a row; all have the same weight."""
        flat = np.concatenate([np.empty(0, np.int64), *buckets])
        counts = [len(word_buckets) for word_buckets in buckets]
        return {"at": np.repeat(positions, counts), "buckets": flat, "weights": np.ones(len(flat), np.float32)}

    def logits(self, model: Model, batch: Batch, rows: Tensor, num_rows: int, used: Tensor | None = None) -> Tensor:
        """[num_rows, classes]; `rows` is the row of each feature, `used` says which features count."""
        buckets, weights = batch.targets[TERM]["buckets"], batch.targets[TERM]["weights"]
        if used is not None:
            weights = weights * used
        return at_least_float32(model.heads[TERM](buckets, weights, rows, num_rows))


def mix_logits(model: Model, parts: Sequence[Tensor]) -> Tensor:
    """The logits that predict: the weighted sum of those of the states and of the n-grams, if there are both."""
    head = model.heads[TERM] if len(parts) > 1 else None
    return head.mix(*parts) if isinstance(head, HashedLinear) else parts[0]


Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits and targets → the loss summed over samples."""


def fit_mixture(model: Model, scored: Sequence[tuple[Tensor, ...]], loss: Loss) -> None:
    """Weigh both parts so that `loss` is lowest on samples: batches of (logits of states, of n-grams, targets)."""
    head = model.heads[TERM]
    assert isinstance(head, HashedLinear)
    deep, wide, values = (torch.cat(tensors) for tensors in zip(*scored, strict=True))
    head.log_mixture.copy_(fit_log_mixture(deep, wide, lambda logits: loss(logits, values)))


def fit_log_mixture(deep: Tensor, wide: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The logarithms of two positive weights for which `loss` of the weighted sum is lowest, by a grid made finer."""
    centre = torch.full((2,), 0.5).log()
    best = centre
    for step, radius in ((0.5, 8), (0.1, 4)):
        offsets = [step * number for number in range(-radius, radius + 1)]
        candidates = [best + torch.tensor(pair) for pair in product(offsets, offsets)]
        values = [
            float(loss(weights[0] * deep + weights[1] * wide))
            + LOG_WEIGHT_PRIOR * float((candidate - centre).square().sum())
            for candidate in candidates
            for weights in (candidate.exp(),)
        ]
        best = candidates[int(np.argmin(values))]
    return best
