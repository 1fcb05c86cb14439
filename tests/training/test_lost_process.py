"""Another process of a run is gone: two real gloo processes, by what failed and by the state of the connections."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forked_processes import run_processes
from torch import nn
from torch.distributed.fsdp import fully_shard  # before processes are forked: it takes seconds

from meristem.distributed.initialization import init_distributed
from meristem.distributed.parallel import ParallelLearner
from meristem.distributed.process_group import DistributedContext, ProcessLostError

assert callable(fully_shard)
pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


class Network(nn.Module):
    """A learner of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.backbone = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of the outputs."""
        return self.model.backbone(rows).sum()  # type: ignore[no-any-return]  # nn.Module is untyped

    def explore(self) -> None:
        """What FSDP registers beside `forward`."""


def all_reduce(distributed: DistributedContext) -> None:
    distributed.all_reduce_sum([1.0])


def broadcast(distributed: DistributedContext) -> None:
    distributed.broadcast(3)


def all_gather(distributed: DistributedContext) -> None:
    distributed.all_gather(torch.ones(1, 2), [1, 1])


def run_in_turn(distributed: DistributedContext) -> None:
    with distributed.run_rank_zero_first():
        pass


def training_pass(distributed: DistributedContext, *, fsdp: bool = False) -> None:
    learner = ParallelLearner(Network(), distributed, fsdp=fsdp)
    for _ in range(100):  # the other one is gone after some of them
        learner.backward(learner(torch.ones(2, 4)))  # type: ignore[arg-type]  # a loss instead of an outcome


def sharded_pass(distributed: DistributedContext) -> None:
    training_pass(distributed, fsdp=True)


COLLECTIVES = [all_reduce, broadcast, all_gather, run_in_turn, training_pass, sharded_pass]


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda function: function.__name__)
def test_a_killed_process_is_noticed_wherever_the_other_waits(
    collective: Callable[[DistributedContext], None], tmp_path: Path
) -> None:
    def work(rank: int) -> None:
        if rank == 1 and os.fork() == 0:  # rank 1 is a grandchild, which is killed; its parent ends well
            start(rank)
        if rank == 0:
            with pytest.raises(ProcessLostError, match="process 0: another process of this run is gone"):
                start(rank)

    def start(rank: int) -> None:
        with init_distributed(CPU, timeout_seconds=30) as distributed:
            distributed.all_reduce_sum([1.0])
            if rank == 1:
                if collective in (training_pass, sharded_pass):
                    learner = ParallelLearner(Network(), distributed, fsdp=collective is sharded_pass)
                    learner.backward(learner(torch.ones(2, 4)))  # type: ignore[arg-type]
                os.kill(os.getpid(), signal.SIGKILL)
            collective(distributed)

    run_processes(2, work, tmp_path)


@pytest.mark.parametrize("message", ["an error of its own", "a layer called gloo: NCCL: Connection closed by peer"])
def test_an_error_of_its_own_is_no_lost_process_whatever_it_says(message: str, tmp_path: Path) -> None:
    def work(rank: int) -> None:
        if rank == 0:
            with (
                pytest.raises(RuntimeError, match=r"own|gloo") as raised,
                init_distributed(CPU, timeout_seconds=30) as distributed,
            ):
                distributed.all_reduce_sum([1.0])
                raise RuntimeError(message)
            assert not isinstance(raised.value, ProcessLostError)
            return
        with pytest.raises(ProcessLostError), init_distributed(CPU, timeout_seconds=30) as distributed:
            distributed.all_reduce_sum([1.0])
            distributed.all_reduce_sum([1.0])  # rank 0 never comes

    run_processes(2, work, tmp_path)


@pytest.mark.parametrize("collective", [all_reduce, training_pass], ids=lambda function: function.__name__)
def test_a_process_that_hangs_is_given_up_after_the_timeout(
    collective: Callable[[DistributedContext], None], tmp_path: Path
) -> None:
    given_up = tmp_path / "given-up"
    timeout = 5.0 if collective is training_pass else 2.0  # building DDP takes a second where the machine is busy

    def work(rank: int) -> None:
        if rank == 1:
            with init_distributed(CPU, timeout_seconds=timeout) as distributed:
                distributed.all_reduce_sum([1.0])
                if collective is training_pass:
                    ParallelLearner(Network(), distributed)
                while not given_up.exists():
                    time.sleep(0.05)
            return
        with init_distributed(CPU, timeout_seconds=timeout) as distributed:
            distributed.all_reduce_sum([1.0])
            with pytest.raises(ProcessLostError):
                collective(distributed)
            given_up.touch()  # before the group is destroyed, which may wait for the other process

    run_processes(2, work, tmp_path)
