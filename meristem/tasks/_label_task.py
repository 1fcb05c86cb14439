"""Base of classification tasks: single-label, multi-label and regression losses, predictions and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.precision import at_least_float32
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import ConfusionMatrix, Indices, Metrics, Mistake, Sample
from meristem.metrics import classification as metrics
from meristem.tasks._encoder_task import EncoderTask, EncoderTaskSettings, Pooling
from meristem.tasks._label_values import (
    MAX_NUMBER,
    ClassWeights,
    ProblemType,
    count_labels,
    detect_problem_type,
    gold_labels,
    gold_number,
    label_sort_key,
    resolve_class_weights,
)
from meristem.tokenizers.tokenizer import Tokenizer

BoundedFloat = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
LabelProbs = NDArray[np.float32]
"""[labels]: a probability for each label; [1]: a number for regression."""


class LabelTaskSettings(EncoderTaskSettings):
    """Settings of every classification task."""

    renamed: ClassVar[dict[str, str]] = {
        "problem": "problem_type",
        "range": "target_range",
        "between": "label_separator",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "num_labels": "labels are found in the training data; leave it out, or name them in order with task.labels=[…]",
        "id2label": "labels are found in the training data; leave it out, or name them in order with task.labels=[…]",
    }

    needs: ClassVar[SettingConditions] = {
        "target_range": (when("problem_type", None, "regression"),),
        "label_separator": (when("problem_type", None, "multiple"),),
        "threshold": (when("problem_type", None, "multiple"),),
        "class_weights": (when("problem_type", None, "single", "multiple"),),
    }

    problem_type: ProblemType | None = None
    """Single-label, multi-label or regression; detected from the data if not set."""
    labels: tuple[str, ...] = ()
    """Label names in the order of the logits; from the training data if not set."""
    target_range: tuple[BoundedFloat, BoundedFloat] | None = None
    """Regression: the lowest and highest number in the training data."""
    label_separator: str = Field(",", min_length=1)
    """Multi-label: separator of labels in a column."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """Multi-label: probability from which a label is predicted."""
    class_weights: ClassWeights = "none"
    """Weight of each label in the loss; balanced gives all labels the same total weight."""
    pooling: Pooling | None = None
    """Pooling of the states: first, last, mean or max; the summary token ([CLS] or the last) if not set."""

    @property
    def head_labels(self) -> tuple[str, ...]:
        """The labels of the outputs."""
        return self.labels


class LabelTask(EncoderTask):
    """p(label | text) from one pooled vector."""

    Settings: ClassVar[type[LabelTaskSettings]] = LabelTaskSettings
    score_name: ClassVar[str] = "score"
    """The label of a regression output."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if settings.problem_type is None:
            raise MeristemError(f"task {settings.name}: its labels are not known; they come from the training data")
        self.label_ids = {label: number for number, label in enumerate(settings.labels)}
        classes = 1 if settings.problem_type == "regression" else len(settings.labels)
        self.heads = {**self.encoder_heads(), **self.label_heads(classes)}
        self.loss_weights = self.task_loss_weights
        self.metric = {"single": "accuracy", "multiple": "f1_micro", "regression": "spearman"}[settings.problem_type]

    @property
    def head_kind(self) -> str:
        """As in transformers: a linear layer on a causal model, a pooler and a linear layer on others."""
        return "scores" if self.settings.backbone_mode == "causal" else "pooled"

    def label_heads(self, num_classes: int) -> dict[str, Head]:
        """The head that computes logits from a vector."""
        return {self.name: self.sized_head(self.head_kind, num_classes)}

    # ------------------------------------------------------------ labels

    @classmethod
    def fit_settings(cls, settings: LabelTaskSettings, samples: Sequence[Sample]) -> LabelTaskSettings:
        """The settings with problem type, labels and class weights determined from the training samples."""
        problem = settings.problem_type or detect_problem_type([sample.gold for sample in samples])
        _check_problem_settings(settings.model_copy(update={"problem_type": problem}))
        if problem == "regression":
            numbers = [gold_number(sample) for sample in samples]
            reach = settings.target_range or (min(numbers), max(numbers))
            return settings.model_copy(update={"problem_type": problem, "target_range": reach})
        found = count_labels(samples, problem, settings.label_separator, settings.labels)
        if len(found) < 2 and problem == "single":
            only = next(iter(found), None)
            raise MeristemError(f"data.label: every training sample has the label {only!r}; at least two are needed")
        labels = settings.labels or tuple(sorted(found, key=label_sort_key))
        if not labels:
            raise MeristemError("data.label: no training sample has any label")
        weights = resolve_class_weights(settings.class_weights, labels, found, len(samples), problem)
        return settings.model_copy(update={"problem_type": problem, "labels": labels, "class_weights": weights})

    def unseen_label_warnings(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about labels that do not occur in the training data."""
        if self.settings.problem_type == "regression":
            return []
        where: dict[str, list[str]] = {}
        for sample in samples:
            for label in self._gold_labels(sample):
                if label not in self.label_ids:
                    where.setdefault(label, []).append(sample.location)
        return [
            f"{places[0]}: the label {label!r} does not occur in the training data; "
            f"{len(places):,} sample{'s' * (len(places) > 1)} with it cannot be predicted correctly"
            for label, places in where.items()
        ]

    def _gold_labels(self, sample: Sample) -> tuple[str, ...]:
        return gold_labels(sample, self.settings.problem_type, self.settings.label_separator)

    # ------------------------------------------------------------ training

    def label_goal(self, sample: Sample) -> dict[str, Any]:
        """The target of a sample; empty if its label is unknown."""
        s = self.settings
        if sample.gold is None:
            return {}
        if s.problem_type == "regression":
            low, high = s.target_range
            return {"values": np.array([(gold_number(sample) - low) / ((high - low) or 1.0)], np.float32)}
        given = [self.label_ids[label] for label in self._gold_labels(sample) if label in self.label_ids]
        if s.problem_type == "multiple":
            wanted = np.zeros((1, len(s.labels)), np.float32)
            wanted[0, given] = 1.0
            return {"values": wanted}
        return {"values": np.array(given, np.int64)} if given else {}

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Logits [samples, classes]: the head on the sum of the vectors of a sample's rows."""
        rows = self.pool(hidden, batch, self.settings.pooling, batch.targets["read"]["at"], training=model.training)
        if len(batch.sample_ids) < len(rows):
            rows = rows.new_zeros(len(batch.sample_ids), rows.shape[1]).index_add(0, batch.sample_index, rows)
        return at_least_float32(model.heads[self.name](rows))

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The summary positions, if no other states are needed; else None."""
        return batch.targets["read"]["at"] if self.settings.pooling is None and not self.settings.lm_weight else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy, binary cross-entropy averaged over labels, or squared error."""
        scores = self.scores(model, hidden, batch)
        goal = batch.targets.get(self.name)
        if goal is None or not len(goal["at"]):
            return self.add_lm_loss(model, hidden, batch, Outcome(loss_sums={self.name: scores.sum() * 0.0}))
        scores = scores[batch.sample_index[goal["at"] // batch.inputs["tokens"].shape[1]]]
        values, weights = goal["values"], self._class_weights(scores) if model.training else None
        match self.settings.problem_type:
            case "regression":
                lost = (scores[:, 0] - values).square().sum()
            case "multiple":
                each = F.binary_cross_entropy_with_logits(scores, values, pos_weight=weights, reduction="none")
                lost = each.mean(1).sum()
            case _:
                lost = F.cross_entropy(scores, values, weight=weights, reduction="sum")
        outcome = Outcome(loss_sums={self.name: lost})
        if self.settings.problem_type == "single":
            right = is_correct(scores, values).sum().float()
            outcome.metrics["accuracy"] = (right, torch.full((), float(len(values)), device=right.device))
        return self.add_lm_loss(model, hidden, batch, outcome)

    def _class_weights(self, scores: Tensor) -> Tensor | None:
        """Weight of each class in training; evaluation is unweighted."""
        weights = self.settings.class_weights
        if not isinstance(weights, dict):
            return None
        return scores.new_tensor([weights.get(label, 1.0) for label in self.settings.labels])

    # ------------------------------------------------------------ predictions

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[LabelProbs]:
        """Label probabilities, or the number in the range of the training data."""
        scores = self.scores(model, hidden, batch)
        match self.settings.problem_type:
            case "regression":
                low, high = self.settings.target_range
                scores = scores * ((high - low) or 1.0) + low
            case "multiple":
                scores = scores.sigmoid()
            case _:
                scores = scores.softmax(1)
        return list(scores.cpu().numpy())

    def predicted_label(self, prediction: LabelProbs) -> Any:
        """The prediction in the form of golds: a label, a tuple of labels or a number."""
        s = self.settings
        if s.problem_type == "regression":
            return float(prediction[0])
        if s.problem_type == "multiple":
            return tuple(label for label, p in zip(s.labels, prediction, strict=True) if p >= s.threshold)
        return s.labels[int(prediction.argmax())]

    def gold_label(self, sample: Sample) -> Any:
        """The gold: a label, a tuple of labels or a number."""
        s = self.settings
        if s.problem_type == "regression":
            return gold_number(sample)
        given = self._gold_labels(sample)
        return given if s.problem_type == "multiple" else given[0]

    def compute_metrics(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> Metrics:
        """Accuracy, F1 and Matthews; micro and macro F1 for multi-label; Pearson and Spearman for regression."""
        golds, said = (
            [self.gold_label(sample) for sample in samples],
            [self.predicted_label(answer) for answer in predictions],
        )
        match self.settings.problem_type:
            case "regression":
                return metrics.regression_metrics(golds, said)
            case "multiple":
                return metrics.multi_label_metrics(golds, said, self.settings.labels)
        return metrics.single_label_metrics(golds, said, self.settings.labels)

    def bootstrap_metrics(
        self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """The same metrics for resampled indices, computed from counts."""
        golds, said = (
            [self.gold_label(sample) for sample in samples],
            [self.predicted_label(answer) for answer in predictions],
        )
        return metrics.resampler(self.settings.problem_type, golds, said, self.settings.labels)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Number of samples of each label's F1; empty unless single-label."""
        if self.settings.problem_type != "single":
            return {}
        return metrics.support([self.gold_label(sample) for sample in samples], self.settings.labels)

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent label, or the mean."""
        known, golds = ([self.gold_label(sample) for sample in some] for some in (train, samples))
        return metrics.baselines(self.settings.problem_type, known, golds, self.settings.labels)

    def confusion_matrix(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Gold by predicted label; None unless single-label."""
        if self.settings.problem_type != "single":
            return None
        golds, said = (
            [self.gold_label(sample) for sample in samples],
            [self.predicted_label(answer) for answer in predictions],
        )
        return ConfusionMatrix.from_labels(tuple(dict.fromkeys((*self.settings.labels, *golds))), golds, said)

    def mistakes(self, predictions: Sequence[LabelProbs], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong labels by probability; numbers by absolute error."""
        found = []
        for answer, sample in zip(predictions, samples, strict=True):
            gold, said = self.gold_label(sample), self.predicted_label(answer)
            if self.settings.problem_type == "regression":
                sure = abs(gold - said)
                gold, said = f"{gold:g}", f"{said:.2f}"
            elif gold == said:
                continue
            else:
                sure = float(answer.max())
            found.append(
                Mistake(
                    location=sample.location,
                    input_text=" | ".join(map(str, sample.inputs.values())),
                    gold=str(gold),
                    prediction=str(said),
                    confidence=sure,
                )
            )
        return sorted(found, key=lambda one: -one.confidence)

    def format_output(self, prediction: LabelProbs, sample: Sample) -> Any:
        """{label, score}, or a list of them for multi-label."""
        s = self.settings
        if s.problem_type == "regression":
            return {"label": self.score_name, "score": float(prediction[0])}
        if s.problem_type == "multiple":
            return [
                {"label": label, "score": float(prediction[self.label_ids[label]])}
                for label in self.predicted_label(prediction)
            ]
        return {"label": self.predicted_label(prediction), "score": float(prediction.max())}

    def format_top_outputs(self, prediction: LabelProbs, sample: Sample, top: int) -> list[Any]:
        """The most probable labels; a single item for regression."""
        if self.settings.problem_type == "regression":
            return [self.format_output(prediction, sample)]
        best = np.argsort(-prediction, kind="stable")[:top].tolist()
        return [{"label": self.settings.labels[number], "score": float(prediction[number])} for number in best]


def _check_problem_settings(settings: LabelTaskSettings) -> None:
    """Raise if a setting belongs to another problem type than the one detected from the labels."""
    for field, needs in LabelTaskSettings.needs.items():
        given = getattr(settings, field) != LabelTaskSettings.model_fields[field].default
        if given and not all(need.is_met(settings) for need in needs):
            wanted = " or ".join(str(one) for one in needs[0].conditions[0].values if one is not None)
            raise MeristemError(
                f"task.{field}: has no effect, since the labels make this a {settings.problem_type} problem; "
                f"set task.problem_type={wanted} if that is wrong, or leave it out"
            )
