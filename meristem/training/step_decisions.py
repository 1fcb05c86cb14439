"""Decisions after a training step: interval timers, and what all processes agreed to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meristem.training.settings import Interval, interval_seconds, interval_steps


@dataclass(frozen=True, kw_only=True)
class StepDecisions:
    """What all processes do after a step; the same on each of them."""

    stop: bool
    """A process has received a signal."""
    save: bool
    evaluate: bool


class IntervalTimer:
    """An interval of steps, epochs or time, and whether it has passed."""

    def __init__(self, interval: Interval, steps_per_epoch: float, clock: Callable[[], float]) -> None:
        self.steps, self.seconds = interval_steps(interval, steps_per_epoch), interval_seconds(interval)
        self.clock, self.last = clock, clock()

    def is_due(self, step: int) -> bool:
        """Whether the interval has passed at this step; one of time then starts again."""
        if self.steps is not None:
            return step % self.steps == 0
        has_passed = self.clock() - self.last >= (self.seconds or 0)
        if has_passed:
            self.reset()
        return has_passed

    def reset(self) -> None:
        """Start the interval again."""
        self.last = self.clock()
