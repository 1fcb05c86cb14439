"""Intervals by resampling: they cover the truth as often as they say, and are a function of the seed."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.errors import MeristemError
from meristem.metrics.bootstrap import intervals, totals
from meristem.task import Indices, Metrics

SETS, SIZE, TRUTH = 400, 200, 0.7


def share(right: np.ndarray) -> dict[str, tuple[float, float]]:
    def measure(at: Indices) -> Metrics:
        return {"accuracy": float(right[at].mean())}

    return intervals(measure, len(right), draws=200, seed=int(right.sum()))


def test_intervals_cover_the_truth_about_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(SETS):
        low, high = share((rng.random(SIZE) < TRUTH).astype(float))["accuracy"]
        covered += low <= TRUTH <= high
    # 95 % ± 1.1 % by chance; the middle 90 % would cover 0.89, the middle 99 % 0.985
    assert 0.915 < covered / SETS < 0.975


def test_the_width_is_what_statistics_say() -> None:
    right = np.repeat([1.0, 0.0], [700, 300])
    found = intervals(lambda at: {"accuracy": float(right[at].mean())}, 1000)
    low, high = found["accuracy"]
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 1000), rel=0.1)
    assert low < 0.7 < high


def test_the_seed_decides() -> None:
    values = np.random.default_rng(1).random(50)

    def found(seed: int) -> dict[str, tuple[float, float]]:
        return intervals(lambda at: {"mean": float(values[at].mean())}, 50, draws=50, seed=seed)

    assert found(3) == found(3) != found(4)


def test_every_metric_gets_its_own() -> None:
    found = intervals(lambda at: {"first": float(at.mean()), "same": 2.0}, 30, draws=40)
    assert found["same"] == (2.0, 2.0)
    assert found["first"][0] < 14.5 < found["first"][1]


def test_nothing_to_measure_is_said() -> None:
    with pytest.raises(MeristemError, match="no samples"):
        intervals(lambda at: {}, 0)


def test_totals_count_repeats() -> None:
    table = np.array([[1, 10], [2, 20], [3, 30]])
    assert totals(table, np.array([2, 2, 0])).tolist() == [7.0, 70.0]
