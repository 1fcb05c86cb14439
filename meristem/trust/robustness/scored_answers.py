"""Answers of a task with their probabilities, and whether they are right: per sample, or per word of a tagging task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Mistake
from meristem.labelled.sample_type import SAMPLE_TYPES
from meristem.labelled.sample_types.words import WordsSample
from meristem.tasks.components.tag_predictions import IGNORED_TAG, TagPrediction

SINGLE_ANSWERS = {"label": "label", "intent": "intent", "span": "answer", "choice": "choice"}
"""Kind of output → the field of its answer, for tasks that give one answer with a probability."""


@dataclass(frozen=True, kw_only=True)
class SampleAnswers:
    """The answers to one sample."""

    shown: str
    """The answer as text."""
    confidences: tuple[float, ...]
    """The probability of each answer; empty for tasks without one."""
    correct: tuple[bool, ...]
    """Whether each of them is right."""
    mistakes: tuple[Mistake, ...]

    @property
    def confidence(self) -> float | None:
        """The probability of the least certain answer."""
        return min(self.confidences, default=None)


def score_answers(task: Task, predictions: Sequence[Any], samples: Sequence[Sample]) -> list[SampleAnswers]:
    """The answers to each sample; a sample without mistakes is right."""
    return [_score(task, prediction, sample) for prediction, sample in zip(predictions, samples, strict=True)]


def _score(task: Task, prediction: Any, sample: Sample) -> SampleAnswers:
    output, kind = task.parts.output, task.parts.output.kind
    mistakes = () if kind == "number" else tuple(task.metrics.mistakes([prediction], [sample]))
    if isinstance(prediction, TagPrediction):
        return _score_tags(task, prediction, sample, mistakes)
    formatted = output.format(prediction, sample)
    if kind not in SINGLE_ANSWERS:
        return SampleAnswers(shown=_shown(formatted), confidences=(), correct=(), mistakes=mistakes)
    return SampleAnswers(
        shown=str(formatted[SINGLE_ANSWERS[kind]]),
        confidences=(float(formatted["score"]),),
        correct=(not mistakes,),
        mistakes=mistakes,
    )


def _score_tags(task: Task, prediction: TagPrediction, sample: Sample, mistakes: tuple[Mistake, ...]) -> SampleAnswers:
    sample_class = SAMPLE_TYPES[task.sample_type]
    assert issubclass(sample_class, WordsSample)
    golds = sample_class.gold_tags(sample)
    words = [
        (score, tag == gold)
        for tag, score, gold in zip(prediction.tags, prediction.scores, golds, strict=True)
        if gold != IGNORED_TAG
    ]
    return SampleAnswers(
        shown=" ".join(prediction.tags),
        confidences=tuple(score for score, _ in words),
        correct=tuple(is_right for _, is_right in words),
        mistakes=mistakes,
    )


def _shown(formatted: Any) -> str:
    """Several labels, or a number, as text."""
    if isinstance(formatted, list):
        return ", ".join(str(item.get("label", item)) for item in formatted) or "(none)"
    return f"{formatted['score']:.3g}"
