"""The likelihood of a click table: what a text says, how clicked its query is, and who looks at its place on the page.

Of those who look at place k, a share σ(text · w + query · u + own level of the query) clicks; a share e_k of those who
look at the first place looks there. Only products of the two are seen, so e is 1 at the first place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Protocol

import numpy as np
import torch

from meristem.reinforce.clicks.matrix import Floats, Ints, Sparse, added
from meristem.reinforce.clicks.table import Clicks

OWN, LOOKS, LEVEL = 0.5, 0.1, 0.01
"""Precision, in log-odds, of a query's own level around what its words say, of the shares that look, of the level."""
STEPS, HISTORY = 40, 12
LEAST = 1e-12


class Matrix(Protocol):
    """Rows that weights are multiplied with."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def times(self, weights: Floats) -> Floats: ...
    def back(self, rows: Floats) -> Floats: ...
    def squares(self, rows: Floats) -> Floats: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """A table as numbers."""

    texts: Matrix
    queries: Sparse
    of: Ints
    """[pairs] its query."""
    pair: Ints
    """[rows] its pair."""
    group: Ints
    """[rows] its place's number among the places there are; 0 is the first."""
    shown: Floats
    clicked: Floats

    @classmethod
    def of_table(cls, table: Clicks, texts: Matrix | None, queries: Sparse | None) -> Evidence:
        """A table; without matrices where weights are known."""
        group = {place: number for number, place in enumerate(table.places)}
        return cls(
            texts=texts or Sparse.empty(len(table.texts)), queries=queries or Sparse.empty(len(table.queries)),
            of=table.of, pair=table.pair, group=np.array([group[place] for place in table.position.tolist()]),
            shown=table.shown.astype(np.float64), clicked=table.clicked.astype(np.float64),
        )  # fmt: skip

    @property
    def groups(self) -> int:
        """How many places on the page there are."""
        return int(self.group.max()) + 1

    @property
    def query(self) -> Ints:
        """[rows] its query."""
        return self.of[self.pair]


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """What is learned."""

    text: Floats
    query: Floats
    own: Floats
    """[queries] the level of each besides what its words say."""
    looks: Floats
    """[places] log of the share that looks."""
    level: float


def fit(data: Evidence, use: Floats, strength: float, begin: Weights | None = None) -> Weights:
    """The most likely weights under a normal prior of precision `strength`; each row counts `use` times."""
    width, words, queries = data.texts.shape[1], data.queries.shape[1], data.queries.shape[0]
    ends = np.cumsum([width, words, queries, data.groups - 1])
    precision = np.concatenate([np.full(width + words, strength), np.full(queries, OWN),
                                np.full(data.groups - 1, LOOKS), [LEVEL]])  # fmt: skip
    clicked, shown = float(use @ data.clicked), float(use @ data.shown)
    usual = log((clicked + 0.5) / (shown - clicked + 0.5))
    flat = np.zeros(len(precision))
    if begin is not None:
        flat = np.concatenate([begin.text, begin.query, begin.own, begin.looks[1:], [begin.level - usual]])
    query, total = data.query, max(clicked, 1.0)
    bend = use * information(data, np.full(len(use), usual), np.zeros(data.groups))
    pairs, per_query = added(data.pair, bend, len(data.of)), added(query, bend, queries)
    # Where every direction bends alike, a search needs few steps.
    bends = np.concatenate([data.texts.squares(pairs), data.queries.squares(per_query), per_query,
                            added(data.group, bend, data.groups)[1:], [bend.sum()]])  # fmt: skip
    scale = 1 / np.sqrt(bends + precision + LEAST)

    def cost(scaled: Floats) -> tuple[float, Floats]:
        flat = scaled * scale
        text, word, own, looks, level = np.split(flat, ends)
        odds = data.texts.times(text) + (data.queries.times(word) + own + level + usual)[data.of]
        reached, row, place = _slopes(data, odds[data.pair], np.concatenate([[0.0], looks]))
        pairs = added(data.pair, use * row, len(data.of))
        per_query = added(query, use * row, queries)
        slope = np.concatenate([data.texts.back(pairs), data.queries.back(per_query), per_query,
                                added(data.group, use * place, data.groups)[1:], [per_query.sum()]])  # fmt: skip
        value = 0.5 * float(flat @ (precision * flat)) - float(use @ reached)
        return value / total, (precision * flat - slope) * scale / total

    text, word, own, looks, level = np.split(_minimum(cost, flat / scale) * scale, ends)
    return Weights(text=text, query=word, own=own, looks=np.concatenate([[0.0], looks]), level=float(level[0]) + usual)


def settled(data: Evidence, use: Floats, odds: Floats, looks: Floats, where: Ints, precision: Floats) -> Floats:
    """The shift of each group of rows that makes it most likely, given how sure it is that there is none.

    `odds` [rows] without the shift; `where` [rows] the group; `precision` [groups].
    """
    shift = np.zeros(len(precision))
    for _ in range(40):
        _, slope, _ = _slopes(data, odds + shift[where], looks)
        bend = information(data, odds + shift[where], looks)
        step = added(where, use * slope, len(precision)) - precision * shift
        step /= added(where, use * bend, len(precision)) + precision
        shift = shift + np.clip(step, -1.0, 1.0)
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
    return shift


def likelihood(data: Evidence, odds: Floats, looks: Floats) -> Floats:
    """[rows] the log-likelihood."""
    return _slopes(data, odds, looks)[0]


def expected(odds: Floats, looks: Floats) -> Floats:
    """The share that clicks of those for whom it was on the page."""
    return np.asarray(np.clip(np.exp(looks) / (1 + np.exp(-odds)), LEAST, 1 - 1e-9))


def _slopes(data: Evidence, odds: Floats, looks: Floats) -> tuple[Floats, Floats, Floats]:
    """Per row the log-likelihood, and how it grows with its log-odds and with the log-share that looks."""
    rate = expected(odds, looks[data.group])
    missed = data.shown - data.clicked
    value = data.clicked * np.log(rate) + missed * np.log1p(-rate)
    place = (data.clicked - data.shown * rate) / (1 - rate)
    return value, place / (1 + np.exp(odds)), place


def information(data: Evidence, odds: Floats, looks: Floats) -> Floats:
    """Per row the precision with which it tells its log-odds."""
    rate = expected(odds, looks[data.group])
    return np.asarray(data.shown * rate / (1 - rate) / (1 + np.exp(odds)) ** 2)


def _minimum(cost: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """Where a smooth cost with its slope is least (L-BFGS)."""
    flat = torch.from_numpy(start.copy())
    search = torch.optim.LBFGS([flat], max_iter=STEPS, history_size=HISTORY, line_search_fn="strong_wolfe",
                               tolerance_grad=1e-7, tolerance_change=1e-10)  # fmt: skip

    def closure() -> float:
        value, slope = cost(flat.numpy())
        flat.grad = torch.from_numpy(slope)
        return float(value)

    search.step(closure)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return flat.numpy().copy()
