"""`meristem` commands in processes forked from a parent with all imports done: starting takes milliseconds."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.interruptions.system_calls import Fault, Supervisor, install

HANG = float(os.environ.get("INTERRUPTIONS_HANG", "90"))
"""Seconds after which a command counts as hanging."""
PIPE = 1 << 20
"""Pipe capacity in bytes for the unread output of a command."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the processes of one command ended."""

    codes: tuple[int, ...]
    """Exit codes by rank; minus a signal's number where it killed the process."""
    output: tuple[str, ...]
    seconds: float
    counts: Mapping[str, int]
    """File-changing system calls of the first process, by kind."""
    failed: tuple[str, ...]
    """System calls that were made to fail."""

    @property
    def completed(self) -> bool:
        """Whether every process exited with 0."""
        return not any(self.codes)


@dataclass(kw_only=True)
class Command:
    """One `meristem` command line, run by one or several processes."""

    arguments: Sequence[str]
    folder: Path
    """Working folder, with cache and temporary files unless set elsewhere."""
    cache: Path
    processes: int = 1
    fault: Fault | None = None
    largest_file: int | None = None
    """Maximum file size in bytes (RLIMIT_FSIZE)."""
    on_call: Callable[[Command, int], None] = lambda command, number: None
    on_time: Callable[[Command, float], None] = lambda command, seconds: None
    """Called repeatedly with the seconds since the start."""
    pids: list[int] = field(default_factory=list)
    _left: set[int] = field(default_factory=set)
    _reads: list[int] = field(default_factory=list)

    def run(self) -> Outcome:
        """Start the command, handle its system calls, and wait for it to end."""
        start = time.monotonic()
        pipes = [_pipe() for _ in range(self.processes)]
        parent_socket, theirs = socket.socketpair()
        self._reads = [read_end for read_end, _ in pipes]
        port = _free_port()
        for rank in range(self.processes):
            self.pids.append(os.fork() or self._child(rank, port, pipes, theirs if rank == 0 else None))
        theirs.close()
        for _, write in pipes:
            os.close(write)
        self._left = set(self.pids)
        supervisor = self._supervisor(parent_socket)
        codes = self._wait(supervisor, start)
        os.close(supervisor.listener)
        output = tuple(_read_all(read_end) for read_end in self._reads)
        return Outcome(
            codes=tuple(codes[pid] for pid in self.pids),
            output=output,
            seconds=time.monotonic() - start,
            counts=dict(supervisor.counts),
            failed=tuple(supervisor.failed),
        )

    def send(self, number: int) -> None:
        """Send a signal to every remaining process."""
        for pid in self._left:
            os.kill(pid, number)

    def _supervisor(self, channel: socket.socket) -> Supervisor:
        with channel:
            _, descriptors, _, _ = socket.recv_fds(channel, 64, 1)
        if not descriptors:
            raise RuntimeError("a child could not have its system calls reported")
        return Supervisor(
            listener=descriptors[0],
            watched=[self.folder, self.cache],
            fault=self.fault,
            on_call=lambda number: self.on_call(self, number),
        )

    def _wait(self, supervisor: Supervisor, start_time: float) -> dict[int, int]:
        codes: dict[int, int] = {}
        while self._left:
            if not supervisor.answer(0.002):
                time.sleep(0.002)
            supervisor.answer_pending()
            self.on_time(self, time.monotonic() - start_time)
            for pid in list(self._left):
                finished_pid, status = os.waitpid(pid, os.WNOHANG)
                if finished_pid:
                    self._left.discard(pid)
                    codes[pid] = os.waitstatus_to_exitcode(status)
            if time.monotonic() - start_time > HANG:
                self._end_hanging()
        return codes

    def _end_hanging(self) -> None:
        """Dump the stack of every remaining process, kill it, and raise with the dumps."""
        self.send(signal.SIGUSR1)
        time.sleep(1.0)
        self.send(signal.SIGKILL)
        for pid in self._left:
            os.waitpid(pid, 0)
        outputs = "\n".join(
            f"process {rank}: {_read_all(read_end)[-3000:]}" for rank, read_end in enumerate(self._reads)
        )
        raise RuntimeError(f"a command hangs: meristem {' '.join(self.arguments)}\n{outputs}")

    def _child(self, rank: int, port: int, pipes: Sequence[tuple[int, int]], channel: socket.socket | None) -> int:
        """Run the command in the child; never returns to the parent's code."""
        code = 1
        try:
            os.dup2(pipes[rank][1], 1)
            os.dup2(pipes[rank][1], 2)
            for pipe in pipes:
                os.close(pipe[0])
                os.close(pipe[1])
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            faulthandler.register(signal.SIGUSR1, file=2)  # where a process hangs
            self._environment(rank, port)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, encoding="utf-8") for number in (1, 2))
            if self.largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, self.largest_file))
            if channel is not None:
                install(channel)
                channel.close()
            code = _meristem(self.arguments)
        except BaseException:  # a user would see the traceback, too
            traceback.print_exc()
        finally:
            os._exit(code)

    def _environment(self, rank: int, port: int) -> None:
        os.environ["MERISTEM_CACHE"] = str(self.cache)
        os.environ["TMPDIR"] = str(self.folder)
        os.environ["XDG_CONFIG_HOME"] = str(self.folder / "config")
        if self.processes > 1:
            values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.processes, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in values.items()})
            os.environ.update({"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})


def _meristem(arguments: Sequence[str]) -> int:
    """The exit code of a command line, run here."""
    from meristem.cli.app import main

    sys.argv = ["meristem", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _pipe() -> tuple[int, int]:
    """A pipe for a command's output: a file would be subject to the injected faults."""
    read_end, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE)
    return read_end, write


def _read_all(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    parts = []
    try:
        while part := os.read(descriptor, PIPE):
            parts.append(part)
    except BlockingIOError:  # a process that was left behind still holds it
        pass
    os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")
