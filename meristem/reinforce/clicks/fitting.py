"""Likelihood and fitting of the click model: text and query features with a position-based examination model.

Of those who examine position k, a share σ(text · w + query · u + own level of the query) clicks; e_k is the rate at
which position k is examined, relative to the first. Only the products are observed, so e is 1 at the first position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Protocol

import numpy as np
import torch

from meristem.reinforce.clicks.click_table import ClickTable
from meristem.reinforce.clicks.sparse_matrix import Floats, Ints, SparseMatrix, sum_by_index

QUERY_PRECISION, EXAMINATION_PRECISION, LEVEL_PRECISION = 0.5, 0.1, 0.01
"""Prior precisions, in log-odds: of a query's level around what its words predict, of the examination rates, of the
overall level."""
MAX_ITERATIONS, LBFGS_HISTORY = 40, 12
EPSILON = 1e-12


class LinearOperator(Protocol):
    """A matrix that can be multiplied with weights."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def matvec(self, weights: Floats) -> Floats: ...
    def rmatvec(self, rows: Floats) -> Floats: ...
    def squared_rmatvec(self, rows: Floats) -> Floats: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ClickData:
    """A click table as arrays."""

    texts: LinearOperator
    queries: SparseMatrix
    pair_query: Ints
    """[pairs] index of its query."""
    row_pair: Ints
    """[rows] index of its pair."""
    row_position: Ints
    """[rows] index of its position among the distinct positions; 0 is the first."""
    impressions: Floats
    clicks: Floats

    @classmethod
    def from_table(cls, table: ClickTable, texts: LinearOperator | None, queries: SparseMatrix | None) -> ClickData:
        """The arrays of a table; without feature matrices where the weights are known."""
        position_index = {position: index for index, position in enumerate(table.positions)}
        return cls(
            texts=texts or SparseMatrix.empty(len(table.texts)),
            queries=queries or SparseMatrix.empty(len(table.queries)),
            pair_query=table.pair_query,
            row_pair=table.row_pair,
            row_position=np.array([position_index[position] for position in table.position.tolist()]),
            impressions=table.impressions.astype(np.float64),
            clicks=table.clicks.astype(np.float64),
        )

    @property
    def num_positions(self) -> int:
        """Number of distinct positions on the page."""
        return int(self.row_position.max()) + 1

    @property
    def row_query(self) -> Ints:
        """[rows] index of its query."""
        return self.pair_query[self.row_pair]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClickWeights:
    """Fitted parameters."""

    text: Floats
    query: Floats
    own: Floats
    """[queries] the level of each beyond what its words predict."""
    looks: Floats
    """[positions] log of the examination rate."""
    level: float


def fit_weights(
    data: ClickData, row_weights: Floats, prior_precision: float, initial: ClickWeights | None = None
) -> ClickWeights:
    """Maximum a posteriori weights under a normal prior of precision `prior_precision`; `row_weights` [rows]."""
    num_features, num_query_features, num_queries = data.texts.shape[1], data.queries.shape[1], data.queries.shape[0]
    ends = np.cumsum([num_features, num_query_features, num_queries, data.num_positions - 1])
    precision = np.concatenate(
        [
            np.full(num_features + num_query_features, prior_precision),
            np.full(num_queries, QUERY_PRECISION),
            np.full(data.num_positions - 1, EXAMINATION_PRECISION),
            [LEVEL_PRECISION],
        ]
    )
    total_clicks, total_impressions = float(row_weights @ data.clicks), float(row_weights @ data.impressions)
    mean_log_odds = log((total_clicks + 0.5) / (total_impressions - total_clicks + 0.5))
    parameters = np.zeros(len(precision))
    if initial is not None:
        parameters = np.concatenate(
            [initial.text, initial.query, initial.own, initial.looks[1:], [initial.level - mean_log_odds]]
        )
    query, total = data.row_query, max(total_clicks, 1.0)
    curvature = row_weights * fisher_information(
        data, np.full(len(row_weights), mean_log_odds), np.zeros(data.num_positions)
    )
    pair_sums, query_sums = (
        sum_by_index(data.row_pair, curvature, len(data.pair_query)),
        sum_by_index(query, curvature, num_queries),
    )
    # Scaled to equal curvature in every direction, L-BFGS needs few steps.
    diagonal = np.concatenate(
        [
            data.texts.squared_rmatvec(pair_sums),
            data.queries.squared_rmatvec(query_sums),
            query_sums,
            sum_by_index(data.row_position, curvature, data.num_positions)[1:],
            [curvature.sum()],
        ]
    )
    scale = 1 / np.sqrt(diagonal + precision + EPSILON)

    def cost(scaled: Floats) -> tuple[float, Floats]:
        parameters = scaled * scale
        text, query_weights, query_offsets, log_examination, level = np.split(parameters, ends)
        log_odds = (
            data.texts.matvec(text)
            + (data.queries.matvec(query_weights) + query_offsets + level + mean_log_odds)[data.pair_query]
        )
        log_likelihoods, row_grad, position_grad = _likelihood_grads(
            data, log_odds[data.row_pair], np.concatenate([[0.0], log_examination])
        )
        pair_sums = sum_by_index(data.row_pair, row_weights * row_grad, len(data.pair_query))
        query_sums = sum_by_index(query, row_weights * row_grad, num_queries)
        gradient = np.concatenate(
            [
                data.texts.rmatvec(pair_sums),
                data.queries.rmatvec(query_sums),
                query_sums,
                sum_by_index(data.row_position, row_weights * position_grad, data.num_positions)[1:],
                [query_sums.sum()],
            ]
        )
        value = 0.5 * float(parameters @ (precision * parameters)) - float(row_weights @ log_likelihoods)
        return value / total, (precision * parameters - gradient) * scale / total

    text, query_weights, query_offsets, log_examination, level = np.split(
        _minimize(cost, parameters / scale) * scale, ends
    )
    return ClickWeights(
        text=text,
        query=query_weights,
        own=query_offsets,
        looks=np.concatenate([[0.0], log_examination]),
        level=float(level[0]) + mean_log_odds,
    )


