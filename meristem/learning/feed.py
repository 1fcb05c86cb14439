"""Samples become batches: a pure function of (seed, use, micro-step), whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from meristem.batch import TEXT_INPUTS, Batch, Objective, Row, collate
from meristem.errors import RecipeError
from meristem.learning.team import ALONE, Team
from meristem.randomness import Draw, Order


class Viewed(Protocol):
    """What a view on a store offers."""

    shuffled: bool

    def __len__(self) -> int: ...

    def row(self, index: int, draw: Draw) -> Row:
        """Sample `index` as a row."""


MEASURED = 256
"""Samples whose tokens are counted, to know how many tokens a sample has."""


@dataclass(frozen=True)
class SampleTokens:
    """Tokens that the model reads for one sample, over all rows it becomes: the mean, and the most that were met."""

    mean: float
    most: int


def sample_tokens(view: Viewed, objective: Objective) -> SampleTokens:
    """Counted on samples evenly spaced over a view, as `Batch.tokens` counts them; the same at every start."""
    counts = []
    for index in np.unique(np.linspace(0, len(view) - 1, min(len(view), MEASURED)).astype(int)).tolist():
        draw = Draw(0, 0, index)
        made = objective.prepare(view.row(index, draw), draw)
        rows = made if isinstance(made, list) else [made]
        counts.append(sum(len(row.inputs[key]) for row in rows for key in TEXT_INPUTS if key in row.inputs))
    return SampleTokens(max(1.0, float(np.mean(counts))), max(1, *counts))


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Batches of one source: sample number n of the stream is a sample of epoch n // len(view)."""

    view: Viewed
    objective: Objective
    seed: int
    rows: int
    """Samples in one optimizer step."""
    micro: int
    """Samples in one pass at the most."""
    fill: Mapping[str, int]
    tokens_per_sample: float = 1.0
    """What the model reads for a sample, on the average."""
    team: Team = ALONE
    """Whose rows these are: each process reads its share of every step."""

    def __post_init__(self) -> None:
        if self.rows < self.team.size:
            raise RecipeError(
                f"a step of {self.rows} row{'s' * (self.rows > 1)} cannot be shared by {self.team.size} processes: "
                "a larger train.batch_tokens (train.batch_samples for a task) or fewer processes"
            )

    @property
    def micro_steps(self) -> int:
        """Passes in one step, as many in every process; none is without a row."""
        most = -(-self.rows // self.team.size)
        return min(-(-most // self.micro), self.rows // self.team.size)

    def lanes(self, micro: int) -> range:
        """Which rows of a step a pass reads."""
        own, passes = self.team.share(self.rows), self.micro_steps
        return own[len(own) * micro // passes : len(own) * (micro + 1) // passes]

    def batch(self, use: int, micro: int) -> Batch:
        """Micro-batch number `micro` of this source's step number `use`."""
        lanes = self.lanes(micro)
        return self.at(use * self.rows + lanes.start, len(lanes))

    def at(self, first: int, number: int) -> Batch:
        """The batch of samples first … first + number − 1 of the endless stream."""
        size = len(self.view)
        rows: list[Row] = []
        for n, (epoch, index) in zip(range(first, first + number), self._places(first, number, size), strict=True):
            draw = Draw(self.seed, epoch, index)
            made = self.objective.prepare(self.view.row(index, draw), draw)
            for row in made if isinstance(made, list) else [made]:
                row.sample = n
                rows.append(row)
        return collate(rows, self.objective, self.fill)

    def _places(self, first: int, number: int, size: int) -> Iterator[tuple[int, int]]:
        """(epoch, sample) of consecutive positions; an epoch may end inside."""
        while number:
            epoch, start = divmod(first, size)
            part = min(number, size - start)
            positions = np.arange(start, start + part)
            order = Order(size, self.seed, epoch)(positions) if self.view.shuffled else positions
            yield from ((epoch, int(index)) for index in order)
            first, number = first + part, number - part


class _Batches(Dataset[Batch]):
    """Feeds as a dataset keyed by (source, use, micro-step)."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self.feeds = feeds

    def __getitem__(self, key: tuple[str, int, int]) -> Batch:
        name, use, micro = key
        return self.feeds[name].batch(use, micro)


def stream(feeds: Mapping[str, Feed], keys: Iterable[tuple[str, int, int]], workers: int) -> Iterator[Batch]:
    """The batches of these keys in their order, made ahead by forked workers where there are any."""
    if workers == 0:
        yield from (feeds[name].batch(use, micro) for name, use, micro in keys)
        return
    loader: Any = DataLoader(
        _Batches(feeds),
        batch_size=None,
        sampler=keys,
        num_workers=workers,
        multiprocessing_context="fork",
        prefetch_factor=4,
        worker_init_fn=_quiet,
    )
    yield from loader


def _quiet(_: int) -> None:
    """A worker uses one thread and leaves signals to its parent."""
    import signal

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
