"""The policy-gradient objective: sample completions, score them, and reinforce them by their advantage.

Return of a completion: R = reward − β · Σ log π/π₀ − α · Σ log π / tokens, where π₀ is the reference model, a frozen
copy of the start. The gradient is that of Σ A · log π with A = R − baseline (REINFORCE; RLOO, Ahmadian et al. 2024;
GRPO, Shao et al. 2024); with several updates per batch of rollouts the probability ratio is clipped (PPO, Schulman et
al. 2017).
"""

# N generated tokens, B completions

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from meristem.blocks.heads.kl_controller import AdaptiveKLController
from meristem.blocks.heads.selected_logprobs import selected_logprobs
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.config.errors import MeristemError
from meristem.generation.generate import banned_token_ids
from meristem.generation.rollout import RolloutConfig, RolloutUniforms
from meristem.inputs.batch import Batch, RngFactory, Row, collate
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.learning.build import pad_values
from meristem.reinforce.advantages import advantages
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.prompt_inputs import build_layout, encode_prompts, prompt_from_sample
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.rollout_collection import Floats, RolloutBatch, collect_rollouts, token_distinct2
from meristem.reinforce.settings import PolicySettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

MAX_SHOWN = 3
BASELINE_STEPS = 5
"""Steps over which the initial diversity of completions is measured."""


