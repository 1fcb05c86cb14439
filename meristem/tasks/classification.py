"""Text classification and regression: a text → a label, several labels or a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, TaskSignature
from meristem.tasks.components.classification_head import ClassificationHead
from meristem.tasks.components.classification_metrics import ClassificationMetrics
from meristem.tasks.components.encoder_settings import EncoderSettings
from meristem.tasks.components.label_output import CLASSIFY, LabelOutput
from meristem.tasks.components.label_set import LabelSet, LabelSettings, fit_label_settings
from meristem.tasks.components.ngram_logits import TEXT_SCALE, NgramLogits, NgramSettings
from meristem.tasks.components.pooled_logits import PooledLogits
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tasks.components.text_encoder import TextEncoder
from meristem.tokenizers.tokenizer import Tokenizer


class ClassificationTaskSettings(NgramSettings, LabelSettings, EncoderSettings):
    """Settings of text classification."""

    name: Literal["classification"] = "classification"
    """The task's name."""


class ClassificationTask(Task[ClassificationTaskSettings]):
    """p(label | text)."""

    Settings = ClassificationTaskSettings
    name = "classification"
    sample_type = "text"
    signature = TaskSignature(
        takes="a text",
        inputs=(InputField(name="text", help="One or several texts.", example="What a film!"),),
        output="label",
        export_head="classification",
        route=CLASSIFY,
    )

    @classmethod
    def fit_settings(
        cls, settings: ClassificationTaskSettings, samples: Sequence[Sample]
    ) -> ClassificationTaskSettings:
        """The settings with problem type, labels and class weights."""
        return fit_label_settings(settings, samples)

    @classmethod
    def compose(cls, settings: ClassificationTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """A text encoder and a head on its summary state or its pooled states."""
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        labels = LabelSet(settings, cls.name)
        ngrams = NgramLogits.build(settings, labels.num_classes, TEXT_SCALE)
        logits = PooledLogits(states, cls.name, labels.num_classes, settings.pooling, ngrams=ngrams)
        return TaskParts(
            encoder=TextEncoder(template, ("text",), cls.name, labels.target, lm_loss, ngrams=ngrams),
            states=states,
            head=ClassificationHead(cls.name, logits, labels, settings.class_weights),
            metrics=ClassificationMetrics(labels),
            output=LabelOutput(labels),
            auxiliary_loss=lm_loss,
        )
