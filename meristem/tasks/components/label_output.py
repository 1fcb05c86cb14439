"""Output of classification: {label, score}, a list of them for several labels, or a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_parts import OutputFormat
from meristem.interfaces.task_signature import OutputKind, Route
from meristem.tasks.components.label_set import LabelProbs, LabelSet

CLASSIFY = Route(name="classify", summary="The label of a text or pair of texts")
OUTPUT_KINDS: dict[str, OutputKind] = {"single": "label", "multiple": "labels", "regression": "number"}


class LabelOutput(OutputFormat):
    """Labels with their probabilities; a number under the name `number_label`, clipped to a range if one is given."""

    def __init__(
        self, labels: LabelSet, number_label: str = "score", clip_range: tuple[float, float] | None = None
    ) -> None:
        self.labels, self.number_label, self.clip_range = labels, number_label, clip_range
        self.kind = OUTPUT_KINDS[labels.problem_type]

    def format(self, prediction: LabelProbs, sample: Sample) -> Any:
        """{label, score}, or a list of them for multi-label."""
        labels = self.labels
        if labels.problem_type == "regression":
            number = prediction if self.clip_range is None else np.clip(prediction, *self.clip_range)
            return {"label": self.number_label, "score": float(number[0])}
        if labels.problem_type == "multiple":
            return [
                {"label": label, "score": float(prediction[labels.label_ids[label]])}
                for label in labels.predicted(prediction)
            ]
        return {"label": labels.predicted(prediction), "score": float(prediction.max())}

    def format_top(self, prediction: LabelProbs, sample: Sample, top: int) -> list[Any]:
        """The most probable labels; a single item for regression."""
        if self.labels.problem_type == "regression":
            return [self.format(prediction, sample)]
        best = np.argsort(-prediction, kind="stable")[:top].tolist()
        return [{"label": self.labels.labels[index], "score": float(prediction[index])} for index in best]
