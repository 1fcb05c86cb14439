"""Paired bootstrap: whether scores of the same items before and after differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meristem.errors import MeristemError
from meristem.randomness import generator

DRAWS = 2000
FEWEST = 6
"""Pairs below which nothing is claimed: a sign test of five that all agree still has p = 0.06."""


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """The mean of after − before over the same items, with its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def direction(self) -> Literal["rose", "fell", ""]:
        """Which way it went, where the interval leaves zero out; empty where the difference may be chance."""
        if self.pairs < FEWEST:
            return ""
        nothing = 1e-9 * max(1.0, abs(self.mean))  # an interval that ends at zero may miss it by a rounding
        return "rose" if self.low > nothing else "fell" if self.high < -nothing else ""


def paired_difference(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> PairedDifference:
    """Items are resampled with both of their scores: what makes an item easy does not widen the interval."""
    if len(before) != len(after) or not len(before):
        raise MeristemError(f"there are {len(before)} scores before and {len(after)} after; each needs its partner")
    gains = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    drawn = generator(seed, "paired bootstrap", 0, 0).integers(0, len(gains), (DRAWS, len(gains)))
    low, high = np.quantile(gains[drawn].mean(1), (0.025, 0.975))
    return PairedDifference(mean=float(gains.mean()), low=float(low), high=float(high), pairs=len(gains))
