"""Step ramp: how the batch and its rows grow over the first steps of a source, as pure functions of its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class StepRamp:
    """A batch that grows linearly, and rows that are cut into fewer and fewer parts; without steps there is neither."""

    batch_steps: int = 0
    batch_start: float = 1.0
    """Batch of the first step as a share of the full one."""
    length_steps: int = 0
    length_parts: int = 1
    """Parts that a row is cut into at first, a power of two; halved in stages of equal length."""

    @property
    def steps(self) -> int:
        """Steps after which batch and rows are full."""
        return max(self.batch_steps, self.length_steps)

    def batch_share(self, step: int) -> float:
        """The batch of a step as a share of the full one."""
        if step >= self.batch_steps:
            return 1.0
        return self.batch_start + (1 - self.batch_start) * step / self.batch_steps

    def row_parts(self, step: int) -> int:
        """Parts that each row of a step is cut into."""
        if step >= self.length_steps:
            return 1
        return self.length_parts >> (step * round(log2(self.length_parts)) // self.length_steps)

    @property
    def all_parts(self) -> tuple[int, ...]:
        """Every number of parts that occurs."""
        return tuple(dict.fromkeys(self.row_parts(step) for step in range(self.length_steps + 1)))

    def num_samples(self, step: int, batch_size: int) -> int:
        """Samples in a step, of `batch_size` in a full one."""
        return max(1, round(batch_size * self.batch_share(step)))

    def first_sample(self, step: int, batch_size: int) -> int:
        """Samples in all earlier steps."""
        starts = _sample_starts(self, batch_size)
        ramp_steps = min(step, self.batch_steps)
        return int(starts[ramp_steps]) + (step - ramp_steps) * batch_size


NO_RAMP = StepRamp()


@lru_cache(maxsize=64)
def _sample_starts(ramp: StepRamp, batch_size: int) -> NDArray[np.int64]:
    """Number of the first sample of each step of the batch ramp, and of the step after it."""
    sizes = [ramp.num_samples(step, batch_size) for step in range(ramp.batch_steps)]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(sizes, np.int64))])


class StepWork:
    """Work of the first steps in units of a full step: what budgets and the pace of training are converted with."""

    def __init__(self, ramp: StepRamp, part_work: Mapping[int, float]) -> None:
        """`part_work` is the work of a row in so many parts, relative to the whole row."""
        shares = [ramp.batch_share(step) * part_work[ramp.row_parts(step)] for step in range(ramp.steps)]
        self._cumulative = np.concatenate([np.zeros(1), np.cumsum(np.array(shares, np.float64))])

    def until(self, step: float) -> float:
        """Work of all steps before `step`."""
        ramp_steps = len(self._cumulative) - 1
        inside = float(np.interp(min(step, ramp_steps), np.arange(ramp_steps + 1), self._cumulative))
        return inside + max(0.0, step - ramp_steps)

    def steps(self, work: float) -> float:
        """Number of steps that do this work."""
        ramp_work, ramp_steps = float(self._cumulative[-1]), len(self._cumulative) - 1
        if work >= ramp_work:
            return ramp_steps + work - ramp_work
        return float(np.interp(work, self._cumulative, np.arange(ramp_steps + 1)))
