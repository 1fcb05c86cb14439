"""Linear probing: a linear classifier on each layer of a frozen model, for words or texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import TaskSignature
from meristem.tasks.components.encoder_settings import EncoderSettings, build_template
from meristem.tasks.components.label_output import CLASSIFY
from meristem.tasks.components.layer_probe import (
    FrozenLayers,
    ProbeHead,
    ProbeMetrics,
    ProbeOutput,
    word_or_text_labels,
)
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.tag_set import TagSet, WordSettings, fit_tag_settings
from meristem.tasks.components.word_inputs import WORD_INPUTS
from meristem.tasks.components.word_windows import WordWindows
from meristem.tokenizers.tokenizer import Tokenizer


class ProbeTaskSettings(WordSettings, EncoderSettings):
    """Settings of linear probing."""

    renamed: ClassVar[dict[str, str]] = {
        "on": "level",
    }

    needs: ClassVar[SettingConditions] = {
        "subtoken_pooling": (when("level", "words"),),
        "stride": (when("level", "words"),),
    }

    name: Literal["probe"] = "probe"
    """The task's name."""
    level: Literal["words", "text"] = "words"
    """What is labelled: each word (words tagged `_` are ignored), or the text, as the mean of its states."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the states before the classifiers."""

    @model_validator(mode="after")
    def _refuse_other_heads(self) -> Self:
        if (
            self.lm_weight
            or self.scalar_mix
            or self.output_scalar_mix
            or self.network != "none"
            or self.word_embedding_size
        ):
            raise ValueError(
                "a probe uses the layers unchanged: lm_weight, scalar_mix, output_scalar_mix, network and "
                "word_embedding_size cannot be set"
            )
        return self


class ProbeTask(Task[ProbeTaskSettings]):
    """p(label | state of a layer), with one classifier per layer; the model itself is frozen."""

    Settings = ProbeTaskSettings
    name = "probe"
    sample_type = "words"
    signature = TaskSignature(takes="a text or its words", inputs=WORD_INPUTS, output="layers", route=CLASSIFY)

    @classmethod
    def sample_type_for(cls, settings: ProbeTaskSettings) -> str:
        """`words` or `text`."""
        return settings.level

    @classmethod
    def fit_settings(cls, settings: ProbeTaskSettings, samples: Sequence[Sample]) -> ProbeTaskSettings:
        """The settings with the labels of words or texts."""
        return fit_tag_settings(settings, samples, word_or_text_labels)

    @classmethod
    def compose(cls, settings: ProbeTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Windows of words or a truncated text, the states of all layers, and a classifier on each."""
        tags = TagSet(settings, cls.name, word_or_text_labels)
        return TaskParts(
            encoder=WordWindows(
                build_template(settings, cls.name, tokenizer),
                cls.name,
                tags,
                settings,
                LanguageModelLoss(0.0),
                whole_text=settings.level == "text",
            ),
            states=FrozenLayers(causal=settings.backbone_mode == "causal"),
            head=ProbeHead(cls.name, tags, settings.level, settings.dropout),
            metrics=ProbeMetrics(tags),
            output=ProbeOutput(tags, settings.level),
        )
