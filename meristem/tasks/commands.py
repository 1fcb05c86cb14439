"""Intent classification and slot filling: an utterance → an intent and slot tags, two heads on one encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.precision import at_least_float32
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch
from meristem.inputs.encoded_input import EncodedInput
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import ConfusionMatrix, Indices, Metrics, Mistake, Sample, SamplePiece
from meristem.metrics import classification
from meristem.metrics import entity_f1 as metrics
from meristem.tasks import _tag_predictions
from meristem.tasks._encoder_task import Pooling
from meristem.tasks._tag_predictions import TagPrediction, WindowTags
from meristem.tasks._tag_task import TagTask, TagTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class CommandsTaskSettings(TagTaskSettings):
    """Settings of intent classification and slot filling."""

    name: Literal["commands"] = "commands"
    """The task's name."""
    intents: tuple[str, ...] = ()
    """Intents in the order of the logits; from the training data if not set."""
    intent_weight: float = Field(1.0, gt=0)
    """Weight of the intent loss."""
    slot_weight: float = Field(1.0, gt=0)
    """Weight of the slot loss."""
    pooling: Pooling | None = None
    """Pooling of the states for the intent: first, last, mean or max; the summary token if not set."""


@dataclass(frozen=True, kw_only=True)
class CommandPrediction:
    """An intent, its probability, and a slot tag for each word."""

    intent: str
    score: float
    slots: TagPrediction


