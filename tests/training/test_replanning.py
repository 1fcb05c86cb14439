"""Budgets in minutes: steps are planned again at the pace of training, and a resumed run takes over the plan."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import Case, bits, loop_of, real, resume, stepper_of

from meristem.checkpoint import load
from meristem.checkpoint.folder_layout import list_steps
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.loop import TrainingLoop
from meristem.training.stop_signals import TrainingStopped
from meristem.training.train_state import TrainState

BUDGET = "1 minutes"
SLOW_STEPS = 20
"""What a busy machine would take in the budget: 3 seconds a step."""


class Clock:
    """A clock that only training steps move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def loop_with_pace(
    folder: Path,
    tokenizer: Tokenizer,
    store: TokenDataset,
    seconds_of: Callable[[int, float], float],
    *,
    resumed: bool = False,
    **loop_options: Any,
) -> TrainingLoop:
    """A loop whose step number `step` at second `now` takes `seconds_of(step, now)`; planned at 3 seconds a step."""
    train = {"steps": None, "minutes": 1, "log_every": 1, "save_every": "none", "keep_checkpoints": 99}
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, dropout=0.1, **train)
    stepper = stepper_of(learner, settings)
    planned = TrainState(total=SLOW_STEPS, planned_total=SLOW_STEPS, budget=BUDGET)
    clock = Clock()
    loop = loop_of(
        folder,
        stepper,
        feed,
        settings,
        resume(folder, stepper, feed) if resumed else planned,
        clock=clock,
        **loop_options,
    )

    def take_time(*_: Any) -> None:
        clock.now += seconds_of(loop.state.step, clock.now)

    learner.model.backbone.register_forward_hook(take_time)
    return loop


def test_a_machine_that_was_busy_at_the_start_trains_for_all_its_minutes(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    evaluated: list[int] = []
    loop = loop_with_pace(
        tmp_path,
        tokenizer,
        store,
        lambda step, clock: 3.0 if clock < 10 else 0.5,
        evaluate=lambda: (evaluated.append(loop.state.step), {"loss": 1.0})[1],
    )
    loop.fit()
    assert loop.state.seconds == pytest.approx(60, rel=0.05)
    assert loop.state.step == loop.state.total == 4 + 96  # twenty without planning again, a third of the minutes
    assert loop.state.planned_total == SLOW_STEPS and loop.state.replans == 4
    assert len(evaluated) < 20  # by the new plan, not every second step as by the old one
    assert "1 minutes are" in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_a_machine_that_becomes_busy_ends_in_time_with_the_schedule_at_its_end(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    loop = loop_with_pace(tmp_path, tokenizer, store, lambda step, clock: 3.0 if clock < 30 else 6.0)
    loop.fit()
    assert loop.state.seconds == pytest.approx(60, abs=6)
    assert loop.state.step == loop.state.total < SLOW_STEPS


def test_a_steady_pace_changes_nothing(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    loop = loop_with_pace(tmp_path, tokenizer, store, lambda step, clock: 3.0)
    loop.fit()
    assert loop.state.step == loop.state.total == SLOW_STEPS
    assert "minutes are" not in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_a_resumed_run_keeps_the_plan_and_is_bit_identical(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    pace = lambda step, clock: 3.0 if clock < 20 else 1.0  # noqa: E731  # the same for both
    uninterrupted = loop_with_pace(tmp_path / "whole", tokenizer, store, pace)
    uninterrupted.fit()
    assert uninterrupted.state.total > SLOW_STEPS
    first = loop_with_pace(tmp_path / "run", tokenizer, store, pace)
    first.stepper.learner.model.backbone.register_forward_hook(
        lambda *_: os.kill(os.getpid(), signal.SIGTERM) if first.state.step == uninterrupted.state.total - 3 else None
    )
    with pytest.raises(TrainingStopped):
        first.fit()
    # another machine, a hundred times as fast: what was decided before stays decided
    second = loop_with_pace(tmp_path / "run", tokenizer, store, lambda step, clock: 0.01, resumed=True)
    assert (second.state.total, second.state.replans) == (uninterrupted.state.total, 4)
    second.fit()
    assert second.state.step == uninterrupted.state.step
    expected_bits, other = bits(uninterrupted.stepper), bits(second.stepper)
    assert all(torch.equal(expected_bits[name], other[name]) for name in expected_bits)


def test_every_new_plan_is_saved_when_it_is_made(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Killed afterwards, the run would otherwise decide once more, at another pace."""
    loop = loop_with_pace(tmp_path, tokenizer, store, lambda step, clock: 3.0 if clock < 20 else 1.0)
    loop.fit()
    saved = [load.load_checkpoint(tmp_path / "checkpoints", step=step) for step in list_steps(tmp_path / "checkpoints")]
    states = [TrainState.from_dict(saved_state.snapshot.state) for saved_state in saved if saved_state is not None]
    assert sorted(state.replans for state in states) == [1, 2, 3, 4, 4]  # the four points and the last step
    assert {state.planned_total for state in states} == {SLOW_STEPS}
    assert len({state.total for state in states}) > 1