def fit_offsets(
    data: ClickData, row_weights: Floats, log_odds: Floats, log_examination: Floats, group_ids: Ints, precision: Floats
) -> Floats:
    """The most likely offset of each group of rows, under a normal prior around zero.

    `log_odds` [rows] without the offset; `group_ids` [rows]; `precision` [groups].
    """
    offsets = np.zeros(len(precision))
    for _ in range(40):
        _, gradient, _ = _likelihood_grads(data, log_odds + offsets[group_ids], log_examination)
        curvature = fisher_information(data, log_odds + offsets[group_ids], log_examination)
        step = sum_by_index(group_ids, row_weights * gradient, len(precision)) - precision * offsets
        step /= sum_by_index(group_ids, row_weights * curvature, len(precision)) + precision
        offsets = offsets + np.clip(step, -1.0, 1.0)
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
    return offsets


def log_likelihood(data: ClickData, log_odds: Floats, log_examination: Floats) -> Floats:
    """[rows] log-likelihood."""
    return _likelihood_grads(data, log_odds, log_examination)[0]


def click_rate(log_odds: Floats, log_examination: Floats) -> Floats:
    """Clicks per impression: examination rate times σ(log-odds)."""
    return np.asarray(np.clip(np.exp(log_examination) / (1 + np.exp(-log_odds)), EPSILON, 1 - 1e-9))


def _likelihood_grads(data: ClickData, log_odds: Floats, log_examination: Floats) -> tuple[Floats, Floats, Floats]:
    """[rows] log-likelihood, and its derivatives by the log-odds and by the log examination rate."""
    rate = click_rate(log_odds, log_examination[data.row_position])
    non_clicks = data.impressions - data.clicks
    value = data.clicks * np.log(rate) + non_clicks * np.log1p(-rate)
    position_grad = (data.clicks - data.impressions * rate) / (1 - rate)
    return value, position_grad / (1 + np.exp(log_odds)), position_grad


def fisher_information(data: ClickData, log_odds: Floats, log_examination: Floats) -> Floats:
    """[rows] Fisher information about the log-odds."""
    rate = click_rate(log_odds, log_examination[data.row_position])
    return np.asarray(data.impressions * rate / (1 - rate) / (1 + np.exp(log_odds)) ** 2)


def _minimize(cost: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """The minimum of a smooth cost that returns value and gradient (L-BFGS)."""
    parameters = torch.from_numpy(start.copy())
    optimizer = torch.optim.LBFGS(
        [parameters],
        max_iter=MAX_ITERATIONS,
        history_size=LBFGS_HISTORY,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-7,
        tolerance_change=1e-10,
    )

    def closure() -> float:
        value, gradient = cost(parameters.numpy())
        parameters.grad = torch.from_numpy(gradient)
        return float(value)

    optimizer.step(closure)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return parameters.numpy().copy()
