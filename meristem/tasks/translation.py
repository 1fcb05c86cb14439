"""Machine translation: a text in one language → its translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Metrics
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import Route, TaskSignature
from meristem.metrics import bleu_rouge as metrics
from meristem.tasks.components.generation_parts import generation_parts
from meristem.tasks.components.generation_settings import GENERATION_MODES, GenerationSettings, build_text_layout
from meristem.tasks.components.source_target import SOURCE, SourceTargetEncoder
from meristem.tasks.components.text_metrics import GeneratedTextMetrics
from meristem.tokenizers.tokenizer import Tokenizer


class TranslationTaskSettings(GenerationSettings):
    """Settings of translation."""

    name: Literal["translation"] = "translation"
    """The task's name."""


class TranslationMetrics(GeneratedTextMetrics):
    """BLEU and chrF, compared with copying the source."""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Copying the source, which gets names and numbers right."""
        golds, sources = [sample.gold for sample in samples], [sample.inputs["source"] for sample in samples]
        return {"the source itself": metrics.translation_metrics(golds, sources)}


class TranslationTask(Task[TranslationTaskSettings]):
    """p(target | source); BLEU and chrF by sacrebleu."""

    Settings = TranslationTaskSettings
    name = "translation"
    sample_type = "source_target"
    requires_any: ClassVar[frozenset[str]] = GENERATION_MODES
    signature = TaskSignature(
        takes="one text",
        inputs=(SOURCE,),
        output="text",
        output_key="translation_text",
        route=Route(name="translate", summary="Translations of texts"),
    )

    @classmethod
    def compose(cls, settings: TranslationTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """Source and target as in pretraining; long sources keep their start."""
        template, layout = build_text_layout(settings, cls.name, tokenizer)
        encoder = SourceTargetEncoder(template, layout, tokenizer, lm_targets=settings.lm_weight > 0)
        return generation_parts(
            settings, tokenizer, layout, encoder, TranslationMetrics(), cls.signature.output_fields[0]
        )
