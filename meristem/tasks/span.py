"""Extractive question answering (SQuAD): a question and a passage → the answer span of the passage, or no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, Route, TaskSignature
from meristem.tasks.components.encoder_settings import EncoderSettings
from meristem.tasks.components.span_head import SpanHead, SpanSearch
from meristem.tasks.components.span_metrics import SpanMetrics, SpanOutput
from meristem.tasks.components.span_windows import SpanWindows
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tokenizers.tokenizer import Tokenizer


class SpanTaskSettings(EncoderSettings):
    """Settings of extractive question answering."""

    renamed: ClassVar[dict[str, str]] = {
        "question_length": "max_question_length",
        "answer_length": "max_answer_length",
        "best": "n_best_size",
        "no_answer": "allow_no_answer",
    }

    needs: ClassVar[SettingConditions] = {
        "no_answer_bias": (when("allow_no_answer", None, True),),
    }

    name: Literal["span"] = "span"
    """The task's name."""
    stride: int = Field(128, ge=1)
    """Tokens between the starts of two windows of a long passage; fewer if answers would be cut."""
    max_question_length: int = Field(64, ge=1)
    """Maximum tokens of the question; it never takes more than half of the sequence."""
    max_answer_length: int = Field(30, ge=1)
    """Maximum tokens of an answer."""
    n_best_size: int = Field(20, ge=1)
    """Number of answer candidates per window (n best)."""
    allow_no_answer: bool | None = None
    """Whether questions may have no answer (SQuAD 2.0); detected from the training data if not set."""
    no_answer_bias: float = 0.0
    """Added to the score of "no answer" before it is compared with the best span."""


class SpanTask(Task[SpanTaskSettings]):
    """p(first token) · p(last token) over the passage, and over the summary position for "no answer"."""

    Settings = SpanTaskSettings
    name = "span"
    sample_type = "span"
    signature = TaskSignature(
        takes="a question and a passage",
        inputs=(
            InputField(name="question", help="The question.", example="Who walked to the harbour?"),
            InputField(
                name="passage",
                help="The passage that contains the answer.",
                aliases=("context",),
                example="Ada walked to the old harbour.",
            ),
        ),
        output="span",
        export_head="span",
        route=Route(name="answer", summary="The answer span of a question in a passage"),
    )

    @classmethod
    def fit_settings(cls, settings: SpanTaskSettings, samples: Sequence[Sample]) -> SpanTaskSettings:
        """The settings with `allow_no_answer` determined from the training samples."""
        some_unanswerable = any(sample.gold is not None and not len(sample.gold) for sample in samples)
        no_answer = some_unanswerable if settings.allow_no_answer is None else settings.allow_no_answer
        return settings.model_copy(update={"allow_no_answer": no_answer})

    @classmethod
    def compose(cls, settings: SpanTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Windows of the passage with the question, and a head of start and end logits."""
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        allow_no_answer = bool(settings.allow_no_answer)
        search = SpanSearch(
            max_answer_length=settings.max_answer_length,
            n_best_size=settings.n_best_size,
            allow_no_answer=allow_no_answer,
            no_answer_bias=settings.no_answer_bias,
        )
        return TaskParts(
            encoder=SpanWindows(
                template,
                cls.name,
                lm_loss,
                stride=settings.stride,
                max_question_length=settings.max_question_length,
                max_answer_length=settings.max_answer_length,
            ),
            states=states,
            head=SpanHead(cls.name, states, search),
            metrics=SpanMetrics(allow_no_answer=allow_no_answer),
            output=SpanOutput(),
            auxiliary_loss=lm_loss,
        )
