"""Continuations of passages by any kind of language model, greedy and sampled, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from meristem.checkpoint.load_run import LoadedRun
from meristem.dataset.token_dataset import IntArray
from meristem.generation.generate import UNMASKING_KINDS, generate_from_inputs
from meristem.generation.generated_text import GeneratedText
from meristem.generation.generation_inputs import GenerationInputs, build_generation_inputs
from meristem.generation.head_selection import LMKind, lm_kind_for, lm_kinds_for
from meristem.generation.infill import InfillingText
from meristem.generation.iterative_unmasking import generate_by_unmasking
from meristem.generation.masked_input import mask_id
from meristem.generation.settings import SamplingSettings

TOP_K = 40
"""Sampling as in Carlini et al. 2021."""
PROMPTS_PER_CALL = 64


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The text before a continuation."""

    text: str
    num_tokens: int
    """Tokens of the continuation."""


class ContinuationModel:
    """Continues texts with one model and one kind of language model."""

    def __init__(self, loaded_run: LoadedRun, kind: LMKind, *, seed: int) -> None:
        self.model, self.tokenizer = loaded_run.learner.model, loaded_run.tokenizer
        self.kind: LMKind = kind if kind == "source" else lm_kind_for(self.model, "generate")
        self._seed = seed
        self.on_pairs = kind == "source" and not lm_kinds_for(self.model, "score")

    def continue_all(
        self, prompts: Sequence[Prompt], num_samples: int, progress: Callable[[int], None] = lambda done: None
    ) -> Iterator[list[GeneratedText]]:
        """Per prompt the greedy continuation, then `num_samples` sampled ones."""
        for first in range(0, len(prompts), PROMPTS_PER_CALL):
            batch = prompts[first : first + PROMPTS_PER_CALL]
            max_tokens = max(prompt.num_tokens for prompt in batch)
            greedy = self._generate(
                batch, SamplingSettings.model_validate({"greedy": True, "max_tokens": max_tokens}), 1
            )
            sampling = SamplingSettings.model_validate(
                {"top_k": TOP_K, "max_tokens": max_tokens, "seed": self._seed + first}
            )
            sampled = self._generate(batch, sampling, num_samples) if num_samples else [[] for _ in batch]
            progress(len(batch))
            for greedy_texts, sampled_texts in zip(greedy, sampled, strict=True):
                yield [*greedy_texts, *sampled_texts]

    def _generate(self, prompts: Sequence[Prompt], settings: SamplingSettings, count: int) -> list[list[GeneratedText]]:
        model, tokenizer = self.model, self.tokenizer
        if self.kind not in UNMASKING_KINDS:
            inputs = [self._inputs(prompt.text) for prompt in prompts]
            return generate_from_inputs(model, tokenizer, inputs, settings, count=count)
        texts_per_prompt = []
        for prompt in prompts:  # as many masks as the continuation has tokens
            own_settings = settings.model_copy(update={"max_tokens": prompt.num_tokens})
            texts_per_prompt += generate_by_unmasking(
                model, tokenizer, [prompt.text], own_settings, count=count, lm_kind=self.kind
            )
        return texts_per_prompt

    def _inputs(self, text: str) -> GenerationInputs:
        """A prompt; for a denoising encoder-decoder a text that ends with a gap, up to which the decoder is given."""
        if self.kind != "source" or self.on_pairs:
            return build_generation_inputs(self.model, self.tokenizer, text, as_source=self.kind == "source")
        ids = np.append(self.tokenizer.ids_each([text])[0].astype(np.int64), mask_id(self.tokenizer))
        return InfillingText(self.model, self.tokenizer, ids, [len(ids) - 1]).inputs_for_gap(0)


def as_ids(generated: GeneratedText) -> IntArray:
    """The generated tokens."""
    return np.array(generated.tokens, np.int64)
