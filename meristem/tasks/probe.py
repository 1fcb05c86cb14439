"""Linear probing: a linear classifier on each layer of a frozen model, for words or texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import ConfusionMatrix, Indices, Metrics, Mistake, Sample, SamplePiece
from meristem.metrics.bootstrap import sum_rows
from meristem.tasks import _tag_predictions
from meristem.tasks._tag_predictions import IGNORED_TAG, TagPrediction, WindowTags
from meristem.tasks._word_task import WordTask, WordTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class ProbeTaskSettings(WordTaskSettings):
    """Settings of linear probing."""

    renamed: ClassVar[dict[str, str]] = {
        "on": "level",
    }

    needs: ClassVar[SettingConditions] = {
        "subtoken_pooling": (when("level", "words"),),
        "stride": (when("level", "words"),),
    }

    name: Literal["probe"] = "probe"
    """The task's name."""
    level: Literal["words", "text"] = "words"
    """What is labelled: each word (words tagged `_` are ignored), or the text, as the mean of its states."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the states before the classifiers."""

    @model_validator(mode="after")
    def _refuse_other_heads(self) -> Self:
        if (
            self.lm_weight
            or self.scalar_mix
            or self.output_scalar_mix
            or self.network != "none"
            or self.word_embedding_size
        ):
            raise ValueError(
                "a probe uses the layers unchanged: lm_weight, scalar_mix, output_scalar_mix, network and "
                "word_embedding_size cannot be set"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class ProbePrediction:
    """The predictions of each layer for a sample's words, embeddings first."""

    layers: tuple[TagPrediction, ...]


class ProbeTask(WordTask):
    """p(label | state of a layer), with one classifier per layer; the model itself is frozen."""

    Settings = ProbeTaskSettings
    name = "probe"
    metric = "accuracy"

    def __init__(self, settings: ProbeTaskSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.sample_type = self.sample_type_for(settings)
        self.heads = {self.name: Head("probes", (("classes", len(settings.labels)),))}
        self.loss_weights = {self.name: 1.0}

    # ------------------------------------------------------------ labels

    @classmethod
    def sample_type_for(cls, settings: Any) -> str:
        """`words` or `text`."""
        return str(settings.level)

    @staticmethod
    def gold_tags(sample: Sample) -> Sequence[str] | None:
        """The tags of the words, or the one label of the text."""
        if sample.gold is None or "words" in sample.inputs:
            return WordTask.gold_tags(sample)
        if isinstance(sample.gold, list | tuple):
            raise MeristemError(f"{sample.location}: a probe predicts a single label, but this text has several")
        return (str(sample.gold),)

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Windows of words; a text is truncated at the end."""
        return super().encode_samples([_as_word_sample(sample) for sample in samples])

    # ------------------------------------------------------------ training

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """The states of every layer, with the backbone in evaluation mode and without gradient."""
        backbone, causal_flag = model.backbone, {"causal": True} if self.settings.backbone_mode == "causal" else {}
        training = backbone.training
        backbone.eval()
        with torch.no_grad():
            hidden: Hidden = backbone(**batch.inputs, **causal_flag, want=("layers",))
        backbone.train(training)
        hidden.layers = hidden.extra.get("encoder_layers", hidden.layers)  # the encoder's layers, not the decoder's
        return hidden

    def _layer_logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Logits [layers, n, labels] of all words or texts of the batch."""
        positions, row_length = batch.targets["read"]["at"], batch.inputs["tokens"].shape[1]
        if self.settings.level == "words":
            states = [layer.flatten(0, 1)[positions] for layer in hidden.layers]
        else:
            present = batch.inputs.get("present")
            mask = torch.ones_like(batch.inputs["tokens"]) if present is None else present
            token_weights = (mask / mask.sum(1, keepdim=True))[..., None].to(hidden.layers[0].dtype)
            states = [(layer * token_weights).sum(1)[positions // row_length] for layer in hidden.layers]
        return at_least_float32(
            model.heads[self.name]([self._dropout(state, training=model.training) for state in states])
        )

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy, averaged over layers."""
        scores, values = self._layer_logits(model, hidden, batch), batch.targets["read"]["values"]
        labels = values.repeat(len(scores))
        loss_sum = F.cross_entropy(scores.flatten(0, 1), labels, ignore_index=-1, reduction="sum")
        return Outcome(loss_sums={self.name: loss_sum / len(scores)})

    # ------------------------------------------------------------ predictions

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[WindowTags]:
        """For each window, label ids and probabilities [layers, words]."""
        probs, label_ids = self._layer_logits(model, hidden, batch).softmax(2).max(2)
        return list(
            zip(*(self.split_by_row(batch, values.cpu().numpy()) for values in (label_ids, probs)), strict=True)
        )

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[ProbePrediction]:
        """The merged windows of each sample, layer by layer."""
        word_samples, num_layers = (
            [_as_word_sample(sample) for sample in samples],
            len(candidates[0][0]) if candidates else 0,
        )
        layers = [
            self.merge_tags(word_samples, pieces, [(label_ids[layer], probs[layer]) for label_ids, probs in candidates])
            for layer in range(num_layers)
        ]
        return [ProbePrediction(layers=tuple(layer[index] for layer in layers)) for index in range(len(samples))]

    def compute_metrics(self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]) -> Metrics:
        """Accuracy of each layer (0: embeddings), the best layer, and its accuracy."""
        return self.bootstrap_metrics(predictions, samples)(np.arange(len(samples)))

    def bootstrap_metrics(
        self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """The same metrics for resampled indices, computed from correct words per sample and layer."""
        counts = np.array(
            [self._correct_counts(prediction, sample) for prediction, sample in zip(predictions, samples, strict=True)],
            float,
        )

        def measure(indices: Indices) -> Metrics:
            *num_correct, num_words = sum_rows(counts, indices)
            accuracies = [float(correct / num_words) if num_words else 0.0 for correct in num_correct]
            layer_metrics = {f"layer_{index}_accuracy": accuracy for index, accuracy in enumerate(accuracies)}
            return {"accuracy": max(accuracies), "best_layer": float(np.argmax(accuracies)), **layer_metrics}

        return measure

    def _correct_counts(self, prediction: ProbePrediction, sample: Sample) -> list[int]:
        """Number of correct words of each layer, then the number of words."""
        golds = self.gold_tags(sample) or ()
        labelled_words = [word for word, gold in enumerate(golds) if gold != IGNORED_TAG]
        return [
            *(sum(layer.tags[word] == golds[word] for word in labelled_words) for layer in prediction.layers),
            len(labelled_words),
        ]

    def _best_layer_tags(
        self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]
    ) -> tuple[list[TagPrediction], list[Sequence[str]]]:
        """The predictions of the best layer, and the golds."""
        best_layer = int(self.compute_metrics(predictions, samples)["best_layer"])
        return [prediction.layers[best_layer] for prediction in predictions], [
            self.gold_tags(sample) or () for sample in samples
        ]

    def confusion_matrix(
        self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]
    ) -> ConfusionMatrix | None:
        """Gold by predicted label of the best layer."""
        predicted, golds = self._best_layer_tags(predictions, samples)
        return _tag_predictions.confusion([tags.tags for tags in predicted], golds, entities=False)

    def mistakes(self, predictions: Sequence[ProbePrediction], samples: Sequence[Sample]) -> list[Mistake]:
        """The mistakes of the best layer."""
        predicted, golds = self._best_layer_tags(predictions, samples)
        return _tag_predictions.mistakes(predicted, [_as_word_sample(sample) for sample in samples], golds)

    def format_output(self, prediction: ProbePrediction, sample: Sample) -> Any:
        """[{layer, label, score}] for a text, or [{word, start, end, layers}] for words."""
        sample = _as_word_sample(sample)
        layer_outputs = [
            [
                {"layer": layer, "label": tags.tags[word_index], "score": tags.scores[word_index]}
                for layer, tags in enumerate(prediction.layers)
            ]
            for word_index in range(len(sample.inputs["words"]))
        ]
        if self.settings.level == "text":
            return layer_outputs[0]
        return [
            {"word": word, "start": start, "end": end, "layers": layers}
            for word, (start, end), layers in zip(
                sample.inputs["words"], sample.inputs["offsets"], layer_outputs, strict=True
            )
        ]

    def describe_sample(self, sample: Sample) -> str:
        """Each word with its tag, or the text with its label."""
        if self.settings.level == "words":
            return super().describe_sample(sample)
        return f"{sample.inputs['text']}  →  {sample.gold}"

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A text, which is split into words if words are probed."""
        sample = super().parse_input(value)
        return sample if self.settings.level == "words" else Sample(inputs={"text": sample.inputs["text"]})


def _as_word_sample(sample: Sample) -> Sample:
    """A text sample as a sample with the text as its only word."""
    if "words" in sample.inputs:
        return sample
    text = str(sample.inputs["text"])
    return replace(sample, inputs={"words": (text,), "text": text, "offsets": ((0, len(text)),)})
