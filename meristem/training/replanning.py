"""Planning again: the steps of a budget in minutes, corrected at a few points of the run by the pace of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meristem.dataset.step_ramp import NO_RAMP, StepWork
from meristem.training.train_state import TrainState

REPLAN_SHARES = (0.05, 0.2, 0.5, 0.8)
"""Shares of the budget (of its minutes or of the planned steps, whichever comes first) at which steps are planned."""
REPLAN_TOLERANCE = 0.02
"""A plan that differs by less than this share is kept, so that the learning-rate schedule does not shift for noise."""

FULL_STEPS = StepWork(NO_RAMP, {})


@dataclass(kw_only=True)
class StepReplanner:
    """Plans the steps of a budget in minutes again at each of `REPLAN_SHARES`, at the pace since the point before.

    The speed measured before the first step may be that of a busy machine. The new number of steps and the points that
    have passed are part of the train state, which is saved at each point: a resumed run takes over what was decided.
    """

    minutes: float
    state: TrainState
    clock: Callable[[], float]
    work: StepWork = FULL_STEPS
    """The work of steps whose batch or rows still grow: pace is work per second."""

    def __post_init__(self) -> None:
        self._window_start: tuple[int, float] | None = None

    def plan(self) -> int:
        """After each step: the number of steps in the budget if a point has been passed, else 0."""
        state, now = self.state, self.clock()
        if self._window_start is None:  # the first step of a process is slower than the others
            self._window_start = (state.step, now)
            return 0
        start_step, start_time = self._window_start
        budget_seconds = self.minutes * 60
        share = max(state.step / state.total, state.seconds / budget_seconds)
        passed = sum(point <= share for point in REPLAN_SHARES)
        if passed <= state.replans or state.step == start_step or now <= start_time:
            return 0
        work_done = self.work.until(state.step)
        work_per_second = (work_done - self.work.until(start_step)) / (now - start_time)
        work_left = max(0.0, budget_seconds - state.seconds) * work_per_second
        self._window_start, state.replans = (state.step, now), passed
        total = max(state.step, round(self.work.steps(work_done + work_left)))
        return state.total if abs(total - state.total) <= REPLAN_TOLERANCE * state.total else total
