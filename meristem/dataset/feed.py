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
from meristem.dataset.step_ramp import NO_RAMP, StepRamp
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.inputs.batch import TEXT_INPUTS, Batch, Row, collate
from meristem.interfaces.objective import Objective
from meristem.utils.randomness import KeyedPermutation, SampleRng

MEASURED_SAMPLES = 256
"""Samples used to estimate the number of tokens per sample."""
PREFETCHED_PER_WORKER = 4
"""Batches that each worker prepares in advance."""


@dataclass(frozen=True)
class SampleTokens:
    """Tokens the model reads per sample, over all rows made from it: mean and maximum of the measured samples."""

    mean: float
    maximum: int


def sample_tokens(view: DatasetView, objective: Objective, parts: int = 1) -> SampleTokens:
    """Measured on evenly spaced samples, counted as `Batch.tokens` counts; deterministic."""
    counts = []
    for index in np.unique(np.linspace(0, len(view) - 1, min(len(view), MEASURED_SAMPLES)).astype(int)).tolist():
        rows = prepare_sample(view, objective, 0, 0, index, parts)
        counts.append(sum(len(row.inputs[key]) for row in rows for key in TEXT_INPUTS if key in row.inputs))
    return SampleTokens(max(1.0, float(np.mean(counts))), max(1, *counts))


def prepare_sample(
    view: DatasetView, objective: Objective, seed: int, epoch: int, index: int, parts: int = 1
) -> list[Row]:
    """The rows of one sample as the objective prepares them, each part of it with random numbers of its own."""
    rows: list[Row] = []
    for part in range(parts):
        draw = SampleRng(seed, epoch, index + part * len(view))
        row = view.row(index, draw) if parts == 1 else view.row_part(index, part, parts, draw)
        prepared = objective.prepare(row, draw)
        rows += prepared if isinstance(prepared, list) else [prepared]
    return rows


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
    ramp: StepRamp = NO_RAMP
    """Smaller batches and shorter rows of the first steps."""

    def __post_init__(self) -> None:
        smallest = self.ramp.num_samples(0, self.batch_size)
        if smallest < self.distributed.world_size:
            raise RecipeError(
                f"a batch of {smallest} row{'s' * (smallest > 1)} cannot be split among "
                f"{self.distributed.world_size} processes; use "
                "a larger train.batch_tokens (train.batch_samples for a task) or fewer processes"
            )

    @property
    def micro_steps(self) -> int:
        """Micro-batches of a full step."""
        return self._micro_steps(self.batch_size)

    def micro_steps_of(self, source_step: int) -> int:
        """Micro-batches of a step, the same number in every process; none is empty."""
        return self._micro_steps(self.ramp.num_samples(source_step, self.batch_size))

    def _micro_steps(self, num_samples: int) -> int:
        max_rows = -(-num_samples // self.distributed.world_size)
        return min(-(-max_rows // self.micro_batch_size), num_samples // self.distributed.world_size)

    def row_range(self, micro_step: int) -> range:
        """Which rows of a full step a micro-batch contains."""
        return self._row_range(micro_step, self.batch_size)

    def _row_range(self, micro_step: int, num_samples: int) -> range:
        own_rows, micro_steps = self.distributed.shard_range(num_samples), self._micro_steps(num_samples)
        start, stop = (len(own_rows) * number // micro_steps for number in (micro_step, micro_step + 1))
        return own_rows[start:stop]

    def sample_range(self, source_step: int) -> range:
        """Which samples of the endless stream a step reads, over all processes."""
        first, after = (self.ramp.first_sample(step, self.batch_size) for step in (source_step, source_step + 1))
        return range(first, after)

    def batch(self, source_step: int, micro_step: int) -> Batch:
        """Micro-batch `micro_step` of this source's step `source_step`."""
        samples = self.sample_range(source_step)
        rows = self._row_range(micro_step, len(samples))
        return self.batch_at(samples.start + rows.start, len(rows), self.ramp.row_parts(source_step))

    def batch_at(self, first: int, count: int, parts: int = 1) -> Batch:
        """The batch of samples first … first + count − 1 of the endless stream, each cut into so many rows."""
        rows: list[Row] = []
        for sample_number, (epoch, index) in enumerate(self._epoch_indices(first, count, len(self.view)), first):
            for row in prepare_sample(self.view, self.objective, self.seed, epoch, index, parts):
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
        prefetch_factor=PREFETCHED_PER_WORKER,
        worker_init_fn=_init_worker,
    )
    yield from loader


def _init_worker(_: int) -> None:
    """One thread per worker; signals are left to the parent."""
    import signal

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
