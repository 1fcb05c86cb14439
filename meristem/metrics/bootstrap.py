"""How sure a number is: the spread of it over sets drawn, with repeats, from the one that was measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from meristem.randomness import generator

DRAWS = 1000
MIDDLE = 0.95


def intervals(
    measure: Callable[[NDArray[np.int64]], dict[str, float]], size: int, *, draws: int = DRAWS, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Per metric the bounds of its middle 95 % (percentile bootstrap)."""
    drawn = [measure(generator(seed, "bootstrap", 0, number).integers(0, size, size)) for number in range(draws)]
    edges = ((1 - MIDDLE) / 2, (1 + MIDDLE) / 2)
    found: dict[str, tuple[float, float]] = {}
    for name in drawn[0]:
        low, high = np.quantile([one[name] for one in drawn], edges)
        found[name] = (float(low), float(high))
    return found
