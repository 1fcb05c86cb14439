"""Launching several processes on this machine with torchrun's elastic agent, which restarts them after a crash."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from meristem.config.errors import MeristemError

EXIT_CODE_FILE_VAR = "MERISTEM_VERDICT"
"""Environment variable with the path of a file: a process that has reported its error writes its exit code there."""
MAX_RESTARTS = 3
MONITOR_INTERVAL = 0.5
"""Seconds between checks of the processes."""


_command_line: list[str] = []


@contextmanager
def keep_command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Keep the arguments of the `meristem` command while it runs, so that more processes can be started with them."""
    _command_line[:] = arguments
    try:
        yield
    finally:
        _command_line.clear()


def can_relaunch() -> bool:
    """Whether this program is the `meristem` command, which other processes can run again, not a script or notebook."""
    return bool(_command_line) and not is_launched()


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch(arguments: Sequence[str], processes: int, *, threads: int | None = None) -> int:
    """Run `meristem ARGUMENTS` in this many processes; returns the exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence_agent()
    if processes < 1:
        raise MeristemError(f"--processes {processes}: at least one is needed")
    threads_per_process = threads or max(1, (os.cpu_count() or 1) // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_process))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides a DDP warning about find_unused_parameters
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # a separate rendezvous store for every restart
    with tempfile.TemporaryDirectory() as folder:
        exit_code_file = Path(folder) / "verdict"
        os.environ[EXIT_CODE_FILE_VAR] = str(exit_code_file)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=Path(folder).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=MAX_RESTARTS,
            monitor_interval=MONITOR_INTERVAL,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "meristem", *arguments)
        except ChildFailedError as error:
            if exit_code_file.is_file():
                return int(exit_code_file.read_text())
            # a process that died by a signal is the cause; the others ended because it was gone
            rank, failure = min(error.failures.items(), key=lambda item: (item[1].exitcode >= 0, item[1].timestamp))
            cause = f"signal {-failure.exitcode}" if failure.exitcode < 0 else f"exit code {failure.exitcode}"
            raise MeristemError(
                f"process {rank} died ({cause}), and {MAX_RESTARTS} restarts did not help; "
                "checkpoints are kept, and the same command resumes from the last one"
            ) from None
        except SignalException as error:
            return 128 + int(error.sigval)
        return int(exit_code_file.read_text()) if exit_code_file.is_file() else 0


def _silence_agent() -> None:
    """Hide the messages of torch's agent: failures and signals are reported here, in one sentence."""
    agent_logger = logging.getLogger("torch.distributed.elastic")  # its children have levels of their own
    agent_logger.addHandler(logging.NullHandler())
    agent_logger.propagate = False


def report_exit_code(code: int) -> int:
    """Exit code for a process that has reported its error; in a launch it goes into a file, so that none restarts."""
    exit_code_file = os.environ.get(EXIT_CODE_FILE_VAR)
    if exit_code_file is None or not is_launched():
        return code
    Path(exit_code_file).write_text(str(code))
    return 0


def is_launch_ended() -> bool:
    """Whether another process of this launch has already reported an error."""
    exit_code_file = os.environ.get(EXIT_CODE_FILE_VAR)
    return exit_code_file is not None and is_launched() and Path(exit_code_file).is_file()


def is_rank_zero_process() -> bool:
    """Whether this process is rank 0, the only one that prints."""
    return os.environ.get("RANK", "0") == "0"


def is_lost_process_error(error: Exception) -> bool:
    """Whether the error is that another process was lost; does not import torch, which may not be loaded."""
    module = sys.modules.get("meristem.distributed.process_group")
    return module is not None and isinstance(error, module.ProcessLostError)
