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
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.utils.interrupts import run_interruptibly

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


@contextmanager
def init_distributed(
    device: torch.device, *, timeout_seconds: float, is_launch_ended: Callable[[], bool] = lambda: False
) -> Iterator[DistributedContext]:
    """Initialize the process group from torchrun's environment variables; a single process without them.

    While it waits for the other processes, Ctrl-C raises, and so does another one's failure (`is_launch_ended`).
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield DistributedContext(device=device)
        return
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cpu":
        device = torch.device(device.type, local_rank % max(1, torch.accelerator.device_count()))
        torch.accelerator.set_device_index(device.index)

    def check_launch() -> None:
        if is_launch_ended():
            raise MeristemError(FAILED_TO_START)

    try:
        untimed_group = run_interruptibly(
            lambda: _init_process_group(device, rank, world_size, timeout_seconds), check_launch
        )
    except dist.DistError as error:
        message = f"process {rank}: no connection to the other processes of this run ({str(error).splitlines()[0]})"
        raise ProcessLostError(message) from error
    try:
        distributed = DistributedContext(
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            device=device,
            untimed_group=untimed_group,
            timeout_seconds=timeout_seconds,
        )
        try:
            yield distributed
        except RuntimeError as error:
            # inside DDP and FSDP, gloo raises the same type as a failed computation: the connections tell them apart
            if isinstance(error, dist.DistError) or distributed.is_process_lost():
                raise distributed.process_lost() from error
            raise
    finally:
        dist.destroy_process_group()


def _init_process_group(
    device: torch.device, rank: int, world_size: int, timeout_seconds: float
) -> dist.ProcessGroup | None:
    """Wait for all processes and connect them; returns the group without a timeout."""
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)  # a thread has its own current device
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=_rendezvous_store(rank, world_size, timeout_seconds),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_seconds),
        device_id=device if device.type == "cuda" else None,
    )
    untimed_group: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=timedelta(days=30))
    return untimed_group


def _rendezvous_store(rank: int, world_size: int, timeout_seconds: float) -> Any:
    """The rendezvous store; keys are prefixed with the restart count, since torchrun keeps those of earlier starts."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it without saying so
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size,
        is_master=rank == 0 and not agent,
        timeout=timedelta(seconds=timeout_seconds),
        multi_tenant=True,
    )
    restart_count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"start-{restart_count}", store)  # type: ignore[attr-defined]


def is_distributed() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_rank_zero() -> bool:
    """Whether this is the only process or rank 0, the one that logs."""
    return os.environ.get("RANK", "0") == "0"


def is_restarted() -> bool:
    """Whether torchrun has restarted this process after another one died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
