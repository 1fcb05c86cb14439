"""Rollout collection: sample completions for prompts and keep them with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.generation.rollout import Rollout, RolloutConfig, RolloutUniforms, decode_after_prompt, sample_rollouts
from meristem.generation.source_target_layout import SourceTargetLayout
from meristem.interfaces.backbone import Model
from meristem.interfaces.sample import SamplePiece
from meristem.reinforce.reward_base import PromptCompletion
from meristem.tokenizers.tokenizer import Tokenizer

Floats = NDArray[np.float64]
ROLLOUT_BATCH_SIZE = 256
"""Completions decoded in one batch."""


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """Completions for some prompts, equally many for each, in the order of the prompts."""

    pieces: Sequence[SamplePiece]
    """The prompt of each completion."""
    rollouts: Sequence[Rollout]
    completions: Sequence[PromptCompletion]


def collect_rollouts(
    model: Model,
    tokenizer: Tokenizer,
    layout: SourceTargetLayout,
    sampling: RolloutConfig,
    pieces: Sequence[SamplePiece],
    uniforms: Sequence[RolloutUniforms],
    seeds: Sequence[Sequence[int]],
) -> RolloutBatch:
    """Completions of each piece, one per row of its uniforms; `features["attempt"]` holds the prompt."""
    starts = [layout.generation_inputs(piece) for piece in pieces]
    groups: list[list[Rollout]] = []
    chunk_size = max(1, ROLLOUT_BATCH_SIZE // max(map(len, uniforms)))
    for first in range(0, len(pieces), chunk_size):
        groups += sample_rollouts(
            model, starts[first : first + chunk_size], uniforms[first : first + chunk_size], sampling
        )
    completions = [
        replace(
            piece.features["attempt"],
            text=decode_after_prompt(tokenizer, start.prompt_ids, result.text_tokens),
            ended=result.is_finished,
            seed=seed,
        )
        for piece, start, group, group_seeds in zip(pieces, starts, groups, seeds, strict=True)
        for result, seed in zip(group, group_seeds, strict=True)
    ]
    prompts = [piece for piece, group in zip(pieces, groups, strict=True) for _ in group]
    return RolloutBatch(
        pieces=prompts, rollouts=[result for group in groups for result in group], completions=completions
    )


def token_distinct2(rollouts: Sequence[Rollout]) -> float:
    """distinct-2 on token ids: different bigrams as a share of all bigrams, over all completions."""
    pairs: list[tuple[Any, Any]] = []
    for rollout in rollouts:
        token_ids = rollout.text_tokens.tolist()
        pairs += pairwise(token_ids)
    return len(set(pairs)) / max(1, len(pairs))
