"""Phases: sources that are trained on one after the other, each in its share of the steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence


def phase_starts(shares: Sequence[float], total: int) -> list[int]:
    """The first step of each phase in a run of `total` steps; every phase has at least one step if there are enough."""
    starts, done = list[int](), 0.0
    for number, share in enumerate(shares):
        latest = max(0, total - (len(shares) - number))
        starts.append(min(latest, max(round(done / sum(shares) * total), starts[-1] + 1 if starts else 0)))
        done += share
    return starts


class PhaseSchedule:
    """`schedule(step)` → (source, number of earlier steps from it), like a mixture."""

    def __init__(self, weights: Mapping[str, float], starts: Sequence[int]) -> None:
        self._weights, self.starts = dict(weights), list(starts)
        self._names = list(weights)

    @property
    def shares(self) -> dict[str, float]:
        """Each source's share of the steps."""
        return {name: weight / sum(self._weights.values()) for name, weight in self._weights.items()}

    def __call__(self, step: int) -> tuple[str, int]:
        """The source of a step, and how many earlier steps used that source."""
        number = bisect_right(self.starts, step) - 1
        return self._names[number], step - self.starts[number]

    def replan(self, step: int, total: int) -> None:
        """Move the phases that begin after this step to their share of another number of steps."""
        planned = phase_starts(list(self._weights.values()), total)
        for number, start in enumerate(self.starts):
            if start > step:
                self.starts[number] = max(step + 1, planned[number], self.starts[number - 1] + 1)
