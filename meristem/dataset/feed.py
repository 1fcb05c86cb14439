"""Data loader: batches as a pure function of (seed, step, micro-step), whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from meristem.config.errors import RecipeError
from meristem.dataset.dataset_view import DatasetView
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.inputs.batch import TEXT_INPUTS, Batch, Row, collate
from meristem.interfaces.objective import Objective
from meristem.utils.randomness import KeyedPermutation, SampleRng

MEASURED_SAMPLES = 256
"""Samples used to estimate the number of tokens per sample."""


@dataclass(frozen=True)
class SampleTokens:
    """Tokens the model reads per sample, over all rows made from it: mean and maximum of the measured samples."""

    mean: float
    maximum: int


def sample_tokens(view: DatasetView, objective: Objective) -> SampleTokens:
    """Measured on evenly spaced samples, counted as `Batch.tokens` counts; deterministic."""
    counts = []
    for index in np.unique(np.linspace(0, len(view) - 1, min(len(view), MEASURED_SAMPLES)).astype(int)).tolist():
        draw = SampleRng(0, 0, index)
        prepared = objective.prepare(view.row(index, draw), draw)
        rows = prepared if isinstance(prepared, list) else [prepared]
        counts.append(sum(len(row.inputs[key]) for row in rows for key in TEXT_INPUTS if key in row.inputs))
    return SampleTokens(max(1.0, float(np.mean(counts))), max(1, *counts))


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Batches of one source: sample n of the endless stream is from epoch n // len(view)."""

    view: DatasetView
    objective: Objective
    seed: int
    batch_size: int
    """Samples in one optimizer step."""
    micro_batch_size: int
    """Samples in one forward pass at most (one micro-batch)."""
    pad_values: Mapping[str, int]
    tokens_per_sample: float = 1.0
    """Mean number of tokens the model reads per sample."""
    distributed: DistributedContext = SINGLE_PROCESS
    """Rank and world size: each process reads its share of every step."""

    def __post_init__(self) -> None:
        if self.batch_size < self.distributed.world_size:
            raise RecipeError(
                f"a batch of {self.batch_size} row{'s' * (self.batch_size > 1)} cannot be split among "
                f"{self.distributed.world_size} processes; use "
                "a larger train.batch_tokens (train.batch_samples for a task) or fewer processes"
            )

    @property
    def micro_steps(self) -> int:
        """Micro-batches per step, the same number in every process; none is empty."""
        max_rows = -(-self.batch_size // self.distributed.world_size)
        return min(-(-max_rows // self.micro_batch_size), self.batch_size // self.distributed.world_size)

    def row_range(self, micro_step: int) -> range:
        """Which rows of a step a micro-batch contains."""
        own_rows = self.distributed.shard_range(self.batch_size)
        start, stop = (len(own_rows) * number // self.micro_steps for number in (micro_step, micro_step + 1))
        return own_rows[start:stop]

    def batch(self, source_step: int, micro_step: int) -> Batch:
        """Micro-batch `micro_step` of this source's step `source_step`."""
        rows = self.row_range(micro_step)
        return self.batch_at(source_step * self.batch_size + rows.start, len(rows))

    def batch_at(self, first: int, count: int) -> Batch:
        """The batch of samples first … first + count − 1 of the endless stream."""
        rows: list[Row] = []
        for sample_number, (epoch, index) in enumerate(self._epoch_indices(first, count, len(self.view)), first):
            draw = SampleRng(self.seed, epoch, index)
            prepared = self.objective.prepare(self.view.row(index, draw), draw)
            for row in prepared if isinstance(prepared, list) else [prepared]:
                row.sample_id = sample_number
                rows.append(row)
        return collate(rows, self.objective, self.pad_values)

    def _epoch_indices(self, first: int, count: int, size: int) -> Iterator[tuple[int, int]]:
        """(epoch, sample) of consecutive positions; an epoch may end in between."""
        while count:
            epoch, start = divmod(first, size)
            chunk_size = min(count, size - start)
            positions = np.arange(start, start + chunk_size)
            order = KeyedPermutation(size, self.seed, epoch)(positions) if self.view.shuffled else positions
            yield from ((epoch, int(index)) for index in order)
            first, count = first + chunk_size, count - chunk_size


class _FeedDataset(Dataset[Batch]):
    """Feeds as a torch dataset with keys (source, source step, micro-step)."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self.feeds = feeds

    def __getitem__(self, key: tuple[str, int, int]) -> Batch:
        name, source_step, micro_step = key
        return self.feeds[name].batch(source_step, micro_step)


def iter_batches(feeds: Mapping[str, Feed], keys: Iterable[tuple[str, int, int]], num_workers: int) -> Iterator[Batch]:
    """The batches of these keys in order, prefetched by forked worker processes if `num_workers` > 0."""
    if num_workers == 0:
        yield from (feeds[name].batch(source_step, micro_step) for name, source_step, micro_step in keys)
        return
    loader: Any = DataLoader(
        _FeedDataset(feeds),
        batch_size=None,
        sampler=keys,
        num_workers=num_workers,
        multiprocessing_context="fork",
        prefetch_factor=4,
        worker_init_fn=_init_worker,
    )
    yield from loader


def _init_worker(_: int) -> None:
    """One thread per worker; signals are left to the parent."""
    import signal

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
