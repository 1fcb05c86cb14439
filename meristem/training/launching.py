"""One command, several processes on this machine: torchrun's agent starts them, and again after one has died."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from meristem.errors import MeristemError

VERDICT = "MERISTEM_VERDICT"
"""Names a file that ends a launch: whoever has said why it cannot go on writes its exit code there."""
RESTARTS = 3
WATCH = 0.5
"""Seconds between two looks at the processes."""


def launched() -> bool:
    """Whether this process is one of several that were started together."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch(arguments: Sequence[str], processes: int, *, threads: int | None = None) -> int:
    """Run `meristem ARGUMENTS` in so many processes; the exit code of the whole."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what happens is said here and there
    if processes < 1:
        raise MeristemError(f"--processes {processes}: at least one is needed")
    each = threads or max(1, (os.cpu_count() or 1) // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(each))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP warns of a search that only some recipes need
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # a meeting place of its own for every start
    with tempfile.TemporaryDirectory() as folder:
        verdict = Path(folder) / "verdict"
        os.environ[VERDICT] = str(verdict)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=Path(folder).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=RESTARTS,
            monitor_interval=WATCH,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "meristem", *arguments)
        except ChildFailedError as error:
            if verdict.is_file():
                return int(verdict.read_text())
            rank, failure = error.get_first_failure()
            how = f"signal {-failure.exitcode}" if failure.exitcode < 0 else f"exit code {failure.exitcode}"
            raise MeristemError(
                f"process {rank} died ({how}), and {RESTARTS} new starts did not help; "
                "what was saved is kept, and the same command goes on from there"
            ) from None
        except SignalException as error:
            return 128 + int(error.sigval)
        return int(verdict.read_text()) if verdict.is_file() else 0


def judged(code: int) -> int:
    """The exit code of a process that has said why it ends: none of several is to be started again for that."""
    place = os.environ.get(VERDICT)
    if place is None or not launched():
        return code
    Path(place).write_text(str(code))
    return 0


def condemned() -> bool:
    """Whether another process of this launch has already said why it cannot go on."""
    place = os.environ.get(VERDICT)
    return place is not None and launched() and Path(place).is_file()


def speaks() -> bool:
    """Whether this process is the one of its team whose words a person reads."""
    return os.environ.get("RANK", "0") == "0"


def lost(error: Exception) -> bool:
    """Whether a process ends because another one is gone; without asking torch, which may never have been needed."""
    module = sys.modules.get("meristem.learning.team")
    return module is not None and isinstance(error, module.Lost)
