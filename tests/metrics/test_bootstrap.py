"""Bootstrap intervals: their coverage, and that they depend only on the seed."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.interfaces.task_evaluation import Indices, Metrics
from meristem.metrics.bootstrap import confidence_intervals, sum_rows
from meristem.metrics.proportion_intervals import metric_interval, wilson_interval

SETS, SIZE, TRUTH = 400, 200, 0.7


def share(right: np.ndarray) -> dict[str, tuple[float, float]]:
    def measure(sample_indices: Indices) -> Metrics:
        return {"accuracy": float(right[sample_indices].mean())}

    return confidence_intervals(measure, len(right), num_resamples=200, seed=int(right.sum()))


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
    intervals = confidence_intervals(lambda sample_indices: {"accuracy": float(right[sample_indices].mean())}, 1000)
    low, high = intervals["accuracy"]
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 1000), rel=0.1)
    assert low < 0.7 < high


def test_the_seed_decides() -> None:
    values = np.random.default_rng(1).random(50)

    def intervals_of(seed: int) -> dict[str, tuple[float, float]]:
        return confidence_intervals(
            lambda sample_indices: {"mean": float(values[sample_indices].mean())}, 50, num_resamples=50, seed=seed
        )

    assert intervals_of(3) == intervals_of(3) != intervals_of(4)


def test_every_metric_gets_its_own() -> None:
    intervals = confidence_intervals(
        lambda sample_indices: {"first": float(sample_indices.mean()), "same": 2.0}, 30, num_resamples=40
    )
    assert intervals["same"] == (2.0, 2.0)
    assert intervals["first"][0] < 14.5 < intervals["first"][1]


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(MeristemError, match="no samples"):
        confidence_intervals(lambda sample_indices: {}, 0)


def test_totals_count_repeats() -> None:
    table = np.array([[1, 10], [2, 20], [3, 30]])
    assert sum_rows(table, np.array([2, 2, 0])).tolist() == [7.0, 70.0]


# ------------------------------------------------------------ at the bounds


def test_a_perfect_score_on_few_samples_is_no_certainty() -> None:
    """59 of 59: the bootstrap said 1.0000–1.0000."""
    low, high = share(np.ones(59))["accuracy"]
    assert (low, high) == (pytest.approx(0.9389, abs=1e-4), 1.0)
    low, high = share(np.zeros(59))["accuracy"]
    assert (low, high) == (0.0, pytest.approx(1 - 0.9389, abs=1e-4))


@pytest.mark.parametrize("truth", [0.97, 0.99])
def test_intervals_near_the_bound_cover_the_truth(truth: float) -> None:
    rng = np.random.default_rng(1)
    covered = np.mean([low <= truth <= high for low, high in
                       (share((rng.random(60) < truth).astype(float))["accuracy"] for _ in range(300))])  # fmt: skip
    assert covered > 0.9  # the bootstrap covers 0.84 and 0.45 here


def test_wilson_is_scipys() -> None:
    from scipy import stats

    for right, number in ((59, 59), (0, 7), (3, 40), (20, 40)):
        scipy_interval = stats.binomtest(right, number).proportion_ci(method="wilson")
        assert wilson_interval(right / number, number) == pytest.approx(
            (scipy_interval.low, scipy_interval.high), abs=1e-6
        )


@pytest.mark.parametrize(("name", "bound"), [("f1", 1.0), ("f1_macro", 0.0), ("f1.PER", 1.0), ("slot_f1", 1.0),
                                             ("rouge1", 1.0), ("bleu", 100.0), ("matthews", 1.0)])  # fmt: skip
def test_every_bounded_number_at_its_bound_is_unsure(name: str, bound: float) -> None:
    low, high = confidence_intervals(lambda sample_indices: {name: bound}, 20, num_resamples=5)[name]
    assert low < high and bound in (low, high)
    small_interval = confidence_intervals(lambda sample_indices: {name: bound}, 20, support={name: 4}, num_resamples=5)[
        name
    ]
    assert small_interval[1] - small_interval[0] > high - low  # four entities say less than twenty


def test_what_is_not_at_a_bound_keeps_the_bootstrap() -> None:
    values = np.random.default_rng(3).random(50)
    assert metric_interval("f1", 0.98, (0.93, 1.0), 60) == (0.93, 1.0)
    assert metric_interval("accuracy", 0.8, (0.7, 0.9), 50) == (0.7, 0.9)
    intervals = confidence_intervals(
        lambda sample_indices: {"squared_error": float(values[sample_indices].mean())}, 50, num_resamples=50
    )
    assert intervals["squared_error"][0] < values.mean() < intervals["squared_error"][1]
