"""Summarisation: a long text → a short one (SPEC C7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from meristem.batch import Array
from meristem.metrics import writing as metrics
from meristem.store.sentences import boundaries
from meristem.task import Indices, Metrics, Sample
from meristem.tasks._writing import Said, Writing, WritingSettings


class SummarySettings(WritingSettings):
    """What summarisation can be told."""

    name: Literal["summary"] = "summary"
    """The task's name."""
    keep: Literal["start", "ends"] = "start"
    """What is read of a source longer than the model: its beginning, or its beginning and its end, half of each."""
    no_repeat: int | None = Field(3, ge=1)
    """No run of so many tokens stands twice in a summary; null allows it."""


class Summary(Writing):
    """p(summary | text); ROUGE as rouge_score counts it, beside the text's own first sentences."""

    Settings = SummarySettings
    name = "summary"
    shows = "summary_text"

    def kept(self, parts: Sequence[Array], room: int) -> tuple[Array, int]:
        """The beginning, or both ends."""
        (ids,) = parts
        if self.settings.keep == "start" or len(ids) <= room:
            return super().kept(parts, room)
        tail = room // 2
        return np.concatenate([ids[: room - tail], ids[len(ids) - tail :]]), len(ids) - room

    def resampled(self, answers: Sequence[Said], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """ROUGE-1, -2 and -L."""
        return metrics.summary_resampled([sample.gold for sample in samples], [one.text for one in answers])

    def signature(self, samples: Sequence[Sample]) -> str:
        """ROUGE has none."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """What the first sentences of each text score, as many as a summary usually has."""
        number = usual([gold for sample in train for gold in sample.gold or ()])
        golds, texts = [sample.gold for sample in samples], [sample.given["source"] for sample in samples]
        name = "the first sentence" if number == 1 else f"the first {number} sentences"
        return {name: metrics.summary(golds, [lead(text, number) for text in texts])}


def lead(text: str, sentences: int = 1) -> str:
    """A text's first sentences."""
    starts = boundaries(text)
    return text[: int(starts[sentences])].strip() if len(starts) > sentences else text.strip()


def usual(summaries: Sequence[str]) -> int:
    """How many sentences a summary has, in the middle; 1 where there are none to count."""
    return max(1, round(float(np.median([len(boundaries(text)) for text in summaries])))) if summaries else 1
