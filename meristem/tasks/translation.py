"""Translation: a text in one language → the same in another (SPEC C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meristem.metrics import writing as metrics
from meristem.task import Metrics, Sample
from meristem.tasks._writing import Writing, WritingSettings


class TranslationSettings(WritingSettings):
    """What translation can be told."""

    name: Literal["translation"] = "translation"
    """The task's name."""


class Translation(Writing):
    """p(target | source); BLEU and chrF as sacrebleu counts them."""

    Settings = TranslationSettings
    name = "translation"
    shows = "translation_text"

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """What leaving every source as it is would reach: names and numbers."""
        golds, sources = [sample.gold for sample in samples], [sample.given["source"] for sample in samples]
        return {"the source itself": metrics.translation(golds, sources)}
