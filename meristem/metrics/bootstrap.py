"""How sure a number is: the spread of it over sets drawn, with repeats, from the one that was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.randomness import generator
from meristem.task import Indices, Metrics

DRAWS = 1000
MIDDLE = 0.95


def intervals(
    measure: Callable[[Indices], Metrics], size: int, *, draws: int = DRAWS, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Per metric the bounds of its middle 95 % (percentile bootstrap)."""
    if size < 1:
        raise MeristemError("there are no samples to measure")
    rng = generator(seed, "bootstrap", 0, 0)
    drawn = [measure(rng.integers(0, size, size)) for _ in range(draws)]
    edges = ((1 - MIDDLE) / 2, (1 + MIDDLE) / 2)
    found: dict[str, tuple[float, float]] = {}
    for name in drawn[0]:
        low, high = np.quantile([one[name] for one in drawn], edges)
        found[name] = (float(low), float(high))
    return found


def totals(each: NDArray[Any], at: Indices) -> NDArray[np.float64]:
    """The rows of a table [samples, numbers] at some places, a place as often as it is drawn, added up."""
    times = np.bincount(at, minlength=len(each)).astype(np.float64)
    summed: NDArray[np.float64] = times @ each.astype(np.float64, copy=False)
    return summed
