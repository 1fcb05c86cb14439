from __future__ import annotations

import math

import pytest
import torch
from cases import LENGTH, ROWS, SOURCE, Case, batches, policy, real

from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.budget import Cost, flops_of, measure, planned_steps
from meristem.training.settings import TrainSettings

COST = Cost(flops=1e6, seconds=0.5, bytes=1, tokens=100)


@pytest.mark.parametrize(("budget", "expected"), [
    ({"steps": 17}, 17), ({"epochs": 2.5}, 100), ({"tokens": 1e4}, 100), ({"flops": 5e7}, 50), ({"minutes": 2}, 240),
    ({"tokens": 1}, 1), ({}, 360),
])
def test_every_budget_buys_steps(budget: dict[str, float], expected: int) -> None:
    settings = TrainSettings(**budget)  # type: ignore[arg-type]
    assert planned_steps(settings, tokens_per_step=100, steps_per_epoch=40, cost=lambda: COST) == expected


@pytest.mark.parametrize("budget", ["steps", "epochs", "tokens"])
def test_speed_is_measured_only_where_it_is_asked_for(budget: str) -> None:
    def never() -> Cost:
        raise AssertionError("nothing to measure")

    planned_steps(TrainSettings(**{budget: 5}), tokens_per_step=1, steps_per_epoch=1, cost=never)  # type: ignore[arg-type]


def test_operations_are_those_of_the_formula(tokenizer: Tokenizer, store: Store) -> None:
    """Six per weight and token, attention's products, and words only where a token is predicted."""
    learner, feed, _ = real(Case("clm", "gpt2"), tokenizer, store)
    found = flops_of(learner, SOURCE, [feed.batch(0, 0)])
    tokens, width = ROWS * LENGTH, 32
    layers = 6 * tokens * 2 * 12 * width * width
    words = 6 * tokens * width * tokenizer.size
    attention = 2 * 14 * ROWS * LENGTH * LENGTH * width  # 4 forwards; 10 backwards, where scores are computed again
    assert found == pytest.approx(layers + words + attention, rel=0.04)


def test_only_logits_that_are_needed_count(tokenizer: Tokenizer, store: Store) -> None:
    def cost(rate: float) -> tuple[float, int]:
        learner, feed, _ = real(Case([{"name": "mlm", "mask_rate": rate}], "bert"), tokenizer, store)
        return flops_of(learner, SOURCE, [feed.batch(0, 0)]), feed.batch(0, 0).counts["mlm"]

    (many, more), (few, less) = cost(0.6), cost(0.15)
    assert more > 3 * less
    layer = 32 + 2 * 4 * 32  # the last one's output projection and feed-forward, at the chosen positions too
    assert many - few == pytest.approx(6 * (more - less) * 32 * (layer + 32 + tokenizer.size), rel=1e-6)


def test_counting_leaves_no_trace_and_micro_steps_cost_the_same(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = real(Case("mlm", "bert"), tokenizer, store)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    one = flops_of(learner, SOURCE, batches(feed, 0))
    _, cut, _ = real(Case("mlm", "bert"), tokenizer, store, micro=2)
    assert flops_of(learner, SOURCE, batches(cut, 0)) == pytest.approx(one, rel=1e-6)
    assert all(torch.equal(before[name], value) for name, value in learner.state_dict().items())
    assert all(p.grad is None for p in learner.parameters())


def test_rollouts_are_made_before_they_are_counted(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = policy("policy", tokenizer, store)
    assert flops_of(learner, SOURCE, [feed.batch(0, 0)]) > 0


def test_measuring_leaves_no_trace(tokenizer: Tokenizer, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meristem.training.budget.TRIAL_SECONDS", 0.05)
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    cost = measure(learner, SOURCE, lambda step: batches(feed, step), settings, torch.device("cpu"))
    assert cost.tokens == ROWS * LENGTH
    assert cost.seconds > 0
    assert math.isfinite(cost.flops)
    assert all(torch.equal(before[name], value) for name, value in learner.state_dict().items())
