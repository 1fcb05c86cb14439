"""Intent classification beside slot filling: head, metrics and output of two predictions on one encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array, Batch
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_evaluation import ConfusionMatrix, Indices, Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import OutputFormat, TaskHead, TaskMetrics
from meristem.metrics import classification
from meristem.metrics import entity_f1 as metrics
from meristem.tasks.components import tag_predictions
from meristem.tasks.components.classification_head import count_correct
from meristem.tasks.components.label_values import unseen_label_warnings
from meristem.tasks.components.pooled_logits import PooledLogits
from meristem.tasks.components.tag_head import TagHead
from meristem.tasks.components.tag_metrics import TagMetrics, TagOutput
from meristem.tasks.components.tag_predictions import TagPrediction, WindowTags


@dataclass(frozen=True, kw_only=True)
class CommandPrediction:
    """An intent, its probability, and a slot tag for each word."""

    intent: str
    score: float
    slots: TagPrediction


class IntentSet:
    """The intents of a task; a gold is (intent, slot tags)."""

    def __init__(self, intents: Sequence[str]) -> None:
        if not intents:
            raise MeristemError("task commands: its intents are not known; they come from the training data")
        self.intents = tuple(intents)
        self.ids = {intent: index for index, intent in enumerate(intents)}

    def target(self, sample: Sample) -> Mapping[str, Array]:
        """The target of a sample; empty if its intent is unknown."""
        index = None if sample.gold is None else self.ids.get(sample.gold[0])
        return {} if index is None else {"values": np.array([index])}

    def unseen(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about intents that do not occur in the training data."""
        golds = ((str(sample.gold[0]), sample.location) for sample in samples if sample.gold is not None)
        return unseen_label_warnings("intent", self.ids, golds)


def find_intents(samples: Sequence[Sample]) -> tuple[str, ...]:
    """The intents of the training samples, sorted; at least two."""
    counts = Counter(str(sample.gold[0]) for sample in samples if sample.gold is not None)
    if len(counts) < 2:
        raise MeristemError(
            f"data.intent: every sample has the intent {next(iter(counts), None)!r}; at least two are needed"
        )
    return tuple(sorted(counts))


def slot_tags(sample: Sample) -> Sequence[str] | None:
    """The slot tags of the gold (intent, tags)."""
    return None if sample.gold is None else sample.gold[1]


class IntentSlotHead(TaskHead):
    """p(intent | words) and p(slot | word in context)."""

    def __init__(
        self, intents: IntentSet, intent_logits: PooledLogits, slots: TagHead, loss_weights: Mapping[str, float]
    ) -> None:
        self.intents, self.intent_logits, self.slots = intents, intent_logits, slots
        self.heads, self.loss_weights = {**slots.heads, **intent_logits.heads}, loss_weights
        self.classes = slots.classes
        self.export_obstacles = (*intent_logits.export_obstacles, *slots.export_obstacles)
        self.class_obstacles = ("a class with an intent head and a slot head", *slots.class_obstacles)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the intent, and −log p of the slot tags."""
        logits, target = self.intent_logits.row_logits(model, hidden, batch), batch.targets.get("intent")
        slot_loss = self.slots.loss(model, hidden, batch).loss_sums
        outcome = Outcome(loss_sums={"intent": logits.sum() * 0.0, **slot_loss})
        zero = logits.new_zeros(())
        outcome.metrics["intent_accuracy"] = (zero, zero)  # on every process, also one that has only later windows
        if target is not None:
            logits = logits[target["at"] // batch.inputs["tokens"].shape[1]]
            outcome.loss_sums["intent"] = F.cross_entropy(logits, target["values"], reduction="sum")
            outcome.metrics["intent_accuracy"] = count_correct(logits, target["values"])
        return outcome

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[tuple[int, float, WindowTags]]:
        """(intent id, probability, tags) of each window."""
        probs, intent_ids = self.intent_logits.row_logits(model, hidden, batch).softmax(1).max(1)
        return list(zip(intent_ids.tolist(), probs.tolist(), self.slots.decode(model, hidden, batch), strict=True))

    def merge(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[CommandPrediction]:
        """The intent of a sample's first window, and the tags of all windows."""
        slots = self.slots.merge(samples, pieces, [window_tags for _, _, window_tags in candidates])
        intent_by_sample = {
            piece.sample_index: (self.intents.intents[intent], score)
            for piece, (intent, score, _) in zip(pieces, candidates, strict=True)
            if piece.features["is_first"]
        }
        return [
            CommandPrediction(intent=intent_by_sample[index][0], score=intent_by_sample[index][1], slots=tags)
            for index, tags in enumerate(slots)
        ]


