"""Policy evaluation on held-out prompts: sampled completions, their rewards, the KL to the reference model, entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from meristem.interfaces.backbone import Model
from meristem.interfaces.sample import SamplePiece
from meristem.metrics.distinct_ngrams import distinct_metrics
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.rollout_collection import Floats, RolloutBatch
from meristem.utils.randomness import generator

if TYPE_CHECKING:
    from meristem.reinforce.objectives.policy import PolicyObjective

EVAL_BATCH_SIZE = 64
"""Completions scored in one forward pass."""


@dataclass(frozen=True, kw_only=True)
class PolicyEvaluation:
    """Completions for some prompts, equally many for each, with the measurements of each completion."""

    completions: Sequence[PromptCompletion]
    reward: Floats
    parts: dict[str, Floats]
    kl: Floats
    """Σ log π/π₀ per completion, in nats."""
    entropy: Floats
    """−Σ log π / tokens per completion, in nats."""
    num_tokens: Floats
    """Generated tokens per completion."""
    ended: Floats

    @property
    def texts(self) -> list[str]:
        """The generated texts."""
        return [completion.text for completion in self.completions]

    def mean_metrics(self) -> dict[str, float]:
        """Means over all completions."""
        columns: dict[str, Any] = {
            "reward": self.reward,
            **{f"reward.{name}": part for name, part in self.parts.items()},
            "kl": self.kl,
            "entropy": self.entropy,
            "written": self.num_tokens,
            "ended": self.ended,
        }
        return {**{name: float(values.mean()) for name, values in columns.items()}, **distinct_metrics(self.texts)}


@torch.no_grad()
def evaluate_policy(
    policy: PolicyObjective,
    model: Model,
    scorer: CombinedReward,
    pieces: Sequence[SamplePiece],
    *,
    num_generations: int,
    seed: int,
) -> PolicyEvaluation:
    """`num_generations` completions per prompt; the random numbers depend only on the seed and the prompt's index."""
    uniforms = [
        generator(seed, "tried", 0, index).random((num_generations, policy.layout.max_target_tokens))
        for index in range(len(pieces))
    ]
    seeds = [
        generator(seed, "tried-rewards", 0, index).integers(0, 1 << 62, num_generations).tolist()
        for index in range(len(pieces))
    ]
    rollout_batch = policy.collect(model, pieces, uniforms, seeds)
    scores = scorer.score(rollout_batch.completions)
    log_prob_sums, log_ratio = _log_ratios(policy, model, rollout_batch)
    sizes = np.array([len(rollout.tokens) for rollout in rollout_batch.rollouts], float)
    return PolicyEvaluation(
        completions=rollout_batch.completions,
        reward=scores.total,
        parts=dict(scores.parts),
        kl=log_ratio,
        entropy=-log_prob_sums / np.maximum(1, sizes),
        num_tokens=sizes,
        ended=np.array([rollout.is_finished for rollout in rollout_batch.rollouts], float),
    )


def _log_ratios(policy: PolicyObjective, model: Model, rollout_batch: RolloutBatch) -> tuple[Floats, Floats]:
    """Per completion Σ log π and Σ log π/π₀, computed in batches of `EVAL_BATCH_SIZE`."""
    results = []
    for start in range(0, len(rollout_batch.rollouts), EVAL_BATCH_SIZE):
        chunk = slice(start, start + EVAL_BATCH_SIZE)
        rollout_chunk = RolloutBatch(
            pieces=rollout_batch.pieces[chunk],
            rollouts=rollout_batch.rollouts[chunk],
            completions=rollout_batch.completions[chunk],
        )
        batch = policy.rollout_to_batch(rollout_chunk, [0] * len(rollout_chunk.rollouts)).to(model.device)
        results.append(policy.log_ratios(batch, [len(rollout.tokens) for rollout in rollout_chunk.rollouts]))
    return np.concatenate([rollout for rollout, _ in results]), np.concatenate([log_ratio for _, log_ratio in results])
