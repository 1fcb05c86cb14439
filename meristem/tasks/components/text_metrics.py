"""Metrics and output of text generation: BLEU and chrF by sacrebleu, the most frequent target as baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import OutputFormat, TaskMetrics
from meristem.metrics import bleu_rouge as metrics
from meristem.tasks.components.sequence_generator import GeneratedAnswer
from meristem.tasks.components.source_target import source_texts


class GeneratedTextMetrics(TaskMetrics):
    """The best text of each sample against its golds."""

    main = "loss"

    def resampler(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> Resampler:
        """BLEU and chrF."""
        return metrics.translation_resampler([sample.gold for sample in samples], [item.text for item in predictions])

    def signature(self, samples: Sequence[Sample]) -> str:
        """The sacrebleu signature."""
        return metrics.sacrebleu_signature([sample.gold for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent training target for every source."""
        most_frequent = Counter(gold for sample in train for gold in sample.gold or ()).most_common(1)[0][0]
        golds = [sample.gold for sample in samples]
        return {"always the commonest text": metrics.translation_metrics(golds, [most_frequent] * len(golds))}

    def mistakes(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> list[Mistake]:
        """Texts that equal none of the golds, most confident first."""
        mistakes = [
            Mistake(
                location=sample.location,
                input_text=" | ".join(source_texts(sample)),
                gold=" | ".join(sample.gold),
                prediction=answer.text,
                confidence=answer.confidence,
            )
            for answer, sample in zip(predictions, samples, strict=True)
            if answer.text not in [gold.strip() for gold in sample.gold]
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)


class TextOutput(OutputFormat):
    """{"generated_text": …} or another key of transformers' pipelines."""

    kind = "text"

    def __init__(self, key: str) -> None:
        self.key = key

    def format(self, prediction: GeneratedAnswer, sample: Sample) -> Any:
        """The best text."""
        return {self.key: prediction.text}

    def format_top(self, prediction: GeneratedAnswer, sample: Sample, top: int) -> list[Any]:
        """The texts of all beams, each with its log-probability."""
        pairs = zip(prediction.texts, prediction.logprobs, strict=True)
        return [{self.key: text, "logprob": logprob} for text, logprob in pairs][:top]

    def describe(self, sample: Sample) -> str:
        """Source and first gold."""
        return f"{' | '.join(source_texts(sample))}  →  {(sample.gold or ('?',))[0]}"
