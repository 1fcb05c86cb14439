"""How sure a number is: the spread of it over sets drawn, with repeats, from the one that was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.metrics.proportions import honest
from meristem.randomness import generator
from meristem.task import Indices, Metrics

DRAWS = 1000
MIDDLE = 0.95


def intervals(
    measure: Callable[[Indices], Metrics],
    size: int,
    *,
    support: Mapping[str, float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Per metric its 95 % interval: percentile bootstrap, and Wilson's where that would be too narrow.

    `support` is per metric what it is a mean over, where those are not the samples. `proportions` has the rule.
    """
    if size < 1:
        raise MeristemError("there are no samples to measure")
    rng = generator(seed, "bootstrap", 0, 0)
    drawn = [measure(rng.integers(0, size, size)) for _ in range(draws)]
    edges = ((1 - MIDDLE) / 2, (1 + MIDDLE) / 2)
    found: dict[str, tuple[float, float]] = {}
    for name, value in measure(np.arange(size)).items():
        low, high = np.quantile([one[name] for one in drawn], edges)
        found[name] = honest(name, value, (float(low), float(high)), (support or {}).get(name, size))
    return found


def totals(each: NDArray[Any], at: Indices) -> NDArray[np.float64]:
    """The rows of a table [samples, numbers] at some places, a place as often as it is drawn, added up."""
    times = np.bincount(at, minlength=len(each)).astype(np.float64)
    summed: NDArray[np.float64] = times @ each.astype(np.float64, copy=False)
    return summed
