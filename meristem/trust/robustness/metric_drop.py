"""Drop of a metric under noise: the difference on the same samples, with a paired bootstrap interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meristem.interfaces.task_evaluation import Resampler
from meristem.metrics.bootstrap import CONFIDENCE, NUM_RESAMPLES
from meristem.utils.randomness import generator


@dataclass(frozen=True, kw_only=True)
class MetricDrop:
    """Clean minus noisy, with its 95 % interval: above zero is a loss."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ResampledMetric:
    """A metric of the whole set, and of the resampled sets that are the same for every call with as many samples."""

    value: float
    resamples: NDArray[np.float64]


def resample_metric(resampler: Resampler, metric: str, num_samples: int) -> ResampledMetric:
    """The metric on the samples, and on resamples that depend on their number only."""
    rng = generator(0, "metric drop", 0, 0)
    values = [resampler(rng.integers(0, num_samples, num_samples))[metric] for _ in range(NUM_RESAMPLES)]
    return ResampledMetric(value=resampler(np.arange(num_samples))[metric], resamples=np.array(values, np.float64))


def metric_drop(clean: ResampledMetric, noisy: ResampledMetric) -> MetricDrop:
    """The drop of a metric; both are computed on the same resampled samples, which cancels their difficulty."""
    low, high = np.quantile(clean.resamples - noisy.resamples, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return MetricDrop(mean=clean.value - noisy.value, low=float(low), high=float(high))
