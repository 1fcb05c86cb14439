"""One process of several that waits for the others: Ctrl-C, a failure elsewhere and a timeout end the wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from forked_processes import free_port

from meristem.distributed.initialization import init_distributed
from meristem.distributed.process_group import FAILED_TO_START
from meristem.training import launch
from meristem.utils import interrupts

WAITING = 1.0
"""Seconds after which a child certainly waits in torch's rendezvous; an interrupt before that would also pass."""
PATIENCE = 60.0


def test_ctrl_c_ends_the_wait_of_rank_zero_for_the_others() -> None:
    assert interrupted(lambda: connect(0, free_port())) == "KeyboardInterrupt"


def test_ctrl_c_ends_the_wait_for_rank_zero() -> None:
    assert interrupted(lambda: connect(1, free_port())) == "KeyboardInterrupt"


def test_ctrl_c_ends_the_wait_for_a_process_that_stopped_after_it_was_counted() -> None:
    port = free_port()

    def connect_beside_a_stopped_process() -> None:
        store = dist.TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        try:
            connect(1, port)
        finally:
            del store

    assert interrupted(connect_beside_a_stopped_process) == "KeyboardInterrupt"


def test_a_failure_of_another_process_ends_the_wait(tmp_path: Path) -> None:
    verdict = tmp_path / "verdict"

    def connect_in_a_launch() -> None:
        os.environ.update({launch.EXIT_CODE_FILE_VAR: str(verdict), "TORCHELASTIC_RUN_ID": "run"})
        connect(0, free_port())

    error = ended_child(connect_in_a_launch, lambda pid: verdict.write_text("1"))
    assert error == f"MeristemError: {FAILED_TO_START}"


def test_a_timeout_is_no_fault_of_the_package() -> None:
    error = ended_child(lambda: connect(0, free_port(), timeout_seconds=2.0), lambda pid: None)
    assert error.startswith("ProcessLostError: process 0: no connection to the other processes of this run")


def connect(rank: int, port: int, timeout_seconds: float = 600.0) -> None:
    """Join a run of two processes."""
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    interrupts.install_handler()
    with init_distributed(torch.device("cpu"), timeout_seconds=timeout_seconds, is_launch_ended=launch.is_launch_ended):
        pass


def interrupted(work: Callable[[], None]) -> str:
    """How a child that runs `work` ends after one SIGINT."""
    return ended_child(work, lambda pid: os.kill(pid, signal.SIGINT))


def ended_child(work: Callable[[], None], action: Callable[[int], object]) -> str:
    """The error with which a forked child ends after `act`, which is called once it waits."""
    read_end, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            error = "none"
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__
        os.write(write, error.encode())
        os._exit(0)
    os.close(write)
    time.sleep(WAITING)
    action(pid)
    deadline = time.monotonic() + PATIENCE
    try:
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            assert time.monotonic() < deadline, "the child still waits"
            time.sleep(0.02)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    with os.fdopen(read_end, encoding="utf-8") as errors:
        return errors.read()
