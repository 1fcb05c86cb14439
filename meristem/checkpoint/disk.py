"""Disk operations (fsync, atomic writes, renames, SHA-256 digests): everything in a save that can fail on disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meristem.utils.system_errors import name_file_in_errors

CHUNK = 8 << 20  # bytes hashed and written at a time: large enough for full speed, small enough to stay in cache

BytesLike = bytes | memoryview


@dataclass(frozen=True)
class Digest:
    """Size in bytes and SHA-256 of a file."""

    size: int
    sha256: str


def make_folder(path: Path) -> None:
    """Create a folder that must not exist yet."""
    path.mkdir()


def create(path: Path) -> int:
    """Open a new file for writing; raises if it exists."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def write(fd: int, data: BytesLike) -> None:
    """Write all of the data, in several system calls if needed."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(fd, remaining) :]


def sync(fd: int) -> None:
    """Flush a file to the disk (fsync)."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync only reaches the drive's cache there
    else:
        os.fsync(fd)


def close(fd: int) -> None:
    """Close a file; some network disks report a failed write only here."""
    os.close(fd)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to the disk (fsync)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        with name_file_in_errors(path):
            os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot sync a folder at all
            raise
    finally:
        os.close(fd)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder atomically; an existing file of that name is replaced."""
    source.rename(target)


def unlink(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    path.rmdir()


def write_file(path: Path, chunks: Iterable[BytesLike]) -> Digest:
    """Write and fsync a new file; returns the digest of the bytes written."""
    hasher, size = hashlib.sha256(), 0
    fd = create(path)
    with name_file_in_errors(path):
        try:
            for chunk in chunks:
                hasher.update(chunk)
                write(fd, chunk)
                size += len(chunk)
            sync(fd)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                close(fd)
            raise
        close(fd)
    return Digest(size, hasher.hexdigest())


def atomic_write(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Write a file atomically: readers see the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        unlink(temporary)
    try:
        write_file(temporary, chunks)
        rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            unlink(temporary)
        raise
    sync_folder(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a file or a folder with its content; of a symbolic link only the link."""
    if path.is_symlink() or not path.is_dir():
        unlink(path)
        return
    for entry in sorted(path.iterdir()):
        remove_tree(entry)
    remove_folder(path)


def read_chunks(path: Path) -> Iterator[memoryview]:
    """The bytes of a regular file in chunks; each chunk is only valid until the next one."""
    with open_regular(path) as fd:
        buffer = memoryview(bytearray(min(CHUNK, os.fstat(fd).st_size + 1)))
        while count := os.readv(fd, [buffer]):
            yield buffer[:count]


def read_back_digest(path: Path) -> Digest:
    """Digest of a file as read from the disk, bypassing the page cache where possible."""
    if sys.platform == "linux":
        with open_regular(path) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return digest(path)


def digest(path: Path) -> Digest:
    """Size and SHA-256 of a file."""
    hasher, size = hashlib.sha256(), 0
    for chunk in read_chunks(path):
        hasher.update(chunk)
        size += len(chunk)
    return Digest(size, hasher.hexdigest())


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """Open a regular file for reading; raises for a link, pipe or device, without blocking."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield fd
    finally:
        os.close(fd)
