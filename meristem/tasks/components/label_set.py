"""The labels of classification: settings found in the training data, targets, predicted labels, probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array
from meristem.interfaces.sample import Sample
from meristem.interfaces.task_parts import HeadClasses
from meristem.tasks.components.encoder_settings import Pooling
from meristem.tasks.components.label_values import (
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
from meristem.tasks.settings import TaskSettings

BoundedFloat = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
LabelProbs = NDArray[np.float32]
"""[labels]: a probability for each label; [1]: a number for regression."""


class LabelSettings(TaskSettings):
    """Settings of labels and of the states that they are predicted from."""

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

    @classmethod
    def of_classes(cls, classes: HeadClasses) -> dict[str, Any]:
        """Labels, problem type and range of an imported head."""
        return {
            "labels": classes.labels,
            "problem_type": classes.problem_type,
            "target_range": classes.target_range,
        }


FittedSettings = TypeVar("FittedSettings", bound=LabelSettings)


def fit_label_settings(settings: FittedSettings, samples: Sequence[Sample]) -> FittedSettings:
    """The settings with problem type, labels and class weights determined from the training samples."""
    problem = settings.problem_type or detect_problem_type([sample.gold for sample in samples])
    _check_problem_settings(settings.model_copy(update={"problem_type": problem}))
    if problem == "regression":
        numbers = [gold_number(sample) for sample in samples]
        target_range = settings.target_range or (min(numbers), max(numbers))
        return settings.model_copy(update={"problem_type": problem, "target_range": target_range})
    counts = count_labels(samples, problem, settings.label_separator, settings.labels)
    if len(counts) < 2 and problem == "single":
        only = next(iter(counts), None)
        raise MeristemError(f"data.label: every training sample has the label {only!r}; at least two are needed")
    labels = settings.labels or tuple(sorted(counts, key=label_sort_key))
    if not labels:
        raise MeristemError("data.label: no training sample has any label")
    weights = resolve_class_weights(settings.class_weights, labels, counts, len(samples), problem)
    return settings.model_copy(update={"problem_type": problem, "labels": labels, "class_weights": weights})


def _check_problem_settings(settings: LabelSettings) -> None:
    """Raise if a setting belongs to another problem type than the one detected from the labels."""
    for field, needs in LabelSettings.needs.items():
        is_set = getattr(settings, field) != LabelSettings.model_fields[field].default
        if is_set and not all(need.is_met(settings) for need in needs):
            allowed_types = " or ".join(str(value) for value in needs[0].conditions[0].values if value is not None)
            raise MeristemError(
                f"task.{field}: has no effect, since the labels make this a {settings.problem_type} problem; "
                f"set task.problem_type={allowed_types} if that is wrong, or leave it out"
            )


class LabelSet:
    """The labels of a task with their problem type: gold values, targets, and what scores and probabilities mean."""

    def __init__(self, settings: LabelSettings, task_name: str) -> None:
        if settings.problem_type is None:
            raise MeristemError(f"task {task_name}: its labels are not known; they come from the training data")
        self.problem_type: ProblemType = settings.problem_type
        self.labels, self.separator, self.threshold = settings.labels, settings.label_separator, settings.threshold
        self.target_range: tuple[float, float] = settings.target_range or (0.0, 1.0)
        self.label_ids = {label: index for index, label in enumerate(settings.labels)}

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return 1 if self.problem_type == "regression" else len(self.labels)

    @property
    def classes(self) -> HeadClasses:
        """What the logits stand for."""
        is_regression = self.problem_type == "regression"
        return HeadClasses(
            labels=() if is_regression else self.labels,
            problem_type=self.problem_type,
            target_range=self.target_range if is_regression else None,
        )

    def gold_labels(self, sample: Sample) -> tuple[str, ...]:
        """The labels of a sample; empty if its gold is unknown."""
        return gold_labels(sample, self.problem_type, self.separator)

    def gold(self, sample: Sample) -> Any:
        """The gold: a label, a tuple of labels or a number."""
        if self.problem_type == "regression":
            return gold_number(sample)
        labels = self.gold_labels(sample)
        return labels if self.problem_type == "multiple" else labels[0]

    def target(self, sample: Sample) -> Mapping[str, Array]:
        """The target of a sample; empty if its label is unknown."""
        if sample.gold is None:
            return {}
        if self.problem_type == "regression":
            low, _ = self.target_range
            return {"values": np.array([(gold_number(sample) - low) / self._range_size], np.float32)}
        ids = [self.label_ids[label] for label in self.gold_labels(sample) if label in self.label_ids]
        if self.problem_type == "multiple":
            is_gold = np.zeros((1, len(self.labels)), np.float32)
            is_gold[0, ids] = 1.0
            return {"values": is_gold}
        return {"values": np.array(ids, np.int64)} if ids else {}

    @property
    def _range_size(self) -> float:
        low, high = self.target_range
        return (high - low) or 1.0

    def probabilities(self, logits: Tensor) -> list[LabelProbs]:
        """Label probabilities of logits [samples, classes], or the number in the range of the training data."""
        match self.problem_type:
            case "regression":
                values = logits * self._range_size + self.target_range[0]
            case "multiple":
                values = logits.sigmoid()
            case "single":
                values = logits.softmax(1)
        return list(values.cpu().numpy())

    def margin(self, prediction: LabelProbs) -> float:
        """How far the labels are from others: from the threshold, or the best label from the second best."""
        if self.problem_type == "multiple":
            return float(np.abs(prediction - self.threshold).min())
        best = np.sort(prediction)[-2:]
        return float(best[-1] - best[0]) if len(best) == 2 else 1.0

    def predicted(self, prediction: LabelProbs) -> Any:
        """The prediction in the form of golds: a label, a tuple of labels or a number."""
        if self.problem_type == "regression":
            return float(prediction[0])
        if self.problem_type == "multiple":
            return tuple(label for label, p in zip(self.labels, prediction, strict=True) if p >= self.threshold)
        return self.labels[int(prediction.argmax())]
