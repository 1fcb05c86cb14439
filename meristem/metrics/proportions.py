"""Confidence intervals of proportions: Wilson's score interval, and when it stands in for the bootstrap's.

Sets drawn from a set without a mistake have none, so that the bootstrap of 59 right answers out of 59 is 1.0–1.0.
Wilson's interval (1927) stays honest there: 0.939–1.0.
"""

from __future__ import annotations

import re
from math import sqrt

Interval = tuple[float, float]

NORMAL = 1.959964
"""The middle 95 % of a normal distribution reach this far."""
FEW = 5.0
"""With fewer right or fewer wrong ones than this the bootstrap of a proportion is too narrow (Brown et al. 2001)."""
_PROPORTION = re.compile(r"(.*_)?(accuracy|exact|precision|recall)")
_RANGES = {
    re.compile(r"((.*_)?f1(_.*)?|f1\..*|rouge.*|named)"): (0.0, 1.0),
    re.compile(r"(bleu|chrf)"): (0.0, 100.0),
    re.compile(r"(matthews|pearson|spearman)"): (-1.0, 1.0),
}
"""Metrics that are no proportion of samples, and between which bounds they lie."""


def wilson(rate: float, number: float) -> Interval:
    """95 % of a proportion of `number` samples; within 0 and 1, and never empty."""
    over = NORMAL**2 / number
    middle = (rate + over / 2) / (1 + over)
    reach = NORMAL / (1 + over) * sqrt(rate * (1 - rate) / number + over / (4 * number))
    return max(0.0, middle - reach) if rate else 0.0, min(1.0, middle + reach) if rate < 1 else 1.0


def honest(name: str, value: float, bootstrap: Interval, number: float) -> Interval:
    """The interval of a metric over `number` samples (or entities, or whatever it is a mean over).

    - a proportion (accuracy, exact, precision, recall) with fewer than 5 right or 5 wrong: Wilson's;
    - another bounded metric (F1, ROUGE, BLEU, correlations) that lies on its bound: Wilson's on its range;
    - everything else: the bootstrap's.
    """
    if number <= 0:
        return bootstrap
    if _PROPORTION.fullmatch(name):
        return wilson(value, number) if number * min(value, 1 - value) < FEW else bootstrap
    for pattern, (low, high) in _RANGES.items():
        if pattern.fullmatch(name) and value in (low, high):
            ends = wilson((value - low) / (high - low), number)
            return low + ends[0] * (high - low), low + ends[1] * (high - low)
    return bootstrap
