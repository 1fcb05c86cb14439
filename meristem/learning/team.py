"""The processes that train one run together: which of them this is, and the few things they tell each other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meristem.errors import MeristemError

CPU = torch.device("cpu")
BROKEN = ("gloo", "Gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
"""How torch says that another process is gone."""


class Lost(MeristemError):
    """Another process of the team is gone: whoever started them may start all of them again."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """One process of `size`; alone, unless torchrun started several."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Which process of its machine it is."""
    device: torch.device = CPU
    patient: dist.ProcessGroup | None = None
    """The same processes, who wait for each other without a limit."""

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def share(self, number: int) -> range:
        """Which of so many consecutive things are this process's; the shares of all are consecutive too."""
        return range(number * self.rank // self.size, number * (self.rank + 1) // self.size)

    def shares(self, number: int) -> list[int]:
        """How many of so many things each process has."""
        return [number * (rank + 1) // self.size - number * rank // self.size for rank in range(self.size)]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the processes, in double precision."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def any(self, *flags: bool) -> list[bool]:
        """For each flag whether a process raised it."""
        return [total > 0 for total in self.sum([float(flag) for flag in flags])]

    def told(self, number: int) -> int:
        """The number that the first process says, whatever the others think."""
        if self.size == 1:
            return number
        said = torch.tensor(number, dtype=torch.int64, device=self.device)
        dist.broadcast(said, 0)
        return int(said)

    def gathered(self, mine: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of all processes, one after the other; each knows how many every other has."""
        if self.size == 1:
            return mine
        parts = []
        for rank, size in enumerate(sizes):
            part = mine.contiguous() if rank == self.rank else mine.new_empty((size, *mine.shape[1:]))
            if size:
                dist.broadcast(part, rank)
            parts.append(part)
        return torch.cat(parts)

    def all_gather_json(self, mine: Sequence[Any]) -> list[Any]:
        """Plain JSON values of all processes, in the order of their ranks; every process gets the same list."""
        if self.size == 1:
            return list(mine)
        encoded = bytearray(json.dumps(list(mine)).encode())
        sizes = [round(size) for size in self.sum([len(encoded) * (rank == self.rank) for rank in range(self.size)])]
        whole = self.gathered(torch.frombuffer(encoded, dtype=torch.uint8).to(self.device), sizes)
        parts = torch.split(whole.cpu(), sizes)
        return [one for part in parts for one in json.loads(bytes(part.tolist()))]

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process goes ahead, then the first of every machine, then the rest: what one made others find.

        However long it takes; and where one fails, the others end with it.
        """
        turn = 0 if self.first else 1 if self.local == 0 else 2
        for now in range(3):
            failed = True
            try:
                if now == turn:
                    yield
                failed = False
            finally:
                elsewhere = self._anywhere(failed)
            if elsewhere:
                raise MeristemError("another process of this run could not begin; it says why")

    def _anywhere(self, failed: bool) -> bool:
        if self.size == 1:
            return failed
        flag = torch.tensor(int(failed))
        dist.all_reduce(flag, group=self.patient)
        return bool(flag)


ALONE = Team()


@contextmanager
def joined(device: torch.device, *, seconds: float) -> Iterator[Team]:
    """The team that the environment of this process tells of, as torchrun sets it; alone where it tells of none."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team(device=device)
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cpu":
        device = torch.device(device.type, local % max(1, torch.accelerator.device_count()))
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=_meeting_place(rank, size, seconds),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=seconds),
        device_id=device if device.type == "cuda" else None,
    )
    try:
        patient = dist.new_group(backend="gloo", timeout=timedelta(days=30))
        yield Team(rank=rank, size=size, local=local, device=device, patient=patient)
    except RuntimeError as error:
        if any(sign in str(error) for sign in BROKEN):
            raise Lost(f"process {rank}: another process of this run is gone") from error
        raise
    finally:
        dist.destroy_process_group()


def _meeting_place(rank: int, size: int, seconds: float) -> Any:
    """Where processes find each other; after a new start under names of its own, for torchrun keeps the old ones."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    place = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it without saying so
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        size,
        is_master=rank == 0 and not agent,
        timeout=timedelta(seconds=seconds),
        multi_tenant=True,
    )
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"start-{start}", place)  # type: ignore[attr-defined]


def several() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_rank_zero() -> bool:
    """Whether this process is alone or the first of several: the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def restarted() -> bool:
    """Whether torchrun has started this process again after another one died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
