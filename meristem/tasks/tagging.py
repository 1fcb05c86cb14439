"""Tagging: the words of a text → a tag each, for named entities or parts of speech (SPEC C3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from meristem.batch import Batch, Hidden, Model, Outcome
from meristem.metrics import entities as metrics
from meristem.task import Confusion, Indices, Metrics, Mistake, Piece, Sample
from meristem.tasks import _tagged
from meristem.tasks._tagged import Found, Tagged
from meristem.tasks._tags import Tags, TagSettings
from meristem.tokenizers.tokenizer import Tokenizer


class TaggingSettings(TagSettings):
    """What tagging can be told."""

    name: Literal["tagging"] = "tagging"
    """The task's name."""


class Tagging(Tags):
    """p(tag | word in its text)."""

    Settings = TaggingSettings
    name = "tagging"

    def __init__(self, settings: TaggingSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.heads = {**self.reading_heads(), **self.tag_heads()}
        self.weights = self.weights_with_lm
        self.metric = "f1" if self.entities else "accuracy"

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−log p of each word's tag, or of the sequences with the CRF."""
        lost, right = self.tags_lost(model, hidden, batch)
        outcome = Outcome(sums={self.name: lost})
        if right is not None:
            number = torch.tensor(float(batch.counts[self.name]), device=lost.device)
            outcome.metrics["accuracy"] = (right, number)
        return self.with_lm(model, hidden, batch, outcome)

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Found]:
        """The tags of a window's words."""
        return self.tags_found(model, hidden, batch)

    def gather(self, samples: Sequence[Sample], pieces: Sequence[Piece], candidates: Sequence[Any]) -> list[Tagged]:
        """The tags of a sample's words."""
        return self.tagged(samples, pieces, candidates)

    def score(self, answers: Sequence[Tagged], samples: Sequence[Sample]) -> Metrics:
        """F1 of entities by seqeval; accuracy of plain tags."""
        said, golds = [one.tags for one in answers], [sample.gold for sample in samples]
        return metrics.score(*_tagged.judged(said, golds), entities=self.entities)

    def resampled(self, answers: Sequence[Tagged], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from each sentence's counts."""
        said, golds = [one.tags for one in answers], [sample.gold for sample in samples]
        return metrics.resampled(*_tagged.judged(said, golds), entities=self.entities)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Sentences that hold an entity."""
        return metrics.support([sample.gold for sample in samples]) if self.entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The commonest tag, and each word's own commonest."""
        known, golds = ([(one.given["words"], one.gold) for one in some] for some in (train, samples))
        return _tagged.baselines(known, golds, entities=self.entities)

    def confusion(self, answers: Sequence[Tagged], samples: Sequence[Sample]) -> Confusion | None:
        """Word by word."""
        golds = [sample.gold for sample in samples]
        return _tagged.confusion([one.tags for one in answers], golds, entities=self.entities)

    def mistakes(self, answers: Sequence[Tagged], samples: Sequence[Sample]) -> list[Mistake]:
        """Words with a wrong tag."""
        return _tagged.mistakes(answers, samples, [sample.gold for sample in samples])

    def shown(self, answer: Tagged, sample: Sample) -> list[dict[str, Any]]:
        """[{entity_group, score, word, start, end}]; plain tags: [{entity, score, word, start, end}]."""
        return _tagged.shown(answer, sample, entities=self.entities)
