"""Intervals of time in two real processes whose clocks differ: rank 0 decides, and no process waits for the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import Case, loop_of, real, stepper_of
from forked_processes import run_processes

from meristem.dataset.token_dataset import TokenDataset
from meristem.distributed.initialization import init_distributed
from meristem.distributed.parallel import ParallelLearner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.step import Stepper
from meristem.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS, TIMEOUT = 12, 60.0


class StepClock:
    """A clock that moves by so many seconds whenever it is asked."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def train(rank: int, folder: Path, tokenizer: Tokenizer, store: TokenDataset, seconds: float, **train: Any) -> None:
    """Train a few steps in this process, and write down when it evaluated and what it planned."""
    with init_distributed(torch.device("cpu"), timeout_seconds=TIMEOUT) as distributed:
        learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, **train)
        optimizers = stepper_of(learner, settings).optimizers
        parallel = ParallelLearner(learner, distributed)
        stepper = Stepper(
            learner=learner, optimizers=optimizers, settings=settings, device=torch.device("cpu"), parallel=parallel
        )
        evaluated: list[int] = []

        def evaluate() -> dict[str, float]:
            evaluated.append(loop.state.step)
            return {"loss": distributed.all_reduce_sum([1.0])[0] + rank}  # a value of its own on every process

        loop = loop_of(
            folder / str(rank),
            stepper,
            feed,
            settings,
            TrainState(total=STEPS, planned_total=STEPS),
            evaluate=evaluate,
            clock=StepClock(seconds),
        )
        loop.fit()
        outcome = {"evaluated": evaluated, "best": loop.state.best, "total": loop.state.total}
        (folder / f"{rank}.json").write_text(json.dumps(outcome), encoding="utf-8")


def outcomes(
    folder: Path, tokenizer: Tokenizer, store: TokenDataset, seconds: tuple[float, float], **settings: Any
) -> list[dict[str, Any]]:
    run_processes(2, lambda rank: train(rank, folder, tokenizer, store, seconds[rank], **settings), folder)
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


@pytest.mark.parametrize("seconds", [(0.1, 100.0), (100.0, 0.1)], ids=["rank 1 is ahead", "rank 0 is ahead"])
def test_evaluations_at_intervals_of_time_are_those_of_rank_zero(
    seconds: tuple[float, float], tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    first_process, other = outcomes(
        tmp_path, tokenizer, store, seconds, steps=STEPS, evaluate_every="1m", save_every="2m"
    )
    assert first_process == other
    assert first_process["best"] == 2.0  # rank 0's, on both
    assert first_process["evaluated"] == ([STEPS] if seconds[0] < seconds[1] else list(range(1, STEPS + 1)))


def test_a_new_number_of_steps_is_rank_zeros(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    first_process, other = outcomes(tmp_path, tokenizer, store, (0.05, 5.0), steps=None, minutes=0.2, save_every="none")
    assert first_process == other
    assert first_process["total"] > STEPS
