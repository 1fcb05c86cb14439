"""Metrics of classification: accuracy, F1 and Matthews; micro and macro F1; Pearson and Spearman."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import TaskMetrics
from meristem.metrics import classification as metrics
from meristem.metrics import linear_baseline
from meristem.tasks.components.label_set import LabelProbs, LabelSet
from meristem.tasks.components.label_values import unseen_label_warnings

MAIN_METRICS = {"single": "accuracy", "multiple": "f1_micro", "regression": "spearman"}


class ClassificationMetrics(TaskMetrics):
    """Predicted labels or numbers against golds."""

    def __init__(self, labels: LabelSet) -> None:
        self.labels, self.problem_type = labels, labels.problem_type
        self.main = MAIN_METRICS[labels.problem_type]

    def _golds_and_labels(
        self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]
    ) -> tuple[list[Any], list[Any]]:
        return [self.labels.gold(sample) for sample in samples], [self.labels.predicted(item) for item in predictions]

    def compute(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> Metrics:
        """The metrics of the problem type."""
        return self._compute(*self._golds_and_labels(predictions, samples))

    def _compute(self, golds: Sequence[Any], predicted: Sequence[Any]) -> Metrics:
        match self.problem_type:
            case "regression":
                return metrics.regression_metrics(golds, predicted)
            case "multiple":
                return metrics.multi_label_metrics(golds, predicted, self.labels.labels)
            case "single":
                return metrics.single_label_metrics(golds, predicted, self.labels.labels)

    def resampler(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> Resampler:
        """The same metrics for resampled indices, computed from counts."""
        return metrics.resampler(self.problem_type, *self._golds_and_labels(predictions, samples), self.labels.labels)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Number of samples of each label's F1; empty unless single-label."""
        if self.problem_type != "single":
            return {}
        return metrics.support([self.labels.gold(sample) for sample in samples], self.labels.labels)

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent label, or the mean; and a linear model of n-grams trained on the same labels."""
        train_golds, golds = ([self.labels.gold(sample) for sample in split] for split in (train, samples))
        baselines = metrics.baselines(self.problem_type, train_golds, golds, self.labels.labels)
        train_texts, texts = ([_texts(sample) for sample in split] for split in (train, samples))
        if predicted := linear_baseline.predict_labels(self.problem_type, train_texts, train_golds, texts):
            baselines[linear_baseline.NAME] = self._compute(golds, predicted)
        return baselines

    def confusion(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Gold by predicted label; None unless single-label."""
        if self.problem_type != "single":
            return None
        golds, predicted = self._golds_and_labels(predictions, samples)
        names = tuple(dict.fromkeys((*self.labels.labels, *golds)))
        return ConfusionMatrix.from_labels(names, golds, predicted)

    def mistakes(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong labels by probability; numbers by absolute error."""
        mistakes = []
        for probs, sample in zip(predictions, samples, strict=True):
            gold, predicted = self.labels.gold(sample), self.labels.predicted(probs)
            if self.problem_type == "regression":
                confidence = abs(gold - predicted)
                gold, predicted = f"{gold:g}", f"{predicted:.2f}"
            elif gold == predicted:
                continue
            else:
                confidence = float(probs.max())
            mistakes.append(
                Mistake(
                    location=sample.location,
                    input_text=" | ".join(map(str, sample.inputs.values())),
                    gold=str(gold),
                    prediction=str(predicted),
                    confidence=confidence,
                )
            )
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about labels that do not occur in the training data."""
        if self.problem_type == "regression":
            return []
        golds = ((label, sample.location) for sample in samples for label in self.labels.gold_labels(sample))
        return unseen_label_warnings("label", self.labels.label_ids, golds)


def _texts(sample: Sample) -> tuple[str, ...]:
    """The text of a sample, or the two of a pair."""
    return tuple(value for value in sample.inputs.values() if isinstance(value, str))
