"""Summarization: a long text → a short one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.data.text_units import find_sentence_starts
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Metrics, Resampler
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import Route, TaskSignature
from meristem.metrics import bleu_rouge as metrics
from meristem.tasks.components.generation_parts import generation_parts
from meristem.tasks.components.generation_settings import GENERATION_MODES, GenerationSettings, build_text_layout
from meristem.tasks.components.sequence_generator import GeneratedAnswer
from meristem.tasks.components.source_target import SOURCE, SourceTargetEncoder, keep_ends, keep_start
from meristem.tasks.components.text_metrics import GeneratedTextMetrics
from meristem.tokenizers.tokenizer import Tokenizer


class SummaryTaskSettings(GenerationSettings):
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


class SummaryMetrics(GeneratedTextMetrics):
    """ROUGE by rouge_score, compared with the first sentences of the text (lead baseline)."""

    def resampler(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> Resampler:
        """ROUGE-1, -2 and -L."""
        return metrics.rouge_resampler([sample.gold for sample in samples], [answer.text for answer in predictions])

    def signature(self, samples: Sequence[Sample]) -> str:
        """Empty: ROUGE has no signature."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Lead baseline: the first sentences of each text, as many as the median summary has."""
        num_sentences = median_sentence_count([gold for sample in train for gold in sample.gold or ()])
        golds, texts = [sample.gold for sample in samples], [sample.inputs["source"] for sample in samples]
        name = "the first sentence" if num_sentences == 1 else f"the first {num_sentences} sentences"
        return {name: metrics.rouge_metrics(golds, [first_sentences(text, num_sentences) for text in texts])}


class SummaryTask(Task[SummaryTaskSettings]):
    """p(summary | text)."""

    Settings = SummaryTaskSettings
    name = "summary"
    sample_type = "source_target"
    requires_any: ClassVar[frozenset[str]] = GENERATION_MODES
    signature = TaskSignature(
        takes="one text",
        inputs=(SOURCE,),
        output="text",
        output_key="summary_text",
        route=Route(name="summarise", summary="Summaries of texts"),
    )

    @classmethod
    def compose(cls, settings: SummaryTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Source and target as in pretraining; long sources keep their start, or both ends."""
        template, layout = build_text_layout(settings, cls.name, tokenizer)
        truncate = keep_ends if settings.truncation_keep == "ends" else keep_start
        encoder = SourceTargetEncoder(template, layout, tokenizer, truncate, lm_targets=settings.lm_weight > 0)
        return generation_parts(settings, tokenizer, layout, encoder, SummaryMetrics(), cls.signature.output_fields[0])


def first_sentences(text: str, num_sentences: int = 1) -> str:
    """The first sentences of a text."""
    starts = find_sentence_starts(text)
    return text[: int(starts[num_sentences])].strip() if len(starts) > num_sentences else text.strip()


def median_sentence_count(summaries: Sequence[str]) -> int:
    """Median number of sentences of the summaries, at least 1."""
    return max(1, round(float(np.median([len(find_sentence_starts(text)) for text in summaries])))) if summaries else 1
