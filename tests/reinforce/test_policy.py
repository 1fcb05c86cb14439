"""The policy objective: its loss and gradient, their dependence on settings, and that it learns what is rewarded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))
from policies import FAMILIES, Counting, feed_for, learner_for, settings, tokenizer

from meristem.config.errors import MeristemError
from meristem.dataset.length_buckets import LengthBucketedFeed, PieceView
from meristem.inputs.batch import Batch
from meristem.inputs.template import add_task_tokens
from meristem.interfaces.sample import Sample
from meristem.learning.learner import Learner
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper

WORDS = tokenizer()


def letters(text: str) -> float:
    return float(text.count("e") + 2 * text.count("a"))


def build_policy(family: str, **policy_overrides: Any) -> tuple[Learner, Any, Batch]:
    learner = learner_for(family, WORDS, Counting(letters), **policy_overrides)
    return learner, learner.objectives["policy"], feed_for(learner, rows=4).batch(0, 0)


def stepper(learner: Learner, **train_overrides: Any) -> Stepper:
    plain = {"steps": 100, "learning_rate": 1e-2, "schedule": "constant", "warmup": 0.0, "weight_decay": 0.0,
             "optimizer": "adamw", **train_overrides}  # fmt: skip
    train = TrainSettings.model_validate(plain)
    return Stepper(learner=learner, optimizers=build_optimizers(learner.model, train), settings=train,
                   device=torch.device("cpu"))  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_advantage_times_log_probability(family: str) -> None:
    learner, policy, batch = build_policy(family, double=True)
    explored = learner.explore("policy", batch)
    totals = {term: max(1, count) for term, count in explored.target_counts.items()}
    parameters = [p for p in learner.model.parameters() if p.requires_grad]
    loss = learner("policy", explored, totals).loss
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    targets = explored.targets["policy"]
    hidden = policy.encode(learner.model, explored)
    logits = learner.model.heads[policy.head](
        hidden.last_hidden_state.reshape(-1, hidden.last_hidden_state.shape[-1])[targets["at"]]
    )
    logits = logits + policy.rollout_sampling(learner.model).banned_logits(logits.shape[1])
    token_logprobs = logits.log_softmax(-1).gather(1, targets["values"][:, None])[:, 0]
    right = -(token_logprobs * targets["advantage"]).sum() / len(explored.targets["text"]["at"])
    theirs = torch.autograd.grad(right, parameters, allow_unused=True)
    for gradient, other in zip(gradients, theirs, strict=True):
        if other is not None:
            torch.testing.assert_close(gradient, other, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_at_the_start_the_kl_is_zero_and_advantages_sum_to_zero(family: str) -> None:
    learner, policy, batch = build_policy(family)
    explored = learner.explore("policy", batch)
    text = explored.targets["text"]
    assert text["kl"].abs().max() < 1e-4
    assert text["reward"].tolist() == [letters(completion.text) for completion in policy.rewards.scored[-12:]]
    sizes = text["written"].long().tolist()
    first = np.cumsum([0, *sizes[:-1]])
    assert explored.targets["policy"]["advantage"][first].reshape(4, 3).sum(1).abs().max() < 1e-4
    assert batch.targets == {}  # what comes in is left as it was


def test_returns_include_kl_entropy_and_the_penalty_for_truncation() -> None:
    learner, policy, batch = build_policy(
        "gpt2", whiten_rewards=False, missing_eos_penalty=5.0, entropy_coefficient=0.3, kl={"coefficient": 0.5}
    )
    with torch.no_grad():
        for parameter in policy.reference.parameters():
            parameter.mul_(0.8)
    text = learner.explore("policy", batch).targets["text"]
    plain_rewards = np.array([letters(completion.text) for completion in policy.rewards.scored[-12:]])
    ended_flags = np.array([completion.ended for completion in policy.rewards.scored[-12:]])
    right = plain_rewards - 5.0 * ~ended_flags - 0.5 * text["kl"].numpy() + 0.3 * text["entropy"].numpy()
    np.testing.assert_allclose(text["return"].numpy(), right, atol=1e-4)
    assert text["kl"].abs().max() > 0.1


def test_whitened_rewards_use_the_running_statistics() -> None:
    learner, policy, batch = build_policy("gpt2", kl={"coefficient": 0.0})
    policy.kl_controller(learner.model).update_reward_stats(4.0, 4.0**2 + 9.0)
    text = learner.explore("policy", batch).targets["text"]
    np.testing.assert_allclose(text["return"], (text["reward"] - 4.0) / 3.0, atol=1e-5)


def test_with_several_updates_ratios_are_clipped() -> None:
    learner, policy, batch = build_policy("gpt2", double=True, updates_per_rollout=3, clip_range=0.2)
    explored = learner.explore("policy", batch)
    totals = {"policy": 12}
    with torch.no_grad():
        for parameter in learner.model.backbone.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    outcome = learner("policy", explored, totals)
    targets = explored.targets["policy"]
    new_logprobs = policy.log_probs(learner.model, policy.encode(learner.model, explored), targets)
    ratio = (new_logprobs - targets["old"]).exp()
    gain = torch.minimum(ratio * targets["advantage"], ratio.clamp(0.8, 1.2) * targets["advantage"])
    torch.testing.assert_close(outcome.loss_sums["policy"], -gain.sum())
    share = float(outcome.metrics["clipped"][0] / outcome.metrics["clipped"][1])
    assert share == pytest.approx(float(((ratio - 1).abs() > 0.2).double().mean())) and share > 0


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_parts_of_a_step_add_up_to_the_whole(micro: int) -> None:
    """Accumulated over passes of uneven sizes the gradient is that of one pass: sums and totals, never means."""
    gradients_of_parts = []
    for size in (4, micro):
        learner = learner_for("gpt2", WORDS, Counting(letters), double=True, supervised_weight=0.5, baseline="learned")
        feed = feed_for(learner, rows=4, micro=size, references=True)
        batches = [learner.explore("policy", feed.batch(0, m)) for m in range(feed.micro_steps)]
        names = learner.objectives["policy"].loss_weights
        totals = {name: sum(batch.target_counts[name] for batch in batches) for name in names}
        for batch in batches:
            learner("policy", batch, totals).loss.backward()
        gradients_of_parts.append({name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None})
    assert gradients_of_parts[0].keys() == gradients_of_parts[1].keys()
    for name, grad in gradients_of_parts[0].items():
        torch.testing.assert_close(grad, gradients_of_parts[1][name], atol=1e-9, rtol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("family", "policy_overrides"),
    [
        ("gpt2", {}),
        ("transformer", {}),
        ("rnn", {}),
        ("gpt2", {"baseline": "learned", "num_generations": 1}),
        ("gpt2", {"baseline": "grpo", "updates_per_rollout": 3}),
        pytest.param("gpt2", {"loss_aggregation": "token", "temperature": 0.8}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_it_learns_to_generate_what_is_rewarded(family: str, policy_overrides: dict[str, Any]) -> None:
    # fifty steps take one to three seconds, and fewer do not tell learning from chance
    learner = learner_for(
        family, WORDS, Counting(letters), kl={"coefficient": 0.0}, min_distinct2_ratio=None, **policy_overrides
    )
    feed, walk = feed_for(learner, rows=8), stepper(learner, learning_rate=2e-2)
    rewards = []
    for step in range(50):
        step_result = walk.train_step(step, 100, "policy", [feed.batch(step, 0)])
        rewards.append(float(step_result.metrics["reward"][0] / step_result.metrics["reward"][1]))
    first, last = np.mean(rewards[:8]), np.mean(rewards[-8:])
    assert last > first + 1.5, (first, last)


def test_the_kl_controller_keeps_the_kl_near_its_target() -> None:
    mean_kl = {}
    for coefficient in (0.0, 0.3):
        kl = {"coefficient": coefficient, "target": 1.0, "adaptation_rate": 0.5}
        learner = learner_for("gpt2", WORDS, Counting(letters), kl=kl, min_distinct2_ratio=None)
        feed, walk = feed_for(learner, rows=8), stepper(learner, learning_rate=2e-2)
        kl_metrics = [walk.train_step(step, 100, "policy", [feed.batch(step, 0)]).metrics["kl"] for step in range(40)]
        mean_kl[coefficient] = np.mean([float(total / number) for total, number in kl_metrics[-8:]])
    assert mean_kl[0.3] < 0.6 * mean_kl[0.0], mean_kl


def test_a_supervised_share_learns_the_references() -> None:
    learner = learner_for("gpt2", WORDS, Counting(lambda text: 0.0), supervised_weight=1.0)
    feed, walk = feed_for(learner, rows=8, references=True), stepper(learner)
    losses = [
        float(walk.train_step(step, 100, "policy", [feed.batch(step, 0)]).terms["supervised"]) for step in range(20)
    ]
    assert losses[-1] < 0.7 * losses[0]


def test_it_says_why_it_should_stop() -> None:
    learner, policy, _ = build_policy(
        "gpt2", stop_patience=3, kl={"target": 1.0, "max_ratio": 2.0}, min_distinct2_ratio=0.5
    )
    one_count = torch.tensor(1.0)

    def settled(kl: float, variety: float) -> str | None:
        step_metrics = {"reward": 0.0, "_square": 1.0, "kl": kl, "distinct2": variety}
        return policy.after_step(
            learner.model, {name: (torch.tensor(value), one_count) for name, value in step_metrics.items()}
        )

    assert [settled(5.0, 0.9) for _ in range(2)] == [None, None]
    assert settled(1.0, 0.9) is None  # it must last
    assert [settled(5.0, 0.9) for _ in range(2)] == [None, None]
    assert "the policy diverged" in str(settled(5.0, 0.9))
    assert [settled(0.5, 0.3) for _ in range(2)] == [None, None]
    assert "alike" in str(settled(0.5, 0.3))


def test_the_random_numbers_of_a_completion_depend_only_on_its_sample() -> None:
    learner, _, _ = build_policy("gpt2")
    full_batch = feed_for(learner, rows=4).batch(0, 0)
    part = feed_for(learner, rows=4, micro=1).batch(0, 2)
    sample_metadata = [
        note for note in full_batch.metadata if note["piece"].sample_index == part.metadata[0]["piece"].sample_index
    ]
    assert np.array_equal(sample_metadata[0]["uniforms"], part.metadata[0]["uniforms"])
    assert sample_metadata[0]["seeds"] == part.metadata[0]["seeds"]


def test_nothing_is_generated_past_the_limit() -> None:
    learner, policy, batch = build_policy("gpt2", max_new_tokens=2)
    explored = learner.explore("policy", batch)
    assert explored.targets["text"]["written"].max() <= 2
    assert all(len(completion.text.split()) <= 2 for completion in policy.rewards.scored)


@pytest.mark.parametrize(
    ("family", "policy_overrides"), [("gpt2", {}), ("gpt2", {"use_delimiter": True}), ("transformer", {})]
)
def test_prompts_longer_than_the_model_are_cut_to_leave_room_for_a_text(
    family: str, policy_overrides: dict[str, Any]
) -> None:
    words = add_task_tokens(WORDS) if policy_overrides else WORDS
    learner = learner_for(family, words, Counting(letters), **policy_overrides)
    policy: Any = learner.objectives["policy"]
    pieces = policy.encode_samples([Sample(inputs={"prompt": "The old gardener " * 20, "columns": {}}, location="p:0")])
    batch = LengthBucketedFeed(
        view=PieceView(pieces), objective=policy, seed=3, batch_size=1, micro_batch_size=1, pad_values=policy.fill
    ).batch(0, 0)
    explored = learner.explore("policy", batch)
    assert explored.inputs["tokens"].shape[1] <= settings(family).max_length + 1


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        settings("gpt2", num_generations=1)
    learner, policy, batch = build_policy("gpt2")
    policy.rewards = None
    with pytest.raises(MeristemError, match="meristem reinforce"):
        learner.explore("policy", batch)


def test_a_copy_of_the_learner_shares_its_judges() -> None:
    import copy

    learner, policy, _ = build_policy("gpt2")
    assert copy.deepcopy(learner).objectives["policy"] is policy
