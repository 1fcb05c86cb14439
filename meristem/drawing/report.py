"""What a task run reports: numbers and how sure they are, what needs no model, confusions, mistakes, the recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem import bounded
from meristem.task import Confusion, Judged, Metrics

MOST_LABELS = 1000
"""Of the table of confusions in JSON, and of the list of labels on a page: the ones with the most mistakes."""


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
    samples, _, _ = _totals(confusion)
    wrong = np.flatnonzero(confusion.gold_ids != confusion.answer_ids)
    found = []
    for pair in wrong[np.argsort(-confusion.times[wrong], kind="stable")[:most]].tolist():
        gold, said, count = (int(some[pair]) for some in (confusion.gold_ids, confusion.answer_ids, confusion.times))
        names = confusion.labels[gold], confusion.labels[said]
        found.append(Confused(gold=names[0], said=names[1], count=count, share=count / int(samples[gold])))
    return found


def by_label(confusion: Confusion) -> list[OfLabel]:
    """Precision, recall and F1 of every label, in their order."""
    there, told, right = _totals(confusion)
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
    samples, answers, right = _totals(confusion)
    kept = np.sort(np.argsort(2 * right - samples - answers, kind="stable")[:most])
    new_ids = np.full(len(confusion.labels), -1)
    new_ids[kept] = np.arange(most)
    gold_ids, answer_ids = new_ids[confusion.gold_ids], new_ids[confusion.answer_ids]
    both = (gold_ids >= 0) & (answer_ids >= 0)
    labels = tuple(confusion.labels[int(number)] for number in kept)
    return Confusion(
        labels=labels, gold_ids=gold_ids[both], answer_ids=answer_ids[both], times=confusion.times[both]
    )


def _totals(confusion: Confusion) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per label: samples that have it, answers that say it, and answers that rightly do."""
    right = confusion.gold_ids == confusion.answer_ids
    each = [(confusion.gold_ids, confusion.times), (confusion.answer_ids, confusion.times)]
    each.append((confusion.gold_ids[right], confusion.times[right]))
    samples, answers, correct = (np.bincount(ids, times, len(confusion.labels)) for ids, times in each)
    return samples.astype(np.int64), answers.astype(np.int64), correct.astype(np.int64)


def plain(report: Report) -> dict[str, Any]:
    """The same facts for programs."""
    judged, confusion = report.judged, report.judged.confusion
    table = confusion and hardest(confusion, MOST_LABELS)
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
        "confusion": table and {"labels": list(table.labels), "counts": table.counts.tolist()},
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