class CommandsTask(TagTask):
    """p(intent | words) and p(slot | word in context)."""

    Settings = CommandsTaskSettings
    name = "commands"
    sample_type = "command"
    metric = "exact"

    def __init__(self, settings: CommandsTaskSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if not settings.intents:
            raise MeristemError("task commands: its intents are not known; they come from the training data")
        self.intent_ids = {intent: index for index, intent in enumerate(settings.intents)}
        kind = "scores" if settings.backbone_mode == "causal" else "pooled"
        self.heads = {
            **self.encoder_heads(),
            **self.tag_heads(),
            "intent": self.sized_head(kind, len(settings.intents)),
        }
        lm_weights = {"lm": settings.lm_weight} if settings.lm_weight else {}
        self.loss_weights = {"intent": settings.intent_weight, "slots": settings.slot_weight, **lm_weights}

    @property
    def term(self) -> str:
        """The loss term of the slot tags."""
        return "slots"

    # ------------------------------------------------------------ labels

    @staticmethod
    def gold_tags(sample: Sample) -> Sequence[str] | None:
        """The slot tags of the gold (intent, tags)."""
        return None if sample.gold is None else sample.gold[1]

    @classmethod
    def fit_settings(cls, settings: CommandsTaskSettings, samples: Sequence[Sample]) -> Any:
        """The settings with the intents, sorted, and the tags of the training data."""
        counts = Counter(str(sample.gold[0]) for sample in samples if sample.gold is not None)
        if len(counts) < 2:
            raise MeristemError(
                f"data.intent: every sample has the intent {next(iter(counts), None)!r}; at least two are needed"
            )
        fitted = super().fit_settings(settings, samples)
        return fitted.model_copy(update={"intents": settings.intents or tuple(sorted(counts))})

    def unseen_label_warnings(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about intents and tags that do not occur in the training data."""
        unseen_intents: dict[str, list[str]] = {}
        for sample in samples:
            if sample.gold is not None and sample.gold[0] not in self.intent_ids:
                unseen_intents.setdefault(str(sample.gold[0]), []).append(sample.location)
        return [
            *(
                f"{locations[0]}: the intent {intent!r} does not occur in the training data; "
                f"its {len(locations)} samples cannot be predicted correctly"
                for intent, locations in unseen_intents.items()
            ),
            *super().unseen_label_warnings(samples),
        ]

    # ------------------------------------------------------------ training

    def extra_parts(self, sample: Sample, *, first_window: bool) -> dict[str, Any]:
        """The intent id, for the first window only."""
        is_known = first_window and sample.gold is not None
        return {"intent": self.intent_ids.get(sample.gold[0]) if is_known else None}

    def extra_goals(self, encoded: EncodedInput, parts: Mapping[str, Any]) -> dict[str, Any]:
        """The summary position, and the intent target."""
        summary_position = np.array([encoded.summary_position])
        intent_goal = (
            {}
            if parts["intent"] is None
            else {"intent": {"at": summary_position, "values": np.array([parts["intent"]])}}
        )
        return {"whole": {"at": summary_position}, **intent_goal}

    def _intent_logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        pooled_states = self.pool(
            hidden, batch, self.settings.pooling, batch.targets["whole"]["at"], training=model.training
        )
        return at_least_float32(model.heads["intent"](pooled_states))

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the intent, and −log p of the slot tags."""
        scores, goal = self._intent_logits(model, hidden, batch), batch.targets.get("intent")
        slot_loss, _ = self.tag_loss(model, hidden, batch)
        outcome = Outcome(loss_sums={"intent": scores.sum() * 0.0, "slots": slot_loss})
        zero = scores.new_zeros(())
        outcome.metrics["intent_accuracy"] = (zero, zero)  # on every process, also one that has only later windows
        if goal is not None:
            scores = scores[goal["at"] // batch.inputs["tokens"].shape[1]]
            outcome.loss_sums["intent"] = F.cross_entropy(scores, goal["values"], reduction="sum")
            num_correct = is_correct(scores, goal["values"]).sum().float()
            outcome.metrics["intent_accuracy"] = (
                num_correct,
                torch.full((), float(len(scores)), device=num_correct.device),
            )
        return self.add_lm_loss(model, hidden, batch, outcome)

    # ------------------------------------------------------------ predictions

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[tuple[int, float, WindowTags]]:
        """(intent id, probability, tags) of each window."""
        probs, intent_ids = self._intent_logits(model, hidden, batch).softmax(1).max(1)
        return list(zip(intent_ids.tolist(), probs.tolist(), self.decode_tags(model, hidden, batch), strict=True))

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[CommandPrediction]:
        """The intent of a sample's first window, and the tags of all windows."""
        slots = self.merge_tags(samples, pieces, [window_tags for _, _, window_tags in candidates])
        intent_by_sample = {
            piece.sample_index: (self.settings.intents[intent], score)
            for piece, (intent, score, _) in zip(pieces, candidates, strict=True)
            if piece.features["first"]
        }
        return [
            CommandPrediction(intent=intent_by_sample[index][0], score=intent_by_sample[index][1], slots=tags)
            for index, tags in enumerate(slots)
        ]

    def compute_metrics(self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]) -> Metrics:
        """Intent accuracy, slot F1 by seqeval (accuracy for plain tags), and the share of samples all correct."""
        return self.bootstrap_metrics(predictions, samples)(np.arange(len(samples)))

    def bootstrap_metrics(
        self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """The same metrics for resampled indices, computed from each sample's counts."""
        golds, predicted = _tag_predictions.drop_ignored(
            [prediction.slots.tags for prediction in predictions], [sample.gold[1] for sample in samples]
        )
        intent_correct = np.array(
            [prediction.intent == sample.gold[0] for prediction, sample in zip(predictions, samples, strict=True)],
            float,
        )
        all_correct = intent_correct * np.array(
            [gold == answer for gold, answer in zip(golds, predicted, strict=True)], float
        )
        slot_metrics, slot_metric = (
            metrics.resampler(golds, predicted, entities=self.are_entities),
            "f1" if self.are_entities else "accuracy",
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
        return {"slot_f1": metrics.support([sample.gold[1] for sample in samples])["f1"]} if self.are_entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent intent, and each word's most frequent tag."""
        intents = classification.baselines(
            "single", [item.gold[0] for item in train], [item.gold[0] for item in samples], ()
        )
        train_words, golds = (
            [(item.inputs["words"], item.gold[1]) for item in split_samples] for split_samples in (train, samples)
        )
        slots, slot_metric = (
            _tag_predictions.baselines(train_words, golds, entities=self.are_entities),
            "f1" if self.are_entities else "accuracy",
        )
        results = {baseline_name: {"intent_accuracy": item["accuracy"]} for baseline_name, item in intents.items()}
        return results | {
            baseline_name: {f"slot_{slot_metric}": item[slot_metric]} for baseline_name, item in slots.items()
        }

    def confusion_matrix(
        self, predictions: Sequence[CommandPrediction], samples: Sequence[Sample]
    ) -> ConfusionMatrix | None:
        """Gold by predicted intent."""
        return _tag_predictions.confusion(
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
        slot_mistakes = _tag_predictions.mistakes(
            [item.slots for item in predictions], samples, [sample.gold[1] for sample in samples]
        )
        return sorted([*intent_mistakes, *slot_mistakes], key=lambda item: -item.confidence)

    def format_output(self, prediction: CommandPrediction, sample: Sample) -> dict[str, Any]:
        """{intent, score, slots}; slots in the format of tagging."""
        slots = _tag_predictions.format_tags(prediction.slots, sample, entities=self.are_entities)
        return {"intent": prediction.intent, "score": prediction.score, "slots": slots}

    def describe_sample(self, sample: Sample) -> str:
        """The intent, then each word with its tag."""
        return f"{sample.gold[0] if sample.gold is not None else ''}: {super().describe_sample(sample)}"
