"""Dialogue: the turns of a conversation → the reply to the last one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.inputs.template import InputTemplate, separator_id
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Indices, Metrics, Resampler
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, Route, TaskSignature
from meristem.metrics import distinct_ngrams
from meristem.tasks.components.generation_parts import generation_parts
from meristem.tasks.components.generation_settings import GENERATION_MODES, GenerationSettings, build_text_layout
from meristem.tasks.components.sequence_generator import GeneratedAnswer
from meristem.tasks.components.source_target import KeepLastTurns, SourceTargetEncoder
from meristem.tasks.components.text_metrics import GeneratedTextMetrics
from meristem.tokenizers.tokenizer import Tokenizer


class DialogueTaskSettings(GenerationSettings):
    """Settings of dialogue."""

    name: Literal["dialogue"] = "dialogue"
    """The task's name."""
    max_tokens: int = Field(64, ge=1)
    """Maximum tokens of a reply; a causal model keeps half of its length for the turns before it."""


class DialogueMetrics(GeneratedTextMetrics):
    """Perplexity of the reference replies, BLEU and chrF of the generated ones, and their distinct n-grams."""

    def resampler(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> Resampler:
        """All of them for resampled indices."""
        losses = np.array([[answer.loss, answer.gold_tokens] for answer in predictions])
        text_metrics = super().resampler(predictions, samples)
        distinct_metrics = distinct_ngrams.distinct_resampler([prediction.text for prediction in predictions])

        def measure(indices: Indices) -> Metrics:
            loss, num_tokens = losses[indices].sum(0)
            return {
                "perplexity": math.exp(min(700.0, loss / max(1.0, num_tokens))),
                **text_metrics(indices),
                **distinct_metrics(indices),
            }

        return measure


class DialogueTask(Task[DialogueTaskSettings]):
    """p(reply | turns); the loss is on replies only."""

    Settings = DialogueTaskSettings
    name = "dialogue"
    sample_type = "turns"
    requires_any: ClassVar[frozenset[str]] = GENERATION_MODES
    signature = TaskSignature(
        takes="a text or a list of turns",
        inputs=(
            InputField(
                name="turns",
                kind="turns",
                help="The turns of the conversation so far.",
                example=["Hello!", "Hello, how are you?", "Well, and you?"],
            ),
        ),
        output="text",
        route=Route(name="reply", summary="The reply to a conversation"),
    )

    @classmethod
    def compose(cls, settings: DialogueTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """The last turns, with a causal model's delimiter or the document separator between them, and the reply."""
        template, layout = build_text_layout(settings, cls.name, tokenizer)
        is_causal = settings.backbone_mode == "causal"
        separator = InputTemplate(tokenizer, "causal").pair.between if is_causal else [separator_id(tokenizer)]
        encoder = SourceTargetEncoder(
            template, layout, tokenizer, KeepLastTurns(separator), lm_targets=settings.lm_weight > 0
        )
        return generation_parts(
            settings,
            tokenizer,
            layout,
            encoder,
            DialogueMetrics(),
            cls.signature.output_fields[0],
            with_gold_loss=True,
        )
