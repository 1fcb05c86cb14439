"""Text classification and regression: a text → a label, several labels or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from meristem.config.errors import MeristemError
from meristem.inputs.batch import RngFactory, Row
from meristem.interfaces.task import Sample, SamplePiece
from meristem.tasks._label_task import LabelTask, LabelTaskSettings


class ClassificationTaskSettings(LabelTaskSettings):
    """Settings of text classification."""

    name: Literal["classification"] = "classification"
    """The task's name."""


class ClassificationTask(LabelTask):
    """p(label | text)."""

    Settings = ClassificationTaskSettings
    name = "classification"
    sample_type = "text"

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each text, truncated at the end."""
        texts = self.template.tokenize([sample.inputs["text"] for sample in samples], with_offsets=False)
        pieces = []
        for index, text in enumerate(texts):
            (truncated,), num_truncated = self.template.truncate([text])
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=self.template.num_tokens([truncated]),
                    features={"text": truncated, "goal": self.label_goal(samples[index])},
                    num_truncated=num_truncated,
                )
            )
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The text with special tokens; the target is predicted at the summary position."""
        parts: dict[str, Any] = row.metadata["piece"].features
        encoded = self.template.build_input(parts["text"])
        summary_position = np.array([encoded.summary_position])
        goals = {"read": {"at": summary_position}, **self.lm_goal(encoded)}
        if parts["goal"]:
            goals[self.name] = {"at": summary_position, **parts["goal"]}
        return Row(inputs=encoded.inputs, targets=goals, metadata=row.metadata, sample_id=row.sample_id)

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A text, or a mapping with `text`."""
        text = value if isinstance(value, str) else value.get("text")
        if not isinstance(text, str):
            raise MeristemError('task classification takes a text: give it as a string, or as {"text": "…"}')
        return Sample(inputs={"text": text})
