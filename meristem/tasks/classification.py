"""Text classification and regression: a text → a label, several labels or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from meristem.config.errors import MeristemError
from meristem.interfaces.batch import RngFactory, Row
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
        max_tokens, pieces = self.text_encoder.max_text_tokens(), []
        for index, text in enumerate(
            self.text_encoder.tokenize([sample.inputs["text"] for sample in samples], with_offsets=False)
        ):
            truncated = text.slice(0, max_tokens)
            parts = {"text": truncated, "goal": self.label_goal(samples[index])}
            size = len(truncated.ids) + self.text_encoder.max_length - max_tokens
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=size,
                    features=parts,
                    num_truncated=len(text.ids) - len(truncated.ids),
                )
            )
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The text with special tokens; the target is predicted at the summary position."""
        parts: dict[str, Any] = row.metadata["piece"].features
        encoded = self.text_encoder.build_input(parts["text"])
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
