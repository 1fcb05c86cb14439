"""Paired bootstrap: whether scores of the same items before and after differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meristem.config.errors import MeristemError
from meristem.utils.randomness import generator

NUM_RESAMPLES = 2000
MIN_PAIRS = 6
"""Fewest pairs for a claim: a sign test of five that all agree still has p = 0.06."""


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """The mean of after − before over the same items, with its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def direction(self) -> Literal["rose", "fell", ""]:
        """The direction of the change where the interval excludes zero; empty where the difference may be chance."""
        if self.pairs < MIN_PAIRS:
            return ""
        tolerance = 1e-9 * max(1.0, abs(self.mean))  # an interval that ends at zero may miss it by rounding
        return "rose" if self.low > tolerance else "fell" if self.high < -tolerance else ""


def paired_difference(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> PairedDifference:
    """The mean difference; resampling items with both of their scores cancels the difficulty of an item."""
    if len(before) != len(after) or not len(before):
        raise MeristemError(f"{len(before)} scores before, but {len(after)} after; they must be paired")
    gains = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    indices = generator(seed, "paired bootstrap", 0, 0).integers(0, len(gains), (NUM_RESAMPLES, len(gains)))
    low, high = np.quantile(gains[indices].mean(1), (0.025, 0.975))
    return PairedDifference(mean=float(gains.mean()), low=float(low), high=float(high), pairs=len(gains))
