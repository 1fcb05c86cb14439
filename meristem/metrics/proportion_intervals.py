"""Confidence intervals of proportions: Wilson's score interval, and when it replaces the bootstrap.

Resamples of a set without mistakes have none either, so that the bootstrap of 59 correct answers out of 59 is 1.0–1.0.
Wilson's interval (1927) remains valid there: 0.939–1.0.
"""

from __future__ import annotations

import re
from math import sqrt

Interval = tuple[float, float]

Z_95 = 1.959964
"""Half width of the central 95 % of a standard normal distribution."""
MIN_COUNT = 5.0
"""With fewer correct or wrong samples than this the bootstrap of a proportion is too narrow (Brown et al. 2001)."""
_PROPORTION = re.compile(r"(.*_)?(accuracy|exact|precision|recall)")
_METRIC_BOUNDS = {
    re.compile(r"((.*_)?f1(_.*)?|f1\..*|rouge.*|named)"): (0.0, 1.0),
    re.compile(r"(bleu|chrf)"): (0.0, 100.0),
    re.compile(r"(matthews|pearson|spearman)"): (-1.0, 1.0),
}
"""Metrics that are not proportions of samples, and their bounds."""


def wilson_interval(rate: float, count: float) -> Interval:
    """95 % interval of a proportion of `count` samples; within 0 and 1, and never empty."""
    z_sq_over_n = Z_95**2 / count
    center = (rate + z_sq_over_n / 2) / (1 + z_sq_over_n)
    half_width = Z_95 / (1 + z_sq_over_n) * sqrt(rate * (1 - rate) / count + z_sq_over_n / (4 * count))
    return max(0.0, center - half_width) if rate else 0.0, min(1.0, center + half_width) if rate < 1 else 1.0


def metric_interval(name: str, value: float, bootstrap: Interval, count: float) -> Interval:
    """The interval of a metric over `count` samples (or entities, or whatever it is a mean over).

    - a proportion (accuracy, exact, precision, recall) with fewer than 5 correct or 5 wrong: Wilson's;
    - another bounded metric (F1, ROUGE, BLEU, correlations) that equals one of its bounds: Wilson's, scaled;
    - everything else: the bootstrap's.
    """
    if count <= 0:
        return bootstrap
    if _PROPORTION.fullmatch(name):
        return wilson_interval(value, count) if count * min(value, 1 - value) < MIN_COUNT else bootstrap
    for pattern, (low, high) in _METRIC_BOUNDS.items():
        if pattern.fullmatch(name) and value in (low, high):
            scaled = wilson_interval((value - low) / (high - low), count)
            return low + scaled[0] * (high - low), low + scaled[1] * (high - low)
    return bootstrap
