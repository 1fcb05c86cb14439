"""Bootstrap confidence intervals: the spread of a metric over resampled test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.interfaces.task_evaluation import Indices, Metrics
from meristem.metrics.proportion_intervals import metric_interval
from meristem.utils.randomness import generator

NUM_RESAMPLES = 1000
CONFIDENCE = 0.95


def confidence_intervals(
    compute_metrics: Callable[[Indices], Metrics],
    size: int,
    *,
    support: Mapping[str, float] | None = None,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """95 % interval of each metric: percentile bootstrap, or Wilson's where that would be too narrow.

    `support` is the number of items that a metric is a mean over, where those are not the samples;
    `proportion_intervals` has the rule.
    """
    if size < 1:
        raise MeristemError("there are no samples to evaluate")
    rng = generator(seed, "bootstrap", 0, 0)
    resamples = [compute_metrics(rng.integers(0, size, size)) for _ in range(num_resamples)]
    quantiles = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    result: dict[str, tuple[float, float]] = {}
    for name, value in compute_metrics(np.arange(size)).items():
        low, high = np.quantile([metrics[name] for metrics in resamples], quantiles)
        result[name] = metric_interval(name, value, (float(low), float(high)), (support or {}).get(name, size))
    return result


def sum_rows(table: NDArray[Any], indices: Indices) -> NDArray[np.float64]:
    """The sum of the rows of a table [samples, numbers] at these indices; an index may occur several times."""
    row_counts = np.bincount(indices, minlength=len(table)).astype(np.float64)
    summed: NDArray[np.float64] = row_counts @ table.astype(np.float64, copy=False)
    return summed
