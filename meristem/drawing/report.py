"""What a task run reports: numbers and how sure they are, what needs no model, confusions, mistakes, the recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from meristem import bounded
from meristem.task import Confusion, Judged, Metrics


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a report shows."""

    name: str
    """The run's."""
    task: str
    model: str
    """What answers, in a few words."""
    split: str
    """The samples that were answered: test, or validation where there is no test."""
    judged: Judged
    metric: str = ""
    """The one the run is judged by, shown first."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Samples by split."""
    sources: Sequence[str] = ()
    """Where the samples are from, a line each."""
    baselines: Mapping[str, Metrics] = field(default_factory=dict)
    notices: Sequence[str] = ()
    """What was strange about the data."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    commands: Sequence[str] = ()
    curves: Sequence[Mapping[str, Any]] = ()
    """The lines of the run's metrics.jsonl."""
    date: str = ""
    """When it was written, as year-month-day hour:minute."""

    @property
    def metrics(self) -> list[str]:
        """Names of what was measured, the one that matters most first."""
        names = list(self.judged.metrics)
        return sorted(names, key=lambda name: name != self.metric)

    @property
    def confidence(self) -> str:
        """What a mistake's number is: how sure the model was, or how far off its number is."""
        return "off by" if "squared_error" in self.judged.metrics else "confidence"

    def sure(self, confidence: float) -> str:
        """That number as a person reads it."""
        if self.confidence == "off by" or not 0 <= confidence <= 1:
            return f"{confidence:.3g}"
        return f"{100 * confidence:.1f} %"


@dataclass(frozen=True, kw_only=True)
class Confused:
    """One label taken for another."""

    gold: str
    said: str
    count: int
    share: float
    """Of the samples with that gold."""


@dataclass(frozen=True, kw_only=True)
class OfLabel:
    """How well one label is found."""

    label: str
    samples: int
    precision: float
    recall: float
    f1: float


def confusions(confusion: Confusion, most: int) -> list[Confused]:
    """The pairs that are confused most often, the largest count first."""
    wrong = confusion.counts * (1 - np.eye(len(confusion.labels), dtype=np.int64))
    there = confusion.counts.sum(1)
    found = []
    for place in np.argsort(-wrong, axis=None, kind="stable")[:most].tolist():
        gold, said = divmod(place, len(confusion.labels))
        if count := int(wrong[gold, said]):
            names = confusion.labels[gold], confusion.labels[said]
            found.append(Confused(gold=names[0], said=names[1], count=count, share=count / int(there[gold])))
    return found


def by_label(confusion: Confusion) -> list[OfLabel]:
    """Precision, recall and F1 of every label, in their order."""
    right = np.diag(confusion.counts)
    there, told = confusion.counts.sum(1), confusion.counts.sum(0)
    return [
        OfLabel(
            label=label,
            samples=int(there[number]),
            precision=float(right[number] / max(1, told[number])),
            recall=float(right[number] / max(1, there[number])),
            f1=float(2 * right[number] / max(1, there[number] + told[number])),
        )
        for number, label in enumerate(confusion.labels)
    ]


def hardest(confusion: Confusion, most: int) -> Confusion:
    """The labels with the most mistakes, in their order; all where they are few."""
    if len(confusion.labels) <= most:
        return confusion
    wrong = confusion.counts.sum(0) + confusion.counts.sum(1) - 2 * np.diag(confusion.counts)
    kept = np.sort(np.argsort(-wrong, kind="stable")[:most])
    labels = tuple(confusion.labels[int(number)] for number in kept)
    return Confusion(labels=labels, counts=confusion.counts[np.ix_(kept, kept)])


def plain(report: Report) -> dict[str, Any]:
    """The same facts for programs."""
    judged, confusion = report.judged, report.judged.confusion
    return {
        "name": report.name,
        "date": report.date,
        "task": report.task,
        "model": report.model,
        "split": report.split,
        "samples": dict(report.sizes),
        "metric": report.metric,
        "metrics": _finite(judged.metrics),
        "intervals": {name: [_number(low), _number(high)] for name, (low, high) in judged.intervals.items()},
        "signature": judged.signature,
        "baselines": {name: _finite(found) for name, found in report.baselines.items()},
        "confusion": confusion and {"labels": list(confusion.labels), "counts": confusion.counts.tolist()},
        "labels": [asdict(one) for one in by_label(confusion)] if confusion else [],
        "confusions": [asdict(one) for one in confusions(confusion, 20)] if confusion else [],
        "mistakes": [asdict(one) for one in judged.mistakes],
        "sources": list(report.sources),
        "notices": list(report.notices),
        "recipe": dict(report.recipe),
        "commands": list(report.commands),
    }


def as_json(report: Report) -> str:
    """`plain` as text; characters that no encoding has are replaced."""
    text = bounded.to_json(plain(report), indent=1)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"


def number(value: float) -> str:
    """As many digits as say something."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3e}"


def _finite(found: Metrics) -> dict[str, float | None]:
    return {name: _number(value) for name, value in found.items()}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
