"""Classification of texts without regard to case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from meristem.interfaces.task import Sample, SamplePiece
from meristem.tasks.classification import ClassificationTask, ClassificationTaskSettings


class LowercaseTaskSettings(ClassificationTaskSettings):
    """Those of classification."""

    name: Literal["lowercase"] = "lowercase"  # type: ignore[assignment]  # its own name
    """The task's name."""


class LowercaseTask(ClassificationTask):
    """Classification of lower-cased texts."""

    Settings = LowercaseTaskSettings
    name = "lowercase"

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The lower-cased texts as classification encodes them."""
        lowered = [
            replace(sample, inputs={**sample.inputs, "text": str(sample.inputs["text"]).lower()}) for sample in samples
        ]
        return super().encode_samples(lowered)
