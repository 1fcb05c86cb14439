"""What fits without a part of the queries say about that part: how strong a prior should be, how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meristem.reinforce.clicks.fitting import Evidence, Weights, expected, information, likelihood, settled
from meristem.reinforce.clicks.matrix import Floats, Ints, added

LOOSE = 0.01
"""Precision of a query's level where it is found from its own rows alone."""
SLOPES = np.linspace(0.0, 2.0, 41)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How expectations for queries that a model was not fitted on become rates that come true."""

    slope: float
    """What a text's log-odds are multiplied with."""
    shift: float
    """What is added to the level of a query that is not known."""
    residual: float
    """Variance, in log-odds, of what a text does besides."""
    strange: float
    """The same for a query that is not known."""


@dataclass(frozen=True, eq=False)
class Outside:
    """What each part's rows look like to the model that was fitted without that part."""

    data: Evidence
    text: Floats
    """[pairs] log-odds from the text."""
    level: Floats
    """[queries] from the query."""
    looks: Floats
    """[places], of all fits together: one of them hardly moves it."""
    fits: tuple[Weights, ...]

    @classmethod
    def of(cls, data: Evidence, part: Ints, weights: Sequence[Weights]) -> Outside:
        """Each query by the fit that did not see its part."""
        text, level = (np.stack(some) for some in zip(*(seen(data, one) for one in weights), strict=True))
        return cls(data, text[part[data.of], np.arange(len(data.of))], level[part, np.arange(len(part))],
                   np.mean([one.looks for one in weights], axis=0), tuple(weights))  # fmt: skip

    def worth(self, slope: float, use: Floats) -> float:
        """The log-likelihood of the differences between texts of a query, whatever the query's level is."""
        odds, own = self._own(slope, use)
        return float(use @ likelihood(self.data, odds + own[self.data.query], self.looks))

    def calibrated(self, use: Floats) -> Calibration:
        """The slope of the greatest worth, and what is left besides."""
        data = self.data
        slope = float(max(SLOPES, key=lambda one: self.worth(float(one), use)))
        odds, own = self._own(slope, use)
        inside = odds + own[data.query]
        rate = expected(inside, self.looks[data.group])
        sure = information(data, inside, self.looks)
        count = added(data.query, np.ones(len(data.pair)), len(self.level))[data.query]
        free = 1 - 1 / count  # a query's level takes a row's worth of what its rows say
        off = ((data.clicked - data.shown * rate) / (1 - rate) / (1 + np.exp(inside))) ** 2
        residual = max(0.0, float((off - sure * free).sum() / max(float((sure**2 * free).sum()), 1e-9)))
        noise = 1 / np.maximum(added(data.query, sure / (1 + sure * residual), len(self.level)), 1e-6)
        strange = max(0.0, float(np.median((own - np.median(own)) ** 2) / 0.455 - np.median(noise)))  # of a normal
        return Calibration(slope=slope, shift=self._shift(odds), residual=residual, strange=strange)

    def _own(self, slope: float, use: Floats) -> tuple[Floats, Floats]:
        """[rows] the log-odds, and [queries] by how much each query's level is off."""
        odds = (slope * self.text + self.level[self.data.of])[self.data.pair]
        loose = np.full(len(self.level), LOOSE)
        return odds, settled(self.data, use, odds, self.looks, self.data.query, loose)

    def _shift(self, odds: Floats) -> float:
        """What makes as many clicks expected as there are."""
        low, high = -5.0, 5.0
        for _ in range(50):
            middle = (low + high) / 2
            clicks = self.data.shown @ expected(odds + middle, self.looks[self.data.group])
            low, high = (middle, high) if clicks < self.data.clicked.sum() else (low, middle)
        return middle


def seen(data: Evidence, weights: Weights) -> tuple[Floats, Floats]:
    """[pairs] log-odds from the texts, and [queries] from the queries."""
    return data.texts.times(weights.text), data.queries.times(weights.query) + weights.level


def tempered(data: Evidence, residual: float) -> Floats:
    """[rows] how much a row counts: texts differ by more than chance, so that a million views of one are one text."""
    clicked, shown = (added(data.query, counts, data.queries.shape[0]) for counts in (data.clicked, data.shown))
    rate = ((clicked + 0.5) / (shown + 1))[data.query]
    return 1 / (1 + residual * data.shown * rate * (1 - rate))
