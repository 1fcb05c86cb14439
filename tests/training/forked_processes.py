"""Forked processes for tests: joined by gloo on this machine, each running the same function."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path

MAX_SECONDS = 120.0


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def run_processes(number: int, work: Callable[[int], None], folder: Path) -> None:
    """Run `work(rank)` in `number` processes; raises with the traceback of a process that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    children = {os.fork() or _child(rank, number, port, work, folder): rank for rank in range(number)}
    start_time, codes = time.monotonic(), dict[int, int]()
    while len(codes) < number:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            codes[children[pid]] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() - start_time > MAX_SECONDS:
            for child in children:
                os.kill(child, 9)
            raise AssertionError(f"{number} processes hang: {_error_texts(folder)}")
        else:
            time.sleep(0.02)
    assert set(codes.values()) == {0}, f"exit codes {codes}: {_error_texts(folder)}"


def bytes_sent() -> int:
    """Bytes that the sockets of this process have sent and others have acknowledged, as counted by the kernel."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            connection = socket.socket(fileno=os.dup(int(entry.name)))
        except OSError:
            continue  # not a socket, or closed meanwhile
        with connection:
            if connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6):
                tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += int.from_bytes(tcp_info[120:128], "little")  # tcpi_bytes_acked
    return total


def _child(rank: int, number: int, port: int, work: Callable[[int], None], folder: Path) -> int:
    """Run the work of a forked child; never returns, since the code around the fork belongs to the parent."""
    variables = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": number,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in variables.items()} | {"GLOO_SOCKET_IFNAME": "lo"})
    try:
        work(rank)
        os._exit(0)
    except BaseException:
        (folder / f"error-{rank}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)


def _error_texts(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("error-*.txt")))
