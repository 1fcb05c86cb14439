"""Rollouts for policy-gradient training: several sampled completions per prompt, with token log-probabilities.

Sampling uses given uniform random numbers, so that rollouts do not depend on how they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.generation_inputs import GenerationInputs
from meristem.generation.settings import SamplingSettings
from meristem.generation.slot_scheduling import FirstComeScheduler
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

RolloutUniforms = NDArray[np.float64]
"""[rollouts, tokens] numbers in [0, 1) that the rollouts of one prompt are sampled with."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One sampled completion."""

    tokens: NDArray[np.int64]
    """The sampled tokens, including the end token if it was sampled."""
    logprobs: NDArray[Any]
    """Of each token under the distribution it was sampled from."""
    is_finished: bool
    """Whether it ended with the end token before `max_new_tokens`."""

    @property
    def text_tokens(self) -> NDArray[np.int64]:
        """The tokens without the end token."""
        return self.tokens[:-1] if self.is_finished else self.tokens


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How rollouts are sampled: at most `max_new_tokens` tokens, never `banned_ids`, until the end token."""

    max_new_tokens: int
    end_id: int | None
    banned_ids: tuple[int, ...] = ()
    temperature: float = 1.0

    def banned_logits(self, vocab_size: int) -> Tensor:
        """[V] −∞ for banned tokens, else 0."""
        return torch.zeros(vocab_size).index_fill_(0, torch.tensor(self.banned_ids, dtype=torch.long), -torch.inf)


def sample_rollouts(
    model: Model, items: Sequence[GenerationInputs], uniforms: Sequence[RolloutUniforms], config: RolloutConfig
) -> list[list[Rollout]]:
    """As many rollouts per prompt as its uniforms [rollouts, max_new_tokens] have rows; each is prefilled once."""
    settings = SamplingSettings.model_validate({"temperature": config.temperature})
    sampler = TokenSampler.from_settings(settings, config.banned_ids, config.end_id, model.device)
    sequences = [
        [
            SequenceState(inputs, sampler, row.__getitem__, config.max_new_tokens, config.end_id)
            for row in prompt_uniforms.tolist()
        ]
        for inputs, prompt_uniforms in zip(items, uniforms, strict=True)
    ]
    scheduler = FirstComeScheduler(sum(map(len, sequences)))
    batch = ContinuousBatch(model, lm_kind=items[0].lm_kind(model), scheduler=scheduler, sampling_logprobs=True)
    for sequence in (sequence for group in sequences for sequence in group):
        batch.add(sequence)
    batch.run()
    dtype = np.float64 if model.backbone.embedding().weight.dtype is torch.float64 else np.float32
    return [[_to_rollout(sequence, dtype) for sequence in group] for group in sequences]


def _to_rollout(sequence: SequenceState, dtype: type[np.floating[Any]]) -> Rollout:
    return Rollout(
        tokens=np.array([*sequence.token_ids, *([sequence.end_id] if sequence.has_ended else [])], np.int64),
        logprobs=np.array(sequence.logprobs, dtype),
        is_finished=sequence.has_ended,
    )


def decode_after_prompt(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int] | NDArray[Any]) -> str:
    """Decoded tokens after a prompt; whether a space comes first depends on the prompt's last token."""
    stream = tokenizer.stream_decoder(after=prompt)
    return "".join([*(stream.push(int(token)) for token in tokens), stream.finish()])
