"""Fault injection into system calls of a child process: seccomp user notifications (Linux 5.19+, x86-64).

The kernel stops the child at every file-changing call and notifies the parent, which lets the call continue or returns
an error number. So a fault hits any code that writes: Python, torch, safetensors, matplotlib, TensorBoard's thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = {
    1: "write", 18: "write", 20: "write", 296: "write",  # write, pwrite64, writev, pwritev
    74: "fsync", 75: "fsync",  # fsync, fdatasync
    2: "open", 85: "open", 257: "open",  # open, creat, openat
    82: "directory", 264: "directory", 316: "directory",  # rename, renameat, renameat2
    83: "directory", 258: "directory",  # mkdir, mkdirat
    84: "directory", 87: "directory", 263: "directory",  # rmdir, unlink, unlinkat
    77: "write", 285: "write",  # ftruncate, fallocate
}  # fmt: skip
"""Number of a call on x86-64 → what it does to a file; truncation is a kind of writing."""
BY_DESCRIPTOR = ("write", "fsync")
CREATING_DIRECTORY, OPENAT, BELOW = (83, 258), 257, (257, 258, 263, 264, 316)
"""Calls that make a folder; openat; calls whose first argument is a folder's descriptor."""
TRUNCATE = 77
NEW_LISTENER, SET_MODE_FILTER, SECCOMP, PR_SET_NO_NEW_PRIVS = 8, 1, 317, 38
WAIT_KILLABLE = 32
"""While the parent decides, only a deadly signal ends the call: otherwise a rename or mkdir would fail with EINTR, as
it never does on a local disk, and Python does not repeat those."""
ALLOW, USER_NOTIF, CONTINUE = 0x7FFF0000, 0x7FC00000, 1
RECEIVE, SEND = 0xC0502100, 0xC0182101  # ioctls
AT_FDCWD = -100


def supported() -> bool:
    """Whether this machine supports it."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def install(channel: socket.socket) -> None:
    """In the child: have the kernel report its file-changing calls, and send the listener to the parent."""
    load_number = struct.pack("HBBI", 0x20, 0, 0, 0)
    checks = b"".join(
        struct.pack("HBBI", 0x15, len(CALLS) - index, 0, number) for index, number in enumerate(sorted(CALLS))
    )
    returns = struct.pack("HBBI", 0x06, 0, 0, ALLOW) + struct.pack("HBBI", 0x06, 0, 0, USER_NOTIF)
    program = ctypes.create_string_buffer(load_number + checks + returns)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(CALLS) + 3, ctypes.addressof(program)))
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener = system.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE, header)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(channel, [b"listener"], [listener])
    os.close(listener)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The `at`-th call of a kind fails; with `lasting` all later ones fail too, as on a full disk."""

    kind: str
    at: int
    error: int
    lasting: bool = False


@dataclass(kw_only=True)
class Supervisor:
    """Handles a child's calls: counts those below the watched folders, and injects faults."""

    listener: int
    watched: Sequence[Path]
    fault: Fault | None = None
    on_call: Callable[[int], None] = lambda number: None
    """Called with the number of every counted call, before it is made."""
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    """The calls that were made to fail, with their paths."""

    def answer(self, seconds: float) -> bool:
        """Wait for calls and handle them; False when no process is left."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        events = poll.poll(seconds * 1000)
        if any(event & select.POLLIN for _, event in events):
            self._answer_one()
            return True
        return not any(event & (select.POLLHUP | select.POLLERR) for _, event in events)

    def answer_pending(self) -> None:
        """Answer the calls that are waiting: a signal sent now meets none of them (see WAIT_KILLABLE)."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        while any(event & select.POLLIN for _, event in poll.poll(0)):
            self._answer_one()

    def _answer_one(self) -> None:
        request = bytearray(80)
        try:
            fcntl.ioctl(self.listener, RECEIVE, request)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the process was killed or signalled meanwhile
                return
            raise
        identity, process, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", bytes(request))
        code = self._verdict(process, number, arguments)
        flags = 0 if code else CONTINUE
        response = bytearray(struct.pack("QqiI", identity, 0, -code, flags))
        try:
            fcntl.ioctl(self.listener, SEND, response)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _verdict(self, process: int, number: int, arguments: Sequence[int]) -> int:
        """The error number to return for a call; 0 lets it continue."""
        kind = CALLS[number]
        path = _path(process, number, arguments, kind)
        if path is None or not any(path.is_relative_to(watched_path) for watched_path in self.watched):
            return 0
        self.counts[kind] += 1
        self.counts["all"] += 1
        self.on_call(self.counts["all"])
        if self.fault is None or not self._hits(kind, number, arguments, path):
            return 0
        self.failed.append(f"{kind} {path}")
        return self.fault.error

    def _hits(self, kind: str, number: int, arguments: Sequence[int], path: Path) -> bool:
        fault = self.fault
        assert fault is not None
        if not fault.lasting:
            return kind == fault.kind and self.counts[kind] == fault.at
        if self.counts[fault.kind] < fault.at:
            return False
        if kind == "open":  # on a full disk, only opening a new file fails
            flags = arguments[2 if number == OPENAT else 1]
            return bool(flags & os.O_CREAT) and not path.exists()
        return (kind == "write" and number != TRUNCATE) or number in CREATING_DIRECTORY


def _path(process: int, number: int, arguments: Sequence[int], kind: str) -> Path | None:
    """The file of a call; None if its process has just ended."""
    try:
        if kind in BY_DESCRIPTOR:
            return Path(f"/proc/{process}/fd/{arguments[0]}").readlink()
        path_argument = 1 if number in BELOW else 0
        name = Path(_text(process, arguments[path_argument]))
        descriptor = ctypes.c_int(arguments[0] & 0xFFFFFFFF).value
        if name.is_absolute():
            return name
        proc_name = "cwd" if path_argument == 0 or descriptor == AT_FDCWD else f"fd/{descriptor}"
        return Path(f"/proc/{process}/{proc_name}").readlink() / name
    except OSError:
        return None


def _text(process: int, address: int) -> str:
    """A string in the memory of another process."""
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return os.fsdecode(memory.read(4096).partition(b"\0")[0])
