"""Alternated timing of two implementations in one process: paired ratios are robust on noisy machines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat of one implementation."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)


def alternate(
    sides: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time all sides alternately, `repeats` times, after a warm-up.

    `time.process_time` as the clock counts what one thread computes on a machine with other work.
    """
    for _ in range(warmup):
        for run in sides.values():
            run()
    durations: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            start = clock()
            run()
            durations[name].append(clock() - start)
    return {name: Timing(tuple(seconds)) for name, seconds in durations.items()}


def fastest(timings: Mapping[str, Timing], names: Sequence[str]) -> str:
    """The name with the lowest median."""
    return min(names, key=lambda name: timings[name].median)


def ratio(timings: Mapping[str, Timing], ours: str, theirs: str) -> tuple[float, float, float]:
    """How many times faster ours is: median and quartiles of the paired ratios."""
    pairs = sorted(b / a for a, b in zip(timings[ours].seconds, timings[theirs].seconds, strict=True))
    quarter = len(pairs) // 4
    return statistics.median(pairs), pairs[quarter], pairs[-1 - quarter]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
