"""Intent classification and slot filling: an utterance → an intent and slot tags, two heads on one encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import TaskSignature
from meristem.tasks.components.encoder_settings import EncoderSettings, Pooling
from meristem.tasks.components.intent_head import (
    IntentSet,
    IntentSlotHead,
    IntentSlotMetrics,
    IntentSlotOutput,
    find_intents,
    slot_tags,
)
from meristem.tasks.components.pooled_logits import PooledLogits
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tasks.components.tag_head import TagHead, TagSettings, are_entity_tags
from meristem.tasks.components.tag_metrics import TagMetrics, TagOutput
from meristem.tasks.components.tag_set import TagSet, WordSettings, fit_tag_settings
from meristem.tasks.components.word_inputs import TAG, WORD_INPUTS
from meristem.tasks.components.word_windows import SummaryTarget, WordWindows
from meristem.tokenizers.tokenizer import Tokenizer


class CommandsTaskSettings(TagSettings, WordSettings, EncoderSettings):
    """Settings of intent classification and slot filling."""

    name: Literal["commands"] = "commands"
    """The task's name."""
    intents: tuple[str, ...] = ()
    """Intents in the order of the logits; from the training data if not set."""
    intent_weight: float = Field(1.0, gt=0)
    """Weight of the intent loss."""
    slot_weight: float = Field(1.0, gt=0)
    """Weight of the slot loss."""
    pooling: Pooling | None = None
    """Pooling of the states for the intent: first, last, mean or max; the summary token if not set."""


class CommandsTask(Task[CommandsTaskSettings]):
    """p(intent | words) and p(slot | word in context)."""

    Settings = CommandsTaskSettings
    name = "commands"
    sample_type = "command"
    signature = TaskSignature(takes="a text or its words", inputs=WORD_INPUTS, output="intent", route=TAG)

    @classmethod
    def fit_settings(cls, settings: CommandsTaskSettings, samples: Sequence[Sample]) -> CommandsTaskSettings:
        """The settings with the intents, sorted, and the tags of the training data."""
        intents = find_intents(samples)
        fitted = fit_tag_settings(settings, samples, slot_tags)
        return fitted.model_copy(update={"intents": settings.intents or intents})

    @classmethod
    def compose(cls, settings: CommandsTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Windows of words with the intent as summary target; a tag head and an intent head on the same states."""
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        tags, intents = TagSet(settings, cls.name, slot_tags), IntentSet(settings.intents)
        entities = are_entity_tags(settings, tags)
        slot_head = TagHead("slots", states, tags, crf=settings.crf, entities=entities)
        intent_logits = PooledLogits(states, "intent", len(intents.intents), settings.pooling, positions_term="whole")
        weights = {"intent": settings.intent_weight, "slots": settings.slot_weight}
        return TaskParts(
            encoder=WordWindows(
                template, "slots", tags, settings, lm_loss, summary=SummaryTarget("intent", intents.target)
            ),
            states=states,
            head=IntentSlotHead(intents, intent_logits, slot_head, weights),
            metrics=IntentSlotMetrics(intents, TagMetrics(tags, entities=entities)),
            output=IntentSlotOutput(TagOutput(tags, entities=entities)),
            auxiliary_loss=lm_loss,
        )
