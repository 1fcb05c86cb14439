"""Metrics and output of sequence labelling: entity F1 as in seqeval, accuracy of plain tags, grouped entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import OutputFormat, TaskMetrics
from meristem.metrics import entity_f1 as metrics
from meristem.metrics import linear_baseline
from meristem.tasks.components import tag_predictions
from meristem.tasks.components.tag_predictions import TagPrediction
from meristem.tasks.components.tag_set import TagSet


class TagMetrics(TaskMetrics):
    """Predicted tags against golds, word by word or entity by entity."""

    def __init__(self, tags: TagSet, *, entities: bool) -> None:
        self.tags, self.entities = tags, entities
        self.main = "f1" if entities else "accuracy"

    def _golds_and_tags(
        self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]
    ) -> tuple[list[list[str]], list[list[str]]]:
        return tag_predictions.drop_ignored([item.tags for item in predictions], self.tags.golds(samples))

    def compute(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> Metrics:
        """Entity F1 by seqeval; accuracy for plain tags."""
        return metrics.score(*self._golds_and_tags(predictions, samples), entities=self.entities)

    def resampler(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> Resampler:
        """The same metrics for resampled indices, computed from each sentence's counts."""
        return metrics.resampler(*self._golds_and_tags(predictions, samples), entities=self.entities)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Number of sentences with an entity."""
        return metrics.support(self.tags.golds(samples)) if self.entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent tag, each word's most frequent tag, and a linear tagger trained on the same tags."""
        train_words, words = (
            [(sample.inputs["words"], self.tags.gold(sample) or ()) for sample in split] for split in (train, samples)
        )
        baselines = tag_predictions.baselines(train_words, words, entities=self.entities)
        (train_sentences, train_tags), (sentences, tags) = (
            tuple(zip(*split, strict=True)) or ((), ()) for split in (train_words, words)
        )
        predicted = linear_baseline.predict_tags(
            train_sentences, train_tags, sentences, ignored=tag_predictions.IGNORED_TAG
        )
        scored = tag_predictions.drop_ignored(predicted, tags)
        return {**baselines, linear_baseline.NAME: metrics.score(*scored, entities=self.entities)}

    def confusion(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Gold by predicted tag, word by word."""
        predicted = [item.tags for item in predictions]
        return tag_predictions.confusion(predicted, self.tags.golds(samples), entities=self.entities)

    def mistakes(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> list[Mistake]:
        """Words with a wrong tag, most confident first."""
        return tag_predictions.mistakes(predictions, samples, self.tags.golds(samples))

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about tags that do not occur in the training data."""
        return self.tags.unseen(samples)


class TagOutput(OutputFormat):
    """[{entity_group, score, word, start, end}]; plain tags: [{entity, score, word, start, end}]."""

    kind = "tags"

    def __init__(self, tags: TagSet, *, entities: bool) -> None:
        self.tags, self.entities = tags, entities

    def format(self, prediction: TagPrediction, sample: Sample) -> list[dict[str, Any]]:
        """The entities, or the tag of each word."""
        return tag_predictions.format_tags(prediction, sample, entities=self.entities)

    def describe(self, sample: Sample) -> str:
        """Each word with its tag."""
        return self.tags.describe(sample)
