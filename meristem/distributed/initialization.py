"""Initialization of the process group: from a launcher's environment variables, or a group that exists already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from meristem.config.errors import MeristemError
from meristem.distributed.process_group import FAILED_TO_START, DistributedContext, ProcessLostError
from meristem.utils.interrupts import run_interruptibly

UNTIMED = timedelta(days=30)


@contextmanager
def init_distributed(
    device: torch.device, *, timeout_seconds: float, is_launch_ended: Callable[[], bool] = lambda: False
) -> Iterator[DistributedContext]:
    """Initialize the process group from torchrun's environment variables; a single process without them.

    A group that this process already belongs to, such as Ray Train's, is used and stays initialized at the end.
    While it waits for the other processes, Ctrl-C raises, and so does another one's failure (`is_launch_ended`).
    """
    if dist.is_initialized():
        with _join_existing_group(device, timeout_seconds) as distributed:
            yield distributed
        return
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield DistributedContext(device=device)
        return
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    device = _local_device(device, local_rank)

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
        with _name_lost_process(distributed):
            yield distributed
    finally:
        dist.destroy_process_group()


@contextmanager
def _join_existing_group(device: torch.device, timeout_seconds: float) -> Iterator[DistributedContext]:
    """The context of this process in the group that it already belongs to."""
    if dist.get_world_size() == 1:
        yield DistributedContext(device=device)
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = _local_device(device, local_rank)
    untimed_group = dist.new_group(backend="gloo", timeout=UNTIMED)
    distributed = DistributedContext(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        local_rank=local_rank,
        device=device,
        untimed_group=untimed_group,
        timeout_seconds=timeout_seconds,
    )
    try:
        with _name_lost_process(distributed):
            yield distributed
    finally:
        dist.destroy_process_group(untimed_group)


def _local_device(device: torch.device, local_rank: int) -> torch.device:
    """The device of this process: each of a machine has its own accelerator."""
    if device.type == "cpu":
        return device
    device = torch.device(device.type, local_rank % max(1, torch.accelerator.device_count()))
    torch.accelerator.set_device_index(device.index)
    return device


@contextmanager
def _name_lost_process(distributed: DistributedContext) -> Iterator[None]:
    """Context in which the error of a lost connection says so."""
    try:
        yield
    except RuntimeError as error:
        # inside DDP and FSDP, gloo raises the same type as a failed computation: the connections tell them apart
        if isinstance(error, dist.DistError) or distributed.is_process_lost():
            raise distributed.process_lost() from error
        raise


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
    untimed_group: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=UNTIMED)
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
    """Whether this process was started as one of several, or belongs to a process group of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 or (dist.is_initialized() and dist.get_world_size() > 1)


def is_rank_zero() -> bool:
    """Whether this is the only process or rank 0, the one that logs."""
    return dist.get_rank() == 0 if dist.is_initialized() else os.environ.get("RANK", "0") == "0"


def is_restarted() -> bool:
    """Whether torchrun has restarted this process after another one died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
