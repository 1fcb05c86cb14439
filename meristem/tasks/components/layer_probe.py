"""Linear classifiers on every layer of a frozen model: state reader, head, metrics and output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_evaluation import ConfusionMatrix, Indices, Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import HeadClasses, OutputFormat, StateReader, TaskHead, TaskMetrics
from meristem.metrics.bootstrap import sum_rows
from meristem.tasks.components import tag_predictions
from meristem.tasks.components.tag_predictions import IGNORED_TAG, TagPrediction, WindowTags
from meristem.tasks.components.tag_set import TagSet
from meristem.tasks.components.word_windows import as_word_sample, split_by_window

Level = Literal["words", "text"]


@dataclass(frozen=True, kw_only=True)
class ProbePrediction:
    """The predictions of each layer for a sample's words, embeddings first."""

    layers: tuple[TagPrediction, ...]


def word_or_text_labels(sample: Sample) -> Sequence[str] | None:
    """The tags of the words, or the one label of the text."""
    if sample.gold is None or "words" in sample.inputs:
        return sample.gold  # type: ignore[no-any-return]  # as its sample type defines it
    if isinstance(sample.gold, list | tuple):
        raise MeristemError(f"{sample.location}: a probe predicts a single label, but this text has several")
    return (str(sample.gold),)


class FrozenLayers(StateReader):
    """The states of every layer, with the backbone in evaluation mode and without gradient."""

    def __init__(self, *, causal: bool) -> None:
        self.heads = {}
        self.causal = causal

    def encode(self, model: Model, batch: Batch, state: State | None = None, positions: Tensor | None = None) -> Hidden:
        """States of every layer [B, T, D]; of an encoder-decoder those of the encoder."""
        backbone, causal_input = model.backbone, {"causal": True} if self.causal else {}
        training = backbone.training
        backbone.eval()
        with torch.no_grad():
            hidden: Hidden = backbone(**batch.inputs, **causal_input, want=("layers",))
        backbone.train(training)
        hidden.layers = hidden.extra.get("encoder_layers", hidden.layers)
        return hidden


class ProbeHead(TaskHead):
    """p(label | state of a layer), with one classifier per layer."""

    def __init__(self, term: str, tags: TagSet, level: Level, dropout: float) -> None:
        self.term, self.tags, self.level, self.dropout = term, tags, level, dropout
        self.heads, self.loss_weights = {term: Head("probes", (("classes", len(tags.labels)),))}, {term: 1.0}
        self.classes = HeadClasses(labels=tags.labels)
        self.class_obstacles = ("a class with a head on every layer",)

    def _logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Logits [layers, n, labels] of all words or texts of the batch."""
        positions, row_length = batch.targets["read"]["at"], batch.inputs["tokens"].shape[1]
        if self.level == "words":
            states = [layer.flatten(0, 1)[positions] for layer in hidden.layers]
        else:
            present = batch.inputs.get("present")
            mask = torch.ones_like(batch.inputs["tokens"]) if present is None else present
            token_weights = (mask / mask.sum(1, keepdim=True))[..., None].to(hidden.layers[0].dtype)
            states = [(layer * token_weights).sum(1)[positions // row_length] for layer in hidden.layers]
        states = [F.dropout(state, self.dropout, model.training) for state in states]
        return at_least_float32(model.heads[self.term](states))

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy, averaged over layers."""
        logits, values = self._logits(model, hidden, batch), batch.targets["read"]["values"]
        labels = values.repeat(len(logits))
        loss_sum = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=-1, reduction="sum")
        return Outcome(loss_sums={self.term: loss_sum / len(logits)})

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[WindowTags]:
        """For each window, label ids and probabilities [layers, words]."""
        probs, label_ids = self._logits(model, hidden, batch).softmax(2).max(2)
        return list(zip(*(split_by_window(batch, values.cpu().numpy()) for values in (label_ids, probs)), strict=True))

    def merge(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[ProbePrediction]:
        """The merged windows of each sample, layer by layer."""
        word_samples = [as_word_sample(sample) for sample in samples]
        layers = [
            self.tags.merge(word_samples, pieces, [(label_ids[layer], probs[layer]) for label_ids, probs in candidates])
            for layer in range(len(candidates[0][0]) if candidates else 0)
        ]
        return [ProbePrediction(layers=tuple(layer[index] for layer in layers)) for index in range(len(samples))]


class ProbeMetrics(TaskMetrics):
    """Accuracy of each layer (0: embeddings), the best layer, and its accuracy."""

    main = "accuracy"

    def __init__(self, tags: TagSet) -> None:
        self.tags = tags

    def resampler(self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]) -> Resampler:
        """The metrics for resampled indices, computed from correct words per sample and layer."""
        pairs = zip(predictions, samples, strict=True)
        counts = np.array([self._correct_counts(prediction, sample) for prediction, sample in pairs], float)

        def measure(indices: Indices) -> Metrics:
            *num_correct, num_words = sum_rows(counts, indices)
            accuracies = [float(correct / num_words) if num_words else 0.0 for correct in num_correct]
            layer_metrics = {f"layer_{index}_accuracy": accuracy for index, accuracy in enumerate(accuracies)}
            return {"accuracy": max(accuracies), "best_layer": float(np.argmax(accuracies)), **layer_metrics}

        return measure

    def _correct_counts(self, prediction: ProbePrediction, sample: Sample) -> list[int]:
        """Number of correct words of each layer, then the number of words."""
        golds = self.tags.gold(sample) or ()
        labelled = [word for word, gold in enumerate(golds) if gold != IGNORED_TAG]
        correct = (sum(layer.tags[word] == golds[word] for word in labelled) for layer in prediction.layers)
        return [*correct, len(labelled)]

    def _best_layer_tags(
        self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]
    ) -> list[TagPrediction]:
        best_layer = int(self.compute(predictions, samples)["best_layer"])
        return [prediction.layers[best_layer] for prediction in predictions]

    def confusion(self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Gold by predicted label of the best layer."""
        predicted = [item.tags for item in self._best_layer_tags(predictions, samples)]
        return tag_predictions.confusion(predicted, self.tags.golds(samples), entities=False)

    def mistakes(self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]) -> list[Mistake]:
        """The mistakes of the best layer."""
        word_samples = [as_word_sample(sample) for sample in samples]
        predicted = self._best_layer_tags(predictions, samples)
        return tag_predictions.mistakes(predicted, word_samples, self.tags.golds(samples))

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about labels that do not occur in the training data."""
        return self.tags.unseen(samples)


class ProbeOutput(OutputFormat):
    """[{layer, label, score}] for a text, or [{word, start, end, layers}] for words."""

    kind = "layers"

    def __init__(self, tags: TagSet, level: Level) -> None:
        self.tags, self.level = tags, level

    def format(self, prediction: ProbePrediction, sample: Sample) -> Any:
        """The label of each layer."""
        inputs = as_word_sample(sample).inputs
        layer_outputs = [
            [
                {"layer": layer, "label": tags.tags[index], "score": tags.scores[index]}
                for layer, tags in enumerate(prediction.layers)
            ]
            for index in range(len(inputs["words"]))
        ]
        if self.level == "text":
            return layer_outputs[0]
        return [
            {"word": word, "start": start, "end": end, "layers": layers}
            for word, (start, end), layers in zip(inputs["words"], inputs["offsets"], layer_outputs, strict=True)
        ]

    def describe(self, sample: Sample) -> str:
        """Each word with its tag, or the text with its label."""
        return self.tags.describe(sample) if self.level == "words" else f"{sample.inputs['text']}  →  {sample.gold}"
