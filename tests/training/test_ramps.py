"""Ramps of the batch and of row lengths: exact resume, budgets, processes, and what is refused."""

from __future__ import annotations

import pytest
from cases import Case, real
from run_factory import RunFactory

from meristem.config.errors import RecipeError
from meristem.dataset.feed import Feed
from meristem.dataset.step_ramp import StepRamp, StepWork
from meristem.dataset.token_dataset import TokenDataset
from meristem.distributed.process_group import DistributedContext
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.ramp_planning import plan_ramp
from meristem.training.replanning import StepReplanner
from meristem.training.settings import TrainSettings
from meristem.training.train_state import TrainState

BOTH = ("train.batch_ramp=0.5", "train.length_ramp=0.75")


def test_an_interrupted_run_resumes_bit_for_bit(run_factory: RunFactory) -> None:
    overrides = (*BOTH, "train.steps=8", "train.micro_batch_tokens=64", "train.evaluate_every=3")
    run_factory.train(*overrides, run="whole")
    for at in (2, 5):
        run_factory.interrupt(*overrides, at=at)
    run_factory.train(*overrides)
    run_factory.assert_equal_runs("whole", "run")
    tokens = [line["tokens"] for line in run_factory.lines("train")]
    per_step = [after - before for before, after in zip([0, *tokens], tokens, strict=False)]
    assert per_step == [32, 64, 64, 96, 128, 128, 128, 128]  # 4 rows of 32 tokens in a full step


def test_a_larger_budget_keeps_the_first_steps_as_they_were(run_factory: RunFactory) -> None:
    run_factory.train(*BOTH, "train.steps=4")
    run_factory.train(*BOTH, "train.steps=8")
    tokens = [line["tokens"] for line in run_factory.lines("train")]
    assert tokens == [32, 96, 224, 352, 480, 608, 736, 864]


@pytest.mark.parametrize(
    ("budget", "unit"), [("train.tokens=4000", "tokens"), ("train.flops=3e8", "flops"), ("train.epochs=1.5", "samples")]
)
def test_budgets_count_what_is_read(run_factory: RunFactory, budget: str, unit: str) -> None:
    run_factory.train("train.steps=null", budget, "train.evaluate_every=none", run="plain")
    run_factory.train("train.steps=null", budget, "train.evaluate_every=none", *BOTH)
    plain, ramped = (run_factory.facts(run)["used"] for run in ("plain", "run"))
    states = [run_factory.state(run) for run in ("plain", "run")]
    assert ramped["steps"] > 1.2 * plain["steps"]
    assert states[1][unit] == pytest.approx(states[0][unit], rel=0.05)


def test_minutes_are_planned_by_work() -> None:
    """A step costs its work; the pace is measured on small batches, and the plan made with it holds."""
    settings = TrainSettings(minutes=1, batch_ramp=0.5, batch_ramp_start=0.1)
    works = {1: 1.0}
    total, ramp = plan_ramp(settings, 60, works)  # a full step takes a second
    assert StepWork(ramp, works).until(total) == pytest.approx(60, abs=1)
    assert ramp.batch_steps == pytest.approx(total / 2, abs=1)
    state, now = TrainState(total=total), 0.0
    replanner = StepReplanner(minutes=1, state=state, clock=lambda: now, work=StepWork(ramp, works))
    while state.step < state.total:
        now += ramp.batch_share(state.step)
        state.step, state.seconds = state.step + 1, now
        assert replanner.plan() in (0, total)
    assert state.replans == 4 and now == pytest.approx(60, abs=1)


def test_processes_share_the_samples_of_every_step(tokenizer: Tokenizer, store: TokenDataset) -> None:
    _, feed, _ = real(Case("mlm", "bert"), tokenizer, store)
    ramp = StepRamp(batch_steps=5, batch_start=0.4, length_steps=5, length_parts=2)
    for world_size in (1, 2, 3):
        for step in range(7):
            read: list[int] = []
            for rank in range(world_size):
                own = Feed(
                    view=feed.view,
                    objective=feed.objective,
                    seed=3,
                    batch_size=12,
                    micro_batch_size=3,
                    pad_values=feed.pad_values,
                    distributed=DistributedContext(rank=rank, world_size=world_size),
                    ramp=ramp,
                )
                for micro in range(own.micro_steps_of(step)):
                    read += own.batch(step, micro).sample_ids
            assert read == list(own.sample_range(step))


def test_what_cannot_change_its_rows_is_refused(run_factory: RunFactory) -> None:
    with pytest.raises(RecipeError, match=r"train.length_ramp: only rows of packed text can be cut"):
        run_factory.train("train.length_ramp=0.5", family="bert")
    with pytest.raises(RecipeError, match="cannot be split among 2 processes"):
        Feed(
            view=None,  # type: ignore[arg-type]  # not read
            objective=None,  # type: ignore[arg-type]
            seed=0,
            batch_size=4,
            micro_batch_size=4,
            pad_values={},
            distributed=DistributedContext(rank=0, world_size=2),
            ramp=StepRamp(batch_steps=3, batch_start=0.25),
        )
