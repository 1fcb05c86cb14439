"""Click model: the predicted click-through rate of a text for a query, with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import tanh
from typing import ClassVar

import numpy as np
from pydantic import Field

from meristem.config.settings import Settings
from meristem.reinforce.clicks.calibration import (
    Calibration,
    CrossValidatedFits,
    linear_scores_of_fits,
    tempered_weights,
)
from meristem.reinforce.clicks.click_table import ClickTable, assign_folds
from meristem.reinforce.clicks.fitting import ClickData, ClickWeights, fisher_information, fit_offsets, fit_weights
from meristem.reinforce.clicks.principal_directions import PrincipalDirections
from meristem.reinforce.clicks.query_features import QueryVocabulary
from meristem.reinforce.clicks.sparse_matrix import Floats, Ints, sum_by_index
from meristem.reinforce.clicks.text_features import QueryText, TextFeatures
from meristem.reinforce.clicks.text_vectors import text_embedder

Z_90 = 1.645
"""Standard deviations on either side of a 90% interval."""
INITIAL_RESIDUAL = 0.05
"""Residual variance of a text, in log-odds, before it is estimated."""
MIN_VARIANCE = 1e-3
"""Lower bound of every variance."""


class ClickModelSettings(Settings):
    """How a click model is fitted."""

    renamed: ClassVar[dict[str, str]] = {
        "embed": "embedding_run",
        "parts": "folds",
        "strengths": "prior_precisions",
        "vectors": "word_vectors",
    }

    prior_precisions: tuple[float, ...] = Field((0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0), min_length=1)
    """Precisions of the prior to try by cross-validation; the best is used."""
    folds: int = Field(5, ge=2, le=50)
    """Folds of the queries for that; calibration and uncertainty come from these fits too."""
    seed: int = Field(0, ge=0)
    """Seed of the assignment of queries to folds."""
    word_vectors: str | None = None
    """A file of word vectors (word2vec, GloVe) whose mean over a text is added to the features."""
    embedding_run: str | None = None
    """A run whose mean hidden state over a text is added to the features."""


@dataclass(frozen=True, kw_only=True)
class ClickEstimate:
    """Prediction for a text and a query, at the first position of the page."""

    rate: float
    low: float
    high: float
    """Bounds of the 90% interval of the rate."""
    log_odds: float
    """The rate as log-odds."""
    std: float
    """Standard deviation of the log-odds."""
    is_known_query: bool
    """Whether the table has the query."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClickModel:
    """Fitted once on a table; the same table and settings always give the same model."""

    table: ClickTable
    features: TextFeatures
    query_vocabulary: QueryVocabulary
    weights: tuple[ClickWeights, ...]
    """The fit on everything, then one without each fold of the queries."""
    scores: Floats
    """[fits, pairs] log-odds that each fit predicts for the table's texts."""
    levels: Floats
    """[fits, queries] the same for its queries."""
    calibration: Calibration
    prior_precision: float

    @classmethod
    def fit(
        cls, table: ClickTable, settings: ClickModelSettings, say: Callable[[str], None] = lambda _: None
    ) -> ClickModel:
        """Choose the prior by cross-validation over queries, calibrate on the held-out folds, and fit on everything."""
        fold = assign_folds(table.queries, min(settings.folds, len(table.queries)), settings.seed)
        embed = text_embedder(settings.word_vectors, settings.embedding_run, table.texts)
        features, matrix = TextFeatures.fit(table.pairs, table.pair_query, embed)
        query_vocabulary = QueryVocabulary.from_queries(table.queries if features.natural_queries else ())
        directions = PrincipalDirections.from_matrix(matrix)
        data = ClickData.from_table(table, directions, query_vocabulary(table.queries))
        prior_precision, cross_validated = _select_prior(data, fold, settings.prior_precisions)
        row_weights = tempered_weights(
            data, cross_validated.calibrate(tempered_weights(data, INITIAL_RESIDUAL)).residual
        )
        fold_fits = _fit_folds(data, fold, row_weights, prior_precision, cross_validated.fits)
        all_fits = (fit_weights(data, row_weights, prior_precision), *fold_fits)
        say(f"click model of {len(table.texts):,} texts of {len(table.queries):,} queries: prior {prior_precision:g}")
        scores, levels = linear_scores_of_fits(data, all_fits)
        weights = tuple(replace(weights, text=directions.to_column_weights(weights.text)) for weights in all_fits)
        calibration = CrossValidatedFits.from_fits(data, fold, fold_fits).calibrate(row_weights)
        return cls(
            table=table,
            features=features,
            query_vocabulary=query_vocabulary,
            weights=weights,
            scores=scores,
            levels=levels,
            calibration=calibration,
            prior_precision=prior_precision,
        )

    @property
    def examination_rates(self) -> dict[int, float]:
        """Position → its examination rate, relative to the first position."""
        shares = np.exp(self.weights[0].looks).tolist()
        return dict(zip(self.table.positions, shares, strict=True))

    def predict(self, pairs: Sequence[QueryText]) -> list[ClickEstimate]:
        """The prediction for each text and query."""
        if not pairs:
            return []
        matrix, query_matrix = self.features(pairs), self.query_vocabulary([query for query, _ in pairs])
        text_scores = np.stack([matrix.matvec(fit.text) for fit in self.weights])
        levels = np.stack([query_matrix.matvec(fit.query) + fit.level for fit in self.weights])
        query_ids = np.array([self._query_index.get(query, -1) for query, _ in pairs])
        index, known, slope = np.maximum(query_ids, 0), query_ids >= 0, self.calibration.slope
        log_odds = slope * text_scores[0] + np.where(
            known, self._query_levels[index], levels[0] + self.calibration.shift
        )
        # A known query's level is known at the mean of its texts: only the difference from there is uncertain.
        fold_log_odds = slope * text_scores[1:] + np.where(known, -slope * self._mean_scores[1:, index], levels[1:])
        # features that no text in the table had are as uncertain as the prior
        unknown_variance = slope**2 * matrix.unknown_norm_sq / self.prior_precision
        variance = (
            _jackknife(fold_log_odds) + unknown_variance + self.calibration.residual + ~known * self.calibration.strange
        )
        std = np.sqrt(np.maximum(variance, MIN_VARIANCE))
        return [
            estimate_from_log_odds(*item) for item in zip(log_odds.tolist(), std.tolist(), known.tolist(), strict=True)
        ]

    def table_texts(self, query: str) -> list[tuple[str, ClickEstimate]]:
        """The texts of a query in the table, best first: prediction and observed clicks combined."""
        query_id = self._query_index.get(query)
        pairs = [] if query_id is None else np.flatnonzero(self.table.pair_query == query_id).tolist()
        log_odds, std = self._posterior
        order = sorted(pairs, key=lambda pair: -log_odds[pair])
        return [
            (self.table.texts[pair], estimate_from_log_odds(float(log_odds[pair]), float(std[pair]), True))
            for pair in order
        ]

    @cached_property
    def worst(self) -> ClickEstimate:
        """The estimate of the worst text in the table."""
        log_odds, std = self._posterior
        index = int(log_odds.argmin())
        return estimate_from_log_odds(float(log_odds[index]), float(std[index]), True)

    @cached_property
    def _query_index(self) -> dict[str, int]:
        return {query: index for index, query in enumerate(self.table.queries)}

    @cached_property
    def _click_data(self) -> ClickData:
        return ClickData.from_table(self.table, None, None)

    @cached_property
    def _query_levels(self) -> Floats:
        """[queries] the level of each: what its words predict, updated by its clicks."""
        data, prior_levels = self._click_data, self.levels[0] + self.calibration.shift
        log_odds = (self.calibration.slope * self.scores[0] + prior_levels[data.pair_query])[data.row_pair]
        precision = np.full(len(prior_levels), 1 / max(self.calibration.strange, MIN_VARIANCE))
        row_weights = tempered_weights(data, self.calibration.residual)
        return np.asarray(
            prior_levels + fit_offsets(data, row_weights, log_odds, self.weights[0].looks, data.row_query, precision)
        )

    @cached_property
    def _mean_scores(self) -> Floats:
        """[fits, queries] the mean score of each query's texts, weighted by information."""
        data = self._click_data
        log_odds = self.calibration.slope * self.scores[0] + self._query_levels[data.pair_query]
        precision = fisher_information(data, log_odds[data.row_pair], self.weights[0].looks) + MIN_VARIANCE
        pair_weights = sum_by_index(
            data.row_pair, precision / (1 + precision * self.calibration.residual), len(data.pair_query)
        )
        total = sum_by_index(data.pair_query, pair_weights, len(self.table.queries))
        return np.stack(
            [sum_by_index(data.pair_query, pair_weights * scores, len(total)) / total for scores in self.scores]
        )

    @cached_property
    def _posterior(self) -> tuple[Floats, Floats]:
        """[pairs] log-odds of each text in the table and their standard deviation, its own clicks included."""
        data, slope = self._click_data, self.calibration.slope
        log_odds = slope * self.scores[0] + self._query_levels[data.pair_query]
        variance = (
            _jackknife(slope * (self.scores - self._mean_scores[:, data.pair_query])[1:]) + self.calibration.residual
        )
        precision = 1 / np.maximum(variance, MIN_VARIANCE)
        log_examination = self.weights[0].looks
        log_odds = log_odds + fit_offsets(
            data, np.ones(len(data.row_pair)), log_odds[data.row_pair], log_examination, data.row_pair, precision
        )
        return log_odds, 1 / np.sqrt(
            precision
            + sum_by_index(
                data.row_pair, fisher_information(data, log_odds[data.row_pair], log_examination), len(log_odds)
            )
        )


