"""File locks between processes (flock), released by the system when a process is killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.utils.system_errors import name_file_in_errors

_held_fds: set[int] = set()


def _close_held_fds() -> None:
    for fd in _held_fds:
        os.close(fd)
    _held_fds.clear()


# A forked worker shares its parent's locks, and would hold them for as long as it outlives a killed parent.
os.register_at_fork(after_in_child=_close_held_fds)


@contextmanager
def hold_lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock file, with this process id written into it; yields False if another holds it and `wait` is False."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    pid = os.getpid()
    _held_fds.add(fd)
    try:
        acquired = _try_lock(fd, wait)
        if acquired:
            with name_file_in_errors(path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{pid}\n".encode(), 0)
        yield acquired
    finally:
        if os.getpid() == pid:  # a forked child has already closed it
            _held_fds.discard(fd)
            os.close(fd)


def lock_holder(path: Path) -> str:
    """Phrase for the process that holds a lock file."""
    try:
        pid = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        pid = ""
    return f"process {pid}" if pid.isdigit() else "another process"


def _try_lock(fd: int, wait: bool) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
