"""Summarization: a long text → a short one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.data.text_units import find_sentence_starts
from meristem.inputs.batch import Array
from meristem.interfaces.task import Indices, Metrics, Sample
from meristem.metrics import bleu_rouge as metrics
from meristem.tasks._generation_task import GeneratedAnswer, GenerationTask, GenerationTaskSettings


class SummaryTaskSettings(GenerationTaskSettings):
    """Settings of summarization."""

    renamed: ClassVar[dict[str, str]] = {
        "keep": "truncation_keep",
    }

    name: Literal["summary"] = "summary"
    """The task's name."""
    truncation_keep: Literal["start", "ends"] = "start"
    """Truncation of long sources: keep the start, or half from the start and half from the end."""
    no_repeat_ngram_size: int | None = Field(3, ge=1)
    """Size of n-grams that may not repeat in a summary; null allows repetition."""


class SummaryTask(GenerationTask):
    """p(summary | text); ROUGE by rouge_score, compared with the first sentences of the text (lead baseline)."""

    Settings = SummaryTaskSettings
    name = "summary"
    output_key = "summary_text"

    def truncate_source(self, parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
        """The start of the source, or its start and end."""
        (ids,) = parts
        if self.settings.truncation_keep == "start" or len(ids) <= max_tokens:
            return super().truncate_source(parts, max_tokens)
        num_tail = max_tokens // 2
        return np.concatenate([ids[: max_tokens - num_tail], ids[len(ids) - num_tail :]]), len(ids) - max_tokens

    def bootstrap_metrics(
        self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """ROUGE-1, -2 and -L."""
        return metrics.rouge_resampler([sample.gold for sample in samples], [answer.text for answer in predictions])

    def metric_signature(self, samples: Sequence[Sample]) -> str:
        """Empty: ROUGE has no signature."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Lead baseline: the first sentences of each text, as many as the median summary has."""
        num_sentences = median_sentence_count([gold for sample in train for gold in sample.gold or ()])
        golds, texts = [sample.gold for sample in samples], [sample.inputs["source"] for sample in samples]
        name = "the first sentence" if num_sentences == 1 else f"the first {num_sentences} sentences"
        return {name: metrics.rouge_metrics(golds, [first_sentences(text, num_sentences) for text in texts])}


def first_sentences(text: str, num_sentences: int = 1) -> str:
    """The first sentences of a text."""
    starts = find_sentence_starts(text)
    return text[: int(starts[num_sentences])].strip() if len(starts) > num_sentences else text.strip()


def median_sentence_count(summaries: Sequence[str]) -> int:
    """Median number of sentences of the summaries, at least 1."""
    return max(1, round(float(np.median([len(find_sentence_starts(text)) for text in summaries])))) if summaries else 1
