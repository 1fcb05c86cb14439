"""Dialogue: the turns of a conversation → the reply to the last one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array
from meristem.inputs.template import InputTemplate, separator_id
from meristem.interfaces.backbone import Model
from meristem.interfaces.task import Indices, Metrics, Sample
from meristem.metrics import distinct_ngrams
from meristem.tasks._generation_task import GeneratedAnswer, GenerationTask, GenerationTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class DialogueTaskSettings(GenerationTaskSettings):
    """Settings of dialogue."""

    name: Literal["dialogue"] = "dialogue"
    """The task's name."""
    max_tokens: int = Field(64, ge=1)
    """Maximum tokens of a reply; a causal model keeps half of its length for the turns before it."""


class DialogueTask(GenerationTask):
    """p(reply | turns); the loss is on replies only."""

    Settings = DialogueTaskSettings
    name = "dialogue"
    sample_type = "turns"

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        is_causal = settings.backbone_mode == "causal"
        separator = InputTemplate(tokenizer, "causal").pair.between if is_causal else [separator_id(tokenizer)]
        self.turn_separator: Array = np.array(separator, np.int64)
        """Token ids between two turns: the delimiter of a causal model, else the document separator."""

    def source_texts(self, sample: Sample) -> Sequence[str]:
        """The turns."""
        return list(sample.inputs["turns"])

    def truncate_source(self, parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
        """The last complete turns that fit; if the last turn is too long, its end."""
        kept_ids = parts[-1][max(0, len(parts[-1]) - max_tokens) :]
        num_lost = sum(map(len, parts)) - len(kept_ids)
        for turn in reversed(parts[:-1]):
            if len(turn) + len(self.turn_separator) + len(kept_ids) > max_tokens:
                break
            kept_ids, num_lost = np.concatenate([turn, self.turn_separator, kept_ids]), num_lost - len(turn)
        return kept_ids, num_lost

    def generate(self, model: Model, samples: Sequence[Sample]) -> list[GeneratedAnswer]:
        """Replies, and the loss of the reference replies."""
        answers_and_losses = zip(super().generate(model, samples), self.gold_losses(model, samples), strict=True)
        return [replace(answer, loss=loss, gold_tokens=num_tokens) for answer, (loss, num_tokens) in answers_and_losses]

    def bootstrap_metrics(
        self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """Perplexity of the reference replies, BLEU and chrF of the generated ones, and their distinct n-grams."""
        losses = np.array([[answer.loss, answer.gold_tokens] for answer in predictions])
        text_metrics, distinct_metrics = (
            super().bootstrap_metrics(predictions, samples),
            distinct_ngrams.distinct_resampler([prediction.text for prediction in predictions]),
        )

        def measure(indices: Indices) -> Metrics:
            loss, num_tokens = losses[indices].sum(0)
            return {
                "perplexity": math.exp(min(700.0, loss / max(1.0, num_tokens))),
                **text_metrics(indices),
                **distinct_metrics(indices),
            }

        return measure

    def parse_input(self, value: str | Mapping[str, Any] | Sequence[str]) -> Sample:
        """A text, a list of turns, or a mapping with `turns`."""
        turns = value.get("turns", value.get("text")) if isinstance(value, Mapping) else value
        turns = (turns,) if isinstance(turns, str) else turns
        if not isinstance(turns, Sequence) or not turns or not all(isinstance(turn, str) for turn in turns):
            raise MeristemError(f"dialogue takes a text or a list of turns (turns=…), not {value!r}")
        return Sample(inputs={"turns": tuple(turns)})

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command for the last turn of a sample."""
        return [f"meristem predict {run_path} {shlex.quote(sample.inputs['turns'][-1])}"]
