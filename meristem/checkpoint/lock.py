"""Locks between processes that a killed one cannot leave behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.system_errors import naming_file

_held: set[int] = set()


def _let_go() -> None:
    for file in _held:
        os.close(file)
    _held.clear()


# A forked worker shares its parent's locks, and would keep them for as long as it outlives a killed parent.
os.register_at_fork(after_in_child=_let_go)


@contextmanager
def hold(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock at a path, writing our process number into it; False where another has it and we do not wait."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    owner = os.getpid()
    _held.add(file)
    try:
        mine = _take(file, wait)
        if mine:
            with naming_file(path):
                os.ftruncate(file, 0)
                os.pwrite(file, f"{owner}\n".encode(), 0)
        yield mine
    finally:
        if os.getpid() == owner:  # a forked child has let go of it already
            _held.discard(file)
            os.close(file)


def holder(path: Path) -> str:
    """Who holds the lock at a path, for a message."""
    try:
        number = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        number = ""
    return f"process {number}" if number.isdigit() else "another process"


def _take(file: int, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