class PolicyObjective(Objective):
    """Σ A · log π(completion | prompt)."""

    Settings = PolicySettings
    name = "policy"
    requires = frozenset()

    def __init__(self, settings: PolicySettings, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer, self.fill = settings, tokenizer, pad_values(tokenizer)
        self.layout = build_layout(settings, tokenizer)
        self.decoder_start_ids = self.layout.objective.decoder_start_ids
        self.source_kinds = self.layout.objective.source_kinds
        (self.head,) = self.layout.objective.heads
        self.heads: Mapping[str, Head] = {self.head: Head("vocabulary"), "leash": Head("leash")}
        self.loss_weights = {"policy": 1.0}
        if settings.baseline == "learned":
            self.heads = {**self.heads, "value": Head("tags", (("classes", 1),))}
            self.loss_weights["value"] = 0.5
        if settings.supervised_weight:
            self.loss_weights["supervised"] = settings.supervised_weight
        self.max_rows_per_sample = settings.num_generations + bool(settings.supervised_weight)
        self.updates_per_batch = settings.updates_per_rollout
        self.rewards: CombinedReward | None = None
        self.reference: Model | None = None
        self.latest_samples: list[tuple[PromptCompletion, float]] = []
        """Some of the newest completions with their rewards, for display."""

    def attach(self, rewards: CombinedReward, reference: Model) -> None:
        """Set the rewards and the reference model; neither is saved with the objective."""
        self.rewards, self.reference = rewards, reference.eval().requires_grad_(False)
        self.keeps_history = getattr(rewards, "keeps_history", False)

    def __deepcopy__(self, memo: dict[int, Any]) -> PolicyObjective:
        """Itself: nothing in it changes, and judge models may be large."""
        return self

    # ------------------------------------------------------------ prompts

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each prompt and its first reference, truncated to fit."""
        completions = [prompt_from_sample(sample, self.settings.prompt_words) for sample in samples]
        prompts = encode_prompts(completions, self.settings, self.tokenizer)
        reference_ids = iter(
            self.tokenizer.encode_ids([completion.references[0] for completion in completions if completion.references])
        )
        pieces = []
        for index, (completion, ids) in enumerate(zip(completions, prompts, strict=True)):
            target = next(reference_ids).astype(np.int64) if completion.references else None
            piece = self.layout.build_piece(index, ids, target)
            pieces.append(replace(piece, features={**piece.features, "attempt": completion}))
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The prompt, and the uniform random numbers that its completions are sampled with."""
        piece, rng = row.metadata["piece"], draw("policy")
        uniforms = rng.random((self.settings.num_generations, self.layout.max_target_tokens))
        seeds = rng.integers(0, 1 << 62, self.settings.num_generations).tolist()
        start = self.layout.generation_inputs(piece)
        inputs = {key: np.asarray(value) for key, value in start.inputs.items()}
        metadata = {**row.metadata, "uniforms": uniforms, "seeds": seeds}
        return Row(inputs={**inputs, "tokens": np.array(start.prompt_ids)}, metadata=metadata, sample_id=row.sample_id)

    # ------------------------------------------------------------ rollouts and rewards

    def rollout_sampling(self, model: Model) -> RolloutConfig:
        """The sampling configuration of rollouts for this model."""
        end_id = self.tokenizer.end if self.layout.end_id is None else self.layout.end_id
        mode: Literal["causal", "source"] = "causal" if self.settings.generation_mode == "causal" else "source"
        banned_ids = tuple(banned_token_ids(model, self.tokenizer, self.layout.end_id, mode))
        return RolloutConfig(
            max_new_tokens=self.layout.max_target_tokens,
            end_id=end_id,
            banned_ids=banned_ids,
            temperature=self.settings.temperature,
        )

    def collect(
        self,
        model: Model,
        pieces: Sequence[SamplePiece],
        uniforms: Sequence[RolloutUniforms],
        seeds: Sequence[Sequence[int]],
    ) -> RolloutBatch:
        """Sample completions for these prompts."""
        return collect_rollouts(
            model, self.tokenizer, self.layout, self.rollout_sampling(model), pieces, uniforms, seeds
        )

    def rollout_to_batch(
        self, rollout_batch: RolloutBatch, samples: Sequence[int], extra_rows: Sequence[Row] = ()
    ) -> Batch:
        """Prompts with their completions as training rows; the targets are the completion tokens."""
        rows = []
        for piece, rollout, sample in zip(rollout_batch.pieces, rollout_batch.rollouts, samples, strict=True):
            target_piece = replace(piece, features={**piece.features, "target": rollout.tokens})
            row = self.layout.build_row(
                Row(inputs={}, metadata={"piece": target_piece}, sample_id=sample), SampleRng(0, 0, 0)
            )
            targets = {**row.targets[self.layout.term], "old": rollout.logprobs}
            rows.append(replace(row, targets={"policy": targets}))
        return collate([*rows, *extra_rows], self, self.fill)

    def log_probs(self, model: Model, hidden: Hidden, targets: Mapping[str, Tensor]) -> Tensor:
        """[N] log-probabilities of the generated tokens under the sampling distribution."""
        head = model.heads[self.head]
        assert isinstance(head, VocabularyHead)
        sampling = self.rollout_sampling(model)
        banned_mask = sampling.banned_logits(
            head.weight.shape[0] if head.is_linear else model.backbone.embedding().num_embeddings
        )
        return selected_logprobs(
            head,
            hidden.select(targets["at"]),
            targets["values"],
            logit_mask_V=banned_mask,
            temperature=sampling.temperature,
        )

    def log_ratios(self, batch: Batch, sizes: Sequence[int]) -> tuple[Floats, Floats]:
        """Per completion Σ log π and Σ log π/π₀, a one-sample estimate of the KL divergence."""
        assert self.reference is not None
        targets, ends = batch.targets["policy"], np.cumsum(sizes)[:-1]
        reference_log_probs = self.log_probs(self.reference, self.encode(self.reference, batch), targets)
        policy, reference = targets["old"].cpu().double().numpy(), reference_log_probs.cpu().double().numpy()
        log_prob_sums = np.array([chunk.sum() for chunk in np.split(policy, ends)])
        return log_prob_sums, np.array([chunk.sum() for chunk in np.split(policy - reference, ends)])

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """Sample completions, score them, and compute returns and advantages: the batch that the loss is taken on."""
        if self.rewards is None or self.reference is None:
            raise MeristemError("policy: no rewards are attached; use meristem reinforce")
        metadata, count = batch.metadata, self.settings.num_generations
        pieces = [row_metadata["piece"] for row_metadata in metadata]
        rollout_batch = self.collect(model, pieces, [n["uniforms"] for n in metadata], [n["seeds"] for n in metadata])
        scorer = self.rewards.with_history(history) if self.keeps_history else self.rewards
        scores = scorer.score(rollout_batch.completions)
        shown_indices = range(0, len(rollout_batch.completions), count)[:MAX_SHOWN]
        self.latest_samples = [
            (rollout_batch.completions[index], float(scores.total[index])) for index in shown_indices
        ]
        sample_ids = [batch.sample_ids[row_index] for row_index in batch.sample_index.tolist()]
        learn_batch = self.rollout_to_batch(
            rollout_batch, np.repeat(sample_ids, count).tolist(), self._reference_rows(pieces, sample_ids)
        ).to(model.device)
        if self.keeps_history:
            for row_metadata, observations in zip(
                learn_batch.metadata, scores.observations, strict=False
            ):  # rows of references come last
                row_metadata["observations"] = observations
        sizes = [len(rollout.tokens) for rollout in rollout_batch.rollouts]
        log_prob_sums, log_ratio = self.log_ratios(learn_batch, sizes)
        truncated = np.array([not rollout.is_finished for rollout in rollout_batch.rollouts], float)
        rewards = scores.total - self.settings.missing_eos_penalty * truncated
        returns = self._returns(model, rewards, log_ratio, log_prob_sums / np.maximum(1, sizes))
        first_positions = learn_batch.targets["policy"]["at"][np.cumsum([0, *sizes[:-1]])]
        value_estimates = self._predicted_values(model, learn_batch, first_positions)
        advantage = advantages(self.settings.baseline, returns, count, value_estimates)
        text_metrics = {
            "reward": rewards,
            "_square": rewards**2,
            "kl": log_ratio,
            "entropy": -log_prob_sums / np.maximum(1, sizes),
            "written": np.array(sizes, float),
            "ended": 1 - truncated,
            "distinct2": np.full(len(sizes), token_distinct2(rollout_batch.rollouts)),
            "leash": np.full(len(sizes), self.kl_coefficient(model)),
            "return": returns,
            **{f"reward.{name}": values for name, values in scores.parts.items()},
        }
        device, dtype = first_positions.device, learn_batch.targets["policy"]["old"].dtype
        learn_batch.targets["policy"]["advantage"] = torch.tensor(
            np.repeat(advantage, sizes), dtype=dtype, device=device
        )
        learn_batch.targets["text"] = {
            "at": first_positions,
            **{k: torch.tensor(v, dtype=dtype, device=device) for k, v in text_metrics.items()},
        }
        learn_batch.target_counts = self.count_targets(learn_batch)
        return learn_batch

    def observations(self, batch: Batch) -> list[Any]:
        """What rewards with a history want to remember of the completions in an explored batch."""
        return [observation for row_metadata in batch.metadata if (observation := row_metadata.get("observations"))]

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The rewards' history after a step."""
        return history if self.rewards is None else self.rewards.remember(history, observations)

    def _reference_rows(self, pieces: Sequence[SamplePiece], sample_ids: Sequence[int]) -> list[Row]:
        """Rows of references, where `policy.supervised_weight` trains on them too."""
        rows = []
        for piece, sample in zip(pieces, sample_ids, strict=True):
            if self.settings.supervised_weight and piece.features["target"] is not None:
                row = self.layout.build_row(
                    Row(inputs={}, metadata={"piece": piece}, sample_id=sample), SampleRng(0, 0, 0)
                )
                rows.append(replace(row, targets={"supervised": row.targets[self.layout.term]}))
        return rows

    def _returns(self, model: Model, rewards: Floats, log_ratio: Floats, mean_log_prob: Floats) -> Floats:
        settings, controller = self.settings, self.kl_controller(model)
        mean, std = controller.reward_mean_std if settings.whiten_rewards else (0.0, 1.0)
        return (
            (rewards - mean) / std
            - self.kl_coefficient(model) * log_ratio
            - settings.entropy_coefficient * mean_log_prob
        )

    def _predicted_values(self, model: Model, batch: Batch, positions: Tensor) -> Floats | None:
        """The value head's prediction for each prompt."""
        if self.settings.baseline != "learned":
            return None
        values = model.heads["value"](self.encode(model, batch).select(positions))[:, 0]
        return np.asarray(values.cpu().double().numpy())

    def kl_controller(self, model: Model) -> AdaptiveKLController:
        """The KL controller, a head of the model so that its state is saved with the weights."""
        head = model.heads["leash"]
        assert isinstance(head, AdaptiveKLController)
        return head

    def kl_coefficient(self, model: Model) -> float:
        """The current β."""
        return self.settings.kl.coefficient * float(self.kl_controller(model).price)

    # ------------------------------------------------------------ loss

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Completions or tokens, whichever the loss averages over."""
        lengths = {term: len(targets["at"]) for term, targets in batch.targets.items()}
        texts = lengths.get("text", 0)
        counts = {"policy": texts if self.settings.loss_aggregation == "text" else lengths.get("policy", 0),
                  "value": texts,
                  "supervised": lengths.get("supervised", 0)}  # fmt: skip
        return {term: counts[term] for term in self.loss_weights}

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """As the objective that the model was trained with."""
        return self.layout.objective.encode(model, batch, state)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−Σ A · log π, or PPO's clipped surrogate with several updates per batch."""
        targets, text = batch.targets["policy"], batch.targets["text"]
        advantage, log_probs = targets["advantage"], self.log_probs(model, hidden, targets)
        ratio = (log_probs - targets["old"]).exp()
        clipped_ratio = ratio.clamp(1 - self.settings.clip_range, 1 + self.settings.clip_range)
        objective = (
            torch.minimum(ratio * advantage, clipped_ratio * advantage)
            if self.updates_per_batch > 1
            else log_probs * advantage
        )
        sums = {"policy": -objective.sum()}
        if "value" in self.loss_weights:
            expected = model.heads["value"](hidden.select(text["at"]))[:, 0]
            sums["value"] = (expected - text["return"]).pow(2).sum()
        if "supervised" in batch.targets:
            head, supervised_targets = model.heads[self.head], batch.targets["supervised"]
            assert isinstance(head, VocabularyHead)
            sums["supervised"] = head.compute_loss(
                hidden.select(supervised_targets["at"]), supervised_targets["values"]
            ).total
        num_texts = log_probs.new_full((), float(len(text["at"])))
        metrics = {name: (value.sum(), num_texts) for name, value in text.items() if name not in ("at", "return")}
        if self.updates_per_batch > 1:
            clipped = (ratio.detach() - 1).abs() > self.settings.clip_range
            metrics["clipped"] = (clipped.sum(), log_probs.new_full((), float(clipped.numel())))
        return Outcome(loss_sums=sums, metrics=metrics)

    def after_step(self, model: Model, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
        """After an optimizer step: update the KL controller and reward statistics; returns why the run should stop."""
        settings, controller = self.settings, self.kl_controller(model)
        mean = {name: float(total) / max(1e-9, float(number)) for name, (total, number) in metrics.items()}
        controller.update_reward_stats(mean["reward"], mean["_square"])
        if settings.kl.adaptation_rate and settings.kl.coefficient:
            controller.update_coefficient(mean["kl"], settings.kl.target, settings.kl.adaptation_rate)
        diverged = settings.kl.max_ratio is not None and mean["kl"] > settings.kl.max_ratio * settings.kl.target
        controller.wild.copy_((controller.wild + 1) * diverged)
        collapsed = (
            settings.min_distinct2_ratio is not None
            and controller.diversity_ratio(mean["distinct2"], BASELINE_STEPS) < settings.min_distinct2_ratio
        )
        controller.dull.copy_((controller.dull + 1) * collapsed)
        if int(controller.wild) >= settings.stop_patience:
            return (f"the policy diverged from the reference model: KL {mean['kl']:.1f} nats, policy.kl.target is "
                    f"{settings.kl.target:g}. Raise policy.kl.coefficient or lower train.learning_rate")  # fmt: skip
        if int(controller.dull) >= settings.stop_patience:
            return ("the completions have become alike: distinct-2 is below "
                    f"{settings.min_distinct2_ratio:.0%} of its initial value. Use a higher "
                    "policy.kl.coefficient, a higher "
                    "policy.entropy_coefficient or a reward for variety")  # fmt: skip
        return None
