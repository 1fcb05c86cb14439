"""Multiple choice: each choice is scored together with the context; softmax over the choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, Route, TaskSignature
from meristem.tasks.components.choice_encoder import ChoiceEncoder, ChoiceHead
from meristem.tasks.components.choice_metrics import ChoiceMetrics, ChoiceOutput
from meristem.tasks.components.encoder_settings import EncoderSettings, Pooling
from meristem.tasks.components.pooled_logits import PooledLogits
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tokenizers.tokenizer import Tokenizer

QUESTION_TEMPLATES = {"cause": "{text} because", "effect": "{text} so"}


class ChoiceTaskSettings(EncoderSettings):
    """Settings of multiple choice."""

    renamed: ClassVar[dict[str, str]] = {
        "choices": "max_choices",
        "joined": "question_templates",
    }

    name: Literal["choice"] = "choice"
    """The task's name."""
    max_choices: int = Field(2, ge=1)
    """Maximum number of choices of a training sample."""
    question_templates: dict[str, str] = QUESTION_TEMPLATES
    """Question type → template that joins it to the context; COPA's cause and effect if not set."""
    pooling: Pooling | None = None
    """Pooling of the states: first, last, mean or max; the summary token ([CLS] or the last) if not set."""


class ChoiceTask(Task[ChoiceTaskSettings]):
    """p(choice | context, choices): softmax over the choices of a sample, each scored in a row of its own."""

    Settings = ChoiceTaskSettings
    name = "choice"
    sample_type = "choice"
    signature = TaskSignature(
        takes="a text and its choices",
        inputs=(
            InputField(name="text", help="The context.", example="It rained, so"),
            InputField(name="question", help="A question that the choices answer.", required=False),
            InputField(
                name="choices",
                kind="choices",
                help="The continuations or answers to choose from.",
                example=["she took an umbrella.", "the sun shone."],
            ),
        ),
        output="choice",
        export_head="choice",
        route=Route(name="choose", summary="The best of several choices for a text"),
    )

    @classmethod
    def fit_settings(cls, settings: ChoiceTaskSettings, samples: Sequence[Sample]) -> ChoiceTaskSettings:
        """The settings with the maximum number of choices."""
        return settings.model_copy(update={"max_choices": max(len(sample.inputs["choices"]) for sample in samples)})

    @classmethod
    def compose(cls, settings: ChoiceTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """An encoder of context and choice, and a head that scores each row."""
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        encoder = ChoiceEncoder(template, cls.name, settings.question_templates, settings.max_choices, lm_loss)
        return TaskParts(
            encoder=encoder,
            states=states,
            head=ChoiceHead(cls.name, PooledLogits(states, cls.name, 1, settings.pooling)),
            metrics=ChoiceMetrics(encoder.context_text),
            output=ChoiceOutput(encoder.context_text),
            auxiliary_loss=lm_loss,
        )
