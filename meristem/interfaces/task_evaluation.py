"""Evaluation of a task on one split: metrics with intervals, the sparse confusion matrix, mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Metrics = dict[str, float]
Resampler = Callable[[Indices], Metrics]
"""Resampled indices of the samples → metrics."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction and the model's confidence in it."""

    location: str
    """File and line of the sample."""
    input_text: str
    gold: str
    prediction: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Sparse confusion matrix: counts of the (gold, predicted) pairs that occur. Dense, 100,000 labels take 80 GB."""

    labels: tuple[str, ...]
    gold_ids: NDArray[np.int64]
    """Gold label index of each pair; pairs are sorted by gold, then by prediction."""
    predicted_ids: NDArray[np.int64]
    pair_counts: NDArray[np.int64]
    """Number of occurrences of each pair."""

    @classmethod
    def from_labels(cls, labels: Sequence[str], golds: Sequence[str], predictions: Sequence[str]) -> ConfusionMatrix:
        """Count the pairs of one gold label and one predicted label per sample."""
        index_of = {label: index for index, label in enumerate(labels)}
        gold_ids, predicted_ids = (
            np.array([index_of[label_name] for label_name in names], np.int64) for names in (golds, predictions)
        )
        pairs, pair_counts = np.unique(gold_ids * len(labels) + predicted_ids, return_counts=True)
        gold_ids, predicted_ids = np.divmod(pairs, max(1, len(labels)))
        return cls(
            labels=tuple(labels),
            gold_ids=gold_ids,
            predicted_ids=predicted_ids,
            pair_counts=pair_counts.astype(np.int64),
        )

    @classmethod
    def from_matrix(cls, labels: Sequence[str], matrix: NDArray[np.int64]) -> ConfusionMatrix:
        """From a dense matrix: gold labels in rows, predictions in columns."""
        gold_ids, predicted_ids = np.nonzero(matrix)
        pair_counts = matrix[gold_ids, predicted_ids]
        return cls(labels=tuple(labels), gold_ids=gold_ids, predicted_ids=predicted_ids, pair_counts=pair_counts)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Dense matrix [gold, predicted]; only for small label sets."""
        matrix = np.zeros((len(self.labels), len(self.labels)), np.int64)
        matrix[self.gold_ids, self.predicted_ids] = self.pair_counts
        return matrix


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """Evaluation of a task on one split: metrics, confidence intervals, confusion matrix, mistakes."""

    metrics: Metrics
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % bootstrap confidence interval of each metric."""
    num_samples: int = 0
    signature: str = ""
    """How a metric was computed, where it is usually cited with it (the sacrebleu signature)."""
    confusion: ConfusionMatrix | None = None
    mistakes: tuple[Mistake, ...] = ()
