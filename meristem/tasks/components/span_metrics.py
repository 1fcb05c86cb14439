"""Metrics and output of extractive question answering: exact match and F1 as in SQuAD, {answer, score, start, end}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import OutputFormat, TaskMetrics
from meristem.metrics import squad_f1 as metrics
from meristem.tasks.components.span_head import SpanAnswer


class SpanMetrics(TaskMetrics):
    """Predicted answers against all gold answers of a question."""

    main = "f1"

    def __init__(self, *, allow_no_answer: bool) -> None:
        self.allow_no_answer = allow_no_answer

    def compute(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> Metrics:
        """Exact match and F1 as defined by SQuAD."""
        return metrics.score([_gold_texts(sample) for sample in samples], [answer.text for answer in predictions])

    def resampler(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> Resampler:
        """The same metrics for resampled indices, computed from each question's scores."""
        return metrics.resampler([_gold_texts(sample) for sample in samples], [answer.text for answer in predictions])

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Numbers of questions with and without answer."""
        return metrics.support([_gold_texts(sample) for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Always "no answer"."""
        return metrics.baselines([_gold_texts(sample) for sample in samples])

    def confusion(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Answer or no answer, gold by predicted; None if every question has an answer."""
        if not self.allow_no_answer:
            return None
        counts = np.zeros((2, 2), np.int64)
        for answer, sample in zip(predictions, samples, strict=True):
            counts[int(not len(sample.gold)), int(not answer.text)] += 1
        return ConfusionMatrix.from_matrix(("answer", "no answer"), counts)

    def mistakes(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> list[Mistake]:
        """Answers that match none of the golds, most confident first."""
        mistakes = [
            Mistake(
                location=sample.location,
                input_text=f"{sample.inputs['question']} | {sample.inputs['passage']}",
                gold=" | ".join(dict.fromkeys(_gold_texts(sample))) or "no answer",
                prediction=answer.text or "no answer",
                confidence=answer.score,
            )
            for answer, sample in zip(predictions, samples, strict=True)
            if not any(metrics.exact_and_f1(gold, answer.text)[0] for gold in _gold_texts(sample) or ("",))
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warning about questions without answer if the training data have none."""
        unanswerable = [sample.location for sample in samples if sample.gold is not None and not len(sample.gold)]
        if self.allow_no_answer or not unanswerable:
            return []
        return [
            f"{unanswerable[0]}: no answer, but every question of the training data has one; {len(unanswerable)} "
            "cannot be predicted correctly"
        ]


class SpanOutput(OutputFormat):
    """{answer, score, start, end}; an empty answer for "no answer"."""

    kind = "span"
    located_in = "passage"

    def format(self, prediction: SpanAnswer, sample: Sample) -> dict[str, Any]:
        """The best answer."""
        return {"answer": prediction.text, "score": prediction.score, "start": prediction.start, "end": prediction.end}

    def format_top(self, prediction: SpanAnswer, sample: Sample, top: int) -> list[Any]:
        """The `top` best answers."""
        return [self.format(candidate, sample) for candidate in (prediction, *prediction.others)[:top]]

    def describe(self, sample: Sample) -> str:
        """The question, its answer, and the passage."""
        answers = "unknown" if sample.gold is None else " / ".join(_gold_texts(sample)) or "no answer"
        return f"{sample.inputs['question']}  →  {answers}  |  {sample.inputs['passage']}"


def _gold_texts(sample: Sample) -> list[str]:
    return [str(text) for text, _ in sample.gold]
