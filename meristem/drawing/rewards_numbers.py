"""The rows of a reward run's table: scores and texts before and after, and how sure each number is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.drawing.rewards import Direction, Number
from meristem.metrics import bootstrap
from meristem.metrics.hacking import MEANINGS, Texts, intervals, measured
from meristem.task import Indices, Metrics

SHOWN: dict[str, Direction] = {
    "length": "",
    "distinct2": "higher",
    "within2": "higher",
    "repeated4": "lower",
    "copied5": "lower",
    "longest_copied": "lower",
    "alike": "lower",
    "duplicates": "lower",
    "early": "lower",
    "unended": "lower",
}
"""What is told of texts, and which way is good."""


def scored(
    name: str,
    before: Sequence[float],
    after: Sequence[float],
    *,
    better: Direction = "higher",
    meaning: str = "",
    seed: int = 0,
) -> Number:
    """The mean of a score that each text has."""
    (old, old_interval), (new, new_interval) = (_mean(values, seed) for values in (before, after))
    return Number(
        name=name,
        before=old,
        after=new,
        before_interval=old_interval,
        after_interval=new_interval,
        better=better,
        meaning=meaning,
    )


def _mean(values: Sequence[float], seed: int) -> tuple[float, tuple[float, float]]:
    each = np.asarray(values, np.float64)

    def measure(at: Indices) -> Metrics:
        return {"mean": float(each[at].mean())}

    interval = bootstrap.intervals(measure, len(each), seed=seed)["mean"]
    return float(each.mean()), interval


def drifted(before: Texts, after: Texts, *, seed: int = 0) -> tuple[Number, ...]:
    """What the texts are like, before and after: length, variety, copying, endings."""
    found, sure = measured(before, after), intervals(before, after, seed=seed)
    rows = []
    for name, better in SHOWN.items():
        old, new = sure.get(name, (None, None))
        rows.append(
            Number(
                name=name,
                before=found[name][0],
                after=found[name][1],
                before_interval=old,
                after_interval=new,
                better=better,
                meaning=MEANINGS[name],
            )
        )
    return tuple(rows)
