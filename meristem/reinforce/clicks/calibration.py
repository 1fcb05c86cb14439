"""Cross-validation of a click model: held-out fits choose the prior's strength and calibrate the predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meristem.reinforce.clicks.fitting import (
    ClickData,
    ClickWeights,
    click_rate,
    fisher_information,
    fit_offsets,
    log_likelihood,
)
from meristem.reinforce.clicks.sparse_matrix import Floats, Ints, sum_by_index

WEAK_PRECISION = 0.01
"""Precision of a query's level where it is estimated from its own rows alone."""
SLOPE_GRID = np.linspace(0.0, 2.0, 41)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How predictions for unseen queries are corrected so that predicted and observed rates agree."""

    slope: float
    """Factor of a text's log-odds."""
    shift: float
    """Added to the level of an unknown query."""
    residual: float
    """Residual variance of a text, in log-odds."""
    strange: float
    """The same for the level of an unknown query."""


@dataclass(frozen=True, eq=False)
class CrossValidatedFits:
    """Predictions for each fold's rows by the model fitted without that fold."""

    data: ClickData
    text_log_odds: Floats
    """[pairs] log-odds from the text."""
    query_level: Floats
    """[queries] log-odds from the query."""
    log_examination: Floats
    """[positions] the mean over all fits: a single one hardly changes it."""
    fits: tuple[ClickWeights, ...]

    @classmethod
    def from_fits(cls, data: ClickData, fold: Ints, weights: Sequence[ClickWeights]) -> CrossValidatedFits:
        """Each query predicted by the fit that did not see its fold."""
        text_log_odds, query_level = linear_scores_of_fits(data, weights)
        pair_log_odds = text_log_odds[fold[data.pair_query], np.arange(len(data.pair_query))]
        own_level = query_level[fold, np.arange(len(fold))]
        return cls(data, pair_log_odds, own_level, np.mean([fit.looks for fit in weights], axis=0), tuple(weights))

    def held_out_score(self, slope: float, row_weights: Floats) -> float:
        """Held-out log-likelihood of the differences between texts of a query, independent of the query's level."""
        log_odds, offsets = self._query_offsets(slope, row_weights)
        return float(
            row_weights @ log_likelihood(self.data, log_odds + offsets[self.data.row_query], self.log_examination)
        )

    def calibrate(self, row_weights: Floats) -> Calibration:
        """The slope with the highest held-out score, and the residual variances."""
        data = self.data
        slope = float(max(SLOPE_GRID, key=lambda candidate: self.held_out_score(float(candidate), row_weights)))
        log_odds, offsets = self._query_offsets(slope, row_weights)
        fitted_log_odds = log_odds + offsets[data.row_query]
        rate = click_rate(fitted_log_odds, self.log_examination[data.row_position])
        precision = fisher_information(data, fitted_log_odds, self.log_examination)
        count = sum_by_index(data.row_query, np.ones(len(data.row_pair)), len(self.query_level))[data.row_query]
        freedom = 1 - 1 / count  # estimating a query's level uses up one degree of freedom
        squared_error = ((data.clicks - data.impressions * rate) / (1 - rate) / (1 + np.exp(fitted_log_odds))) ** 2
        residual = max(
            0.0, float((squared_error - precision * freedom).sum() / max(float((precision**2 * freedom).sum()), 1e-9))
        )
        noise = 1 / np.maximum(
            sum_by_index(data.row_query, precision / (1 + precision * residual), len(self.query_level)), 1e-6
        )
        # of a normal
        strange = max(0.0, float(np.median((offsets - np.median(offsets)) ** 2) / 0.455 - np.median(noise)))
        return Calibration(slope=slope, shift=self._fit_shift(log_odds), residual=residual, strange=strange)

    def _query_offsets(self, slope: float, row_weights: Floats) -> tuple[Floats, Floats]:
        """[rows] the log-odds, and [queries] the error of each query's level."""
        log_odds = (slope * self.text_log_odds + self.query_level[self.data.pair_query])[self.data.row_pair]
        precision = np.full(len(self.query_level), WEAK_PRECISION)
        return log_odds, fit_offsets(
            self.data, row_weights, log_odds, self.log_examination, self.data.row_query, precision
        )

    def _fit_shift(self, log_odds: Floats) -> float:
        """The shift at which as many clicks are predicted as were observed, by bisection."""
        low, high = -5.0, 5.0
        for _ in range(50):
            middle = (low + high) / 2
            clicks = self.data.impressions @ click_rate(log_odds + middle, self.log_examination[self.data.row_position])
            low, high = (middle, high) if clicks < self.data.clicks.sum() else (low, middle)
        return middle


def linear_scores(data: ClickData, weights: ClickWeights) -> tuple[Floats, Floats]:
    """[pairs] log-odds from the texts, and [queries] from the queries."""
    return data.texts.matvec(weights.text), data.queries.matvec(weights.query) + weights.level


def linear_scores_of_fits(data: ClickData, fits: Sequence[ClickWeights]) -> tuple[Floats, Floats]:
    """[fits, pairs] and [fits, queries] the same for several fits."""
    text_scores, query_levels = zip(*(linear_scores(data, weights) for weights in fits), strict=True)
    return np.stack(text_scores), np.stack(query_levels)


def tempered_weights(data: ClickData, residual: float) -> Floats:
    """[rows] weight of a row: texts vary beyond sampling noise, so a million views of one text are still one text."""
    query_clicks, query_impressions = (
        sum_by_index(data.row_query, counts, data.queries.shape[0]) for counts in (data.clicks, data.impressions)
    )
    rate = ((query_clicks + 0.5) / (query_impressions + 1))[data.row_query]
    return 1 / (1 + residual * data.impressions * rate * (1 - rate))
