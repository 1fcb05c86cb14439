"""A click model: how often people would click on a text for a query, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import tanh

import numpy as np
from pydantic import Field

from meristem.reinforce.clicks.calibration import Calibration, Outside, seen, tempered
from meristem.reinforce.clicks.directions import Directions
from meristem.reinforce.clicks.features import Features, Pair
from meristem.reinforce.clicks.fitting import Evidence, Weights, fit, information, settled
from meristem.reinforce.clicks.matrix import Floats, Ints, added
from meristem.reinforce.clicks.queries import Words
from meristem.reinforce.clicks.table import Clicks, folds
from meristem.reinforce.clicks.vectors import vectors_of
from meristem.settings import Settings

WIDE = 1.645
"""Standard deviations on either side that hold nine of ten."""
USUAL = 0.05
"""Variance of what a text does besides, in log-odds, until it is measured."""
SUREST = 1e-3
"""The least variance that anything has."""


class ModelSettings(Settings):
    """How a click model is fitted."""

    strengths: tuple[float, ...] = Field((0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0), min_length=1)
    """Precisions of the prior that are tried on queries held out; the best is taken."""
    parts: int = Field(5, ge=2, le=50)
    """Into how many parts the queries are split for that; calibration and uncertainty come from these fits too."""
    seed: int = Field(0, ge=0)
    """Which query falls into which part follows from it and the query."""
    vectors: str | None = None
    """A file of word vectors (word2vec, GloVe) whose mean over a text is seen as well."""
    embed: str | None = None
    """A run of ours whose mean state over a text is seen as well."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is expected of a text for a query, at the first place of the page."""

    rate: float
    low: float
    high: float
    """Nine of ten rates lie between them."""
    odds: float
    """The rate as log-odds."""
    spread: float
    """Standard deviation of the log-odds."""
    known: bool
    """Whether the table has the query."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClickModel:
    """Fitted once on a table; the same table and settings always give the same model."""

    table: Clicks
    features: Features
    words: Words
    weights: tuple[Weights, ...]
    """The fit on everything, then one without each part of the queries."""
    scores: Floats
    """[fits, pairs] log-odds that each fit gives to the table's texts."""
    levels: Floats
    """[fits, queries] the same for its queries."""
    calibration: Calibration
    strength: float

    @classmethod
    def fit(cls, table: Clicks, settings: ModelSettings, say: Callable[[str], None] = lambda _: None) -> ClickModel:
        """Choose the prior on queries held out, calibrate there, and fit on everything."""
        part = folds(table.queries, min(settings.parts, len(table.queries)), settings.seed)
        dense = vectors_of(settings.vectors, settings.embed, table.texts)
        features, matrix = Features.learned(table.pairs, table.of, dense)
        words = Words.of(table.queries if features.spoken else ())
        directions = Directions.of(matrix)
        data = Evidence.of_table(table, directions, words(table.queries))
        strength, outside = _chosen(data, part, settings.strengths)
        use = tempered(data, outside.calibrated(tempered(data, USUAL)).residual)
        fits = _without(data, part, use, strength, outside.fits)
        whole = (fit(data, use, strength), *fits)
        say(f"click model of {len(table.texts):,} texts of {len(table.queries):,} queries: prior {strength:g}")
        scores, levels = (np.stack(some) for some in zip(*(seen(data, one) for one in whole), strict=True))
        weights = tuple(replace(one, text=directions.unturned(one.text)) for one in whole)
        return cls(table=table, features=features, words=words, weights=weights, scores=scores, levels=levels,
                   calibration=Outside.of(data, part, fits).calibrated(use), strength=strength)  # fmt: skip

    @property
    def looks(self) -> dict[int, float]:
        """For each position in the table the share of those who look at the first one."""
        shares = np.exp(self.weights[0].looks).tolist()
        return dict(zip(self.table.places, shares, strict=True))

    def expect(self, pairs: Sequence[Pair]) -> list[Expected]:
        """What is expected of each text for its query."""
        if not pairs:
            return []
        matrix, asked = self.features(pairs), self.words([query for query, _ in pairs])
        texts = np.stack([matrix.times(one.text) for one in self.weights])
        levels = np.stack([asked.times(one.query) + one.level for one in self.weights])
        number = np.array([self._number.get(query, -1) for query, _ in pairs])
        at, known, slope = np.maximum(number, 0), number >= 0, self.calibration.slope
        odds = slope * texts[0] + np.where(known, self._own[at], levels[0] + self.calibration.shift)
        # A known query's level is known in the middle of its texts: only the way from there is unsure.
        way = slope * texts[1:] + np.where(known, -slope * self._middle[1:, at], levels[1:])
        new = slope**2 * matrix.unknown / self.strength  # as unsure as the prior about what no text had
        variance = _jackknife(way) + new + self.calibration.residual + ~known * self.calibration.strange
        spread = np.sqrt(np.maximum(variance, SUREST))
        return [expectation(*one) for one in zip(odds.tolist(), spread.tolist(), known.tolist(), strict=True)]

    def known(self, query: str) -> list[tuple[str, Expected]]:
        """The texts of a query in the table, best first: what was expected of them and what was seen, together."""
        number = self._number.get(query)
        pairs = [] if number is None else np.flatnonzero(self.table.of == number).tolist()
        odds, spread = self._met
        best = sorted(pairs, key=lambda pair: -odds[pair])
        return [(self.table.texts[pair], expectation(float(odds[pair]), float(spread[pair]), True)) for pair in best]

    @cached_property
    def least(self) -> Expected:
        """What is known of the worst text in the table."""
        odds, spread = self._met
        worst = int(odds.argmin())
        return expectation(float(odds[worst]), float(spread[worst]), True)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {query: number for number, query in enumerate(self.table.queries)}

    @cached_property
    def _data(self) -> Evidence:
        return Evidence.of_table(self.table, None, None)

    @cached_property
    def _own(self) -> Floats:
        """[queries] the level of each: what its words say, moved by what was seen."""
        data, given = self._data, self.levels[0] + self.calibration.shift
        odds = (self.calibration.slope * self.scores[0] + given[data.of])[data.pair]
        sure = np.full(len(given), 1 / max(self.calibration.strange, SUREST))
        use = tempered(data, self.calibration.residual)
        return np.asarray(given + settled(data, use, odds, self.weights[0].looks, data.query, sure))

    @cached_property
    def _middle(self) -> Floats:
        """[fits, queries] the mean score of each query's texts, as much of each as was seen."""
        data = self._data
        odds = self.calibration.slope * self.scores[0] + self._own[data.of]
        sure = information(data, odds[data.pair], self.weights[0].looks) + SUREST
        count = added(data.pair, sure / (1 + sure * self.calibration.residual), len(data.of))
        total = added(data.of, count, len(self.table.queries))
        return np.stack([added(data.of, count * scores, len(total)) / total for scores in self.scores])

    @cached_property
    def _met(self) -> tuple[Floats, Floats]:
        """[pairs] the log-odds of each text in the table and their spread, its own clicks counted."""
        data, slope = self._data, self.calibration.slope
        odds = slope * self.scores[0] + self._own[data.of]
        variance = _jackknife(slope * (self.scores - self._middle[:, data.of])[1:]) + self.calibration.residual
        sure = 1 / np.maximum(variance, SUREST)
        looks = self.weights[0].looks
        odds = odds + settled(data, np.ones(len(data.pair)), odds[data.pair], looks, data.pair, sure)
        return odds, 1 / np.sqrt(sure + added(data.pair, information(data, odds[data.pair], looks), len(odds)))