def _select_prior(data: ClickData, fold: Ints, precisions: Sequence[float]) -> tuple[float, CrossValidatedFits]:
    """The prior precision with the best cross-validated likelihood, from the strongest until it gets worse."""
    row_weights = tempered_weights(data, INITIAL_RESIDUAL)
    best: tuple[float, float, CrossValidatedFits] | None = None
    fits: Sequence[ClickWeights | None] = [None] * (int(fold.max()) + 1)
    for precision in sorted(precisions, reverse=True):
        fits = _fit_folds(data, fold, row_weights, precision, fits)
        cross_validated = CrossValidatedFits.from_fits(data, fold, fits)
        held_out_score = cross_validated.held_out_score(1.0, row_weights)
        if best is not None and held_out_score <= best[0]:
            break
        best = held_out_score, precision, cross_validated
    assert best is not None
    return best[1], best[2]


def _fit_folds(
    data: ClickData, fold: Ints, row_weights: Floats, prior_precision: float, initial: Sequence[ClickWeights | None]
) -> list[ClickWeights]:
    """One fit per fold, each without that fold's queries."""
    return [
        fit_weights(data, row_weights * (fold[data.row_query] != fold_index), prior_precision, start)
        for fold_index, start in enumerate(initial)
    ]


def _jackknife(fits: Floats) -> Floats:
    """[fits, n] → the variance of a fit on everything, from fits that each leave a fold out (jackknife)."""
    return np.asarray((len(fits) - 1) * fits.var(0))


def estimate_from_log_odds(log_odds: float, std: float, is_known_query: bool) -> ClickEstimate:
    """The rate and its 90% interval from log-odds and their standard deviation."""
    rate, low, high = (0.5 + 0.5 * tanh((log_odds + step * std) / 2) for step in (0.0, -Z_90, Z_90))
    return ClickEstimate(rate=rate, low=low, high=high, log_odds=log_odds, std=std, is_known_query=is_known_query)
