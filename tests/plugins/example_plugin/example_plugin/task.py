"""Classification of texts without regard to case, with the tone in which each is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_signature import InputField, Route
from meristem.tasks.classification import ClassificationTask, ClassificationTaskSettings


class LowercaseTaskSettings(ClassificationTaskSettings):
    """Those of classification."""

    name: Literal["lowercase"] = "lowercase"  # type: ignore[assignment]  # its own name
    """The task's name."""


class LowercaseTask(ClassificationTask):
    """Classification of lower-cased texts behind their tones."""

    Settings = LowercaseTaskSettings
    name = "lowercase"
    signature = replace(
        ClassificationTask.signature,
        takes="a text and its tone",
        inputs=(
            *ClassificationTask.signature.inputs,
            InputField(name="tone_of_voice", column="tone", help="How the text is said, in a word.", example="warm"),
        ),
        route=Route(name="tone", summary="The class of a text said in a tone"),
    )

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The lower-cased texts as classification encodes them."""
        texts = [f"{sample.inputs['tone_of_voice']}: {sample.inputs['text']}".lower() for sample in samples]
        lowered = [
            replace(sample, inputs={**sample.inputs, "text": text}) for sample, text in zip(samples, texts, strict=True)
        ]
        return super().encode_samples(lowered)