def _chosen(data: Evidence, part: Ints, strengths: Sequence[float]) -> tuple[float, Outside]:
    """The prior with which fits are worth most on the parts they did not see, from the strongest to where it falls."""
    use = tempered(data, USUAL)
    best: tuple[float, float, Outside] | None = None
    fits: Sequence[Weights | None] = [None] * (int(part.max()) + 1)
    for strength in sorted(strengths, reverse=True):
        fits = _without(data, part, use, strength, fits)
        outside = Outside.of(data, part, fits)
        worth = outside.worth(1.0, use)
        if best is not None and worth <= best[0]:
            break
        best = worth, strength, outside
    assert best is not None
    return best[1], best[2]


def _without(
    data: Evidence, part: Ints, use: Floats, strength: float, begin: Sequence[Weights | None]
) -> list[Weights]:
    """Fits that each leave a part of the queries out."""
    return [fit(data, use * (part[data.query] != number), strength, one) for number, one in enumerate(begin)]


def _jackknife(fits: Floats) -> Floats:
    """[fits, n] → the variance of a fit on everything, from fits that each leave a part out."""
    return np.asarray((len(fits) - 1) * fits.var(0))


def expectation(odds: float, spread: float, known: bool) -> Expected:
    """What log-odds and their spread say of the rate."""
    rate, low, high = (0.5 + 0.5 * tanh((odds + step * spread) / 2) for step in (0.0, -WIDE, WIDE))
    return Expected(rate=rate, low=low, high=high, odds=odds, spread=spread, known=known)
