"""Compute budgets: FLOP counts, measured step cost, peak FLOP/s, and budgets converted to steps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from cases import LENGTH, ROWS, SOURCE, Case, batches, loop_of, policy, real, stepper_of, steps

from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.budget import (
    StepCost,
    _flop_counter,
    mean_cost,
    measure_step_cost,
    peak_flops,
    planned_steps,
    step_flops,
    total_step_flops,
)
from meristem.training.precision import product_dtype
from meristem.training.settings import TrainSettings
from meristem.training.train_state import TrainState

COST = StepCost(flops=1e6, seconds=0.5, memory_bytes=1, tokens=100)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"steps": 17}, 17),
        ({"epochs": 2.5}, 100),
        ({"tokens": 1e4}, 100),
        ({"flops": 5e7}, 50),
        ({"minutes": 2}, 240),
        ({"tokens": 1}, 1),
        ({}, 360),
    ],
)
def test_every_budget_is_converted_to_steps(budget: dict[str, float], expected: int) -> None:
    settings = TrainSettings(**budget)  # type: ignore[arg-type]
    assert planned_steps(settings, tokens_per_step=100, steps_per_epoch=40, measure_cost=lambda: COST) == expected


@pytest.mark.parametrize("budget", ["steps", "epochs", "tokens"])
def test_speed_is_measured_only_where_it_is_asked_for(budget: str) -> None:
    def never() -> StepCost:
        raise AssertionError("nothing to measure")

    planned_steps(TrainSettings(**{budget: 5}), tokens_per_step=1, steps_per_epoch=1, measure_cost=never)  # type: ignore[arg-type]


def test_flops_are_those_of_the_formula(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Six per weight and token, attention's products, and words only where a token is predicted."""
    learner, feed, _ = real(Case("clm", "gpt2"), tokenizer, store)
    flops = total_step_flops(learner, SOURCE, [feed.batch(0, 0)])
    tokens, width = ROWS * LENGTH, 32
    layers = 6 * tokens * 2 * 12 * width * width
    words = 6 * tokens * width * tokenizer.vocab_size
    attention = 2 * 14 * ROWS * LENGTH * LENGTH * width  # 4 forwards; 10 backwards, where scores are computed again
    assert flops == pytest.approx(layers + words + attention, rel=0.04)


def test_only_logits_that_are_needed_count(tokenizer: Tokenizer, store: TokenDataset) -> None:
    def cost(rate: float) -> tuple[float, int]:
        learner, feed, _ = real(Case([{"name": "mlm", "mask_rate": rate}], "bert"), tokenizer, store)
        return total_step_flops(learner, SOURCE, [feed.batch(0, 0)]), feed.batch(0, 0).target_counts["mlm"]

    (many_targets_flops, more_targets), (few_targets_flops, less) = cost(0.6), cost(0.15)
    assert more_targets > 3 * less
    layer = 32 + 2 * 4 * 32  # the last one's output projection and feed-forward, at the chosen positions too
    assert many_targets_flops - few_targets_flops == pytest.approx(
        6 * (more_targets - less) * 32 * (layer + 32 + tokenizer.vocab_size), rel=1e-6
    )


def test_counting_leaves_no_trace_and_micro_steps_cost_the_same(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(Case("mlm", "bert"), tokenizer, store)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    expected_flops = total_step_flops(learner, SOURCE, batches(feed, 0))
    _, cut, _ = real(Case("mlm", "bert"), tokenizer, store, micro=2)
    assert total_step_flops(learner, SOURCE, batches(cut, 0)) == pytest.approx(expected_flops, rel=1e-6)
    assert all(torch.equal(before[name], value) for name, value in learner.state_dict().items())
    assert all(p.grad is None for p in learner.parameters())


def test_rollouts_are_made_before_they_are_counted(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = policy("policy", tokenizer, store)
    assert total_step_flops(learner, SOURCE, [feed.batch(0, 0)]) > 0


def test_measuring_leaves_no_trace(tokenizer: Tokenizer, store: TokenDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meristem.training.budget.TRIAL_SECONDS", 0.05)
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    cost = measure_step_cost(learner, SOURCE, lambda step: batches(feed, step), settings, torch.device("cpu"))
    assert cost.tokens == ROWS * LENGTH
    assert cost.seconds > 0
    assert math.isfinite(cost.flops)
    assert all(torch.equal(before[name], value) for name, value in learner.state_dict().items())


def test_a_reward_step_counts_what_it_computes(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Prompts were counted as the tokens of a step whose texts are many times as long: 28 times too much."""
    learner, feed, settings = policy("policy", tokenizer, store)
    batch = feed.batch(0, 0)
    flops = step_flops(learner, SOURCE, [batch])
    ready = learner.explore(SOURCE, batch)
    assert flops.tokens == ready.num_tokens > batch.num_tokens  # as the loop counts them
    assert steps(stepper_of(learner, settings), feed, range(1))[0].tokens == flops.tokens
    weights = 2 * 12 * 32 * 32  # of two layers
    predicted = len(ready.targets["policy"]["at"])
    positions = ready.inputs["tokens"].numel()
    expected_train_flops = 6 * (positions * weights + predicted * 32 * tokenizer.vocab_size)
    assert flops.train_flops == pytest.approx(expected_train_flops, rel=0.3)
    # each prompt is read once, each token of a text once, and the reference reads all of it once
    rollout = (
        2 * (batch.num_tokens + predicted) * weights
        + 2 * (len(batch.sample_ids) + predicted) * 32 * tokenizer.vocab_size
    )
    reference = expected_train_flops / 3
    assert flops.explore_flops == pytest.approx(rollout + reference, rel=0.3)


def test_attention_of_a_cpu_is_counted_as_on_meta() -> None:
    def counted(device: str) -> float:
        q, k = (torch.zeros(2, 4, size, 8, device=device) for size in (3, 16))
        with _flop_counter() as counter, torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(q, k, k)
        return counter.get_total_flops()

    assert counted("cpu") == counted("meta") == 2 * 2 * 4 * 3 * 16 * 16


def test_a_step_is_never_faster_than_the_peak(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, steps=4, log_every=1)
    loop = loop_of(
        tmp_path / "run", stepper_of(learner, settings), feed, settings, TrainState(total=4, budget="4 steps")
    )
    loop.peak_flops = 1.0  # as measured while others used the machine
    with loop.logger:
        loop.fit()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert all(0 < line["mfu"] <= 1 for line in lines if line["kind"] == "train")


def test_the_peak_is_that_of_the_precision() -> None:
    device = torch.device("cpu")
    assert product_dtype("bfloat16") is torch.bfloat16
    peak = peak_flops(device, dtype=torch.bfloat16)
    assert peak > 0
    assert peak_flops(device, dtype=torch.bfloat16) == peak  # measured once, not for every run of a process


def test_a_mix_costs_what_its_turns_cost() -> None:
    text, picture = (
        StepCost(flops=f, seconds=s, memory_bytes=b, tokens=t) for f, s, b, t in ((8, 2, 5, 10), (4, 1, 9, 2))
    )
    shares = {"text": 0.75, "picture": 0.25}
    assert mean_cost({"text": text, "picture": picture}, shares) == StepCost(
        flops=7, seconds=1.75, memory_bytes=9, tokens=8
    )
