"""Sequence labelling: a tag for each word (named entity recognition, part-of-speech tagging)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import TaskSignature
from meristem.tasks.components.encoder_settings import EncoderSettings
from meristem.tasks.components.ngram_logits import WORD_SCALE, NgramLogits, NgramSettings
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tasks.components.tag_head import TagHead, TagSettings, are_entity_tags
from meristem.tasks.components.tag_metrics import TagMetrics, TagOutput
from meristem.tasks.components.tag_set import TagSet, WordSettings, fit_tag_settings
from meristem.tasks.components.word_inputs import TAG, WORD_INPUTS
from meristem.tasks.components.word_windows import WordWindows
from meristem.tokenizers.tokenizer import Tokenizer


class TaggingTaskSettings(NgramSettings, TagSettings, WordSettings, EncoderSettings):
    """Settings of sequence labelling."""

    name: Literal["tagging"] = "tagging"
    """The task's name."""


class TaggingTask(Task[TaggingTaskSettings]):
    """p(tag | word in context)."""

    Settings = TaggingTaskSettings
    name = "tagging"
    sample_type = "words"
    signature = TaskSignature(
        takes="a text or its words", inputs=WORD_INPUTS, output="tags", export_head="tagging", route=TAG
    )

    @classmethod
    def fit_settings(cls, settings: TaggingTaskSettings, samples: Sequence[Sample]) -> TaggingTaskSettings:
        """The settings with the tags, O first."""
        return fit_tag_settings(settings, samples)

    @classmethod
    def compose(cls, settings: TaggingTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Windows of words, and a tag head with or without a CRF."""
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        tags = TagSet(settings, cls.name)
        entities = are_entity_tags(settings, tags)
        ngrams = NgramLogits.build(settings, len(tags.labels), WORD_SCALE)
        return TaskParts(
            encoder=WordWindows(template, cls.name, tags, settings, lm_loss, ngrams=ngrams),
            states=states,
            head=TagHead(cls.name, states, tags, crf=settings.crf, entities=entities, ngrams=ngrams),
            metrics=TagMetrics(tags, entities=entities),
            output=TagOutput(tags, entities=entities),
            auxiliary_loss=lm_loss,
        )
