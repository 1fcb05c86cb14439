"""Machine translation: a text in one language → its translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meristem.interfaces.task import Metrics, Sample
from meristem.metrics import bleu_rouge as metrics
from meristem.tasks._generation_task import GenerationTask, GenerationTaskSettings


class TranslationTaskSettings(GenerationTaskSettings):
    """Settings of translation."""

    name: Literal["translation"] = "translation"
    """The task's name."""


class TranslationTask(GenerationTask):
    """p(target | source); BLEU and chrF by sacrebleu."""

    Settings = TranslationTaskSettings
    name = "translation"
    output_key = "translation_text"

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Copying the source, which gets names and numbers right."""
        golds, sources = [sample.gold for sample in samples], [sample.inputs["source"] for sample in samples]
        return {"the source itself": metrics.translation_metrics(golds, sources)}
