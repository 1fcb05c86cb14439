"""The process group of a run: rank, world size, and collectives (broadcast, all_reduce, all_gather, barrier)."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from meristem.config.errors import MeristemError

T = TypeVar("T")
CPU = torch.device("cpu")
PROBE_SECONDS = 2.0
"""How long a process that failed waits for another one before it counts as alive."""
FAILED_TO_START = "another process of this run failed to start; its own message says why"


class ProcessLostError(MeristemError):
    """Another process of the run has died; the launcher may restart all of them."""


@dataclass(frozen=True, kw_only=True)
class DistributedContext:
    """Rank and world size of this process, and its collectives; a world of one unless torchrun started several."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Rank within its machine."""
    device: torch.device = CPU
    untimed_group: dist.ProcessGroup | None = None
    """A gloo group of the same processes with a 30-day timeout, for preparation of unknown length."""
    timeout_seconds: float = math.inf
    """How long a collective waits for the other processes."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that logs and writes files."""
        return self.rank == 0

    def shard_range(self, total: int) -> range:
        """This rank's contiguous share of `range(total)`."""
        return range(total * self.rank // self.world_size, total * (self.rank + 1) // self.world_size)

    def shard_sizes(self, total: int) -> list[int]:
        """Length of `shard_range(total)` on each rank."""
        return [
            total * (rank + 1) // self.world_size - total * rank // self.world_size for rank in range(self.world_size)
        ]

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over all processes, in double precision."""
        if self.world_size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        with self._collective():
            dist.all_reduce(total)
            return total.tolist()

    def all_reduce_sum_(self, values: Tensor) -> None:
        """Sum a tensor over all processes, in place and on its device."""
        if self.world_size > 1:
            with self._collective():
                dist.all_reduce(values)

    def all_reduce_any(self, *flags: bool) -> list[bool]:
        """For each flag whether it is true on any process."""
        return [total > 0 for total in self.all_reduce_sum([float(flag) for flag in flags])]

    def broadcast(self, value: int) -> int:
        """The value of rank 0, on every process."""
        if self.world_size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.int64, device=self.device)
        with self._collective():
            dist.broadcast(tensor, 0)
            return int(tensor)

    def all_gather(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """Rows of all processes, concatenated in rank order; `sizes` is the number of rows on each rank."""
        if self.world_size == 1:
            return tensor
        all_rows = []
        for rank, size in enumerate(sizes):
            rank_rows = tensor.contiguous() if rank == self.rank else tensor.new_empty((size, *tensor.shape[1:]))
            if size:
                with self._collective():
                    dist.broadcast(rank_rows, rank)
            all_rows.append(rank_rows)
        return torch.cat(all_rows)

    def all_gather_json(self, values: Sequence[Any]) -> list[Any]:
        """JSON values of all processes in rank order; the same list on every process."""
        if self.world_size == 1:
            return list(values)
        encoded = bytearray(json.dumps(list(values)).encode())
        sizes = [
            round(size)
            for size in self.all_reduce_sum([len(encoded) * (rank == self.rank) for rank in range(self.world_size)])
        ]
        all_bytes = self.all_gather(torch.frombuffer(encoded, dtype=torch.uint8).to(self.device), sizes)
        split_bytes = torch.split(all_bytes.cpu(), sizes)
        return [value for rank_bytes in split_bytes for value in json.loads(bytes(rank_bytes.tolist()))]

    @contextmanager
    def run_rank_zero_first(self) -> Iterator[None]:
        """Run a block on rank 0, then on the first process of every machine, then on the rest, with barriers between:
        what one process prepares (a dataset, a tokenizer) the others find on disk.

        There is no timeout. If the block fails on one process, it raises on all.
        """
        own_stage = 0 if self.is_rank_zero else 1 if self.local_rank == 0 else 2
        for stage in range(3):
            failed = True
            try:
                if stage == own_stage:
                    yield
                failed = False
            finally:
                any_failed = self._any_failed(failed)
            if any_failed:
                raise MeristemError(FAILED_TO_START)

    def compute_on_rank_zero(self, compute: Callable[[], T], *, all_cores: bool = False) -> T:
        """A JSON value that rank 0 computes, on every process; there is no timeout.

        With `all_cores` rank 0 uses those of the processes that wait for it, too.
        """
        if self.world_size == 1:
            return compute()
        values, threads, failed = list[T](), torch.get_num_threads(), True
        try:
            if self.is_rank_zero:
                if all_cores:
                    torch.set_num_threads(min(threads * self.world_size, os.cpu_count() or 1))
                values = [compute()]
            failed = False
        finally:
            torch.set_num_threads(threads)
            any_failed = self._any_failed(failed)
        if any_failed:
            raise MeristemError("another process of this run failed; see its messages above")
        return cast(T, self.all_gather_json(values)[0])

    def _any_failed(self, failed: bool) -> bool:
        if self.world_size == 1:
            return failed
        flag = torch.tensor(int(failed))
        with self._collective():
            dist.all_reduce(flag, group=self.untimed_group)
        return bool(flag)

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """Context of a collective: if it fails, another process is gone. (gloo raises plain RuntimeErrors.)"""
        try:
            yield
        except RuntimeError as error:
            raise self.process_lost() from error

    @contextmanager
    def collective_timeout(self) -> Iterator[None]:
        """Context of a pass with collectives inside: if it fails after their timeout, another process hangs."""
        start = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if time.monotonic() - start >= self.timeout_seconds:
                raise self.process_lost() from error
            raise

    def process_lost(self) -> ProcessLostError:
        """The error of a process that cannot continue without another one."""
        return ProcessLostError(f"process {self.rank}: another process of this run is gone")

    def is_process_lost(self) -> bool:
        """Whether the connection to another process is closed: receiving from it fails at once, while receiving from
        one that lives, and has nothing to send, waits."""
        start = time.monotonic()

        def seconds_until_failure(peer: int) -> float:
            try:
                receive = dist.irecv(torch.empty(1), peer, group=self.untimed_group)
                if receive is not None:
                    receive.wait(timedelta(seconds=PROBE_SECONDS))
            except RuntimeError:
                return time.monotonic() - start
            return math.inf

        peers = [rank for rank in range(self.world_size) if rank != self.rank]
        with ThreadPoolExecutor(len(peers)) as threads:  # at once: one that waits too long closes all connections
            return min(threads.map(seconds_until_failure, peers)) < PROBE_SECONDS / 2


SINGLE_PROCESS = DistributedContext()
