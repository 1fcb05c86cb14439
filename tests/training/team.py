"""Real processes for tests: forked, joined by gloo on this machine, each running the same function."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path

PATIENCE = 120.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def together(number: int, work: Callable[[int], None], folder: Path) -> None:
    """Run `work(rank)` in so many processes; what one of them raised is raised here."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    children = {os.fork() or _child(rank, number, port, work, folder): rank for rank in range(number)}
    begun, codes = time.monotonic(), dict[int, int]()
    while len(codes) < number:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            codes[children[pid]] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() - begun > PATIENCE:
            for one in children:
                os.kill(one, 9)
            raise AssertionError(f"{number} processes hang: {_said(folder)}")
        else:
            time.sleep(0.02)
    assert set(codes.values()) == {0}, f"exit codes {codes}: {_said(folder)}"


def sent() -> int:
    """Bytes that the sockets of this process have sent and others have received, by the kernel's own count."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            one = socket.socket(fileno=os.dup(int(entry.name)))
        except OSError:
            continue  # no socket, or gone meanwhile
        with one:
            if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += int.from_bytes(told[120:128], "little")  # tcpi_bytes_acked
    return total


def _child(rank: int, number: int, port: int, work: Callable[[int], None], folder: Path) -> int:
    """Never returns: what surrounds the fork belongs to the parent."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in told.items()} | {"GLOO_SOCKET_IFNAME": "lo"})
    try:
        work(rank)
        os._exit(0)
    except BaseException:
        (folder / f"error-{rank}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)


def _said(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("error-*.txt")))
