"""Sequence labelling: a tag for each word (named entity recognition, part-of-speech tagging)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import ConfusionMatrix, Indices, Metrics, Mistake, Sample, SamplePiece
from meristem.metrics import entity_f1 as metrics
from meristem.tasks import _tag_predictions
from meristem.tasks._tag_predictions import TagPrediction, WindowTags
from meristem.tasks._tag_task import TagTask, TagTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class TaggingTaskSettings(TagTaskSettings):
    """Settings of sequence labelling."""

    name: Literal["tagging"] = "tagging"
    """The task's name."""


class TaggingTask(TagTask):
    """p(tag | word in context)."""

    Settings = TaggingTaskSettings
    name = "tagging"

    def __init__(self, settings: TaggingTaskSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.heads = {**self.encoder_heads(), **self.tag_heads()}
        self.loss_weights = self.task_loss_weights
        self.metric = "f1" if self.are_entities else "accuracy"

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−log p of each word's tag or, with a CRF, of the tag sequences."""
        tag_loss, num_correct = self.tag_loss(model, hidden, batch)
        outcome = Outcome(loss_sums={self.name: tag_loss})
        if num_correct is not None:
            num_words = torch.full((), float(batch.target_counts[self.name]), device=tag_loss.device)
            outcome.metrics["accuracy"] = (num_correct, num_words)
        return self.add_lm_loss(model, hidden, batch, outcome)

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[WindowTags]:
        """The tags of each window's words."""
        return self.decode_tags(model, hidden, batch)

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[TagPrediction]:
        """The tags of each sample's words."""
        return self.merge_tags(samples, pieces, candidates)

    def compute_metrics(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> Metrics:
        """Entity F1 by seqeval; accuracy for plain tags."""
        predicted, golds = [item.tags for item in predictions], [sample.gold for sample in samples]
        return metrics.score(*_tag_predictions.drop_ignored(predicted, golds), entities=self.are_entities)

    def bootstrap_metrics(
        self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """The same metrics for resampled indices, computed from each sentence's counts."""
        predicted, golds = [item.tags for item in predictions], [sample.gold for sample in samples]
        return metrics.resampler(*_tag_predictions.drop_ignored(predicted, golds), entities=self.are_entities)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Number of sentences with an entity."""
        return metrics.support([sample.gold for sample in samples]) if self.are_entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent tag, and each word's most frequent tag."""
        train_words, golds = (
            [(item.inputs["words"], item.gold) for item in split_samples] for split_samples in (train, samples)
        )
        return _tag_predictions.baselines(train_words, golds, entities=self.are_entities)

    def confusion_matrix(
        self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]
    ) -> ConfusionMatrix | None:
        """Gold by predicted tag, word by word."""
        golds = [sample.gold for sample in samples]
        return _tag_predictions.confusion([item.tags for item in predictions], golds, entities=self.are_entities)

    def mistakes(self, predictions: Sequence[TagPrediction], samples: Sequence[Sample]) -> list[Mistake]:
        """Words with a wrong tag, most confident first."""
        return _tag_predictions.mistakes(predictions, samples, [sample.gold for sample in samples])

    def format_output(self, prediction: TagPrediction, sample: Sample) -> list[dict[str, Any]]:
        """[{entity_group, score, word, start, end}]; plain tags: [{entity, score, word, start, end}]."""
        return _tag_predictions.format_tags(prediction, sample, entities=self.are_entities)
