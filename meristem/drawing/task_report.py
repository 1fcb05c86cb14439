"""Data of a task report: metrics with confidence intervals, baselines, confusions, mistakes and the recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, TaskEvaluation
from meristem.utils import untrusted_files

MOST_LABELS = 1000
"""Labels of the confusion matrix in JSON and of the list in HTML, at most: those with the most mistakes."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """Everything that a task report shows."""

    name: str
    """Name of the run."""
    task: str
    model: str
    """Short description of the model."""
    split: str
    """The samples that were predicted: test, or validation where there is no test."""
    result: TaskEvaluation
    metric: str = ""
    """The selection metric of the run, shown first."""
    split_sizes: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by split."""
    sources: Sequence[str] = ()
    """Sources of the samples, one line each."""
    baselines: Mapping[str, Metrics] = field(default_factory=dict)
    notices: Sequence[str] = ()
    """Problems found in the data."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    commands: Sequence[str] = ()
    curves: Sequence[Mapping[str, Any]] = ()
    """The lines of the run's metrics.jsonl."""
    date: str = ""
    """Date of the report, as year-month-day hour:minute."""

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics, the selection metric first."""
        names = list(self.result.metrics)
        return sorted(names, key=lambda name: name != self.metric)

    @property
    def confidence_label(self) -> str:
        """The number shown with a mistake: the model's confidence, or the error of a regression."""
        return "off by" if "squared_error" in self.result.metrics else "confidence"

    def format_confidence(self, confidence: float) -> str:
        """That number for display."""
        if self.confidence_label == "off by" or not 0 <= confidence <= 1:
            return f"{confidence:.3g}"
        return f"{100 * confidence:.1f} %"


@dataclass(frozen=True, kw_only=True)
class LabelConfusion:
    """One label predicted for another."""

    gold: str
    prediction: str
    count: int
    share: float
    """Share of the samples with that gold label."""


@dataclass(frozen=True, kw_only=True)
class LabelMetrics:
    """Metrics of one label."""

    label: str
    samples: int
    precision: float
    recall: float
    f1: float


def top_confusions(confusion: ConfusionMatrix, limit: int) -> list[LabelConfusion]:
    """The most frequent confusions, largest count first."""
    samples, _, _ = _label_totals(confusion)
    mistake_ids = np.flatnonzero(confusion.gold_ids != confusion.predicted_ids)
    most_frequent = mistake_ids[np.argsort(-confusion.pair_counts[mistake_ids], kind="stable")[:limit]]
    return [
        LabelConfusion(
            gold=confusion.labels[gold],
            prediction=confusion.labels[predicted],
            count=count,
            share=count / int(samples[gold]),
        )
        for gold, predicted, count in zip(
            confusion.gold_ids[most_frequent].tolist(),
            confusion.predicted_ids[most_frequent].tolist(),
            confusion.pair_counts[most_frequent].tolist(),
            strict=True,
        )
    ]


def per_label_metrics(confusion: ConfusionMatrix) -> list[LabelMetrics]:
    """Precision, recall and F1 of every label, in order."""
    actual, predicted, correct = _label_totals(confusion)
    return [
        LabelMetrics(
            label=label,
            samples=int(actual[index]),
            precision=float(correct[index] / max(1, predicted[index])),
            recall=float(correct[index] / max(1, actual[index])),
            f1=float(2 * correct[index] / max(1, actual[index] + predicted[index])),
        )
        for index, label in enumerate(confusion.labels)
    ]


def hardest_labels(confusion: ConfusionMatrix, limit: int) -> ConfusionMatrix:
    """The labels with the most mistakes, in order; all where they are few."""
    if len(confusion.labels) <= limit:
        return confusion
    samples, predicted, correct = _label_totals(confusion)
    label_ids = np.sort(np.argsort(2 * correct - samples - predicted, kind="stable")[:limit])
    new_ids = np.full(len(confusion.labels), -1)
    new_ids[label_ids] = np.arange(limit)
    gold_ids, predicted_ids = new_ids[confusion.gold_ids], new_ids[confusion.predicted_ids]
    in_both = (gold_ids >= 0) & (predicted_ids >= 0)
    labels = tuple(confusion.labels[int(index)] for index in label_ids)
    return ConfusionMatrix(
        labels=labels,
        gold_ids=gold_ids[in_both],
        predicted_ids=predicted_ids[in_both],
        pair_counts=confusion.pair_counts[in_both],
    )


def _label_totals(confusion: ConfusionMatrix) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per label: samples with it, predictions of it, and correct predictions."""
    is_correct = confusion.gold_ids == confusion.predicted_ids
    weighted_ids = [(confusion.gold_ids, confusion.pair_counts), (confusion.predicted_ids, confusion.pair_counts)]
    weighted_ids.append((confusion.gold_ids[is_correct], confusion.pair_counts[is_correct]))
    samples, predicted, correct = (np.bincount(ids, times, len(confusion.labels)) for ids, times in weighted_ids)
    return samples.astype(np.int64), predicted.astype(np.int64), correct.astype(np.int64)


def to_dict(report: TaskReport) -> dict[str, Any]:
    """The report as plain data."""
    result, confusion = report.result, report.result.confusion
    table = confusion and hardest_labels(confusion, MOST_LABELS)
    return {
        "name": report.name,
        "date": report.date,
        "task": report.task,
        "model": report.model,
        "split": report.split,
        "samples": dict(report.split_sizes),
        "metric": report.metric,
        "metrics": _finite_metrics(result.metrics),
        "intervals": {
            name: [_finite_or_none(low), _finite_or_none(high)] for name, (low, high) in result.intervals.items()
        },
        "signature": result.signature,
        "baselines": {name: _finite_metrics(metrics) for name, metrics in report.baselines.items()},
        "confusion": table and {"labels": list(table.labels), "counts": table.matrix.tolist()},
        "labels": [asdict(item) for item in per_label_metrics(confusion)] if confusion else [],
        "confusions": [asdict(item) for item in top_confusions(confusion, 20)] if confusion else [],
        "mistakes": [asdict(item) for item in result.mistakes],
        "sources": list(report.sources),
        "notices": list(report.notices),
        "recipe": dict(report.recipe),
        "commands": list(report.commands),
    }


def to_json(report: TaskReport) -> str:
    """`to_dict` as JSON; characters that cannot be encoded are replaced."""
    text = untrusted_files.to_json(to_dict(report), indent=1)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"


def format_metric(value: float) -> str:
    """A metric with four decimals or so, for display."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3e}"


def _finite_metrics(metrics: Metrics) -> dict[str, float | None]:
    return {name: _finite_or_none(value) for name, value in metrics.items()}


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