class IntentSlotMetrics(TaskMetrics):
    """Intent accuracy, slot F1 by seqeval (accuracy for plain tags), and the share of samples all correct."""

    main = "exact"

    def __init__(self, intents: IntentSet, slots: TagMetrics) -> None:
        self.intents, self.slots = intents, slots

    def resampler(self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]) -> Resampler:
        """The metrics for resampled indices, computed from each sample's counts."""
        golds, predicted = tag_predictions.drop_ignored(
            [prediction.slots.tags for prediction in predictions], self.slots.tags.golds(samples)
        )
        pairs = zip(predictions, samples, strict=True)
        intent_correct = np.array([prediction.intent == sample.gold[0] for prediction, sample in pairs], float)
        all_correct = intent_correct * np.array([a == b for a, b in zip(golds, predicted, strict=True)], float)
        slot_metrics, slot_metric = (
            metrics.resampler(golds, predicted, entities=self.slots.entities),
            self.slots.main,
        )

        def measure(indices: Indices) -> Metrics:
            return {
                "intent_accuracy": float(intent_correct[indices].mean()),
                f"slot_{slot_metric}": slot_metrics(indices)[slot_metric],
                "exact": float(all_correct[indices].mean()),
            }

        return measure

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Number of samples with a slot."""
        return {"slot_f1": self.slots.support(samples)["f1"]} if self.slots.entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent intent, and each word's most frequent tag."""
        train_intents, intents = ([sample.gold[0] for sample in split] for split in (train, samples))
        by_intent = classification.baselines("single", train_intents, intents, ())
        by_slot, metric = self.slots.baselines(train, samples), self.slots.main
        return {
            **{name: {"intent_accuracy": item["accuracy"]} for name, item in by_intent.items()},
            **{name: {f"slot_{metric}": item[metric]} for name, item in by_slot.items()},
        }

    def confusion(self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Gold by predicted intent."""
        return tag_predictions.confusion(
            [[item.intent] for item in predictions], [[item.gold[0]] for item in samples], entities=False
        )

    def mistakes(self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong intents and wrong slots, most confident first."""
        intent_mistakes = [
            Mistake(
                location=sample.location,
                input_text=str(sample.inputs["text"]),
                gold=str(sample.gold[0]),
                prediction=item.intent,
                confidence=item.score,
            )
            for item, sample in zip(predictions, samples, strict=True)
            if item.intent != sample.gold[0]
        ]
        slot_mistakes = self.slots.mistakes([item.slots for item in predictions], samples)
        return sorted([*intent_mistakes, *slot_mistakes], key=lambda item: -item.confidence)

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about intents and tags that do not occur in the training data."""
        return [*self.intents.unseen(samples), *self.slots.unseen_labels(samples)]


class IntentSlotOutput(OutputFormat):
    """{intent, score, slots}; slots in the format of tagging."""

    kind = "intent"

    def __init__(self, slots: TagOutput) -> None:
        self.slots = slots

    def format(self, prediction: CommandPrediction, sample: Sample) -> dict[str, Any]:
        """The intent and its slots."""
        slots = self.slots.format(prediction.slots, sample)
        return {"intent": prediction.intent, "score": prediction.score, "slots": slots}

    def describe(self, sample: Sample) -> str:
        """The intent, then each word with its tag."""
        return f"{sample.gold[0] if sample.gold is not None else ''}: {self.slots.describe(sample)}"
